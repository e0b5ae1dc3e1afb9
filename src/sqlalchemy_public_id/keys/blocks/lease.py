"""A lease: a short transaction that moves a counter, repeated until it gets the lock; and the table of counters.

The row is read with ``SELECT … FOR UPDATE NOWAIT``, so that no lease waits longer than its caller. The UPDATE matches
the row only if it is unchanged, which is needed for databases without row locks and for AUTOCOMMIT. The caller gets the
numbers only after the transaction has succeeded. If its outcome is unknown, they are lost.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Generator
from contextlib import contextmanager
from threading import TIMEOUT_MAX
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Dialect, Engine, func, insert, inspect, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import AssertionPool, Pool, SingletonThreadPool, StaticPool
from sqlalchemy.schema import Column, MetaData, Table
from sqlalchemy.types import BigInteger, String
from sqlalchemy.util import await_only

from sqlalchemy_public_id.dialects import Outcome, traits_for
from sqlalchemy_public_id.errors import ConfigurationError, KeySpaceExhausted, LeaseNotAvailable
from sqlalchemy_public_id.keys.blocks.orders import Orders
from sqlalchemy_public_id.messages import safe_repr

END = 2**63 - 1
"""The largest ``BIGINT``: the first number that cannot be leased, because the counter has to stay above it."""

COUNTERS = "public_id_block"
"""The usual name of the table of counters."""
_NAME_LENGTH = 100
_ONE_CONNECTION = AssertionPool, SingletonThreadPool, StaticPool
"""Pools without a second connection for a thread, or with a database that no other connection sees."""
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_PAUSE_AWAY = 0.002, 0.02, 0.25
"""Seconds between two attempts. The row is locked for a millisecond; an unreachable server takes longer to return."""

_random = random.SystemRandom()  # not the application's generator, which may be seeded
_inherited: list[Pool] = []
"""Pools of the parent process: the garbage collector would close their connections, and so disturb the parent."""


def counter_table(name: str, schema: str | None = None) -> Table:
    """Return the table of counters: a row per sequence, with the first number that is not leased."""
    from sqlalchemy.dialects import mysql, postgresql  # takes a third of the import time of this library

    byte_string = (
        String(_NAME_LENGTH)
        .with_variant(mysql.VARCHAR(_NAME_LENGTH, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
        .with_variant(postgresql.VARCHAR(_NAME_LENGTH, collation="C"), "postgresql")
    )
    return Table(
        name,
        MetaData(),
        Column("name", byte_string, primary_key=True),
        Column("next", BigInteger, nullable=False, autoincrement=False),
        schema=schema,
    )


def checked_name(name: object) -> str:
    """Return *name* if all databases distinguish it from every other name; some ignore a trailing space."""
    if not (isinstance(name, str) and 1 <= len(name) <= _NAME_LENGTH and name.isascii() and name.isprintable()) or (
        name != name.strip()
    ):
        raise ConfigurationError(
            f"the name of a sequence is {safe_repr(name)}, expected 1 to {_NAME_LENGTH} printable characters of ASCII, "
            f"without a space at either end"
        )
    return name


def checked_number(name: str, number: object, first: int, last: int, error: type[Exception]) -> int:
    """Return *number* if it is whole and from *first* to *last*; raise *error* otherwise."""
    if not isinstance(number, int) or isinstance(number, bool) or not first <= number <= last:
        raise error(f"{name} is {safe_repr(number)}, expected a whole number from {first} to {last}")
    return number


def checked_timeout(timeout: object) -> float:
    """Return *timeout* in seconds if a lock can wait so long."""
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not 0 < timeout <= TIMEOUT_MAX:
        raise ConfigurationError(
            f"timeout is {safe_repr(timeout)}, expected a number of seconds above 0, at most {TIMEOUT_MAX:.0f}"
        )
    return float(timeout)


# --- connections of our own


@contextmanager
def closing_if_unread(connection: Connection) -> Generator[Connection]:
    """Use a connection of the application's pool, and close it for good unless the database has answered everything.

    A signal may interrupt a statement, or the ROLLBACK at the end, or the socket may break. The next user of the
    connection would take an unread answer for its own, so a later lease would read an old counter, or believe that it
    had moved the row.
    """
    with connection, _closed_if_unread(connection):
        try:
            with _closed_if_unread(connection):
                yield connection
        finally:
            # not left to close(): after an interrupted ROLLBACK, it sends another one, which reads the first answer
            connection.rollback()


@contextmanager
def _closed_if_unread(connection: Connection) -> Generator[None]:
    try:
        yield
    except (KeySpaceExhausted, ConfigurationError, _Moved):
        raise
    except Exception as error:
        is_unread = not isinstance(error, DBAPIError) or outcome_of(error, connection.dialect) is Outcome.UNKNOWN
        if is_unread and not connection.closed:
            connection.invalidate()
        raise


def outcome_of(error: DBAPIError, dialect: Dialect) -> Outcome:
    """Return whether the statement that has raised *error* may have taken effect."""
    if error.connection_invalidated:
        return Outcome.UNKNOWN
    return traits_for(dialect).outcome(error.orig) if isinstance(error.orig, Exception) else Outcome.FAILED


# --- leases


class NumberRefusal(NamedTuple):
    """A table that has refused a number as a duplicate, because its rows have numbers that were not leased."""

    engine: Engine
    """The engine of the INSERT, which may be another one than the engine of the leases."""
    key: Column[Any]

    def largest(self, numbers: range | None = None) -> int | None:
        """Return the largest key of the table, among *numbers* if they are given; ``None`` if there is none.

        It is read at the end of an index. A role that may not read the table gets ``None``.
        """
        query = select(func.max(self.key))
        if numbers is not None:
            query = query.where(self.key.between(numbers.start, numbers.stop - 1))
        try:
            with closing_if_unread(self.engine.connect()) as connection:
                found: int | None = connection.scalar(query)
        except DBAPIError as error:
            if not traits_for(self.engine.dialect).is_permission_error(error):
                raise
            return None
        return found


class _Moved(Exception):
    """Another transaction has moved the counter meanwhile."""


class _Unreachable(Exception):
    """No connection could be opened; the cause is the reason."""


class Lessor:
    """Leases blocks of the sequence *name*, with no number below *start*."""

    def __init__(self, engine: Any, table: Table, name: str, start: int, *, create: bool) -> None:
        self._configured = engine
        self._engine: Engine | None = None
        self._given: object = None
        self._creates = create
        self.table: Table = table
        self.name: str = name
        self.start: int = start
        self.orders: Orders = Orders(table, name)
        if not callable(engine):
            self._resolve()

    @property
    def engine(self) -> Engine:
        """The engine; the ``sync_engine`` of an ``AsyncEngine``. A function is called until it returns one."""
        return self._engine or self._resolve()

    @property
    def is_async(self) -> bool:
        """Return True for an ``AsyncEngine``."""
        return self.engine is not self._given

    def _resolve(self) -> Engine:
        configured = self._configured() if callable(self._configured) else self._configured
        engine = getattr(configured, "sync_engine", configured)
        if not isinstance(engine, Engine):
            raise ConfigurationError(
                f"expected an Engine or an AsyncEngine, not {safe_repr(configured)}: a lease needs a connection of its "
                "own"
            )
        if isinstance(engine.pool, _ONE_CONNECTION):
            raise _no_own_connection(f"with {type(engine.pool).__name__}")
        self._engine, self._given = engine, configured
        return engine

    def leave_to_parent(self) -> None:
        """After a fork, let the engine open new connections, as SQLAlchemy's documentation recommends."""
        if self._engine is not None:
            _inherited.append(self._engine.pool)
            self._engine.dispose(close=False)

    def lease(self, count: int, timeout: float, deadline: float, floor: int = 0) -> range:
        """Lease *count* numbers, or the last ones that are left, by *deadline*, *timeout* seconds after the call.

        No number is below *floor*.

        :raises LeaseNotAvailable: if other transactions, or a lost connection, prevent the lease until then.
        """
        pause, met = _FIRST_PAUSE, set[type[Exception]]()
        refusal: DBAPIError | None = None
        while True:
            try:
                if refusal is not None:
                    self._create_if_missing(refusal)
                    refusal = None
                return self._lease(count, floor)
            except Exception as error:
                left = deadline - time.monotonic()
                if self._may_not_claim(error):
                    self.orders.skip()
                elif not self._is_transient(error):
                    if type(error) in met or not isinstance(error, DBAPIError):
                        raise
                    met.add(type(error))  # once more: another process may have created the table or the row meanwhile
                    if not isinstance(error, IntegrityError):
                        refusal = error
                elif left <= 0:
                    raise self.not_available(timeout, error) from error
                else:
                    seconds = min(pause * _random.uniform(0.5, 1), left)  # jitter: retries must not meet again
                    await_only(asyncio.sleep(seconds)) if self.is_async else time.sleep(seconds)
                    pause = min(pause * 2, _LONGEST_PAUSE_AWAY if isinstance(error, _Unreachable) else _LONGEST_PAUSE)

    def _lease(self, count: int, floor: int) -> range:
        try:
            connection = self.engine.connect()
        except (OperationalError, InterfaceError, OSError) as error:
            raise _Unreachable from error
        table, is_mine = self.table, self._is_mine()
        with closing_if_unread(connection):
            traits = traits_for(self.engine.dialect)
            if traits.is_in_memory(connection):
                raise _no_own_connection("with SQLite in memory")
            with traits.failing_at_locks(connection):
                counter = connection.scalar(select(table.c.next).where(is_mine).with_for_update(nowait=True))
                compared = self.orders.compare(connection)
                first = max(self.start, floor, counter or 0)
                if first >= END:
                    raise KeySpaceExhausted(
                        f"the sequence {self.name!r} has issued its last key: its counter in {table.fullname} is at "
                        f"{first}, and a BIGINT holds no more; continue with another sequence"
                    )
                numbers = range(first, min(first + count, END))
                if counter is None:
                    connection.execute(insert(table).values(name=self.name, next=numbers.stop))
                else:
                    moved = update(table).where(is_mine, table.c.next == counter).values(next=numbers.stop)
                    if connection.execute(moved).rowcount != 1:
                        raise _Moved
            connection.commit()
        self.orders.keep(compared)
        return numbers

    def _is_mine(self) -> ColumnElement[bool]:
        comparable = traits_for(self.engine.dialect).comparable_text
        is_mine: ColumnElement[bool] = comparable(self.table.c.name) == comparable(self.name)
        return is_mine

    def _is_transient(self, error: Exception) -> bool:
        """Return True for a conflict with others, a lost connection, or a database that cannot be reached."""
        if isinstance(error, (_Moved, _Unreachable, PoolTimeout)):
            return True
        if not isinstance(error, DBAPIError):
            return False
        traits = traits_for(self.engine.dialect)
        is_locked = traits.error_code(error.orig) in traits.overload_errors | traits.lock_errors
        return is_locked or outcome_of(error, self.engine.dialect) is not Outcome.FAILED

    def _may_not_claim(self, error: Exception) -> bool:
        """Return True if the role of the program may move the counter, but perhaps not add a row for an order."""
        if self.orders.are_compared or not isinstance(error, DBAPIError):
            return False
        return traits_for(self.engine.dialect).is_permission_error(error)

    def not_available(self, timeout: float, error: Exception | None = None) -> LeaseNotAvailable:
        """Return the error for a lease that *error* has prevented for *timeout* seconds."""
        reason = "the database does not answer; another transaction holds the row, or the pool has no connection"
        advice = "end the transaction that holds the row, let the pool have a connection more, or wait longer"
        if not traits_for(self.engine.dialect).has_row_locks:
            reason = "another transaction holds the lock of the file, maybe that of the caller"
            advice = "call allocator.reserve(count) before its first write, or keep the counter in a file of its own"
        cause = error.__cause__ if isinstance(error, _Unreachable) else error
        if cause is not None:
            original = getattr(cause, "orig", None) or cause
            reason += f" ({' '.join(str(original).split()) or type(original).__name__})"
        return LeaseNotAvailable(self.name, timeout=timeout, reason=reason, advice=advice)

    def interrupting(self) -> LeaseNotAvailable:
        """Return the error for a call within another one of the same thread or task, which would wait for itself."""
        return LeaseNotAvailable(
            self.name,
            timeout=0,
            reason="this call has interrupted a lease of its own thread, from a signal handler, a finalizer or a "
            "listener of the engine",
            advice="call allocator.reserve(count) early, so that it finds numbers in memory",
        )

    # --- the table

    def create_table(self) -> None:
        """Create the table of counters unless it exists."""
        with closing_if_unread(self.engine.connect()) as connection:
            self.table.create(connection, checkfirst=True)
            connection.commit()

    def _create_if_missing(self, error: Exception) -> None:
        if self._has_table():
            return
        if not self._creates:
            raise ConfigurationError(
                f"there is no table {self.table.fullname}: call allocator.create_table(), write create=True, or add "
                f"the table to your migrations with allocator.table.to_metadata(Base.metadata)"
            ) from error
        try:
            self.create_table()
        except DBAPIError:
            if not self._has_table():  # otherwise, another process was faster
                raise

    def _has_table(self) -> bool:
        with closing_if_unread(self.engine.connect()) as connection:
            return inspect(connection).has_table(self.table.name, schema=connection.schema_for_object(self.table))


def _no_own_connection(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"a BlockAllocator cannot work {what}: a lease needs a connection of its own, or it would be undone with the "
        f"transaction of the caller, and its keys issued twice; use a file, or a pool with more than one connection"
    )
