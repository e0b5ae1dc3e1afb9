"""Blocks of keys with every asynchronous driver: awaited, and in a flush."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.errors import LeaseNotAvailable
from sqlalchemy_public_id.keys import BlockAllocator, block_key

pytestmark = [
    pytest.mark.backend,
    # aiosqlite's thread may outlive the loop of a canceled task
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

Story = Callable[[BlockAllocator, AsyncEngine], Awaitable[Any]]

_names = itertools.count()


async def drop(allocator: BlockAllocator, engine: AsyncEngine) -> None:
    """Drop the table, so that tests of other files do not find it."""
    async with engine.begin() as connection:
        await connection.run_sync(allocator.table.drop)


@pytest.fixture
def run(async_engine: AsyncEngine) -> Callable[..., Any]:
    """Return a function that runs a coroutine with an allocator of a new sequence."""

    async def tell(story: Story, options: dict[str, Any]) -> Any:
        settings = {"block": 100, "timeout": 30, "start": 0} | options
        async with BlockAllocator(async_engine, f"order {next(_names)}", **settings) as allocator:
            await allocator.acreate_table()
            try:
                return await story(allocator, async_engine)
            finally:
                await drop(allocator, async_engine)
                await async_engine.dispose()

    return lambda story, **options: asyncio.run(tell(story, options))


def test_awaited(run: Callable[..., Any]) -> None:
    """The awaitable methods issue the same numbers in order, and numbers in memory need no ``await``."""

    async def story(allocator: BlockAllocator, engine: AsyncEngine) -> list[int]:
        got = [await allocator.anext()]
        got += [number for numbers in await allocator.atake(250) for number in numbers]
        await allocator.areserve(300)
        got += [allocator.next() for _ in range(250)]
        return got + [number for numbers in allocator.take(50) for number in numbers]

    assert run(story) == list(range(551))


def test_tasks(run: Callable[..., Any]) -> None:
    """Many concurrent tasks get different numbers, and wait for the same lease."""

    async def take(allocator: BlockAllocator) -> list[int]:
        return [await allocator.anext() for _ in range(50)]

    async def story(allocator: BlockAllocator, engine: AsyncEngine) -> list[list[int]]:
        return await asyncio.gather(*(take(allocator) for _ in range(20)))

    assert sorted(number for numbers in run(story) for number in numbers) == list(range(1000))


def test_cancelled_task(run: Callable[..., Any]) -> None:
    """A task that is canceled while it waits takes no numbers from the others."""

    async def story(allocator: BlockAllocator, engine: AsyncEngine) -> list[int]:
        waiting = [asyncio.create_task(allocator.anext()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        return await asyncio.gather(*waiting[1:])

    assert sorted(run(story)) == [0, 1]


def test_in_a_flush(run: Callable[..., Any]) -> None:
    """Inside an ``AsyncSession`` and in a Core default, ``next()`` needs no ``await``."""

    async def story(allocator: BlockAllocator, engine: AsyncEngine) -> list[int]:
        class Base(DeclarativeBase):
            metadata = MetaData()

        class Note(Base):
            __tablename__ = f"note_{allocator.name.split()[1]}"
            id = block_key(allocator)
            number: Mapped[int]

        await allocator.areserve(1000)  # on SQLite, before the first write
        async with AsyncSession(engine) as session:
            connection = await session.connection()
            await connection.run_sync(Base.metadata.create_all)
            session.add_all([Note(number=number) for number in range(250)])
            await session.flush()
            await session.execute(insert(Note.__table__), [{"number": number} for number in range(250)])
            keys = [*await session.scalars(select(Note.id))]
            await connection.run_sync(Base.metadata.drop_all)
            await session.commit()
        return keys

    assert sorted(run(story)) == list(range(500))


def test_flush_that_leases(run: Callable[..., Any], async_engine: AsyncEngine) -> None:
    """A flush that runs out of numbers leases on its own connection; on SQLite, with a locked file, it raises."""
    is_sqlite = async_engine.dialect.name == "sqlite"

    async def story(allocator: BlockAllocator, engine: AsyncEngine) -> object:
        async with AsyncSession(engine) as session:
            assert await session.run_sync(lambda _: allocator.next()) == 0
            await session.execute(update(allocator.table).where(allocator.table.c.name == "another").values(next=0))
            await allocator.aclose()
            try:
                return await session.run_sync(lambda _: allocator.next())
            except LeaseNotAvailable as error:
                return "reserve(count) before its first write" in str(error)

    assert run(story, timeout=0.5 if is_sqlite else 30) == (True if is_sqlite else 100)


def test_what_has_to_be_awaited(run: Callable[..., Any]) -> None:
    """If a lease would have to be awaited but cannot be, the error says what to call instead."""

    async def story(allocator: BlockAllocator, engine: AsyncEngine) -> None:
        with pytest.raises(ConfigurationError, match=r"await allocator\.acreate_table\(\)"):
            allocator.create_table()
        with pytest.raises(ConfigurationError, match=r"await allocator\.anext\(\) or atake\(\)"):
            allocator.next()
        await allocator.areserve(1)
        allocator.next()

    run(story)


def test_row_is_held(run: Callable[..., Any]) -> None:
    """While another transaction locks the row, the lease times out, and the event loop is not blocked."""
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def story(allocator: BlockAllocator, engine: AsyncEngine) -> None:
        await allocator.areserve(1)  # the first lease connects, which may take longer on a busy machine
        allocator.timeout = 0.3
        async with engine.connect() as connection:
            await connection.execute(update(allocator.table).values(next=allocator.table.c.next))
            ticking = asyncio.create_task(tick())
            with pytest.raises(LeaseNotAvailable, match=r"within 0\.3 s"):
                await allocator.atake(101)
            ticking.cancel()
            assert allocator.reserved == 100
            await connection.rollback()
        allocator.timeout = 30
        await allocator.atake(101)

    run(story)

    assert len(ticks) > 5


def test_one_loop_after_the_other(async_engine: AsyncEngine) -> None:
    """An allocator works in several event loops in turn, even if a loop ended during a lease."""
    allocator = BlockAllocator(async_engine, f"order {next(_names)}", block=4, timeout=30, create=True)
    got: list[int] = []

    async def take() -> None:
        got.extend([await allocator.anext() for _ in range(7)])

    async def last() -> None:
        await take()
        await allocator.aclose()
        await drop(allocator, async_engine)
        await async_engine.dispose()

    asyncio.run(take())
    asyncio.run(take())
    asyncio.run(last())

    assert len(set(got)) == 21
    assert got == sorted(got)


def test_engine_of_the_other_kind(async_engine: AsyncEngine) -> None:
    """With a synchronous engine, the awaitable methods raise and say what to call instead."""
    allocator = BlockAllocator(async_engine.sync_engine, "order")
    with pytest.raises(ConfigurationError, match=r"call next\(\) without await"):
        asyncio.run(allocator.anext())
