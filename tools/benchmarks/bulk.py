"""Many rows with their keys filled in: ``bulk.insert`` and a flush.

MySQL has no RETURNING, so a flush sends one INSERT per row there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from sqlalchemy_public_id import bulk
from tools.benchmarks.databases import ALL, Bench, empty
from tools.benchmarks.measure import Comparison, Subject, compared
from tools.benchmarks.models import User

__all__ = ["run"]

_GOALS = {"mysql": 0.11, "sqlite": 0.30, "postgresql": 0.20, "mariadb": 0.35}


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare both, in µs per row, with equal objects that were created beforehand."""
    rows, ours, rival = bench.times(5_000, 500), "bulk.insert()", "add_all() + flush()"
    for database in bench.on(*ALL):
        with database.engines() as (guarded, _):
            subjects = {ours: _insert(guarded, bulk.insert, rows), rival: _insert(guarded, _flush, rows)}
            pairs = [(ours, rival, _GOALS[database.name])]
            yield from compared(f"{rows} rows with keys, {database.name}", subjects, pairs, bench.times(31, 4), rows)


def _flush(session: Session, users: list[User]) -> None:
    session.add_all(users)
    session.flush()


def _insert(engine: Engine, insert: Callable[[Session, list[User]], None], rows: int) -> Subject:
    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        empty(engine)
        users = [User(name=f"name {number}", email=f"{number}@example.org") for number in range(rows)]
        with Session(engine) as session:
            session.connection()
            yield lambda: insert(session, users)
            stored = session.execute(select(User.id, User.public_id)).tuples().all()
            assert {(user.id, user.public_id) for user in users} == set(stored)
            assert len(stored) == rows

    return subject
