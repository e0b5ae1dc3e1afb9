"""A flush of new objects, and what others take for the same rows: other keys, other packages, other ways.

Each subject ends with rows in the table, and with an id of each row that may be shown. Ids made of keys by sqids and
hashids are made within the time that is measured; what they save at a write, they pay at each read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from sqlalchemy import Engine, MetaData, Table, exists, select
from sqlalchemy.orm import Session

from benchmarks.databases import ALL, Bench
from benchmarks.measure import Comparison, Subject, together
from benchmarks.models import User
from benchmarks.rival_models import RIVALS, Rival, fast, metadatas

__all__ = ["run"]

_OURS = "PublicIdMixin"
_AT_ONCE = {1: 100, 10: 20}
"""Objects in a flush, and flushes in a sample; other sizes are flushed once."""
_GOALS = {("sqlite", "default= with fastnanoid"): 0.90}
_serial = count()


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the flush of 1, 10 and 1 000 objects, or of ``--size``, µs a row."""
    sizes = bench.sizes or (1, 10, bench.times(1_000, 200))
    for database in bench.on(*ALL):
        with database.engines() as (guarded, plain):
            for size in sizes:
                flushes = bench.times(_AT_ONCE.get(size, 1), 1)
                subjects = {_OURS: _flushed(guarded, Rival(User), size, flushes)}
                subjects |= {name: _flushed(plain, rival, size, flushes) for name, rival in RIVALS.items()}
                taken = together(subjects, bench.times(20 if size <= 1_000 else 5, 3))
                rows = size * flushes
                for name in RIVALS:
                    goal = None if "fastnanoid" not in name else _GOALS.get((database.name, name), 1.0)
                    yield Comparison.of_times(
                        f"flush of {size:,}, {database.name}",
                        (_OURS, name),
                        (taken[_OURS], taken[name]),
                        rows,
                        goal if size >= 1_000 else None,
                    )
            for metadata in metadatas():
                metadata.drop_all(plain)


def _flushed(engine: Engine, rival: Rival, size: int, flushes: int) -> Subject:
    """Flush into an empty table, in an open transaction that is rolled back afterwards; check what is shown."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        _emptied(engine, rival.model)
        numbers = [next(_serial) for _ in range(size * flushes)]
        objects = [rival.model(name=f"name {number}", email=f"{number}@example.org") for number in numbers]
        parts = [objects[at : at + size] for at in range(0, len(objects), size)]
        shown: list[Any] = []
        with Session(engine) as session:
            session.connection()

            def work() -> None:
                for part in parts:
                    if rival.asks:
                        _choose_ids(session, rival.model, part)
                    session.add_all(part)
                    session.flush()
                    if rival.encode is not None:
                        shown.extend([rival.encode(each.id) for each in part])

            yield work
            _check(session, rival, objects, shown)

    return subject


def _choose_ids(session: Session, model: type[Any], objects: list[Any]) -> None:
    """Give each of *objects* an id that no row has, as PlanetScale's ``before_create`` does."""
    for each in objects:
        public_id = fast()
        while session.scalar(select(exists().where(model.public_id == public_id))):
            public_id = fast()
        each.public_id = public_id


def _check(session: Session, rival: Rival, objects: list[Any], shown: list[str]) -> None:
    """Refuse figures of rows that are not in the table, or whose ids are shared."""
    ids = [getattr(each, rival.attribute) for each in objects]
    if rival.decode is not None:
        assert [rival.decode(text) for text in shown] == ids
        assert len(set(shown)) == len(objects)
    stored = session.scalars(select(getattr(rival.model, rival.attribute))).all()
    assert len(set(ids)) == len(stored) == len(objects)
    assert set(ids) == set(stored)


def _emptied(engine: Engine, model: type[Any]) -> None:
    table = model.__table__
    assert isinstance(table, Table)
    metadata: MetaData = table.metadata
    metadata.drop_all(engine, tables=[table])
    metadata.create_all(engine, tables=[table])
