"""Serve numbers from blocks in memory; one thread or task leases a block for all that are waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, Table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only, greenlet_spawn
from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats.pool import reset_in_child
from sqlalchemy_public_id.keys.blocks.forks import TURNS
from sqlalchemy_public_id.keys.blocks.lease import (
    COUNTERS,
    END,
    Lessor,
    NumberRefusal,
    checked_name,
    checked_number,
    checked_timeout,
    counter_table,
)
from sqlalchemy_public_id.orm.inspection import is_in_greenlet

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

_FIRST_BLOCK, _LARGEST_BLOCK = 100, 1_000_000
_MOST = 2**40
"""The most numbers that one call leases, so that a wrong count does not use up the sequence: eight million calls do."""


class BlockAllocator:
    """Allocates numbers that no other process gets, with one short transaction per block.

    A table holds one row per named sequence. A lease moves the counter of the row in a separate transaction on a
    separate connection, which takes about a millisecond. The numbers are then served from memory, to any number of
    threads, until the next lease. The method is known as hi/lo.

    * **No number is issued twice**, whatever is rolled back, killed or forked. Leased numbers are lost if a process is
      killed, if a connection breaks before the answer arrives, or if :meth:`close` is called.
    * **Numbers are unique, but neither ordered across processes nor gap-free.**
    * **A forked child** leases separate blocks on separate connections: the pool of *engine* is replaced in each child,
      as by ``engine.dispose(close=False)``.

    :param engine: an engine whose pool has a connection to spare, or a function that returns an engine, called at the
        first lease. With an ``AsyncEngine``, :meth:`next` works in a flush and in column defaults; everywhere else, use
        :meth:`anext`, :meth:`atake` and :meth:`areserve`.
    :param name: the name of the sequence, 1 to 100 printable ASCII characters, compared byte by byte.
    :param block: how many numbers to lease at once, at most 2⁴⁰. By default 100, doubled after each block that lasts
        less than a second, up to 1,000,000.
    :param table: the name of the table.
    :param schema: the schema of the table.
    :param start: the lowest number. A sequence that is below continues from here, for a table that already has rows.
    :param timeout: how many seconds a call waits for a lease, in addition to the engine's own timeouts for a connection
        and for its pool.
    :param create: whether the first lease creates a missing table.
    :raises ConfigurationError: for invalid settings, such as an engine with ``StaticPool`` or SQLite in memory.

    >>> from sqlalchemy import create_engine
    >>> from sqlalchemy_public_id.keys import BlockAllocator
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> engine = create_engine(f"sqlite:///{folder.name}/shop.db")
    >>> with BlockAllocator(engine, "order", block=1000, create=True) as orders:
    ...     orders.next(), orders.next(), orders.take(500)
    (1, 2, [range(3, 503)])
    >>> engine.dispose(); folder.cleanup()
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine | Callable[[], Engine | AsyncEngine],
        name: str,
        *,
        block: int | None = None,
        table: str = COUNTERS,
        schema: str | None = None,
        start: int = 1,
        timeout: float = 5.0,
        create: bool = False,
    ) -> None:
        self.name: str = checked_name(name)
        """The name of the sequence."""
        self.block: int | None = (
            block if block is None else checked_number("block", block, 1, _MOST, ConfigurationError)
        )
        """The size of a block if it is fixed."""
        self.timeout: float = checked_timeout(timeout)
        """For how many seconds a call waits for a lease."""
        self.start: int = checked_number("start", start, 0, END - 1, ConfigurationError)
        """The lowest number of the sequence."""
        self.table: Table = counter_table(table, schema)
        """The table of counters. ``allocator.table.to_metadata(Base.metadata)`` adds it to your migrations."""
        self._lessor = Lessor(engine, self.table, self.name, self.start, create=create)
        self._begin()
        reset_in_child(self)

    def __repr__(self) -> str:
        return f"BlockAllocator({self.name!r}{'' if self.block is None else f', block={self.block}'})"

    def _begin(self) -> None:
        self._next = self._stop = 0  # the block in use
        self._later: tuple[range, ...] = ()
        self._doubted: list[range] = []  # numbers that a table may have
        self._refusal: NumberRefusal | None = None
        # held for moments, never during a lease; reentrant, because a signal handler or a finalizer may take numbers
        self._memory = threading.RLock()
        self._turn = threading.Lock()
        self._leasing: set[object] = set()  # the threads and tasks that have a turn
        TURNS.add(self._turn)
        self._turns_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._size = self.block or _FIRST_BLOCK
        self._leased_at: float | None = None

    def reset(self) -> None:
        """Leave all numbers to the parent process. Called in a forked child."""
        self._lessor.leave_to_parent()
        self._begin()

    # --- numbers

    def next(self) -> int:
        """Return the next number, from :attr:`start` on.

        :raises LeaseNotAvailable: if no number is in memory, and none was leased in time.
        :raises KeySpaceExhausted: if the counter has reached 2⁶³ - 1, which is never issued.
        """
        with self._memory:
            number = self._next
            if number < self._stop:  # no function is called from here on, so no signal handler runs in between
                self._next = number + 1
                return number
        [numbers] = self.take(1)
        return numbers.start

    def take(self, count: int) -> list[range]:
        """Return the next *count* numbers as ranges in order, after a lease if fewer are in memory.

        :raises LeaseNotAvailable: as :meth:`next`. Numbers that were in memory stay there.
        :raises KeySpaceExhausted: as :meth:`next`.
        :raises ValueError: unless *count* is a whole number from 0 to 2⁴⁰. A wrong count, such as a time in
            nanoseconds, would use up the sequence for all processes.
        """
        count = checked_number("count", count, 0, _MOST, ValueError)
        while (taken := self._pop(count)) is None:
            self._fill(count)
        return taken

    def reserve(self, count: int) -> None:
        """Lease until *count* numbers are in memory, for all threads of this process.

        On SQLite, call it before the first write of a transaction: once the file is locked, no lease is possible.

        :raises LeaseNotAvailable: as :meth:`next`.
        :raises KeySpaceExhausted: as :meth:`next`.
        :raises ValueError: as :meth:`take`.
        """
        count = checked_number("count", count, 0, _MOST, ValueError)
        while self.reserved < count:
            self._fill(count)

    @property
    def reserved(self) -> int:
        """How many numbers are in memory."""
        with self._memory:
            first, stop, later = self._next, self._stop, self._later
        return stop - first + sum(map(len, later))

    async def anext(self) -> int:
        """Async version of :meth:`next`, for an ``AsyncEngine``."""
        taken = self._pop(1)  # in one step: another thread with an event loop of its own may take the last number
        return taken[0].start if taken else await self._awaited(self.next)

    async def atake(self, count: int) -> list[range]:
        """Async version of :meth:`take`."""
        return await self._awaited(self.take, count)

    async def areserve(self, count: int) -> None:
        """Async version of :meth:`reserve`."""
        await self._awaited(self.reserve, count)

    # --- the table, and the end

    def claim(self, ids: str, order: str) -> None:
        """Say that the numbers become *ids* in this *order*: a lease is refused if they did so in another one before.

        A format calls it when it is created. Both are short texts, without control characters.

        :raises ConfigurationError: if a format of this program has another order for these ids.
        """
        self._lessor.orders.claim(ids, order)

    def create_table(self) -> None:
        """Create the table of counters, unless it exists, in a separate transaction.

        :raises ConfigurationError: with an ``AsyncEngine``, outside of SQLAlchemy's greenlet.
        """
        self._require_greenlet("write await allocator.acreate_table()")
        self._lessor.create_table()

    async def acreate_table(self) -> None:
        """Async version of :meth:`create_table`."""
        await self._awaited(self.create_table)

    def close(self) -> None:
        """Discard the numbers in memory; the next call leases a new block. Programs need not call it at exit."""
        with self._memory:
            self._next, self._later, self._doubted = self._stop, (), []

    async def aclose(self) -> None:
        """Async version of :meth:`close`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    # --- memory and leases

    def _pop(self, count: int) -> list[range] | None:
        """Take *count* numbers out of memory; take none and return ``None`` if it has fewer."""
        with self._memory:
            while True:
                first, stop, later = self._next, self._stop, self._later
                if 0 < count <= stop - first:
                    taken, rest = [range(first, first + count)], (first + count, stop, later)
                else:
                    parts = _divided([range(first, stop), *later], count)
                    if parts is None:
                        return None
                    taken, (block, *others) = parts
                    rest = block.start, block.stop, tuple(others)
                if self._next == first and self._stop == stop and self._later is later:
                    # no signal handler has taken numbers since; none runs here, because no function is called
                    self._next, self._stop, self._later = rest
                    return taken

    def _fill(self, count: int) -> None:
        """Lease a block unless *count* numbers are in memory by now: one thread or task leases for all that wait."""
        deadline = time.monotonic() + self.timeout
        with self._turn_until(deadline):
            self._release_doubted()
            if (missing := count - self.reserved) <= 0:
                return
            if self.block is None and self._leased_at is not None and time.monotonic() - self._leased_at < 1:
                self._size = min(self._size * 2, _LARGEST_BLOCK)
            leased = self._lease(max(self._size, missing), deadline)
            self._leased_at = time.monotonic()
            self._keep(leased)

    def _keep(self, leased: range) -> None:
        stop = leased.stop
        with self._memory:
            while True:
                later = self._later
                longer = (*later, leased)
                if not later and self._stop == leased.start:
                    self._stop = stop
                    return
                if self._later is later:  # a signal handler may have taken numbers: the lock is reentrant
                    self._later = longer
                    return

    # --- a table with keys that the counter has not issued: it was adopted, loaded, or restored

    def _doubt(self, refusal: NumberRefusal) -> None:
        """Issue no number in memory before it was looked up in the table, which has just refused one."""
        with self._memory:
            while True:
                first, stop, later = self._next, self._stop, self._later
                doubted = [*self._doubted, *(each for each in (range(first, stop), *later) if each)]
                if self._next == first and self._stop == stop and self._later is later:  # as in _pop()
                    self._next, self._stop, self._later, self._doubted = 0, 0, (), doubted
                    self._refusal = refusal
                    return

    def _release_doubted(self) -> None:
        """Issue doubted numbers again, after the last one that the table has."""
        while (refusal := self._refusal) is not None and (doubted := self._doubted.copy()):
            numbers = doubted[0]
            taken = self._look(refusal, numbers)
            with self._memory:
                if numbers not in self._doubted:  # close() has discarded them meanwhile
                    continue
                self._doubted.remove(numbers)
                if free := numbers if taken is None else range(taken + 1, numbers.stop):
                    self._keep(free)

    def _lease(self, count: int, deadline: float) -> range:
        """Lease *count* numbers. After a refusal, look once whether the table has some of them, and then skip its keys.

        Numbers that the table has would be refused one by one.
        """
        leased, refusal = self._lessor.lease(count, self.timeout, deadline), self._refusal
        if refusal is None:
            return leased
        if self._look(refusal, leased) is not None:
            largest = self._look(refusal)
            leased = self._lessor.lease(count, self.timeout, deadline, 0 if largest is None else largest + 1)
        self._refusal = None
        return leased

    def _look(self, refusal: NumberRefusal, numbers: range | None = None) -> int | None:
        if refusal.engine.dialect.is_async and not is_in_greenlet():
            raise ConfigurationError(
                f"the table {refusal.key.table.name} has refused a number of {self!r}, and has to be read with its "
                f"AsyncEngine: give the allocator this engine, and await allocator.areserve(count)"
            )
        try:
            return refusal.largest(numbers)
        except DBAPIError as error:
            raise self._lessor.not_available(self.timeout, error) from error

    @contextmanager
    def _turn_until(self, deadline: float) -> Generator[None]:
        turn: threading.Lock | asyncio.Lock = self._turn
        is_async = self._lessor.is_async
        if is_async:
            self._require_greenlet(
                "write await allocator.anext() or atake(), or await allocator.areserve(count) before; inside the flush "
                "of an AsyncSession, next() waits by itself"
            )
        leasing = self._leasing
        owner: object = asyncio.current_task() if is_async else threading.get_ident()
        if owner in leasing:  # it would wait for itself
            raise self._lessor.interrupting()
        leasing.add(owner)
        try:
            if is_async:
                # not the lock of all threads, which would block the event loop
                turn = self._turns_of_loops.setdefault(asyncio.get_running_loop(), asyncio.Lock())
                await_only(turn.acquire())  # the task that holds it has a deadline, too
            elif not self._turn.acquire(timeout=max(deadline - time.monotonic(), 0)):
                raise self._lessor.not_available(self.timeout)
            try:
                yield
            finally:
                turn.release()
        finally:
            leasing.discard(owner)

    def _require_greenlet(self, advice: str) -> None:
        if self._lessor.is_async and not is_in_greenlet():
            raise ConfigurationError(f"the engine is an AsyncEngine, which has to be awaited: {advice}")

    async def _awaited(self, function: Callable[..., T], *args: int) -> T:
        if not self._lessor.is_async:
            raise ConfigurationError(
                f"{self!r} has an Engine, whose leases cannot be awaited: give it an AsyncEngine, or call "
                f"{function.__name__}() without await"
            )
        result: T = await greenlet_spawn(function, *args)
        return result


def _divided(blocks: list[range], count: int) -> tuple[list[range], list[range]] | None:
    """Return the first *count* numbers of *blocks*, and the blocks that are left; ``None`` if there are fewer."""
    taken: list[range] = []
    for at, block in enumerate(blocks):
        part = block[:count]
        if part:
            taken.append(part)
            count -= len(part)
        if not count:
            return taken, [block[len(part) :], *blocks[at + 1 :]]
    return None
