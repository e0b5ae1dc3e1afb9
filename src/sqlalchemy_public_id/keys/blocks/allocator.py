"""Keys from blocks: many numbers leased in one short transaction, and served from memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Engine, Table
from sqlalchemy.util import greenlet_spawn
from typing_extensions import ParamSpec, Self

from sqlalchemy_public_id.errors import ConfigurationError, LeaseNotAvailable, shown
from sqlalchemy_public_id.formats.forks import forget_in_child
from sqlalchemy_public_id.keys.blocks.pace import Pace
from sqlalchemy_public_id.keys.blocks.refill import ByTask, ByThread, Pause, Refill
from sqlalchemy_public_id.keys.blocks.source import Source
from sqlalchemy_public_id.keys.blocks.stock import Stock, joined
from sqlalchemy_public_id.keys.blocks.table import END, checked_name, counter_table
from sqlalchemy_public_id.keys.blocks.transient import is_transient, words

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["BlockAllocator"]

P = ParamSpec("P")
T = TypeVar("T")


class BlockAllocator:
    """Numbers that no other process gets, at the cost of one short transaction for a whole block of them.

    A table holds one row for each named sequence. A lease moves its counter on, in a transaction of its own on a
    connection of its own; then the numbers are served from memory, to any number of threads. When half of a block is
    used, the next one is leased in the background. The method is known as hi/lo.

    * **No number is issued twice**, whatever is rolled back, killed or forked. Numbers that were leased and not used
      are lost: with a killed process, with a connection that broke before the answer came, with :meth:`close`.
    * **Not in order** across processes, and not without gaps: a number says which block it is of, not when it was used.
    * **A forked child** leases blocks of its own. So that it does so on connections of its own, the pool of *engine* is
      made anew in each child, ``engine.dispose(close=False)``.

    :param engine: an engine with a pool that has a connection to spare; or a function that answers one, which is asked
        at the first lease, until it answers one. With an ``AsyncEngine``, :meth:`next` works inside a flush and in
        column defaults, and everywhere else there are :meth:`anext`, :meth:`atake` and :meth:`areserve`.
    :param name: the name of the sequence, 1 to 100 printable ASCII characters; each byte counts.
    :param block: how many numbers a lease takes. Without it, what a second needs, at the rate since the last lease; at
        most ten times, at least half of the one before: 100 at first, then 10 to 1,000,000.
    :param table: the name of the table.
    :param schema: its schema.
    :param start: the first number of a sequence that has no row yet.
    :param timeout: for how many seconds a call waits for a lease.
    :param create: whether the first lease creates the table where there is none.
    :raises ConfigurationError: where this cannot work, with ``StaticPool`` say, or with SQLite in memory.

    >>> from sqlalchemy import create_engine
    >>> from sqlalchemy_public_id.keys import BlockAllocator
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> engine = create_engine(f"sqlite:///{folder.name}/shop.db")
    >>> with BlockAllocator(engine, "order", block=1000, create=True) as orders:
    ...     orders.next(), orders.next(), orders.take(500)
    (0, 1, [range(2, 502)])
    >>> engine.dispose(); folder.cleanup()
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine | Callable[[], Engine | AsyncEngine],
        name: str,
        *,
        block: int | None = None,
        table: str = "public_id_block",
        schema: str | None = None,
        start: int = 0,
        timeout: float = 5.0,
        create: bool = False,
    ) -> None:
        self.name: str = checked_name(name)
        """The name of the sequence."""
        self.block: int | None = block
        """The size of a block, where it is fixed."""
        self.timeout: float = _seconds(timeout)
        """For how many seconds a call waits for a lease."""
        self.start: int = _first(start)
        """The first number of the sequence."""
        self.table: Table = counter_table(table, schema)
        """The table of counters. ``allocator.table.to_metadata(Base.metadata)`` brings it into your migrations."""
        Pace(block)  # which checks it
        self._source = Source(engine, self.table, self.name, self.start, create=create, timeout=self.timeout)
        self._begin()
        forget_in_child(self)

    def __repr__(self) -> str:
        return f"BlockAllocator({self.name!r}{'' if self.block is None else f', block={self.block}'})"

    def _begin(self) -> None:
        """Begin with nothing in memory."""
        self._stock = Stock()
        self._pace = Pace(self.block)
        self._since = time.monotonic()
        self._counted = 0
        self._refill: Refill | None = None

    def forget(self) -> None:
        """Leave all numbers to the parent process. Called in a forked child."""
        self._source.leave_to_parent()
        self._begin()

    # --- numbers

    def next(self) -> int:
        """The next number, from :attr:`start` on.

        :raises LeaseNotAvailable: where the numbers in memory are used up, and none were leased in time.
        :raises KeySpaceExhausted: where the counter is at 2⁶³ - 1, which is not issued.
        """
        try:
            return self._stock.loose.pop()  # atomic
        except IndexError:
            [numbers] = self.take(1)
            return numbers.start

    def take(self, count: int) -> list[range]:
        """The next *count* numbers: ranges in order, which hold as many together. Where memory has fewer, it waits for
        the lease that is under way, and one more, unless other threads take what these brought.

        :raises LeaseNotAvailable: as :meth:`next`. Numbers that were in memory stay there.
        :raises KeySpaceExhausted: as :meth:`next`.
        :raises ValueError: where *count* is no whole number from 0 to 2⁶³ - 1.
        """
        stock, deadline = self._stock, time.monotonic() + self.timeout
        taken: list[range] = []
        missing = _counted(count)
        try:
            while missing:
                more = stock.take(missing)
                taken += more
                missing -= sum(map(len, more))
                if missing:
                    if self._stock is not stock:  # closed meanwhile: what is leased from now on is in another one
                        stock, taken, missing = self._stock, [], count
                        continue
                    self._wait(missing, deadline)
        except BaseException:
            stock.give_back(taken)
            raise
        if self._stock is not stock:  # forked meanwhile, by a signal handler say, or closed: these are not ours
            return self.take(count)
        self._look_ahead(stock)
        return joined(taken)

    def reserve(self, count: int) -> None:
        """Have *count* numbers in memory, for all threads of this process. Call it before the first write of a
        transaction on SQLite: while that holds the lock of the file, no lease can be had.

        :raises LeaseNotAvailable: as :meth:`next`.
        :raises KeySpaceExhausted: as :meth:`next`.
        :raises ValueError: as :meth:`take`.
        """
        deadline = time.monotonic() + self.timeout
        count = _counted(count)
        while (left := self._stock.left) < count:
            self._wait(count - left, deadline)

    @property
    def reserved(self) -> int:
        """How many numbers are in memory."""
        return self._stock.left

    async def anext(self) -> int:
        """:meth:`next`, awaited; with an ``AsyncEngine``."""
        try:
            return self._stock.loose.pop()
        except IndexError:
            return await self._awaited(self.next)

    async def atake(self, count: int) -> list[range]:
        """:meth:`take`, awaited."""
        return await self._awaited(self.take, count)

    async def areserve(self, count: int) -> None:
        """:meth:`reserve`, awaited."""
        await self._awaited(self.reserve, count)

    # --- the table, and the end

    def create_table(self) -> None:
        """Create the table of counters, unless it is there, in a transaction of its own.

        :raises ConfigurationError: with an ``AsyncEngine``, where there is no greenlet of SQLAlchemy to wait in.
        """
        self._source.create_table()

    async def acreate_table(self) -> None:
        """:meth:`create_table`, awaited."""
        await self._awaited(self.create_table)

    def close(self) -> None:
        """Wait for a lease that is under way, :attr:`timeout` at most, and drop all numbers. Next time, it begins anew.

        A program may end without: its numbers are lost as well, and nothing waits.

        :raises ConfigurationError: with an ``AsyncEngine``, where a lease is under way that has to be awaited.
        """
        if self._refill is not None:
            self._refill.end(self.timeout)
        self._begin()

    async def aclose(self) -> None:
        """:meth:`close`, awaited. Call it before the event loop ends or the engine is disposed of."""
        await self._awaited(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            self.close()
        except ConfigurationError:
            if error is None:  # an error of the caller is worth more
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    # --- leases

    async def _awaited(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._source.is_async:
            raise ConfigurationError(
                f"{self!r} has an Engine, whose leases cannot be awaited: give it an AsyncEngine, or call "
                f"{function.__name__}() without await"
            )
        answer: T = await greenlet_spawn(partial(function, *args, **kwargs))
        return answer

    def _leases(self) -> Refill:
        """What leases for this process. Nothing is begun before it is needed: a fork may come first."""
        if self._refill is None:
            stock = self._stock

            def fill(count: int, pause: Pause) -> None:
                self._fill(stock, count, pause)

            with stock.lock:
                if self._refill is None:
                    self._refill = (
                        ByTask(fill)
                        if self._source.is_async
                        else ByThread(fill, time.sleep, f"public-id blocks of {self.name}")
                    )
        return self._refill

    def _fill(self, stock: Stock, count: int, pause: Pause) -> None:
        now, issued = time.monotonic(), stock.issued
        size = self._pace.after(seconds=now - self._since, issued=issued - self._counted)
        self._since, self._counted = now, issued
        stock.sized(size)
        stock.add(self._source.lease(max(size, count), pause))

    def _look_ahead(self, stock: Stock) -> None:
        """Begin the next lease when half of a block is used."""
        if stock.left <= self._pace.size // 2:
            self._leases().begin(1)

    def _wait(self, missing: int, deadline: float) -> None:
        """Wait for a lease, until *deadline* at most."""
        try:
            if self._leases().wait(missing, deadline - time.monotonic()):
                return
        except Exception as error:
            if not is_transient(error, self._source.engine.dialect):
                raise
            if time.monotonic() < deadline:
                return
        raise self._not_available() from self._source.failure

    def _not_available(self) -> LeaseNotAvailable:
        failure = self._source.failure
        if self._source.engine.dialect.name == "sqlite":
            reason = "another transaction holds the lock of the file, maybe that of the caller"
            advice = "call allocator.reserve(count) before its first write, or keep the counter in a file of its own"
        else:
            reason = "the database does not answer; another transaction holds the row, or the pool has no connection"
            advice = "end the transaction that holds the row, let the pool have a connection more, or wait longer"
        return LeaseNotAvailable(
            self.name,
            timeout=self.timeout,
            reason=reason if failure is None else f"{reason} ({words(failure)})",
            advice=advice,
        )


def _counted(count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= END:
        raise ValueError(f"count is {shown(count)}, expected a whole number from 0 to {END}")
    return count


def _first(start: object) -> int:
    if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < END:
        raise ConfigurationError(f"start is {shown(start)}, expected a whole number from 0 to {END - 1}")
    return start


def _seconds(timeout: object) -> float:
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not 0 < timeout <= TIMEOUT_MAX:
        raise ConfigurationError(
            f"timeout is {shown(timeout)}, expected a number of seconds above 0, at most {TIMEOUT_MAX:.0f}"
        )
    return float(timeout)
