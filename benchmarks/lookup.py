"""One row by its public id: ``lookup.get``, compared with a hand-written SELECT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchmarks.databases import ALL, Bench
from benchmarks.measure import Comparison, Subject, interleaved
from benchmarks.models import PlainUser, User
from sqlalchemy_public_id import lookup

__all__ = ["run"]


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare them, µs per lookup: on the same model, and on the model without the library."""
    count = bench.times(400, 100)
    for database in bench.on(*ALL):
        with database.engines() as (guarded, plain):
            with Session(guarded) as session, session.begin():
                users = [User(name=f"name {number}", email=f"{number}@example.org") for number in range(count)]
                session.add_all(users)
                session.flush()
                ids = [user.public_id for user in users]
            ours = _each(guarded, ids, _get)
            for rival, name in (
                (_each(guarded, ids, _select), "hand-written SELECT"),
                (_each(plain, ids, _select_plain), "the same without the library"),
            ):
                taken = interleaved(ours, rival, bench.times(50, 2))
                goal = 1.03 if name.startswith("hand") else None
                yield Comparison.of_times(database.name, ("lookup.get()", name), taken, count, goal)


def _get(session: Session, ids: list[str]) -> list[Any]:
    return [lookup.get(session, User, public_id) for public_id in ids]


def _select(session: Session, ids: list[str]) -> list[Any]:
    return [session.scalars(select(User).where(User.public_id == public_id)).one_or_none() for public_id in ids]


def _select_plain(session: Session, ids: list[str]) -> list[Any]:
    return [
        session.scalars(select(PlainUser).where(PlainUser.public_id == public_id)).one_or_none() for public_id in ids
    ]


def _each(engine: Engine, ids: list[str], find: Callable[[Session, list[str]], list[Any]]) -> Subject:
    """Look up every row once, in a session without objects and with an open transaction."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        with Session(engine) as session:
            session.connection()
            found: list[Any] = []
            yield lambda: found.extend(find(session, ids))
            assert [user.public_id for user in found] == ids

    return subject
