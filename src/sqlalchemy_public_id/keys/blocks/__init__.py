"""Keys from blocks: many numbers leased in one short transaction, and served from memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Column, Connection, Engine, Table, event
from sqlalchemy.orm import InstanceState, MappedColumn, Mapper, mapped_column
from sqlalchemy.util import greenlet_spawn
from typing_extensions import Self

from sqlalchemy_public_id.dialects import BigIntegerKey
from sqlalchemy_public_id.errors import ConfigurationError, LeaseNotAvailable, safe_repr
from sqlalchemy_public_id.formats.pool import reset_in_child
from sqlalchemy_public_id.keys.blocks.buffer import BlockSize, Buffer, joined
from sqlalchemy_public_id.keys.blocks.lease import END, Lessor, checked_name, counter_table
from sqlalchemy_public_id.keys.blocks.waiting import Pause, TaskLeases, ThreadLeases
from sqlalchemy_public_id.orm import Listener, Listeners

__all__ = ["block_key", "BlockAllocator"]

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")


class BlockAllocator:
    """Numbers that no other process gets, at the cost of one short transaction per block.

    A table holds one row per named sequence. A lease moves the counter of the row in a transaction of its own, on a
    connection of its own. Then the numbers are served from memory, to any number of threads. When they are used up,
    the next block is leased, which takes about a millisecond. The method is the ``hi/lo`` generator of old.

    * **No number is issued twice**, whatever is rolled back, killed or forked. Numbers that were leased and not used
      are lost: with a killed process, with a connection that broke before the answer came, with :meth:`close`.
    * **Numbers are unique, but neither ordered across processes nor gap-free.**
    * **A forked child** leases blocks of its own, on connections of its own: the pool of *engine* is replaced in each
      child, as ``engine.dispose(close=False)`` does.

    :param engine: an engine whose pool has a connection to spare, or a function that returns one. The function is
        called at the first lease, until it returns one. With an ``AsyncEngine``, :meth:`next` works in a flush and in
        column defaults; everywhere else, use :meth:`anext`, :meth:`atake` and :meth:`areserve`.
    :param name: the name of the sequence, 1 to 100 printable ASCII characters; each byte counts.
    :param block: how many numbers a lease takes. By default the numbers used in one second, at the rate since the last
        lease; at most ten times, at least half of the block before: 100 at first, then 10 to 1,000,000.
    :param table: the name of the table.
    :param schema: its schema.
    :param start: the first number of a sequence that has no row yet.
    :param timeout: for how many seconds a call waits for a lease.
    :param create: whether the first lease creates a missing table.
    :raises ConfigurationError: if this cannot work, as with ``StaticPool`` or with SQLite in memory.

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
        """The size of a block if it is fixed."""
        self.timeout: float = _checked_timeout(timeout)
        """For how many seconds a call waits for a lease."""
        self.start: int = _checked("start", start, END - 1, ConfigurationError)
        """The first number of the sequence."""
        self.table: Table = counter_table(table, schema)
        """The table of counters. ``allocator.table.to_metadata(Base.metadata)`` adds it to your migrations."""
        self._begin()
        self._lessor = Lessor(engine, self.table, self.name, self.start, create=create, timeout=self.timeout)
        reset_in_child(self)

    def __repr__(self) -> str:
        return f"BlockAllocator({self.name!r}{'' if self.block is None else f', block={self.block}'})"

    def _begin(self) -> None:
        self._buffer = Buffer()
        self._size = BlockSize(self.block)
        self._last_lease = time.monotonic()
        self._issued_before = 0
        self._leases: ThreadLeases | TaskLeases | None = None

    def reset(self) -> None:
        """Leave all numbers to the parent process. Called in a forked child."""
        self._lessor.leave_to_parent()
        self._begin()

    # --- numbers

    def next(self) -> int:
        """Return the next number, from :attr:`start` on.

        :raises LeaseNotAvailable: if no number is in memory, and none was leased in time.
        :raises KeySpaceExhausted: if the counter is at 2⁶³ - 1, which is not issued.
        """
        try:
            return self._buffer.current.pop()  # atomic
        except IndexError:
            [numbers] = self.take(1)
            return numbers.start

    def take(self, count: int) -> list[range]:
        """Return the next *count* numbers as ranges in order.

        If memory has fewer, it waits for the lease under way, and one more, unless other threads take those numbers.

        :raises LeaseNotAvailable: as :meth:`next`. Numbers that were in memory stay there.
        :raises KeySpaceExhausted: as :meth:`next`.
        :raises ValueError: unless *count* is a whole number from 0 to 2⁶³ - 1.
        """
        buffer, deadline = self._buffer, time.monotonic() + self.timeout
        taken: list[range] = []
        missing = _checked("count", count, END, ValueError)
        try:
            while missing:
                more = buffer.take(missing)
                taken += more
                missing -= sum(map(len, more))
                if missing:
                    if self._buffer is not buffer:  # closed meanwhile: later leases fill another buffer
                        buffer, taken, missing = self._buffer, [], count
                        continue
                    self._wait(missing, deadline)
        except BaseException:
            buffer.give_back(taken)
            raise
        if self._buffer is not buffer:  # closed, or forked by a signal handler: these numbers belong to the parent
            return self.take(count)
        return joined(taken)

    def reserve(self, count: int) -> None:
        """Lease until *count* numbers are in memory, for all threads of this process.

        On SQLite, call it before the first write of a transaction, which locks the file: no lease is possible then.

        :raises LeaseNotAvailable: as :meth:`next`.
        :raises KeySpaceExhausted: as :meth:`next`.
        :raises ValueError: as :meth:`take`.
        """
        deadline = time.monotonic() + self.timeout
        count = _checked("count", count, END, ValueError)
        while (left := self._buffer.left) < count:
            self._wait(count - left, deadline)

    @property
    def reserved(self) -> int:
        """The number of numbers in memory."""
        return self._buffer.left

    async def anext(self) -> int:
        """:meth:`next`, awaited; with an ``AsyncEngine``."""
        try:
            return self._buffer.current.pop()
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
        """Create the table of counters, unless it exists, in a transaction of its own.

        :raises ConfigurationError: with an ``AsyncEngine``, outside of SQLAlchemy's greenlet.
        """
        self._lessor.create_table()

    async def acreate_table(self) -> None:
        """:meth:`create_table`, awaited."""
        await self._awaited(self.create_table)

    def close(self) -> None:
        """Wait for a lease under way, :attr:`timeout` at most, and drop all numbers. The next call leases a new block.

        A program may end without it. Its numbers are lost as well.

        :raises ConfigurationError: with an ``AsyncEngine``, if a lease is under way that has to be awaited.
        """
        if self._leases is not None:
            self._leases.end(self.timeout)
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
            if error is None:  # otherwise, the error of the caller is worth more
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    # --- leases

    async def _awaited(self, function: Callable[..., T], *args: int) -> T:
        if not self._lessor.is_async:
            raise ConfigurationError(
                f"{self!r} has an Engine, whose leases cannot be awaited: give it an AsyncEngine, or call "
                f"{function.__name__}() without await"
            )
        result: T = await greenlet_spawn(function, *args)
        return result

    def _fill(self, buffer: Buffer, count: int, pause: Pause) -> None:
        now, issued = time.monotonic(), buffer.issued
        size = self._size.adapt(seconds=now - self._last_lease, issued=issued - self._issued_before)
        self._last_lease, self._issued_before = now, issued
        buffer.add(self._lessor.lease(max(size, count), pause))

    def _wait(self, missing: int, deadline: float) -> None:
        try:
            if self._leases_here().wait(missing, deadline - time.monotonic()):
                return
        except Exception as error:
            if not self._lessor.is_transient(error):
                raise
            if time.monotonic() < deadline:
                return
        raise self._not_available() from self._lessor.failure

    def _leases_here(self) -> ThreadLeases | TaskLeases:
        # not before the first lease: a fork may come first, and the engine may not exist yet
        if self._leases is None:
            buffer = self._buffer
            fill = partial(self._fill, buffer)  # a lease that ends after close() fills the buffer that was dropped
            with buffer.lock:
                if self._leases is None:
                    is_async = self._lessor.is_async
                    self._leases = TaskLeases(fill) if is_async else ThreadLeases(fill, self.name)
        return self._leases

    def _not_available(self) -> LeaseNotAvailable:
        failure = self._lessor.failure_message
        if self._lessor.engine.dialect.name == "sqlite":
            reason = "another transaction holds the lock of the file, maybe that of the caller"
            advice = "call allocator.reserve(count) before its first write, or keep the counter in a file of its own"
        else:
            reason = "the database does not answer; another transaction holds the row, or the pool has no connection"
            advice = "end the transaction that holds the row, let the pool have a connection more, or wait longer"
        return LeaseNotAvailable(
            self.name,
            timeout=self.timeout,
            reason=reason if failure is None else f"{reason} ({failure})",
            advice=advice,
        )


# --- integer keys (hi/lo): the key of a row is known before the INSERT

_ALLOCATOR = "sqlalchemy_public_id.allocator"
"""The key in ``Column.info`` of the allocator."""


def block_key(allocator: BlockAllocator, **kwargs: Any) -> MappedColumn[int]:
    """Return a primary key of 64 bits whose values come from *allocator*, and not from the database.

    The type is that of :func:`~sqlalchemy_public_id.bigint_key`, without its identity: ``BIGINT``, on MySQL and MariaDB
    ``BIGINT UNSIGNED``, on SQLite ``INTEGER``. An assigned key stays. ORM and Core inserts take their keys from the
    allocator. A flush needs no RETURNING, so that many objects are one statement on MySQL and SQLite, too.

    SQL from elsewhere has to insert a key of its own. Keyword arguments go to :func:`sqlalchemy.orm.mapped_column`.

    >>> from sqlalchemy import create_engine
    >>> from sqlalchemy.orm import DeclarativeBase
    >>> from sqlalchemy_public_id.keys import BlockAllocator, block_key
    >>> events = BlockAllocator(create_engine("sqlite:///shop.db"), "event")
    >>> class Base(DeclarativeBase): ...
    >>> class Event(Base):
    ...     __tablename__ = "event"
    ...     id = block_key(events)
    >>> Event.__table__.c.id.type
    BigIntegerKey()
    """
    if not isinstance(allocator, BlockAllocator):
        raise ConfigurationError(f"expected a BlockAllocator, not {safe_repr(allocator)}")
    for option in ("default", "insert_default", "primary_key", "autoincrement"):
        if option in kwargs:
            raise ConfigurationError(f"block_key() sets {option} itself: the keys come from {allocator!r}")
    _LISTENERS.install()
    info = {**kwargs.pop("info", {}), _ALLOCATOR: allocator}
    return mapped_column(
        kwargs.pop("name", None),
        BigIntegerKey(),
        primary_key=True,
        autoincrement=False,
        insert_default=allocator.next,
        info=info,
        **kwargs,
    )


def _on_mapper_configured(mapper: Mapper[Any], model: type[Any]) -> None:
    # with the column default alone, a flush would send one INSERT per row
    allocators: dict[str, BlockAllocator] = {
        prop.key: column.info[_ALLOCATOR]
        for prop in mapper.column_attrs
        for column in prop.columns
        if isinstance(column, Column) and _ALLOCATOR in column.info  # a property may be an expression
    }
    if not allocators:
        return

    def before_insert(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
        for key, allocator in allocators.items():
            if state.dict.get(key) is None:
                state.dict[key] = allocator.next()

    event.listen(mapper, "before_insert", before_insert, raw=True)


_LISTENERS = Listeners(Listener(Mapper, "mapper_configured", _on_mapper_configured))


def _checked(name: str, number: object, last: int, error: type[Exception]) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= last:
        raise error(f"{name} is {safe_repr(number)}, expected a whole number from 0 to {last}")
    return number


def _checked_timeout(timeout: object) -> float:
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not 0 < timeout <= TIMEOUT_MAX:
        raise ConfigurationError(
            f"timeout is {safe_repr(timeout)}, expected a number of seconds above 0, at most {TIMEOUT_MAX:.0f}"
        )
    return float(timeout)
