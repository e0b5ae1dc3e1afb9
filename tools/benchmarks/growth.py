"""Times that must not grow: lookups in a session of 50 000 objects, and in a program of 500 models, compared with few.

Each sample runs in its own process, because models cannot be undeclared: ``python -m tools.benchmarks.growth`` OBJECTS
MODELS. It uses SQLite in memory, where nothing but the library and SQLAlchemy takes time.
"""

from __future__ import annotations

import json
import random
import statistics
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import new_class
from typing import Any

from sqlalchemy import ForeignKey, create_engine, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column, relationship

from sqlalchemy_public_id import PublicIdMixin, TypedId, lookup, public_ref
from tools.benchmarks.databases import Bench
from tools.benchmarks.measure import Comparison

__all__ = ["run"]


class Base(DeclarativeBase):
    """The base of all models of this suite."""


class ShopperId(TypedId, prefix="shopper"):
    """The ids of shoppers."""


class Shopper(PublicIdMixin[ShopperId], Base):
    """The model of the objects that the session holds."""

    __tablename__ = "shopper"


class Basket(PublicIdMixin, Base):
    """Refers to a shopper that the session does not hold."""

    __tablename__ = "basket"
    shopper_id: Mapped[int] = mapped_column(ForeignKey(Shopper.id), index=True)
    shopper: Mapped[Shopper] = relationship()
    shopper_public_id: Mapped[ShopperId] = public_ref("shopper")


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare µs per call: many objects in the session, and many models, against ten objects and two models."""
    few, objects, models = "10 objects, 2 models", bench.times(50_000, 1_000), bench.times(500, 20)
    programs = {few: (10, 0), f"{objects:,} objects": (objects, 0), f"{models} models": (10, models)}
    taken: dict[str, list[dict[str, list[float]]]] = {name: [] for name in programs}
    for turn in range(bench.times(12, 2)):
        for name in sorted(programs, reverse=bool(turn % 2)):
            command = [sys.executable, "-m", __spec__.name, *map(str, programs[name])]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            taken[name].append(json.loads(done.stdout))
    for name in list(programs)[1:]:
        for way in taken[few][0]:
            (ours, our_cpu), (rival, rival_cpu) = (
                [[sample[way][kind] for sample in taken[each]] for kind in (0, 1)] for each in (name, few)
            )
            yield Comparison(way, name, few, "µs", ours, rival, cpu=(our_cpu, rival_cpu))


def _declare_models(count: int) -> None:
    """Declare models with typed ids."""
    for _ in range(count):
        letters = "".join(random.choices(string.ascii_lowercase, k=10))
        typed = type(f"Id{letters}", (TypedId,), {}, prefix=letters)
        bases = PublicIdMixin[typed], Base
        new_class(f"Model{letters}", bases, exec_body=lambda body, name=letters: body.update(__tablename__=name))
    configure_mappers()


def _ways(session: Session, shopper: str) -> dict[str, Callable[[], Any]]:
    """Return the functions to measure, by name."""

    def read() -> str:
        basket = session.scalars(select(Basket)).one()
        public_id = basket.shopper_public_id
        session.expunge(basket)
        return public_id

    return {
        "lookup.get": lambda: lookup.get(session, Shopper, shopper),
        "lookup.get_many of one id": lambda: lookup.get_many(session, Shopper, [shopper]),
        "lookup.page of 20 rows": lambda: lookup.page(session, Shopper, limit=20),
        "lookup.resolve": lambda: lookup.resolve(session, shopper),
        "the first read of a reference": read,
        "TypedId.parse": lambda: TypedId.parse(shopper),
    }


def main(objects: int, models: int) -> None:
    """Print the lower quartile of each function's calls in µs, of wall time and of CPU time."""
    _declare_models(models)
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine, tables=[Shopper.__table__, Basket.__table__])
    with Session(engine) as session:
        ids = [ShopperId() for _ in range(objects + 1)]
        session.execute(insert(Shopper), [{"public_id": each} for each in ids])
        session.execute(insert(Basket), [{"shopper_id": len(ids)}])  # the session does not hold its shopper
        session.commit()
        held = session.scalars(select(Shopper).limit(objects)).all()
        ways = _ways(session, ids[-1])
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for turn in range(220):
            for name, way in ways.items():
                wall, cpu = time.perf_counter(), time.process_time()
                way()
                if turn >= 20:  # statements are compiled
                    times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
        assert len(held) == objects
    quartiles = {
        name: [statistics.quantiles(kind, n=4)[0] * 1e6 for kind in zip(*each, strict=True)]
        for name, each in times.items()
    }
    print(json.dumps(quartiles))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
