"""An ORM flush of many new rows: with the mixin, against the same model without it and with ids made beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from benchmarks.databases import Bench, empty
from benchmarks.measure import Comparison, Subject, interleaved
from benchmarks.models import PlainUser, User
from sqlalchemy_public_id import NanoId

__all__ = ["run"]

_GOAL = {"sqlite": 1.05, "postgresql": 1.05}
_serial = count()


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the flush alone, and the flush together with making the objects, µs a row."""
    for database in bench.on("sqlite", "postgresql", "mariadb", "mysql"):
        rows = bench.times(1_000 if database.name == "mysql" else 10_000, 500)
        rounds = bench.times(25, 4)
        with database.engines() as (guarded, plain):
            for also_made in (False, True) if database.name in _GOAL else (False,):
                taken = interleaved(
                    _flush(guarded, _users, rows, also_made), _flush(plain, _plain_users, rows, also_made), rounds
                )
                what = "objects made and flushed" if also_made else "flushed"
                goal = None if also_made else _GOAL.get(database.name)
                names = "PublicIdMixin", "no library, ids made beforehand"
                yield Comparison.of_times(f"{rows} rows {what}, {database.name}", names, taken, rows, goal)


def _users(fields: list[dict[str, str]], ids: list[str]) -> list[User]:
    return [User(**each) for each in fields]


def _plain_users(fields: list[dict[str, str]], ids: list[str]) -> list[PlainUser]:
    return [PlainUser(**each, public_id=public_id) for each, public_id in zip(fields, ids, strict=True)]


def _flush(
    engine: Engine, make: Callable[[list[dict[str, str]], list[str]], list[Any]], rows: int, also_made: bool
) -> Subject:
    """The flush into an empty table, in a transaction that has begun; it is rolled back afterwards."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        empty(engine)
        numbers = [next(_serial) for _ in range(rows)]
        fields = [{"name": f"name {number}", "email": f"{number}@example.org"} for number in numbers]
        ids = NanoId().generate_many(rows)
        ready = None if also_made else make(fields, ids)
        with Session(engine) as session:
            session.connection()
            users: list[Any] = []

            def work() -> None:
                users.extend(ready or make(fields, ids))
                session.add_all(users)
                session.flush()

            yield work
            assert len({user.public_id for user in users}) == len({user.id for user in users}) == rows

    return subject
