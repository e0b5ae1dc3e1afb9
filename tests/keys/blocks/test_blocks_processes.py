"""Blocks of keys for many processes: killed at random, and forked in the midst of leases."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.pool import NullPool
from support.forks import fork, ignore_fork_warning, in_child
from support.marks import on

from sqlalchemy_public_id.errors import LeaseNotAvailable
from sqlalchemy_public_id.keys import BlockAllocator

PROCESSES, THREADS, BLOCK, KEYS, KILLS = 8, 8, 5_000, 1_000_000, 10
AT_ONCE = 500
"""How many keys a thread takes and writes down."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.backend,
    ignore_fork_warning,
    # what the parent had open is the parent's to close
    pytest.mark.filterwarnings("ignore:.*unclosed:ResourceWarning"),
]


@pytest.fixture
def server(engine: Engine) -> Iterator[Engine]:
    """An engine without a pool, on a database that has the table of counters."""
    server = create_engine(engine.url, poolclass=NullPool)
    table = BlockAllocator(server, "order").table
    table.drop(server, checkfirst=True)
    table.create(server)
    yield server
    table.drop(server)


def ranges(path: Path) -> list[range]:
    """The ranges that were written down. A line without its end is one that its process was killed at."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [range(*map(int, line.split())) for line in lines if line.endswith("\n")]


def work(server: Engine, path: Path) -> None:
    """Take keys with several threads, and write them down, until killed."""
    allocator = BlockAllocator(server, "order", block=BLOCK, start=0, timeout=60)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def take() -> None:
        while True:
            lines = [f"{numbers.start} {numbers.stop}\n" for numbers in allocator.take(AT_ONCE)]
            os.write(file, "".join(lines).encode())
            time.sleep(0.001)  # so that all threads have their turn

    for _ in range(THREADS):
        threading.Thread(target=take, daemon=True).start()
    while True:
        time.sleep(60)


def begin(server: Engine, path: Path) -> int:
    """Begin a process that does :func:`work`."""
    child = os.fork()
    if child == 0:
        try:
            work(server, path)
        finally:
            os._exit(1)
    return child


def test_a_million_keys_and_kills(server: Engine, tmp_path: Path) -> None:
    """Eight processes of eight threads, of which some are killed at random and begun anew, take a million keys: none
    twice, and none is missing but those of the blocks that a killed process had.
    """
    paths = [tmp_path / str(number) for number in range(PROCESSES)]
    running = [begin(server, path) for path in paths]
    killed = 0
    end = time.monotonic() + 120
    try:
        while killed < KILLS or sum(len(numbers) for path in paths for numbers in ranges(path)) < KEYS:
            assert time.monotonic() < end, "waited in vain"
            time.sleep(random.uniform(0.05, 0.25))
            if killed < KILLS:
                at = random.randrange(PROCESSES)
                os.kill(running[at], signal.SIGKILL)
                os.waitpid(running[at], 0)
                killed += 1
                paths.append(tmp_path / f"{PROCESSES + killed}")
                running[at] = begin(server, paths[-1])
    finally:
        for child in running:
            os.kill(child, signal.SIGKILL)
        ends = [os.waitpid(child, 0)[1] for child in running]
    taken = [numbers for path in paths for numbers in ranges(path)]
    counter = BlockAllocator(server, "order").table
    with server.connect() as connection:
        leased = connection.scalar(select(counter.c.next)) or 0

    issued = {number for numbers in taken for number in numbers}
    assert len(issued) == sum(map(len, taken)) >= KEYS
    assert max(issued) < leased
    assert leased % BLOCK == 0
    assert ends == [signal.SIGKILL] * PROCESSES
    missing = {number // BLOCK for number in range(leased) if number not in issued}
    # each killed process had one block in use, and one on its way
    assert len(missing) <= 2 * (PROCESSES + killed)


def test_forks_in_the_midst_of_leases(engine: Engine, server: Engine, new_engine: Callable[..., Engine]) -> None:
    """A child that is forked while threads take keys takes others, and waits for no lock of its parent, which goes on.

    Its connections are its own.
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
    assert BlockAllocator(server, "order").next() % 20 == 0  # the connections of the parent were left alone


@on("sqlite")
def test_fork_within_a_transaction(engine: Engine, server: Engine) -> None:
    """A child that is forked while its parent writes to a SQLite file, which SQLite forbids, gets an error in time."""

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
