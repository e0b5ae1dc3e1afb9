"""Writes through a network: a proxy adds a millisecond to each round trip, and counts the round trips.

On loopback, a statement costs the work of client and server. Through a network, it also costs the wait for its answer,
so that each additional round trip shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

from sqlalchemy import Engine, func, insert, select, text
from sqlalchemy.orm import Session

from sqlalchemy_public_id import NanoId, bulk, testing
from sqlalchemy_public_id.idempotency import insert_once
from tools.benchmarks.databases import Bench
from tools.benchmarks.measure import Comparison, Subject, compared
from tools.benchmarks.models import PlainUser, User
from tools.benchmarks.proxy import Proxy

__all__ = ["run"]

_DELAY = 1
"""The delay of a round trip in milliseconds."""
_MANY = 1000
_TAKEN = "izkpm55j334u"
"""The id of the one row in the table."""
_make = NanoId().generate

Work: TypeAlias = Callable[[Session], object]
Way: TypeAlias = Callable[[], "tuple[Work, int]"]
"""A function that prepares, and returns the function to time and the number of rows that it stores."""


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare round trips, and the time of one operation with the delay."""
    for original in bench.on("postgresql", "mysql", "mariadb"):
        with Proxy(original.url) as proxy:
            database = dataclasses.replace(original, url=proxy.url)
            with database.engines() as (guarded, plain):
                with Session(guarded) as session, session.begin():
                    session.add(User(public_id=_TAKEN, name="Ada", email="a@example.org"))
                one, core = _of(plain, _flush(PlainUser, 1)), _of(plain, _core(PlainUser))
                alone, no_collision = "flush of 1 row, no library", "no collision, no library"
                cases: list[tuple[str, str, str, Subject, Subject, int]] = [
                    (
                        f"flush of {rows} row{'s' if rows > 1 else ''}",
                        *("PublicIdMixin", "no library"),
                        *(_of(guarded, _flush(User, rows)), _of(plain, _flush(PlainUser, rows)), 0),
                    )
                    for rows in (1, 10, _MANY)
                ]
                cases += [
                    (
                        f"executemany of {_MANY} rows",
                        *("guard.install(engine)", "no library"),
                        *(_of(guarded, _core(User)), core, 0),
                    ),
                    (f"{_MANY} rows with keys", "bulk.insert()", "executemany, no keys", _of(guarded, _bulk), core, 1),
                    ("a repeated row", "insert_once()", alone, _of(guarded, _repeat), one, 2),
                    (
                        "a collision",
                        *("flush of 1 row", no_collision),
                        *(_of(guarded, _flush(User, 1), collides=True), one, 3),
                    ),
                    (
                        f"a collision in {_MANY} rows",
                        *("executemany", no_collision),
                        *(_of(guarded, _core(User), collides=True), core, 3),
                    ),
                ]
                for what, *names, ours, rival, goal in cases:
                    yield from _compared(bench, proxy, f"{what}, {database.name}", names, (ours, rival), goal)


def _compared(
    bench: Bench, proxy: Proxy, what: str, names: list[Any], subjects: tuple[Subject, Subject], goal: int
) -> Iterator[Comparison]:
    """Compare the round trips, and the times with the delay. A comparison with many round trips takes few rounds."""
    ours, rival = (_trips(proxy, subject) for subject in subjects)
    yield Comparison(what, *names, "trips", [ours], [rival], goal=goal, difference=True)
    case, _, database = what.rpartition(", ")
    rounds = bench.times(17, 2) if rival * _DELAY < 100 else bench.times(3, 1)
    proxy.milliseconds = _DELAY
    try:
        by_name = dict(zip(names, subjects, strict=True))
        yield from compared(f"{case}, {_DELAY} ms, {database}", by_name, [(names[0], names[1], None)], rounds)
    finally:
        proxy.milliseconds = 0


def _trips(proxy: Proxy, subject: Subject) -> float:
    """Count the round trips of the second of two runs: the first may prepare statements, or read a catalog."""
    for _ in range(2):
        with subject() as work:
            before = proxy.trips
            work()
            trips = proxy.trips - before
    return float(trips)


# --- what is done


def _rows(model: Any, count: int) -> list[dict[str, str]]:
    rows = [{"name": f"name {number}", "email": f"{number}@example.org"} for number in range(count)]
    return rows if model is User else [{**row, "public_id": _make()} for row in rows]


def _flush(model: Any, count: int) -> Way:
    def prepare() -> tuple[Work, int]:
        objects = [model(**row) for row in _rows(model, count)]

        def work(session: Session) -> None:
            session.add_all(objects)
            session.flush()

        return work, count

    return prepare


def _core(model: Any) -> Way:
    def prepare() -> tuple[Work, int]:
        rows = _rows(model, _MANY)
        return lambda session: session.execute(insert(model.__table__), rows), _MANY

    return prepare


def _bulk() -> tuple[Work, int]:
    users = [User(**row) for row in _rows(User, _MANY)]
    return lambda session: bulk.insert(session, users), _MANY


def _repeat() -> tuple[Work, int]:
    return lambda session: insert_once(session, User(public_id=_TAKEN, name="Ada", email="a@example.org")), 0


def _of(engine: Engine, way: Way, *, collides: bool = False) -> Subject:
    """Time *way* in a transaction that has begun, and roll it back."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        work, rows = way()
        with Session(engine) as session:
            session.execute(text("SELECT 1"))
            with testing.collisions(User, _TAKEN, times=1) if collides else nullcontext():
                yield lambda: work(session)
            assert session.scalar(select(func.count()).select_from(User)) == 1 + rows

    return subject
