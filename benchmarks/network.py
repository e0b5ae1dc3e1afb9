"""The same through a network: a proxy adds 1 and 10 ms to each round trip, and counts the round trips.

On loopback a statement costs what client and server work. Through a network it costs the wait for its answer, and one
more round trip shows.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

from sqlalchemy import Engine, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from benchmarks.databases import Bench, Database
from benchmarks.measure import Comparison, Subject, interleaved
from benchmarks.models import PlainUser, User
from benchmarks.proxy import Proxy
from sqlalchemy_public_id import NanoId, bulk, guard, testing
from sqlalchemy_public_id.idempotency import insert_once

__all__ = ["run"]

_SERVERS = ("postgresql", "mysql", "mariadb")
_ASYNC = {"postgresql": ("asyncpg", "psycopg"), "mysql": ("aiomysql",), "mariadb": ("aiomysql",)}
_DELAYS = (1, 10)
"""Milliseconds that a round trip takes longer."""
_MANY = 1000
_TAKEN = "izkpm55j334u"
"""The id of the one row in the table."""
_make = NanoId().generate

Work: TypeAlias = Callable[[Session], object]
Way: TypeAlias = Callable[[], tuple[Work, int]]
"""Prepares; returns what is timed, and the number of rows that it stores."""


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare trips, and the time of one operation for each delay."""
    for database in bench.on(*_SERVERS):
        with Proxy(database.url) as proxy:
            yield from _synchronous(bench, dataclasses.replace(database, url=proxy.url), proxy)
            yield from _asynchronous(bench, dataclasses.replace(database, url=proxy.url), proxy)


def _synchronous(bench: Bench, database: Database, proxy: Proxy) -> Iterator[Comparison]:
    with database.engines() as (guarded, plain):
        _store_one(guarded)
        for rows in (1, 10, _MANY):
            names = f"flush of {rows} row{'s' if rows > 1 else ''}, {database.name}", "PublicIdMixin", "no library"
            subjects = _of(guarded, _flush(User, rows)), _of(plain, _flush(PlainUser, rows))
            yield from _compared(bench, proxy, names, subjects, goal=0)
        core = _of(plain, _core(PlainUser))
        names = f"executemany of {_MANY} rows, {database.name}", "guard.install(engine)", "no library"
        yield from _compared(bench, proxy, names, (_of(guarded, _core(User)), core), goal=0)
        names = f"{_MANY} rows with keys, {database.name}", "bulk.insert()", "executemany, no keys"
        yield from _compared(bench, proxy, names, (_of(guarded, _bulk), core), goal=1)
        one = _of(plain, _flush(PlainUser, 1))
        names = f"a repeated row, {database.name}", "insert_once()", "flush of 1 row, no library"
        yield from _compared(bench, proxy, names, (_of(guarded, _repeat), one), goal=2)
        names = f"a collision, {database.name}", "flush of 1 row", "no collision, no library"
        yield from _compared(bench, proxy, names, (_of(guarded, _flush(User, 1), collides=True), one), goal=3)
        names = f"a collision in {_MANY} rows, {database.name}", "executemany", "no collision, no library"
        yield from _compared(bench, proxy, names, (_of(guarded, _core(User), collides=True), core), goal=3)


def _asynchronous(bench: Bench, database: Database, proxy: Proxy) -> Iterator[Comparison]:
    for driver in _ASYNC[database.name]:
        try:
            importlib.import_module(driver)
        except ImportError:
            bench.missing.append(f"network, {database.name}: {driver} is not installed")
            continue
        name = f"{database.name} {driver}, async"
        with _async_engines(database, driver) as (loop, guarded, plain):
            for rows in (1, _MANY):
                names = f"flush of {rows} row{'s' if rows > 1 else ''}, {name}", "PublicIdMixin", "no library"
                subjects = (
                    _of_async(loop, guarded, _flush(User, rows)),
                    _of_async(loop, plain, _flush(PlainUser, rows)),
                )
                yield from _compared(bench, proxy, names, subjects, goal=0)
            subjects = _of_async(loop, guarded, _core(User)), _of_async(loop, plain, _core(PlainUser))
            names = f"executemany of {_MANY} rows, {name}", "guard.install(engine)", "no library"
            yield from _compared(bench, proxy, names, subjects, goal=0)


def _compared(
    bench: Bench, proxy: Proxy, names: tuple[str, str, str], subjects: tuple[Subject, Subject], goal: int
) -> Iterator[Comparison]:
    """Yield the trips, and the times for each delay. A comparison of many trips takes few rounds."""
    what, *sides = names
    ours, rival = (_trips(proxy, subject) for subject in subjects)
    yield Comparison(what, *sides, "trips", [ours], [rival], goal=goal, difference=True)
    for delay in _DELAYS[: bench.times(len(_DELAYS), 1)]:
        proxy.milliseconds = delay
        try:
            rounds = bench.times(17, 2) if rival * delay < 100 else bench.times(3, 1)
            taken = interleaved(*subjects, rounds)
        finally:
            proxy.milliseconds = 0
        yield Comparison.of_times(f"{what}, {delay} ms", (sides[0], sides[1]), taken, 1)


def _trips(proxy: Proxy, subject: Subject) -> float:
    """Count the second of two times: the first one may prepare statements, or read a catalog."""
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


# --- where it is done


def _store_one(engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        session.add(User(public_id=_TAKEN, name="Ada", email="a@example.org"))


def _colliding(collides: bool) -> AbstractContextManager[object]:
    return testing.collisions(User, _TAKEN, times=1) if collides else nullcontext()


def _check(session: Session, rows: int) -> None:
    assert session.scalar(select(func.count()).select_from(User)) == 1 + rows


def _of(engine: Engine, way: Way, *, collides: bool = False) -> Subject:
    """Do it in a transaction that has begun, and roll it back."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        work, rows = way()
        with Session(engine) as session:
            session.execute(text("SELECT 1"))
            with _colliding(collides):
                yield lambda: work(session)
            _check(session, rows)

    return subject


def _of_async(loop: asyncio.AbstractEventLoop, engine: AsyncEngine, way: Way) -> Subject:
    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        work, rows = way()
        session = AsyncSession(engine)
        loop.run_until_complete(session.execute(text("SELECT 1")))
        yield lambda: loop.run_until_complete(session.run_sync(work))
        loop.run_until_complete(session.run_sync(_check, rows))
        loop.run_until_complete(session.close())

    return subject


@contextmanager
def _async_engines(
    database: Database, driver: str
) -> Iterator[tuple[asyncio.AbstractEventLoop, AsyncEngine, AsyncEngine]]:
    """Provide a loop, a guarded and an unguarded engine; the table has one row."""
    url = database.url.set(drivername=f"{database.name}+{driver}")
    guarded, plain = create_async_engine(url), create_async_engine(url)
    guard.install(guarded)
    guard.uninstall(plain)
    loop = asyncio.new_event_loop()
    try:
        yield loop, guarded, plain
    finally:
        loop.run_until_complete(guarded.dispose())
        loop.run_until_complete(plain.dispose())
        loop.close()
