"""A lease: a transaction that moves a counter, in one statement if the database can; the table; another try on failure.

* **PostgreSQL, SQLite** and others with it: ``UPDATE … RETURNING``. On PostgreSQL without BEGIN and COMMIT, so it is
  one round trip.
* **MySQL, MariaDB** have no RETURNING for an UPDATE. ``LAST_INSERT_ID(next)`` returns the old value with the answer to
  the UPDATE; with COMMIT, two round trips. SELECT … FOR UPDATE would add one while the row is locked.
* **Others**: SELECT, and an UPDATE of the unchanged row; again, if the row has changed.

The caller gets the numbers only after the transaction has succeeded. If its outcome is unknown, they are lost.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection, Dialect, Engine, bindparam, func, insert, inspect, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import AssertionPool, Pool, SingletonThreadPool, StaticPool
from sqlalchemy.schema import Column, MetaData, Table
from sqlalchemy.sql import Update
from sqlalchemy.types import BigInteger, String

from sqlalchemy_public_id.dialects import Outcome, traits_for
from sqlalchemy_public_id.errors import ConfigurationError, KeySpaceExhausted, safe_repr
from sqlalchemy_public_id.keys.blocks.lease_forks import connect, count_forks, drop_sockets, hold_forks_for
from sqlalchemy_public_id.orm.inspection import is_in_greenlet

END = 2**63 - 1
"""The largest ``BIGINT``: the first number that cannot be leased, because the counter must stay above it."""

# --- the table

_LENGTH = 100


def counter_table(name: str, schema: str | None = None) -> Table:
    """Return the table of counters: a row per sequence, with the first number that is not leased."""
    from sqlalchemy.dialects import mysql, postgresql  # a third of the time to import this library

    byte_string = (
        String(_LENGTH)
        .with_variant(mysql.VARCHAR(_LENGTH, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
        .with_variant(postgresql.VARCHAR(_LENGTH, collation="C"), "postgresql")
    )
    return Table(
        name,
        MetaData(),
        Column("name", byte_string, primary_key=True),
        Column("next", BigInteger, nullable=False, autoincrement=False),
        schema=schema,
    )


def checked_name(name: object) -> str:
    """Return *name* if it differs from every other name on all databases; some ignore a trailing space."""
    if not (isinstance(name, str) and 1 <= len(name) <= _LENGTH and name.isascii() and name.isprintable()) or (
        name != name.strip()
    ):
        raise ConfigurationError(
            f"the name of a sequence is {safe_repr(name)}, expected 1 to {_LENGTH} printable characters of ASCII, "
            f"without a space at either end"
        )
    return name


# --- one transaction

Increment = Callable[[Connection, Table, str, int], "int | None"]
"""Moves a counter by a count. Returns its old value; ``None`` if too few numbers are left or the row has changed."""

_NAME, _COUNT = "name_", "count_"  # not the names of the columns: an UPDATE would take them for new values


def lease(connection: Connection, table: Table, name: str, count: int, *, start: int, increment: Increment) -> range:
    """Lease the next *count* numbers of the sequence *name*, or those that are left. Inserts its row if need be.

    :param connection: outside of a transaction.
    :raises KeySpaceExhausted: if none is left.
    """
    if connection.dialect.name == "postgresql":
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
    while True:
        with connection.begin():
            first = increment(connection, table, name, count)
        if first is not None:
            return range(first, first + count)
        with connection.begin():
            counter = _read_counter(connection, table, name)
        if counter is None:
            _insert_counter(connection, table, name, start)
        elif counter >= END:
            raise KeySpaceExhausted(
                f"the sequence {name!r} has issued its last key: its counter in {table.fullname} is at {counter}, and "
                f"a BIGINT holds no more; begin another sequence"
            )
        else:
            count = min(count, END - counter)


def _read_counter(connection: Connection, table: Table, name: str) -> int | None:
    return connection.scalar(select(table.c.next).where(table.c.name == name))


def _insert_counter(connection: Connection, table: Table, name: str, start: int) -> None:
    try:
        with connection.begin():
            connection.execute(insert(table).values(name=name, next=start))
    except IntegrityError:
        with connection.begin():
            if _read_counter(connection, table, name) is None:  # otherwise, another process was faster
                raise


def increment_for(dialect: Dialect) -> Increment:
    """Return the fastest increment that *dialect* supports."""
    if dialect.name in {"mysql", "mariadb"}:
        return increment_last_insert_id
    return increment_returning if dialect.update_returning else increment_optimistic


def increment_returning(connection: Connection, table: Table, name: str, count: int) -> int | None:
    """Use ``UPDATE … RETURNING``."""
    moved = _update(table).values(next=table.c.next + bindparam(_COUNT)).returning(table.c.next)
    after = connection.scalars(moved, {_NAME: name, _COUNT: count}).one_or_none()
    return None if after is None else after - count


def increment_last_insert_id(connection: Connection, table: Table, name: str, count: int) -> int | None:
    """Use ``LAST_INSERT_ID(next)``, which the server returns as if a row had been inserted."""
    moved = _update(table).values(next=func.last_insert_id(table.c.next) + bindparam(_COUNT))
    result = connection.execute(moved, {_NAME: name, _COUNT: count})
    return int(result.lastrowid) if result.rowcount else None


def increment_optimistic(connection: Connection, table: Table, name: str, count: int) -> int | None:
    """Use a SELECT, and an UPDATE that matches the row only if it is unchanged."""
    counter = _read_counter(connection, table, name)
    if counter is None or counter > END - count:
        return None
    unchanged = update(table).where(table.c.name == name, table.c.next == counter)
    moved = connection.execute(unchanged.values(next=counter + count)).rowcount
    return counter if moved else None


def _update(table: Table) -> Update:
    return update(table).where(table.c.name == bindparam(_NAME), table.c.next <= END - bindparam(_COUNT))


class _Unreachable(Exception):
    """No connection could be opened; the cause is the reason."""


# --- the lessor

_ONE_CONNECTION = AssertionPool, SingletonThreadPool, StaticPool
"""Pools without a second connection for a thread, or with a database that no other connection sees."""

_random = random.SystemRandom()  # not the one of the application, which may be seeded
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25

_inherited: list[Pool] = []
"""Pools of the parent process: the garbage collector would close their connections, and so disturb the parent."""


class Lessor:
    """Leases blocks of the sequence *name*; the first begins at *start*."""

    def __init__(self, engine: Any, table: Table, name: str, start: int, *, create: bool, timeout: float) -> None:
        self._configured = engine
        self._engine: Engine | None = None
        self._creates = create
        self._timeout = timeout
        self.table: Table = table
        self.name: str = name
        self.start: int = start
        self._is_async = False
        self._is_checked = False
        self.failure: BaseException | None = None
        """The error of the last attempt, if it failed."""
        self.fork_lock: threading.Lock = threading.Lock()
        """Held during a lease in a SQLite file."""
        self._leasing: WeakSet[Connection] = WeakSet()
        if not callable(engine):
            self._resolve()

    @property
    def engine(self) -> Engine:
        """The engine; the ``sync_engine`` of an ``AsyncEngine``. A function is called until it returns one."""
        return self._engine or self._resolve()

    @property
    def is_async(self) -> bool:
        """Return True for an ``AsyncEngine``."""
        if self._engine is None:
            self._resolve()
        return self._is_async

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
        self._is_async = engine is not configured
        self._engine = engine
        if self._holds_forks():
            hold_forks_for(self)
        if not self._is_file:
            count_forks(engine)
        return engine

    def leave_to_parent(self) -> None:
        """After a fork, let the engine open connections of its own, as SQLAlchemy's documentation recommends."""
        self.fork_lock = threading.Lock()
        drop_sockets(self._leasing)
        if self._engine is not None:
            _inherited.append(self._engine.pool)
            self._engine.dispose(close=False)

    def is_transient(self, error: BaseException) -> bool:
        """Return True for a conflict with others, a lost connection, or a database that cannot be reached."""
        if self._engine is None:
            return False
        if isinstance(error, (_Unreachable, PoolTimeout)):
            return True
        if not isinstance(error, DBAPIError) or not isinstance(error.orig, Exception):
            return False
        traits = traits_for(self._engine.dialect)
        if error.connection_invalidated or traits.outcome(error.orig) is not Outcome.FAILED:
            return True
        return traits.error_code(error.orig) in traits.overload_errors

    @property
    def failure_message(self) -> str | None:
        """The last error in one line."""
        cause = self.failure.__cause__ if isinstance(self.failure, _Unreachable) else self.failure
        original = getattr(cause, "orig", None) or cause
        return None if original is None else " ".join(str(original).split()) or type(original).__name__

    def lease(self, count: int, pause: Callable[[float], object] = time.sleep) -> range:
        """Lease *count* numbers, or the last that are left. Transient errors are retried until the timeout.

        :param pause: waits for some seconds.
        """
        before = time.monotonic()
        seconds, has_looked = _FIRST_PAUSE, False
        while True:
            try:
                with self.fork_lock if self._holds_forks() else nullcontext():
                    numbers = self._lease(count)
            except Exception as error:
                self.failure = error
                if not self.is_transient(error):
                    if has_looked or not isinstance(error, DBAPIError):
                        raise
                    self._create_if_missing(error)
                    has_looked = True
                elif time.monotonic() + seconds - before > self._timeout:
                    raise
                else:
                    pause(seconds * _random.uniform(0.5, 1))  # so that those who met do not meet again
                    seconds = min(seconds * 2, _LONGEST_PAUSE)
            else:
                self.failure = None
                return numbers

    def _holds_forks(self) -> bool:
        # not for a lease that waits for the event loop: the fork blocks that loop
        return self._is_file and not self._is_async

    @property
    def _is_file(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def _connect(self) -> Connection:
        return self.engine.connect() if self._is_file else connect(self.engine, self._leasing)

    def create_table(self) -> None:
        """Create the table of counters unless it exists."""
        if self.is_async and not is_in_greenlet():
            raise ConfigurationError(
                "the engine is an AsyncEngine, so the table cannot be created without waiting: write await "
                "allocator.acreate_table()"
            )
        with self._connect() as connection, connection.begin():
            self.table.create(connection, checkfirst=True)

    def _lease(self, count: int) -> range:
        engine = self.engine
        pool = engine.pool
        try:
            connection = self._connect()
        except (OperationalError, InterfaceError, OSError) as error:
            raise _Unreachable from error
        try:
            with connection:
                if self._is_file and not self._is_checked:
                    _refuse_memory(connection)
                    self._is_checked = True
                increment = increment_for(connection.dialect)
                return lease(connection, self.table, self.name, count, start=self.start, increment=increment)
        finally:
            # engine.dispose() during the lease: the connection went back to a pool that nothing would close
            if engine.pool is not pool and pool not in _inherited:
                pool.dispose()

    def _create_if_missing(self, error: Exception) -> None:
        if self._has_table():
            return
        if not self._creates:
            raise ConfigurationError(
                f"there is no table {self.table.fullname}: call allocator.create_table(), write create=True, or take "
                f"allocator.table.to_metadata(Base.metadata) into your migrations"
            ) from error
        try:
            self.create_table()
        except DBAPIError:
            if not self._has_table():  # otherwise, another process was faster
                raise

    def _has_table(self) -> bool:
        with self._connect() as connection:
            return inspect(connection).has_table(self.table.name, schema=connection.schema_for_object(self.table))


def _refuse_memory(connection: Connection) -> None:
    with connection.begin():
        files = {row.name: row.file for row in connection.exec_driver_sql("PRAGMA database_list")}
    if not files["main"]:
        raise _no_own_connection("with SQLite in memory")


def _no_own_connection(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"a BlockAllocator cannot work {what}: a lease needs a connection of its own, or it would be undone with the "
        f"transaction of the caller, and its keys issued twice; use a file, or a pool with more than one connection"
    )
