"""Blocks of keys while something comes between: close(), an interrupt, another schema, what has to be awaited."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine
from support.marks import on

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.keys import BlockAllocator

pytestmark = pytest.mark.backend

Allocators = Callable[..., BlockAllocator]


@pytest.fixture
def allocators(engine: Engine) -> Iterator[Allocators]:
    """Make allocators of the sequence ``order``, whose table is there, and goes with them."""
    made = [BlockAllocator(engine, "order", table="interrupted")]
    table = made[0].table
    table.drop(engine, checkfirst=True)
    made[0].create_table()

    def make(**options: Any) -> BlockAllocator:
        made.append(
            BlockAllocator(engine, "order", table="interrupted", **({"timeout": 30, "block": 20, "start": 0} | options))
        )
        return made[-1]

    yield make
    for allocator in made:
        allocator.close()
    table.drop(engine, checkfirst=True)


def test_close_while_others_take(allocators: Allocators) -> None:
    """Threads that take numbers while another one closes the allocator time and again neither fail nor wait in vain."""
    allocator = allocators(timeout=30)
    got: list[list[range]] = []

    def work(_: int) -> None:
        for _ in range(15):
            got.append(allocator.take(30))
            allocator.reserve(10)

    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(work, number) for number in range(4)]
        while not all(each.done() for each in working):
            allocator.close()
            threading.Event().wait(0.02)
        for each in working:
            each.result()

    numbers = [number for ranges in got for taken in ranges for number in taken]
    assert len(numbers) == len(set(numbers)) == 4 * 15 * 30


def test_close_while_one_waits(engine: Engine, allocators: Allocators) -> None:
    """Who waits for a lease while the allocator is closed gets numbers of the next one, and in full."""
    allocator = allocators()
    leasing, closed = threading.Event(), threading.Event()
    real = allocator._lessor.lease

    def slow(count: int, *rest: Any) -> range:
        leasing.set()
        assert closed.wait(60)
        return real(count, *rest)

    allocator._lessor.lease = slow  # type: ignore[method-assign]  # in place of the real one
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(allocator.take, 50)
        assert leasing.wait(60)
        allocator.timeout = 0.05  # close() does not wait for it
        allocator.close()
        allocator.timeout = 30
        closed.set()
        got = taken.result()

    assert sum(map(len, got)) == 50


@on("postgresql", "mysql", "mariadb")
def test_another_schema(engine: Engine) -> None:
    """With a ``schema_translate_map``, the table is made, looked for and found in the schema that is meant."""
    elsewhere = f"blocks_elsewhere_{os.getpid()}"
    here = BlockAllocator(engine, "order", create=True, timeout=10)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {elsewhere}")
    try:
        there = engine.execution_options(schema_translate_map={None: elsewhere})
        here.create_table()  # a table of that name in the usual schema is another one
        with BlockAllocator(there, "order", create=True, start=0, timeout=10) as allocator:
            got = allocator.take(3)
        with engine.connect() as connection:
            stored = connection.exec_driver_sql(f"SELECT name FROM {elsewhere}.public_id_block").scalars().all()
    finally:
        here.table.drop(engine, checkfirst=True)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {elsewhere}.public_id_block")
            connection.exec_driver_sql(f"DROP SCHEMA {elsewhere}")

    assert (got, stored) == ([range(3)], ["order"])


def test_what_has_to_be_awaited(async_engine: AsyncEngine) -> None:
    """With an AsyncEngine, what cannot wait by itself says what to await."""
    told: list[str] = []

    async def story() -> None:
        allocator = BlockAllocator(async_engine, "order", table="interrupted_async", block=10, timeout=30)
        with pytest.raises(ConfigurationError) as caught:
            allocator.create_table()
        told.append(str(caught.value))
        await allocator.acreate_table()
        with pytest.raises(ConfigurationError) as caught:
            allocator.take(5)
        told.append(str(caught.value))
        async with async_engine.begin() as connection:
            await connection.run_sync(allocator.table.drop)
        await async_engine.dispose()

    asyncio.run(story())

    assert "await allocator.acreate_table()" in told[0]
    assert "await allocator.anext() or atake()" in told[1]


def test_interrupted_lease(engine: Engine, allocators: Allocators) -> None:
    """An interrupt in the midst of a lease leaves the numbers in memory, and nothing that others would wait for."""
    allocator = allocators(block=10, timeout=10)
    assert allocator.take(7) == [range(7)]

    def interrupt(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("UPDATE"):
            raise KeyboardInterrupt

    event.listen(engine, "before_cursor_execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        allocator.take(5)
    event.remove(engine, "before_cursor_execute", interrupt)

    assert (allocator.reserved, allocator.next()) == (3, 7)
    assert allocator.take(5) == [range(8, 13)]


@on("postgresql", "mysql", "mariadb")
def test_lease_ended_by_a_signal(engine: Engine, allocators: Allocators) -> None:
    """A connection whose answer was not read, because a signal raised an error, gives its answer to nobody else."""
    allocator = allocators(block=10, timeout=10)
    sleep = "(SELECT pg_sleep(1)) IS NOT NULL" if engine.dialect.name == "postgresql" else "sleep(1) = 0"

    class TimeLimit(Exception):
        """What a worker's time limit raises, such as Celery's SoftTimeLimitExceeded."""

    def end(*_: object) -> None:
        raise TimeLimit

    def slow_down(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        return (f"{statement} AND {sleep}" if statement.startswith("UPDATE") else statement), parameters

    assert allocator.take(7) == [range(7)]
    event.listen(engine, "before_cursor_execute", slow_down, retval=True)
    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(TimeLimit):
            allocator.take(5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        event.remove(engine, "before_cursor_execute", slow_down)

    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 'of its own'").scalar() == "of its own"
    assert [number for numbers in allocator.take(20) for number in numbers][:3] == [7, 8, 9]
