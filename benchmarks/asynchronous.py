"""The asynchronous drivers: a flush, and ``bulk.insert``, against the same model without the library.

The rival's objects have ids made beforehand. Both sides run on one event loop, which is left only between samples.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from benchmarks.databases import Bench, empty
from benchmarks.measure import Comparison, Subject, together
from benchmarks.models import PlainUser, User
from sqlalchemy_public_id import NanoId, guard
from sqlalchemy_public_id.asyncio import bulk

__all__ = ["run"]

_DRIVERS = {
    "aiosqlite": "sqlite",
    "asyncpg": "postgresql",
    "psycopg_async": "postgresql",
    "aiomysql": "mysql",
    "asyncmy": "mysql",
}
_MARIADB = "aiomysql", "asyncmy"
_GOALS = {"sqlite": 0.85, "postgresql": 1.02, "mariadb": 1.02, "mysql": 1.01}

Write: TypeAlias = Callable[[AsyncSession, list[Any]], Awaitable[None]]


async def _flush(session: AsyncSession, objects: list[Any]) -> None:
    session.add_all(objects)
    await session.flush()


async def _insert(session: AsyncSession, objects: list[Any]) -> None:
    await bulk.insert(session, objects)


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare a flush of one object and of many, and ``bulk.insert``, µs a row."""
    for driver, name in [*_DRIVERS.items(), *((driver, "mariadb") for driver in _MARIADB)]:
        for database in bench.on(name):
            url = database.url.set(drivername=f"{database.url.get_backend_name()}+{driver}")
            with asyncio.Runner() if hasattr(asyncio, "Runner") else _Runner() as loop:
                try:
                    guarded, plain = create_async_engine(url), create_async_engine(url)
                    loop.run(_connected(plain))
                except (ImportError, SQLAlchemyError, OSError) as error:
                    bench.missing.append(f"{driver} left out: {str(error).splitlines()[0]}")
                    continue
                try:
                    yield from _compared(bench, loop, guarded, plain, f"{driver}, {name}", _GOALS[name])
                finally:
                    loop.run(guarded.dispose())
                    loop.run(plain.dispose())


def _compared(
    bench: Bench, loop: Any, guarded: AsyncEngine, plain: AsyncEngine, where: str, goal: float
) -> Iterator[Comparison]:
    guard.install(guarded)
    guard.uninstall(plain)
    rows, flushes = bench.times(1_000 if "mysql" in where else 5_000, 500), 100
    sizes = {1: flushes, rows: 1}
    for size, times in sizes.items():
        subjects = {
            "PublicIdMixin": _written(loop, guarded, User, _flush, size, times),
            "no library, ids made beforehand": _written(loop, plain, PlainUser, _flush, size, times),
            "bulk.insert()": _written(loop, guarded, User, _insert, size, times),
        }
        if size == 1:
            del subjects["bulk.insert()"]
        taken = together(subjects, bench.times(24, 3))
        flush, rival, *bulked = taken.values()
        names = list(subjects)
        per = size * times
        what = f"flush of {size:,}, {where}"
        yield Comparison.of_times(what, (names[0], names[1]), (flush, rival), per, goal if size > 1 else None)
        for samples in bulked:
            what = f"{size:,} rows with keys, {where}"
            yield Comparison.of_times(what, ("bulk.insert()", "add_all() + flush(), no library"), (samples, rival), per)


def _written(loop: Any, engine: AsyncEngine, model: type[Any], write: Write, size: int, times: int) -> Subject:
    """Write into an empty table, in an open transaction that is rolled back afterwards."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        loop.run(_emptied(engine))
        objects = [model(name=f"name {number}", email=f"{number}@example.org") for number in range(size * times)]
        if model is PlainUser:
            for each, public_id in zip(objects, NanoId().generate_many(len(objects)), strict=True):
                each.public_id = public_id
        parts = [objects[at : at + size] for at in range(0, len(objects), size)]
        session = AsyncSession(engine)
        loop.run(_opened(session))

        async def work() -> None:
            for part in parts:
                await write(session, part)

        try:
            yield lambda: loop.run(work())
            loop.run(_check(session, model, objects))
        finally:
            loop.run(session.close())

    return subject


async def _check(session: AsyncSession, model: type[Any], objects: list[Any]) -> None:
    stored = (await session.execute(select(model.id, model.public_id))).tuples().all()
    assert {(each.id, each.public_id) for each in objects} == set(stored)
    assert len(stored) == len(objects)


async def _opened(session: AsyncSession) -> None:
    await session.connection()


async def _connected(engine: AsyncEngine) -> None:
    async with engine.connect():
        pass


async def _emptied(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(empty)


class _Runner:
    """What ``asyncio.Runner`` is, which Python 3.10 does not have."""

    def __enter__(self) -> _Runner:
        self._loop = asyncio.new_event_loop()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.close()

    def run(self, awaitable: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(awaitable)
