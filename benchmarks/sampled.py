"""Where the time of a flush and of a bulk insert goes: one process, whose stack is looked at twice a millisecond.

``python -m benchmarks.sampled URL ROWS TIMES`` prints JSON: operation → part → µs a row. The library is the one on
``PYTHONPATH``, so that releases can be compared.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from types import FrameType
from typing import Any

from sqlalchemy import BigInteger, Integer, String, create_engine, delete
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_public_id import NanoId, PublicIdMixin, bulk

_INTERVAL = 0.0005
_DRIVERS = ("sqlite3", "psycopg", "pymysql")
_CALLS = {"do_execute", "do_executemany", "do_execute_no_params", "fetchall", "fetchone", "_fetchall_impl"}
"""Functions of SQLAlchemy that call the driver, most of which is written in C and has no frame of its own."""


class Base(DeclarativeBase):
    """Two models of one table."""


class Sampled(PublicIdMixin, Base):
    """With the library."""

    __tablename__ = "sampled"
    name: Mapped[str] = mapped_column(String(50))


class ByHand(Base):
    """Without the library, ids made beforehand."""

    __tablename__ = "sampled_by_hand"
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    public_id: Mapped[str] = mapped_column(String(12), unique=True)
    name: Mapped[str] = mapped_column(String(50))


def main(url: str, rows: int, times: int) -> None:
    """Print what each operation takes."""
    engine = create_engine(url)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    flush: Callable[[Session, list[Any]], None] = _flush
    operations = {"flush": (Sampled, flush), "bulk.insert()": (Sampled, bulk.insert), "by hand": (ByHand, flush)}
    try:
        taken: dict[str, list[Counter[str]]] = {name: [] for name in operations}
        for at in range(times + 1):
            for name, (model, insert) in operations.items():
                sample = _sampled(engine, model, insert, rows)
                if at:  # the first round compiles statements
                    taken[name].append(sample)
    finally:
        Base.metadata.drop_all(engine)
    parts = {name: sum(samples, Counter[str]()) for name, samples in taken.items()}
    per_row = 1e6 / (rows * times)
    result = {name: {part: round(spent * per_row, 2) for part, spent in one.items()} for name, one in parts.items()}
    print(json.dumps(result))


def _flush(session: Session, objects: list[Any]) -> None:
    session.add_all(objects)
    session.flush()


def _sampled(engine: Any, model: Any, insert: Callable[[Session, list[Any]], None], rows: int) -> Counter[str]:
    objects = [model(name=f"name {number}") for number in range(rows)]
    if model is ByHand:
        for each, public_id in zip(objects, NanoId().generate_many(rows), strict=True):
            each.public_id = public_id
    with Session(engine) as session:
        session.execute(delete(model))
        with _sampling() as spent:
            insert(session, objects)
        assert len({each.id for each in objects} & {None}) == 0
    return spent


@contextmanager
def _sampling() -> Any:
    """Count the seconds of each part while the block runs."""
    spent: Counter[str] = Counter()
    last = time.perf_counter()

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.perf_counter()
        # a signal that arrives in a function of C is handled after it: the time since the last one belongs to it
        spent[_part(frame)] += now - last
        last = now

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _INTERVAL, _INTERVAL)
    try:
        yield spent
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        look(0, None)
        signal.signal(signal.SIGALRM, before)


def _part(frame: FrameType | None) -> str:
    """Return whose function the innermost frame of one of the packages is."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_DRIVERS) or frame.f_code.co_name in _CALLS:
            return "driver and database"
        if module.startswith("sqlalchemy_public_id"):
            return "this library"
        if module.startswith("sqlalchemy.orm"):
            return "SQLAlchemy's unit of work"
        if module.startswith("sqlalchemy"):
            return "SQLAlchemy's statements"
        frame = frame.f_back
    return "SQLAlchemy's unit of work"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
