"""The session in which a migration runs: its limits and settings, and the turn that keeps other migrations out."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import copy
from typing import Any, ClassVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_public_id.dialects import is_autocommit, traits_for
from sqlalchemy_public_id.errors import ConfigurationError, LockNotAvailable
from sqlalchemy_public_id.migrations.consent import Timeouts, Triggers
from sqlalchemy_public_id.migrations.plan import Lock, Step
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.table import LiveTable

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrations")

_LONGEST_PAUSE = 1.0
_OF_PARTITIONS = 0.2
"""The share of the limit for a table whose partitions are locked one after the other: all of them are then kept."""


class MigrationSession(ABC):
    """The session of *connection*. The settings that it changes are restored afterwards.

    :param timeouts: how long statements may wait for locks; ``None`` leaves the limits as they are.
    """

    is_exclusive: ClassVar[bool] = False
    """True if a step keeps all other writers out from its beginning."""
    has_turns: ClassVar[bool] = True
    """False if the database has one writer, so that migrations take turns anyway."""

    def __init__(self, connection: Connection, timeouts: Timeouts | None = None) -> None:
        self.connection: Connection = connection
        self.timeouts: Timeouts = timeouts or Timeouts()
        self.is_limited: bool = timeouts is not None

    @property
    def is_stable(self) -> bool:
        """False behind a pooler that changes the session of PostgreSQL: there is no turn, and no setting is changed."""
        return True

    @property
    def read_only(self) -> str | None:
        """Why nothing can be changed through this connection; ``None`` if something can, or if it is not known."""
        return None

    # --- from another connection

    def read_number(self) -> int | None:
        """Return the number of this connection; ``None`` if no other connection can cancel its statements."""
        return None

    def cancel(self, number: int | None) -> None:
        """Cancel the statement that the connection with this *number* executes."""
        return  # on SQLite, it ends with its process

    def read_users(self, table: str, schema: str | None) -> list[str]:
        """Return descriptions of other sessions that have locked *table*, the oldest first; none if it is not known."""
        return []

    # --- settings

    @property
    @abstractmethod
    def lock_setting(self) -> str:
        """The setting that limits how long a statement waits for a lock."""

    @abstractmethod
    def read_settings(self) -> dict[str, str]:
        """Return the settings that a migration may have to change, with their values."""

    @abstractmethod
    def wanted_settings(self, current: Mapping[str, str]) -> dict[str, object]:
        """Return the values that the settings should have, given the *current* ones."""

    def changes(self, *, of_batches: bool = False) -> tuple[list[str], list[str]]:
        """Return the statements that change the settings, and those that restore them."""
        current = self.read_settings()
        wanted = self.wanted_batch_settings() if of_batches else self.wanted_settings(current)
        changed = {name: value for name, value in wanted.items() if name in current}
        changed = {name: value for name, value in changed.items() if not _is_equal(current[name], value)}
        before = [self.written(name, current[name]) for name in changed]
        return [self.written(name, value) for name, value in changed.items()], before

    def written(self, name: str, value: object) -> str:
        """Return the statement that changes a setting."""
        number = _as_number(value)
        return f"SET SESSION {name} = {value if number is not None else self._literal(str(value))}"

    def _literal(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def settings(self) -> AbstractContextManager[None]:
        """Change the settings until the block ends."""
        return self._changed()

    def all_rows(self) -> AbstractContextManager[None]:
        """Lift a limit of the session that cuts the rows of any SELECT, until the block ends."""
        return nullcontext()  # only MySQL and MariaDB have one

    def batches(self) -> AbstractContextManager[None]:
        """Change the settings that the batches of a backfill also need, if each batch is a transaction."""
        return self._changed(of_batches=True) if self.wanted_batch_settings() else nullcontext()

    def wanted_batch_settings(self) -> dict[str, object]:
        """Return the values of the settings that batches also need."""
        return {}

    @contextmanager
    def _changed(self, *, of_batches: bool = False) -> Generator[None]:
        during, before = self.changes(of_batches=of_batches)
        try:
            for sql in during:
                send(self.connection, sql)
            yield
        except BaseException:
            if not traits_for(self.connection.dialect).aborts_transaction or is_autocommit(self.connection):
                restore(self.connection, *before)  # a failed transaction of PostgreSQL restores them itself
            raise
        restore(self.connection, *before)

    # --- steps

    def timeout_of(self, step: Step, state: State) -> float:
        """Return how many seconds *step* waits for each lock of the table, which is in this *state*."""
        timeouts = self.timeouts
        if step.lock is Lock.STRONG and state.partitions:
            return timeouts.lock_timeout * _OF_PARTITIONS
        if step.lock is Lock.REWRITE:  # it is tried once, with the time of all attempts
            return timeouts.lock_timeout * timeouts.attempts
        return timeouts.index_timeout if step.lock is Lock.BUILD else timeouts.lock_timeout

    def lock_limit(self, seconds: float) -> str:
        """Return the statement that limits how long statements wait for a lock."""
        return self.written(self.lock_setting, self._whole(seconds))

    def _whole(self, seconds: float) -> int:
        return max(1, math.ceil(seconds))  # MySQL and MariaDB wait for whole seconds

    @contextmanager
    def limited_to(self, seconds: float) -> Generator[None]:
        """Let statements wait up to *seconds* for their locks, and restore the usual limit afterwards."""
        usual = self.timeouts.lock_timeout
        if seconds == usual:
            yield
            return
        send(self.connection, self.lock_limit(seconds))
        try:
            yield
        finally:
            restore(self.connection, self.lock_limit(usual))

    @abstractmethod
    def begin_step(self, lock: Lock, seconds: float) -> AbstractContextManager[None]:
        """Surround the statements of a step, which wait for their *lock* for up to *seconds*."""

    @abstractmethod
    def has_written(self, versions: Callable[[], str | None], *, transactional_ddl: bool) -> bool:
        """Return True if the open transaction has written what the first step would commit with it.

        :param versions: returns the quoted name of Alembic's table of versions; ``None`` if it stores none yet.
        :param transactional_ddl: True if Alembic runs DDL inside of its transactions.
        """

    # --- what a backfill may wait for

    @abstractmethod
    def count_running(self) -> int:
        """Return the number of statements that other sessions of the server are running.

        :raises ConfigurationError: if the database does not report it.
        """

    @abstractmethod
    def read_lag(self, primary: Connection, written: deque[tuple[float, int]]) -> float | None:
        """Return how many seconds this replica is behind; ``None`` if it does not replicate at the moment.

        :param primary: a connection to the server that it replicates.
        :param written: times, and positions that the replica had not replayed then, if the lag has to be measured.
        :raises ConfigurationError: if the server is not a replica, or does not show its lag to the user.
        """

    # --- the turn

    @abstractmethod
    def try_to_take_turn(self, table: str | None, schema: str | None) -> int | None:
        """Take the advisory lock of *table*, or of the database, and return the number of this connection.

        :returns: 0 if another connection has the lock, and ``None`` if there is no such lock or table.
        """

    @abstractmethod
    def read_holder(self) -> Any:
        """Return the number of the connection that holds the lock."""

    @abstractmethod
    def end_turn(self) -> None:
        """Release the lock, unless it ends with the transaction."""

    @contextmanager
    def take_turn(self, table: str | None = None, schema: str | None = None, *, timeout: float) -> Generator[None]:
        """Wait until no other migration works on *table*, or on the database, and keep others out until the block ends.

        Two processes that migrate one table at once would undo each other's work, because each drops the index that the
        other one builds. The lock is polled: a session of PostgreSQL that waited for it would hold a snapshot, for
        which ``CREATE INDEX CONCURRENTLY`` waits in turn.

        Inside a transaction of PostgreSQL, other migrations are kept out until it ends. SQLite needs no lock, because
        it has one writer. Behind a pooler that changes sessions, no lock is possible.

        :param timeout: how many seconds to wait.
        :raises LockNotAvailable: if the other migration has not ended by then, with the number of its connection.
        """
        name = table or str(self.connection.engine.url.database)
        began, pause, holder = time.monotonic(), 0.05, None
        while (number := self.try_to_take_turn(table, schema)) == 0:
            now = self.read_holder()
            if now not in (None, holder):
                holder = now
                log.warning("%s: waiting for another migration, which runs on connection %s", name, holder)
            if time.monotonic() - began >= timeout:
                raise LockNotAvailable(step="begin", table=name, attempts=1, timeout=timeout, holder=holder)
            pause = min(_LONGEST_PAUSE, pause * 2)
            time.sleep(pause)
        try:
            yield
        finally:
            if number is not None and self.connection.invalidated:
                self._end_statement(number)
            elif number is not None:
                self.end_turn()

    def _end_statement(self, number: int) -> None:
        """Cancel what the server still executes for a connection that was closed, by Ctrl-C or a limit of the driver.

        Otherwise, MySQL completes an ``ALTER TABLE`` whose client is gone, and keeps the turn meanwhile. Whoever has
        the turn under the number of that connection is that connection, even if a proxy now leads to another server.
        """
        with suppress(SQLAlchemyError), self.connection.engine.connect() as connection:
            other = copy(self)
            other.connection = connection
            if other.read_holder() == number:
                other.cancel(number)


def send(connection: Connection, sql: str) -> Any:
    """Execute *sql* as it is, without parameters."""
    return connection.exec_driver_sql(sql, execution_options={"no_parameters": True})


def restore(connection: Connection, *settings: str) -> None:
    """Send the *settings*, unless the connection is lost: their error would hide the original one.

    If a signal handler raises meanwhile, the connection is closed, so that no other program gets it with the settings.
    """
    for sql in settings if not connection.invalidated else ():
        try:
            send(connection, sql)
        except SQLAlchemyError:
            raise
        except BaseException:
            connection.invalidate()
            raise


@contextmanager
def transaction(connection: Connection, begin: str) -> Generator[None]:
    """Send *begin*, and COMMIT or ROLLBACK, which SQLAlchemy does not send in AUTOCOMMIT mode."""
    send(connection, begin)
    try:
        yield
        send(connection, "COMMIT")
    except BaseException:
        # SQLite may have rolled back already, or refused the COMMIT because others were reading
        if not connection.invalidated and traits_for(connection.dialect).in_transaction(
            connection.connection.dbapi_connection
        ):
            restore(connection, "ROLLBACK")
        raise


@contextmanager
def updating(live: LiveTable, triggers: Triggers) -> Generator[None]:
    """Begin what UPDATEs need: a savepoint, or in AUTOCOMMIT mode a transaction where one is needed."""
    with _begun(live.connection, triggers), live.without_triggers() if triggers == "skip" else nullcontext():
        yield


def _begun(connection: Connection, triggers: Triggers) -> AbstractContextManager[object]:
    if not is_autocommit(connection):  # the caller's transaction has to survive a failed statement
        return connection.begin_nested()
    if traits_for(connection.dialect).commits_each_row:
        return transaction(connection, "BEGIN IMMEDIATE")
    return transaction(connection, "BEGIN") if triggers == "skip" else nullcontext()


def no_replica(connection: Connection) -> ConfigurationError:
    """Return the error for a server that is not a replica."""
    server = describe_server(connection)
    return ConfigurationError(f"{server} is not a replica; pass the URL of a server that replicates the primary")


def describe_server(connection: Connection) -> str:
    """Return the URL of the server, without a password and options."""
    return connection.engine.url.set(query={}).render_as_string(hide_password=True)


def describe_user(number: object, *facts: object, seconds: float | None) -> str:
    """Return the description of the connection with this *number*, such as ``connection 7 (app, Sleep, 12 s)``."""
    known = [str(fact) for fact in facts if fact] + ([] if seconds is None else [f"{seconds:.0f} s"])
    return f"connection {number} ({', '.join(known)})" if known else f"connection {number}"


def digest_of(*parts: object) -> str:
    """Return a digest of *parts* that distinguishes the names of locks."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:48]


def _as_number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _is_equal(current: str, wanted: object) -> bool:
    number = _as_number(wanted)
    return str(wanted) == current if number is None else number == _as_number(current)
