"""Reasons for a backfill to wait: a replica that lags behind, a busy server, or a file that an operator creates.

Pass one of them as ``wait_while`` to an operation, or to :func:`sqlalchemy_public_id.backfill.run`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrations.databases import database_of

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrations")


class _Wait(ABC):
    """Returns True while there is a reason to wait, and logs when the wait begins and ends."""

    _waits = False

    def __call__(self, connection: Connection) -> bool:
        reason = self._reason(connection)
        if reason is not None and not self._waits:
            log.info("waiting: %s", reason)
        elif reason is None and self._waits:
            log.info("continuing")
        self._waits = reason is not None
        return self._waits

    @abstractmethod
    def _reason(self, connection: Connection) -> str | None:
        """Return why the backfill has to wait; ``None`` if it may go on."""


class MaxLoad(_Wait):
    """Wait while other sessions of the server run more than *statements* statements.

    PostgreSQL counts the active sessions in ``pg_stat_activity``; MySQL and MariaDB report ``Threads_running``. The
    threads of replicas and of the event scheduler, which always run, do not count; MySQL and MariaDB show the threads
    of replicas only to a user with the privilege ``PROCESS``, and they count for any other.

    :raises ConfigurationError: if *statements* is negative. A call raises it if the database does not report its load:
        SQLite has no other sessions, and PostgreSQL shows the sessions of other roles only to
        members of ``pg_read_all_stats``.
    """

    def __init__(self, statements: int) -> None:
        if not statements >= 0:  # no load is larger than NaN
            raise ConfigurationError(f"statements is {statements!r}, expected a number of 0 or more")
        self.statements = statements

    def running(self, connection: Connection) -> int:
        """Return the number of statements that other sessions are running."""
        return database_of(connection.dialect).session(connection).count_running()

    def _reason(self, connection: Connection) -> str | None:
        running = self.running(connection)
        return f"other sessions execute {running} statements" if running > self.statements else None


class PauseFile(_Wait):
    """Wait while the file *path* exists."""

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)

    def _reason(self, connection: Connection) -> str | None:
        return f"the file {self.path} exists" if self.path.exists() else None


class MaxLag(_Wait):
    """Wait while a replica is more than *seconds* behind.

    MySQL and MariaDB report the lag in seconds. On PostgreSQL it is measured: the positions of the primary are recorded
    with their times, and compared with the position that the replica has replayed. A replica counts as behind if it
    does not answer, or if its replication has stopped.

    :param replica: an engine for the replica.
    :param seconds: how many seconds the replica may be behind.
    """

    def __init__(self, replica: Engine, seconds: float = 10.0) -> None:
        if not seconds > 0:  # no lag is larger than NaN
            raise ConfigurationError(f"seconds is {seconds!r}, expected a time above 0")
        self.replica = replica
        self.seconds = seconds
        self._written: deque[tuple[float, int]] = deque()
        """Times and positions that the replica has not replayed yet, the oldest one first."""

    def _reason(self, connection: Connection) -> str | None:
        lag = self.lag(connection)
        if lag is None:
            return "the replica is an unknown time behind"
        return f"the replica is {lag:.1f} s behind" if lag > self.seconds else None

    def lag(self, connection: Connection) -> float | None:
        """Return how many seconds the replica is behind; ``None`` if it does not answer or does not replicate.

        :param connection: a connection to the primary.
        :raises ConfigurationError: if the server is not a replica, or MySQL or MariaDB do not show its lag to the user.
        """
        try:
            with self.replica.connect() as replica:
                return database_of(replica.dialect).session(replica).read_lag(connection, self._written)
        except DBAPIError as error:
            log.warning("the replica does not answer: %s", error.orig)
            return None
