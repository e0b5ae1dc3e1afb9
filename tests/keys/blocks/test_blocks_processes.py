"""Blocks of keys in forked processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool
from support.forks import fork, ignore_fork_warning, in_child
from support.marks import on

from sqlalchemy_public_id.errors import LeaseNotAvailable
from sqlalchemy_public_id.keys import BlockAllocator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.backend,
    ignore_fork_warning,
    # the child leaves the parent's connections open
    pytest.mark.filterwarnings("ignore:.*unclosed:ResourceWarning"),
]


@pytest.fixture
def server(engine: Engine) -> Iterator[Engine]:
    """Yield an engine without a pool, on a database with the table of counters."""
    server = create_engine(engine.url, poolclass=NullPool)
    table = BlockAllocator(server, "order").table
    table.drop(server, checkfirst=True)
    table.create(server)
    yield server
    table.drop(server)


def test_forks_in_the_midst_of_leases(engine: Engine, server: Engine, new_engine: Callable[..., Engine]) -> None:
    """A child that is forked during leases issues other keys, and does not wait for its parent's locks.

    It opens its own connections, and the parent goes on.
    """
    allocator = BlockAllocator(new_engine(engine.name, engine.url), "order", block=20, start=0, timeout=60)
    taken: list[int] = []
    done = threading.Event()

    def take() -> None:
        while not done.is_set():
            taken.append(allocator.next())

    def work() -> list[str]:
        return [str(allocator.reserved), *(str(allocator.next()) for _ in range(100))]

    children = []
    with allocator, ThreadPoolExecutor(4) as threads:
        taking = [threads.submit(take) for _ in range(4)]
        try:
            for _ in range(12):
                before = len(taken)
                while len(taken) < before + 50:
                    time.sleep(0.001)
                children.append(fork(work))
            answers = [list(map(int, child())) for child in children]
        finally:
            done.set()
        for each in taking:
            each.result()

    assert [reserved for reserved, *_ in answers] == [0] * 12
    taken += [key for _, *keys in answers for key in keys]
    assert len(set(taken)) == len(taken)
    assert BlockAllocator(server, "order").next() % 20 == 0  # the parent's connections still work


@on("sqlite")
def test_fork_within_a_transaction(engine: Engine, server: Engine) -> None:
    """On SQLite, a child that is forked during its parent's transaction gets an error after the timeout."""

    def work() -> list[str]:
        with pytest.raises(LeaseNotAvailable):
            allocator.next()
        return ["refused"]

    with BlockAllocator(engine, "order", start=0, timeout=0.3) as allocator:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE note (id INTEGER)")
            connection.exec_driver_sql("INSERT INTO note VALUES (1)")
            assert in_child(work) == ["refused"]
        assert allocator.next() == 0
