"""Wait for a replica: ``wait_while=MaxLag(replica, seconds)`` of the operations and of :func:`backfill.run`."""

from __future__ import annotations

import logging
import time
from collections import deque

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.errors import ConfigurationError

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.online")

_WRITTEN = text("SELECT CAST(pg_current_wal_lsn() - '0/0' AS bigint)")
_REPLAYED = text("SELECT CAST(pg_last_wal_replay_lsn() - '0/0' AS bigint)")
_STATUS = ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")  # MySQL 8.4 has only the first, MariaDB before 10.5 the second
_BEHIND = ("Seconds_Behind_Source", "Seconds_Behind_Master")


class MaxLag:
    """Return True while a replica is more than some seconds behind. A function for ``wait_while``.

    On PostgreSQL, positions of the primary are remembered with their time, and compared with the position that the
    replica has replayed. MySQL and MariaDB report the seconds. A replica that does not answer, or whose replication has
    stopped, counts as behind.

    :param replica: an engine for the replica.
    :param seconds: the lag from which the backfill waits.
    """

    def __init__(self, replica: Engine, seconds: float = 10.0) -> None:
        if seconds <= 0:
            raise ConfigurationError(f"seconds is {seconds!r}, expected a time above 0")
        self.replica = replica
        self.seconds = seconds
        self._written: deque[tuple[float, int]] = deque()
        """Times and positions that the replica has not replayed yet, the oldest one first."""

    def __call__(self, connection: Connection) -> bool:
        lag = self.lag(connection)
        if lag is None or lag > self.seconds:
            log.info("the replica is %s behind; waiting", "an unknown time" if lag is None else f"{lag:.1f} s")
            return True
        return False

    def lag(self, connection: Connection) -> float | None:
        """Return the seconds that the replica is behind; ``None`` if it does not replicate.

        :param connection: one of the primary.
        :raises ConfigurationError: if the replica is none.
        """
        try:
            with self.replica.connect() as replica:
                if replica.dialect.name == "postgresql":
                    return self._lag_of_positions(connection, replica)
                return _reported_lag(replica)
        except DBAPIError as error:
            log.warning("the replica does not answer: %s", error.orig)
            return None

    def _lag_of_positions(self, connection: Connection, replica: Connection) -> float:
        replayed: int | None = replica.scalar(_REPLAYED)
        if replayed is None:
            raise _no_replica(self.replica)
        now, written = time.monotonic(), connection.scalar(_WRITTEN)
        if not self._written or self._written[-1][1] != written:
            self._written.append((now, written))
        while self._written and self._written[0][1] <= replayed:
            self._written.popleft()
        return now - self._written[0][0] if self._written else 0.0


def _reported_lag(replica: Connection) -> float | None:
    for query in _STATUS:
        try:
            row = replica.exec_driver_sql(query).mappings().first()
        except DBAPIError as error:
            if error.connection_invalidated or query == _STATUS[-1]:
                raise
            continue  # the other name of the statement
        if row is None:
            raise _no_replica(replica.engine)
        behind = next(row[name] for name in _BEHIND if name in row)
        return None if behind is None else float(behind)
    return None


def _no_replica(engine: Engine) -> ConfigurationError:
    url = engine.url.set(query={}).render_as_string(hide_password=True)
    return ConfigurationError(f"{url} is no replica; pass the URL of a server that replicates the primary")
