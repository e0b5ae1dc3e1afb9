"""Blocks of keys that are taken by whatever interrupts the thread: signal handlers, finalizers, other event loops."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool
from support.forks import LONGEST, ignore_fork_warning, in_child

from sqlalchemy_public_id.errors import KeySpaceExhausted, LeaseNotAvailable
from sqlalchemy_public_id.formats import BASE36
from sqlalchemy_public_id.keys import BlockAllocator, CoprimeKey, CoprimeStep

pytestmark = [
    pytest.mark.backend,
    ignore_fork_warning,
    # the child leaves the parent's connections open
    pytest.mark.filterwarnings("ignore:.*unclosed:ResourceWarning"),
]

Allocators = Callable[..., BlockAllocator]

SECONDS = 0.7


@contextmanager
def handling(handler: Callable[[], object], name: int = signal.SIGUSR1) -> Iterator[None]:
    """Call *handler* for each signal of this *name*."""
    before = signal.signal(name, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(name, before)


def raise_at_update(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
    """Listen to ``before_cursor_execute``, and send a signal in the middle of a lease."""
    if statement.startswith("UPDATE"):
        signal.raise_signal(signal.SIGUSR1)


def flat(taken: list[range]) -> list[int]:
    return [number for numbers in taken for number in numbers]


# --- numbers in memory


CALLS: dict[str, Callable[[BlockAllocator], list[int]]] = {
    "next": lambda allocator: [allocator.next()],
    "take one": lambda allocator: flat(allocator.take(1)),
    "take several": lambda allocator: flat(allocator.take(7)),
    "reserve": lambda allocator: allocator.reserve(60) or [allocator.next()],
    "close": lambda allocator: allocator.close() or [allocator.next()],
}


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_signal_handlers(call: str, allocators: Allocators) -> None:
    """A signal handler takes numbers whatever the thread is doing, unless it leases: no hang, and no number twice."""
    allocator = allocators(block=5_000, timeout=LONGEST)
    least = 20 if call == "close" else 1000  # close() makes each call lease a block

    def work() -> list[str]:
        got: list[int] = []
        refused: list[LeaseNotAvailable] = []

        def handle() -> None:
            try:
                got.extend(flat(allocator.take(3)))
            except LeaseNotAvailable as error:
                refused.append(error)

        with handling(handle, signal.SIGVTALRM):
            end = time.monotonic() + SECONDS
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0002, 0.0002)
            while time.monotonic() < end or len(got) < least:  # on a busy machine, few leases end in time
                got += CALLS[call](allocator)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        assert all("has interrupted a lease" in str(error) for error in refused)
        return [str(number) for number in got]

    got = in_child(work)  # ends the child after LONGEST seconds

    assert len(got) == len(set(got)) >= least


@pytest.mark.slow
def test_finalizers(allocators: Allocators) -> None:
    """The finalizer of an object, which the garbage collector calls anywhere, takes numbers."""
    allocator = allocators(block=50_000, timeout=LONGEST)

    def work() -> list[str]:
        got: list[int] = []

        class Leaving:
            def __init__(self) -> None:
                self.myself = self

            def __del__(self) -> None:
                got.append(allocator.next())

        def make_and_take() -> None:
            for _ in range(3000):
                Leaving()
                got.extend(flat(allocator.take(2)))

        usual = gc.get_threshold()
        gc.set_threshold(3, 3, 3)
        try:
            allocator.reserve(20_000)
            make_and_take()
        finally:
            gc.set_threshold(*usual)
        return [str(number) for number in got]

    got = in_child(work)

    assert len(got) > 6000
    assert len(got) == len(set(got))


# --- a lease


def test_signal_handler_during_a_lease(engine: Engine, allocators: Allocators) -> None:
    """A handler that interrupts a lease gets numbers from memory; if there are too few, it is told so at once."""
    allocator = allocators(block=10)
    assert allocator.take(7) == [range(7)]
    handled: list[object] = []

    def handle() -> None:
        handled.append(allocator.next())
        before = time.monotonic()
        with pytest.raises(
            LeaseNotAvailable, match=r"interrupted a lease of its own thread.*reserve\(count\)"
        ) as caught:
            allocator.take(100)
        handled.append(time.monotonic() - before)
        handled.append((caught.value.name, caught.value.timeout))

    event.listen(engine, "before_cursor_execute", raise_at_update)
    try:
        with handling(handle):
            taken = flat(allocator.take(9))
    finally:
        event.remove(engine, "before_cursor_execute", raise_at_update)

    assert (handled[0], handled[2]) == (7, ("order", 0))
    assert float(str(handled[1])) < 5  # not the 30 s of the timeout
    assert taken == list(range(8, 17))
    assert (allocator.reserved, allocator.next()) == (3, 17)


def test_another_thread_during_a_lease(engine: Engine, allocators: Allocators) -> None:
    """Another thread waits for the lease, and gets numbers: it has interrupted nobody."""
    allocator = allocators(block=10)
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(allocator.next()))
    allocator.reserve(1)
    allocator.close()

    def start(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("UPDATE") and thread.ident is None:
            thread.start()
            time.sleep(0.05)

    event.listen(engine, "before_cursor_execute", start)
    try:
        got.append(allocator.next())
        thread.join(LONGEST)
    finally:
        event.remove(engine, "before_cursor_execute", start)

    assert sorted(got) == [10, 11]


def test_signal_handler_during_an_awaited_lease(async_engine: AsyncEngine) -> None:
    """A handler that interrupts the lease of a task is told so, instead of waiting for this task forever."""
    allocator = BlockAllocator(async_engine, "signals", block=10, timeout=LONGEST, create=True)
    handled: list[str] = []

    def handle() -> None:
        with pytest.raises(LeaseNotAvailable, match="has interrupted a lease") as caught:
            allocator.take(100)
        handled.append(caught.value.reason)

    async def story() -> list[range]:
        await allocator.areserve(1)
        event.listen(async_engine.sync_engine, "before_cursor_execute", raise_at_update)
        try:
            with handling(handle):
                return await asyncio.wait_for(allocator.atake(15), LONGEST)
        finally:
            event.remove(async_engine.sync_engine, "before_cursor_execute", raise_at_update)
            async with async_engine.begin() as connection:
                await connection.run_sync(allocator.table.drop)
            await async_engine.dispose()

    taken = asyncio.run(story())

    assert len(handled) == 1
    assert flat(taken) == list(range(1, 16))


# --- several event loops


def test_the_last_number_goes_to_another_event_loop(async_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ``anext()`` that finds no number, because another loop has just taken the last one, leases a block."""
    from sqlalchemy.ext.asyncio import create_async_engine

    own = create_async_engine(async_engine.url, poolclass=NullPool)
    allocator = BlockAllocator(own, "last number", block=3, timeout=LONGEST, create=True)
    asyncio.run(allocator.atake(2))
    assert allocator.reserved == 1
    pop, taken = allocator._pop, []

    def pop_after_another_loop(count: int) -> Any:
        """Let another event loop take the number that is left, before this one does."""
        monkeypatch.setattr(allocator, "_pop", pop)
        thread = threading.Thread(target=lambda: taken.append(asyncio.run(allocator.anext())))
        thread.start()
        thread.join(LONGEST)
        return pop(count)

    async def drop() -> None:
        async with own.begin() as connection:
            await connection.run_sync(allocator.table.drop)

    monkeypatch.setattr(allocator, "_pop", pop_after_another_loop)
    number = asyncio.run(allocator.anext())
    asyncio.run(drop())

    assert (taken, number) == ([3], 4)
    assert allocator._leasing == set()  # nothing is left of the turns of both loops


@pytest.mark.slow
@pytest.mark.usefixtures("restless")
def test_event_loops_in_threads(async_engine: AsyncEngine, new_engine: Callable[..., Any]) -> None:
    """Threads with event loops of their own share an allocator: each ``anext()`` gets a number, and nobody the same."""
    from sqlalchemy.ext.asyncio import create_async_engine

    own = create_async_engine(async_engine.url, poolclass=NullPool)
    allocator = BlockAllocator(own, "loops", block=5, timeout=LONGEST, create=True)
    asyncio.run(allocator.anext())  # the first connection of an AsyncEngine belongs to one loop
    got: list[int] = []
    errors: list[Exception] = []
    end = time.monotonic() + 2

    async def take() -> None:
        while (time.monotonic() < end or len(got) < 20) and not errors:
            try:
                got.append(await allocator.anext())
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=lambda: asyncio.run(take())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)

    async def drop() -> None:
        async with own.begin() as connection:
            await connection.run_sync(allocator.table.drop)

    asyncio.run(drop())
    assert errors == []
    assert allocator._leasing == set()
    assert len(got) == len(set(got)) >= 20


# --- wrong counts


@pytest.mark.parametrize("count", [2**63 - 1, 2**40 + 1, 1_795_907_870_511_322_305])
def test_wrong_counts(count: int, allocators: Allocators) -> None:
    """A count that would use up the sequence for everybody is refused, and leases nothing."""
    allocator, other = allocators(), allocators(block=1)
    assert allocator.next() == 0
    for call in (allocator.take, allocator.reserve):
        with pytest.raises(ValueError, match=rf"^count is {count}, expected a whole number from 0 to {2**40}$"):
            call(count)

    assert other.next() == 100
    assert allocator.reserved == 99


def test_more_ids_than_there_are_keys(allocators: Allocators) -> None:
    """More ids than a format has are refused before the counter moves, so that other processes have ids left."""
    allocator = allocators(block=1)
    format = CoprimeKey(allocator, step=CoprimeStep(BASE36, 2))
    with pytest.raises(KeySpaceExhausted, match="1297 ids were asked for, and there are 1296 in all"):
        format.generate_many(36**2 + 1)

    assert len(set(format.generate_many(36**2))) == 36**2
