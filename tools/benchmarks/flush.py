"""A flush of new rows, compared with models by hand on the same table.

A flush has 5 000 rows, or 1 000 on MySQL. The rivals get ids that were generated beforehand, except the UUIDs, which a
column default generates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_public_id import NanoId
from tools.benchmarks.databases import ALL, Bench, empty
from tools.benchmarks.measure import Comparison, Pair, Subject, compared
from tools.benchmarks.models import (
    MarkedUser,
    PlainCustomer,
    PlainDevice,
    PlainUser,
    TypedCustomer,
    User,
    UuidDevice,
)

__all__ = ["run"]

_GOALS = {"sqlite": 0.85, "postgresql": 1.02, "mariadb": 1.02, "mysql": 1.01}
_OURS, _BEFOREHAND, _BY_HAND = "PublicIdMixin", "the same model, ids made beforehand", "no library, ids made beforehand"
_MARKED, _STRINGS = "no library, insert_sentinel=True", "no library, strings with a prefix"
_TYPED, _UUID, _PLAIN_UUID = "PublicIdMixin[CustomerId]", "Uuid7()", "Uuid by hand, default=uuid7"
_GENERATED = {_OURS, _TYPED, _UUID, _PLAIN_UUID}
"""The subjects that generate their ids in the flush."""
_serial = count()


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the flush of many new objects, and of a single one, in µs per row."""
    for database in bench.on(*ALL):
        rows = bench.times(1_000 if database.name == "mysql" else 5_000, 500)
        pairs: list[Pair] = [
            (_OURS, _BEFOREHAND, None),
            (_OURS, _BY_HAND, _GOALS[database.name]),
            (_OURS, _MARKED, None),
            (_TYPED, _STRINGS, 1.08),
            (_UUID, _PLAIN_UUID, 1.05),
        ]
        with database.engines() as (guarded, plain):
            models = {
                _OURS: (guarded, User),
                _BEFOREHAND: (guarded, User),
                _BY_HAND: (plain, PlainUser),
                _MARKED: (plain, MarkedUser),
                _TYPED: (guarded, TypedCustomer),
                _STRINGS: (plain, PlainCustomer),
                _UUID: (guarded, UuidDevice),
                _PLAIN_UUID: (plain, PlainDevice),
            }
            many = {name: _flush(*model, rows, 1, name not in _GENERATED) for name, model in models.items()}
            yield from compared(f"many objects, {database.name}", many, pairs, bench.times(24, 4), rows)
            times = bench.times(200, 20)
            alone = {name: _flush(*models[name], 1, times, name not in _GENERATED) for name in (_OURS, _BY_HAND)}
            what = f"one object, {database.name}"
            yield from compared(what, alone, [(_OURS, _BY_HAND, 1.03)], bench.times(40, 4), times)


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
