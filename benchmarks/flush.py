"""An ORM flush of many new rows, compared with ids made beforehand: on the same model, and without the library."""

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

_GOAL = {"sqlite": 0.85, "postgresql": 1.02, "mariadb": 1.02, "mysql": 1.01}
_serial = count()


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the flush of new objects, µs per row, with two rivals."""
    for database in bench.on("sqlite", "postgresql", "mariadb", "mysql"):
        rows = bench.times(1_000 if database.name == "mysql" else 5_000, 500)
        rounds = bench.times(15, 4)
        with database.engines() as (guarded, plain):
            ours = _flush(guarded, _users, rows)
            rivals = {
                "the same model, ids made beforehand": (_flush(guarded, _users_with_ids, rows), None),
                "no library at all, ids made beforehand": (_flush(plain, _plain_users, rows), _GOAL[database.name]),
            }
            for name, (rival, goal) in rivals.items():
                taken = interleaved(ours, rival, rounds)
                yield Comparison.of_times(f"{rows} rows, {database.name}", ("PublicIdMixin", name), taken, rows, goal)


def _users(fields: list[dict[str, str]], ids: list[str]) -> list[User]:
    return [User(**each) for each in fields]


def _users_with_ids(fields: list[dict[str, str]], ids: list[str]) -> list[User]:
    return [User(**each, public_id=public_id) for each, public_id in zip(fields, ids, strict=True)]


def _plain_users(fields: list[dict[str, str]], ids: list[str]) -> list[PlainUser]:
    return [PlainUser(**each, public_id=public_id) for each, public_id in zip(fields, ids, strict=True)]


def _flush(engine: Engine, make: Callable[[list[dict[str, str]], list[str]], list[Any]], rows: int) -> Subject:
    """Flush into an empty table, in an open transaction that is rolled back afterwards."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        empty(engine)
        numbers = [next(_serial) for _ in range(rows)]
        fields = [{"name": f"name {number}", "email": f"{number}@example.org"} for number in numbers]
        users = make(fields, NanoId().generate_many(rows))
        with Session(engine) as session:
            session.connection()

            def work() -> None:
                session.add_all(users)
                session.flush()

            yield work
            assert len({user.public_id for user in users}) == len({user.id for user in users}) == rows

    return subject
