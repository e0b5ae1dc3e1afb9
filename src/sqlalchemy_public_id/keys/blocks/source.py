"""Where the blocks of one sequence come from: an engine, its table of counters, and how to go on after a failure."""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from sqlalchemy import Connection, Engine, Table, inspect
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import AssertionPool, Pool, SingletonThreadPool, StaticPool
from sqlalchemy.util.concurrency import in_greenlet

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.keys.blocks.forking import have_forks_wait_for
from sqlalchemy_public_id.keys.blocks.inherited import connect, count_forks, let_go
from sqlalchemy_public_id.keys.blocks.lease import lease, mover_for
from sqlalchemy_public_id.keys.blocks.transient import Unreachable, is_transient

__all__ = ["Source"]

_SHARED = AssertionPool, SingletonThreadPool, StaticPool
"""Pools that have no second connection for one thread, or no database that another connection sees."""

_random = random.SystemRandom()  # one of our own: that of the program may be seeded
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25

_inherited: list[Pool] = []
"""Pools of the parent process. To close their connections, as the garbage collector does, would disturb the parent."""


class Source:
    """What leases blocks of the sequence *name*, the first of them from *start* on."""

    def __init__(self, engine: Any, table: Table, name: str, start: int, *, create: bool, timeout: float) -> None:
        self._given = engine
        self._engine: Engine | None = None
        self._creates = create
        self._timeout = timeout
        self.table, self.name, self.start = table, name, start
        self._is_async = False
        self._is_checked = False
        self.failure: BaseException | None = None
        """What went wrong at last, if the last attempt failed."""
        self.quiet = threading.Lock()
        """Held during a lease in a SQLite file."""
        self._leasing: weakref.WeakSet[Connection] = weakref.WeakSet()
        """The connections to a server that leases have now."""
        if not callable(engine):
            self._resolve()

    @property
    def engine(self) -> Engine:
        """The engine; the synchronous face of an ``AsyncEngine``. A function is asked until it answers one."""
        return self._engine or self._resolve()

    @property
    def is_async(self) -> bool:
        """Whether that is the face of an ``AsyncEngine``."""
        if self._engine is None:
            self._resolve()
        return self._is_async

    def _resolve(self) -> Engine:
        given = self._given() if callable(self._given) else self._given
        engine = getattr(given, "sync_engine", given)
        if not isinstance(engine, Engine):
            raise ConfigurationError(
                f"expected an Engine or an AsyncEngine, not {shown(given)}: a lease needs a connection of its own"
            )
        if isinstance(engine.pool, _SHARED):
            raise ConfigurationError(_refusal(f"with {type(engine.pool).__name__}"))
        self._is_async = engine is not given
        self._engine = engine
        if self._holds_up_forks():
            have_forks_wait_for(self)
        if not self._is_file:
            count_forks(engine)
        return engine

    def leave_to_parent(self) -> None:
        """After a fork: have the engine connect anew, as SQLAlchemy's documentation says of processes and pools."""
        self.quiet = threading.Lock()
        let_go(self._leasing)
        if self._engine is not None:
            _inherited.append(self._engine.pool)
            self._engine.dispose(close=False)

    def lease(self, count: int, pause: Callable[[float], object] = time.sleep) -> range:
        """Lease *count* numbers, or the last that are left; tried again for as long as the timeout says.

        :param pause: how to wait for some seconds.
        """
        before = time.monotonic()
        seconds, has_looked = _FIRST_PAUSE, False
        while True:
            try:
                with self.quiet if self._holds_up_forks() else nullcontext():
                    numbers = self._lease(count)
            except Exception as error:
                self.failure = error
                if not is_transient(error, self.engine.dialect):
                    if has_looked or not isinstance(error, DBAPIError):
                        raise
                    self._look_for_table(error)
                    has_looked = True
                elif time.monotonic() + seconds - before > self._timeout:
                    raise
                else:
                    pause(seconds * _random.uniform(0.5, 1))  # so that those who met do not meet again
                    seconds = min(seconds * 2, _LONGEST_PAUSE)
            else:
                self.failure = None
                return numbers

    def _holds_up_forks(self) -> bool:
        """Whether a fork has to wait for a lease, and can: not for one that waits for the event loop itself."""
        return self._is_file and not self._is_async

    @property
    def _is_file(self) -> bool:
        """Return True if that is SQLite, of whose locks a child inherits none."""
        return self.engine.dialect.name == "sqlite"

    def _connect(self) -> Connection:
        """Return a connection for a lease; one to a server is held by no forked child."""
        return self.engine.connect() if self._is_file else connect(self.engine, self._leasing)

    def create_table(self) -> None:
        """Create the table of counters unless it is there."""
        if self.is_async and not in_greenlet():
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
            raise Unreachable from error
        try:
            with connection:
                if self._is_file and not self._is_checked:
                    _refuse_memory(connection)
                    self._is_checked = True
                move = mover_for(connection.dialect)
                return lease(connection, self.table, self.name, count, start=self.start, move=move)
        finally:
            if engine.pool is not pool and pool not in _inherited:  # the engine was disposed of behind the back of this
                pool.dispose()  # lease, whose connection went back where nobody would close it

    def _look_for_table(self, error: Exception) -> None:
        """Create the table if that is what was missing, and this was asked for. It may have come meanwhile."""
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
    """Refuse a database that is gone with its connection, or that only one connection sees."""
    with connection.begin():
        files = {row.name: row.file for row in connection.exec_driver_sql("PRAGMA database_list")}
    if not files["main"]:
        raise ConfigurationError(_refusal("with SQLite in memory"))


def _refusal(what: str) -> str:
    return (
        f"a BlockAllocator cannot work {what}: a lease needs a connection of its own, or it would be undone with the "
        f"transaction of the caller, and its keys issued twice; use a file, or a pool with more than one connection"
    )
