"""Leases whose process is killed in their midst, while a forked child of it goes on and has inherited its sockets."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from marks import on, on_async
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id.keys import BlockAllocator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    # what the parent had open is the parent's to close
    pytest.mark.filterwarnings("ignore:.*unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*was deleted before being closed:ResourceWarning"),
]

MOMENTS = ["within the lease", "before the lease", "while its connection was in use", "before the allocator"]
"""When the child is forked. Its parent is killed in a lease, on a connection that was open at the fork."""

Fork = Callable[[], None]


class Family:
    """A process that is killed in its midst, and the children that it has forked, which live on."""

    def __init__(self) -> None:
        self._alive, self._end = os.pipe()

    def fork(self) -> None:
        """Fork a child that does nothing until the end of the test."""
        if os.fork() == 0:
            os.close(self._end)
            os.read(self._alive, 1)
            os._exit(0)

    def run(self, story: Callable[[Fork], object]) -> int:
        """Run *story* in a process of its own, and wait for its end; the signal that has killed it."""
        parent = os.fork()
        if parent == 0:
            try:
                os.close(self._end)
                self._end = os.open(os.devnull, os.O_RDONLY)
                story(self.fork)
            finally:
                os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1])

    def close(self) -> None:
        """End all children."""
        os.close(self._end)
        os.close(self._alive)


@pytest.fixture
def family() -> Iterator[Family]:
    family = Family()
    yield family
    family.close()


@contextmanager
def counters(url: URL, *, create: bool = True) -> Iterator[Engine]:
    """An engine without a pool on a database that has the table of counters, or will have it."""
    engine = create_engine(url, poolclass=NullPool)
    table = BlockAllocator(engine, "order").table
    table.drop(engine, checkfirst=True)
    if create:
        table.create(engine)
    yield engine
    table.drop(engine)


def kill_after(engine: Engine, word: str, before: Fork | None) -> None:
    """Have this process killed as soon as it has sent a statement that begins with *word*."""

    def killed(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.lstrip().startswith(word):
            if before is not None:
                before()
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(engine, "after_cursor_execute", killed)


def lease_and_die(engine: Engine, moment: str, fork: Fork) -> None:
    """Lease some blocks on one connection of a pool, and be killed in the midst of the last lease."""
    with engine.connect():
        pass
    if moment == "before the allocator":
        fork()
    allocator = BlockAllocator(engine, "order", block=10, timeout=30)
    allocator.next()
    allocator.close()
    if moment == "before the lease":
        fork()
    if moment == "while its connection was in use":
        with engine.connect():
            fork()
    kill_after(engine, "UPDATE", fork if moment == "within the lease" else None)
    allocator.next()


@on("mysql", "mariadb")
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_a_lease(engine: Engine, family: Family, moment: str) -> None:
    """A process that is killed in a lease leaves no lock behind, though a child that it has forked lives on."""
    with counters(engine.url) as others:
        end = family.run(lambda fork: lease_and_die(create_engine(engine.url), moment, fork))
        key = BlockAllocator(others, "order", block=10, timeout=5).next()

    assert end == -signal.SIGKILL
    assert key % 10 == 0


@on_async("mysql", "mariadb")
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_an_awaited_lease(async_engine: AsyncEngine, family: Family, moment: str) -> None:
    """So it is with each asynchronous driver."""

    async def lease(fork: Fork) -> None:
        engine = create_async_engine(async_engine.url)
        async with engine.connect():
            pass
        if moment == "before the allocator":
            fork()
        allocator = BlockAllocator(engine, "order", block=10, timeout=30)
        await allocator.anext()
        await allocator.aclose()
        if moment == "before the lease":
            fork()
        if moment == "while its connection was in use":
            async with engine.connect():
                fork()
        kill_after(engine.sync_engine, "UPDATE", fork if moment == "within the lease" else None)
        await allocator.anext()

    with counters(async_engine.url.set(drivername=f"{async_engine.dialect.name}+pymysql")) as others:
        end = family.run(lambda fork: asyncio.run(lease(fork)))
        key = BlockAllocator(others, "order", block=10, timeout=5).next()

    assert end == -signal.SIGKILL
    assert key % 10 == 0


@on("postgresql")
@pytest.mark.parametrize("moment", ["within", "before"])
def test_killed_while_it_creates_the_table(engine: Engine, family: Family, moment: str) -> None:
    """A process that is killed while its first lease creates the table does not keep others from creating it."""

    def create(fork: Fork) -> None:
        own = create_engine(engine.url)
        allocator = BlockAllocator(own, "order", create=True, timeout=30)
        with own.connect():
            pass
        if moment == "before":
            fork()
        kill_after(own, "CREATE TABLE", fork if moment == "within" else None)
        allocator.next()

    with counters(engine.url, create=False) as others:
        end = family.run(create)
        impatient = create_engine(others.url, poolclass=NullPool, connect_args={"options": "-c lock_timeout=5000"})
        key = BlockAllocator(impatient, "order", create=True, timeout=10).next()

    assert end == -signal.SIGKILL
    assert key == 0


@on_async("postgresql")
def test_killed_while_its_table_is_awaited(async_engine: AsyncEngine, family: Family) -> None:
    """So it is with each asynchronous driver."""

    async def create(fork: Fork) -> None:
        engine = create_async_engine(async_engine.url)
        kill_after(engine.sync_engine, "CREATE TABLE", fork)
        await BlockAllocator(engine, "order", create=True, timeout=30).anext()

    with counters(async_engine.url.set(drivername="postgresql+psycopg"), create=False) as others:
        end = family.run(lambda fork: asyncio.run(create(fork)))
        impatient = create_engine(others.url, poolclass=NullPool, connect_args={"options": "-c lock_timeout=5000"})
        key = BlockAllocator(impatient, "order", create=True, timeout=10).next()

    assert end == -signal.SIGKILL
    assert key == 0


@on("postgresql", "mysql", "mariadb")
def test_a_child_of_a_lease_ends(engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A child that is forked in a lease, cleans up and ends sends nothing to the server: its parent gets its block."""
    own = new_engine(engine.name, engine.url)
    ends: list[int] = []

    def fork(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if not statement.startswith("UPDATE"):
            return
        child = os.fork()
        if child == 0:
            try:
                driver = connection.connection.driver_connection
                driver.close()
                del connection, cursor, driver
                own.dispose()
                gc.collect()
                with own.connect() as another:
                    another.exec_driver_sql("SELECT 1")
                os._exit(0)
            finally:
                os._exit(1)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with counters(engine.url):
        allocator = BlockAllocator(own, "order", block=10, timeout=30)
        allocator.next()
        allocator.close()
        event.listen(own, "after_cursor_execute", fork)
        keys = [allocator.next() for _ in range(3)]
        allocator.close()

    assert ends == [0]
    assert keys == [10, 11, 12]


@on("postgresql", "mysql", "mariadb")
def test_leases_after_a_fork(engine: Engine, new_engine: Callable[..., Engine], family: Family) -> None:
    """A lease leaves its connection behind after a fork, and keeps it as long as there is none."""
    own = new_engine(engine.name, engine.url)
    connects: list[object] = []
    with counters(engine.url):
        allocator = BlockAllocator(own, "order", block=10, timeout=30)
        event.listen(own, "connect", lambda connection, record: connects.append(connection))
        counted = []
        for _ in range(2):
            for _ in range(3):
                allocator.take(10)
                allocator.close()
            counted.append(len(connects))
            family.fork()
        allocator.take(10)
        allocator.close()
        counted.append(len(connects))

    assert counted == [1, 2, 3]
