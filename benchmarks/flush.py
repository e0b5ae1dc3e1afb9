"""A flush of new rows, compared with models by hand on the same table.

The rivals have their ids made beforehand, except the UUIDs, which a column default generates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from benchmarks.databases import ALL, Bench, empty
from benchmarks.measure import Comparison, Subject, together
from benchmarks.models import (
    MarkedUser,
    PlainCustomer,
    PlainDevice,
    PlainUser,
    TypedCustomer,
    User,
    UuidDevice,
)
from sqlalchemy_public_id import NanoId

__all__ = ["run"]

_GOAL = {"sqlite": 0.85, "postgresql": 1.02, "mariadb": 1.02, "mysql": 1.01}
_ALONE = 1.03
_TYPED, _UUID = 1.08, 1.05
_GENERATED = {"PublicIdMixin", "PublicIdMixin[CustomerId]", "Uuid7()", "Uuid by hand, default=uuid7"}
"""The subjects that generate their ids in the flush."""
_serial = count()


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the flush of new objects, µs per row: many, and one object in a flush."""
    for database in bench.on(*ALL):
        rows = bench.times(1_000 if database.name == "mysql" else 5_000, 500)
        with database.engines() as (guarded, plain):
            by_hand = "no library at all, ids made beforehand"
            pairs: list[tuple[str, str, float | None]] = [
                ("PublicIdMixin", "the same model, ids made beforehand", None),
                ("PublicIdMixin", by_hand, _GOAL[database.name]),
                ("PublicIdMixin", "the same, with insert_sentinel=True by hand", None),
                ("PublicIdMixin[CustomerId]", "no library, strings with a prefix made beforehand", _TYPED),
                ("Uuid7()", "Uuid by hand, default=uuid7", _UUID),
            ]
            models = {
                "PublicIdMixin": (guarded, User),
                "the same model, ids made beforehand": (guarded, User),
                by_hand: (plain, PlainUser),
                "the same, with insert_sentinel=True by hand": (plain, MarkedUser),
                "PublicIdMixin[CustomerId]": (guarded, TypedCustomer),
                "no library, strings with a prefix made beforehand": (plain, PlainCustomer),
                "Uuid7()": (guarded, UuidDevice),
                "Uuid by hand, default=uuid7": (plain, PlainDevice),
            }
            subjects = {name: _flush(*model, rows, 1, name not in _GENERATED) for name, model in models.items()}
            taken = together(subjects, bench.times(24, 4))
            for ours, rival, goal in pairs:
                what = f"{rows} rows, {database.name}"
                yield Comparison.of_times(what, (ours, rival), (taken[ours], taken[rival]), rows, goal)

            times = bench.times(200, 20)
            alone = {
                name: _flush(*models[name], 1, times, name not in _GENERATED) for name in ("PublicIdMixin", by_hand)
            }
            taken = together(alone, bench.times(40, 4))
            names = "PublicIdMixin", by_hand
            what = f"one object, {database.name}"
            yield Comparison.of_times(what, names, (taken[names[0]], taken[names[1]]), times, _ALONE)


def _flush(engine: Engine, model: type[Any], rows: int, times: int, has_ids: bool) -> Subject:
    """Flush into an empty table, in an open transaction that is rolled back afterwards."""
    prefix = "bcu_" if model is PlainCustomer else ""

    @contextmanager
    def subject() -> Iterator[Any]:
        empty(engine)
        numbers = [next(_serial) for _ in range(rows * times)]
        objects = [model(name=f"name {number}", email=f"{number}@example.org") for number in numbers]
        if has_ids:
            for each, public_id in zip(objects, NanoId().generate_many(len(objects)), strict=True):
                each.public_id = prefix + public_id
        parts = [objects[at : at + rows] for at in range(0, len(objects), rows)]
        with Session(engine) as session:
            session.connection()

            def work() -> None:
                for part in parts:
                    session.add_all(part)
                    session.flush()

            yield work
            assert len({each.public_id for each in objects}) == len({each.id for each in objects}) == len(objects)

    return subject
