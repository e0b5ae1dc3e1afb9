"""The session of a migration of PostgreSQL: time limits, advisory locks, and poolers that change it.

A pooler may run each transaction of a connection in another session. A setting would then apply to statements of
other connections, and not to those that need it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, text

from sqlalchemy_public_id.dialects import is_autocommit
from sqlalchemy_public_id.dialects.quoting import literal, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrations.consent import Timeouts
from sqlalchemy_public_id.migrations.plan import Lock
from sqlalchemy_public_id.migrations.session import (
    MigrationSession,
    describe_user,
    no_replica,
    restore,
    send,
    transaction,
)

_CLASS = 1_886_743_908
"""The ``classid`` of our locks in ``pg_locks``: "puid" in ASCII. Their ``objid`` is the table, or 0."""
_LIMITS = ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout")
"""The limits that a role or a server may set for requests; 0 is no limit. Building an index takes longer."""
_WRITTEN = text("SELECT CAST(pg_catalog.pg_current_wal_lsn() - '0/0' AS bigint)")
# a primary that was promoted, or has recovered from a crash, remembers the position that it had replayed by then
_REPLAYED = text("""
SELECT CAST(pg_catalog.pg_last_wal_replay_lsn() - '0/0' AS bigint) WHERE pg_catalog.pg_is_in_recovery()
""")
# state: NULL also for processes that serve no client, and for a session that begins
_ACTIVE = text("""
SELECT count(*) FILTER (WHERE state = 'active' AND backend_type IN ('client backend', 'parallel worker')) AS active,
       pg_catalog.min(pid) FILTER (
           WHERE state = 'disabled' AND backend_type IN ('client backend', 'parallel worker')) AS untracked,
       count(*) FILTER (
           WHERE datid IS NOT NULL AND NOT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
           AND NOT pg_catalog.pg_has_role(usesysid, 'USAGE')) AS hidden,
       (SELECT pg_catalog.quote_ident(current_user)) AS role
FROM pg_catalog.pg_stat_activity WHERE pid <> pg_catalog.pg_backend_pid()
""")
_READ_ONLY = (
    "SELECT pg_catalog.pg_is_in_recovery(), CAST(pg_catalog.current_setting('transaction_read_only') AS boolean)"
)
_READ_ONLY_SETTING = "transaction_read_only"
_USERS = """
SELECT a.pid, a.usename, a.state, CAST(EXTRACT(epoch FROM pg_catalog.clock_timestamp() - a.xact_start) AS float)
FROM pg_catalog.pg_stat_activity a WHERE a.pid <> pg_catalog.pg_backend_pid() AND a.pid IN (
  SELECT pid FROM pg_catalog.pg_locks WHERE granted AND relation = pg_catalog.to_regclass({name})
  AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))
ORDER BY a.xact_start LIMIT 3
"""
_PID = "SELECT pg_catalog.pg_backend_pid()"
_ATTEMPTS = 10
"""In a busy pool, one attempt may get the same session by chance."""


class PostgreSQLSession(MigrationSession):
    """The session of a connection to PostgreSQL."""

    def __init__(self, connection: Connection, timeouts: Timeouts | None = None) -> None:
        super().__init__(connection, timeouts)
        self._oid: int | None = None
        """The OID of the table whose lock this session holds."""
        self._is_alone = is_autocommit(connection)
        """True if each statement is its own transaction, so that the lock has to belong to the session."""
        self._is_stable: bool | None = None if self._is_alone else True
        self._may_write = False
        """True if the settings, once they are read, say that the session is not read-only."""

    @property
    def is_stable(self) -> bool:
        if self._is_stable is None:
            self._is_stable = not changes_session(self.connection)
        return self._is_stable

    @property
    def read_only(self) -> str | None:
        if self._may_write:
            return None
        is_replica, is_read_only = send(self.connection, _READ_ONLY).one()
        if is_replica:
            return "the server is a replica, on which nothing can be changed"
        return "the session is read-only (default_transaction_read_only)" if is_read_only else None

    def read_number(self) -> int | None:
        return int(_read_pid(self.connection)) if self.is_stable else None

    def cancel(self, number: int | None) -> None:
        send(self.connection, f"SELECT pg_catalog.pg_cancel_backend({number})")

    def read_users(self, table: str, schema: str | None) -> list[str]:
        query = _USERS.format(
            name=literal(quoted_table(table, schema, self.connection.dialect), self.connection.dialect)
        )
        return [describe_user(*facts, seconds=seconds) for *facts, seconds in send(self.connection, query)]

    @property
    def lock_setting(self) -> str:
        return "lock_timeout"

    def read_settings(self) -> dict[str, str]:
        if not self.is_limited or not self.is_stable:
            return {}
        names = ", ".join(f"'{name}'" for name in (*_LIMITS, self.lock_setting, _READ_ONLY_SETTING))
        query = f"SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN ({names})"
        settings = {row[0]: row[1] for row in send(self.connection, query)}
        self._may_write = settings.pop(_READ_ONLY_SETTING) == "off"  # on a replica, it is on
        return settings

    def wanted_settings(self, current: Mapping[str, str]) -> dict[str, object]:
        return {**dict.fromkeys(_LIMITS, 0), self.lock_setting: milliseconds(self.timeouts.lock_timeout)}

    def has_written(self, versions: Callable[[], str | None], *, transactional_ddl: bool) -> bool:
        # The first revision shares a transaction with the table of versions, which Alembic creates; others may share
        # it with earlier revisions, whose versions it stores.
        table = versions()
        if table is None:
            return False
        own = "CAST(pg_catalog.pg_current_xact_id_if_assigned() AS xid)"  # NULL if the transaction has written nothing
        query = f"SELECT {own} IS NOT NULL AND NOT EXISTS (SELECT FROM {table} WHERE xmin = {own})"
        return bool(send(self.connection, query).scalar())

    def count_running(self) -> int:
        if not self._is_alone:  # what a transaction has read of these statistics stays the same until it ends
            send(self.connection, "SELECT pg_catalog.pg_stat_clear_snapshot()")
        row = self.connection.execute(_ACTIVE).one()
        if row.hidden:
            raise ConfigurationError(
                f"PostgreSQL hides the activity of other roles from {row.role}, so the load is unknown; "
                f"run GRANT pg_read_all_stats TO {row.role}, or leave out MaxLoad (--max-load)"
            )
        if row.untracked is not None:
            raise ConfigurationError(
                f"track_activities is off in the session {row.untracked}, so the load is unknown; "
                f"switch it on, or leave out MaxLoad (--max-load)"
            )
        return int(row.active)

    def read_lag(self, primary: Connection, written: deque[tuple[float, int]]) -> float | None:
        replayed: int | None = self.connection.scalar(_REPLAYED)
        if replayed is None:
            raise no_replica(self.connection)
        now, position = time.monotonic(), primary.scalar(_WRITTEN)
        if not written or written[-1][1] != position:
            written.append((now, position))
        while written and written[0][1] <= replayed:
            written.popleft()
        return now - written[0][0] if written else 0.0

    def lock_limit(self, seconds: float) -> str:
        return self.written(self.lock_setting, milliseconds(seconds))

    @contextmanager
    def begin_step(self, lock: Lock, seconds: float) -> Generator[None]:
        if lock is Lock.BUILD:  # CREATE INDEX CONCURRENTLY is refused inside a transaction
            with self.limited_to(seconds):
                yield
            return
        with transaction(self.connection, "BEGIN"):
            if not self.is_stable or seconds != self.timeouts.lock_timeout:
                send(self.connection, f"SET LOCAL {self.lock_setting} = {milliseconds(seconds)}")
            yield

    # --- the turn

    def try_to_take_turn(self, table: str | None, schema: str | None) -> int | None:
        if not self.is_stable:
            return None
        oid = "0"
        if table is not None:
            name = literal(quoted_table(table, schema, self.connection.dialect), self.connection.dialect)
            oid = f"pg_catalog.to_regclass({name})"
        kind = "" if self._is_alone else "xact_"
        key = f"{_CLASS << 32} + CAST(oid AS bigint)"
        query = (
            f"SELECT CAST(oid AS bigint), pg_catalog.pg_try_advisory_{kind}lock({key}), pg_catalog.pg_backend_pid() "
            f"FROM (SELECT CAST({oid} AS oid) AS oid) t"
        )
        found, is_taken, number = send(self.connection, query).one()
        if found is None:
            return None  # there is no such table; the operation will report it
        self._oid = found
        return int(number) if is_taken else 0

    def read_holder(self) -> Any:
        return send(
            self.connection,
            f"SELECT pid FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
            f"AND classid = CAST({_CLASS} AS oid) AND objid = CAST({self._oid or 0} AS oid) AND database = ("
            f"SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())",
        ).scalar()

    def end_turn(self) -> None:
        if self._is_alone:
            restore(self.connection, f"SELECT pg_catalog.pg_advisory_unlock({(_CLASS << 32) + (self._oid or 0)})")


def milliseconds(seconds: float) -> int:
    """Return *seconds* in milliseconds, as PostgreSQL's settings expect them."""
    return math.ceil(seconds * 1000)


def changes_session(connection: Connection) -> bool:
    """Return True if a pooler changes the session of a *connection* in AUTOCOMMIT mode after each statement."""
    mine = _read_pid(connection)
    if mine == _announced_pid(connection):
        return False  # this is the server itself
    # A connection that is not in a transaction keeps its session, unless another connection uses it meanwhile. That
    # connection comes from a new pool, because the engine's pool may be exhausted.
    pool = connection.engine.pool.recreate()
    other = pool.connect()
    try:
        cursor = other.cursor()
        for _ in range(_ATTEMPTS):
            cursor.execute(_PID)  # begins a transaction, which keeps that session
            [theirs] = cursor.fetchone() or (None,)
            if theirs == mine or _read_pid(connection) != mine:
                return True
            other.rollback()
        return False
    finally:
        other.close()
        pool.dispose()


def _read_pid(connection: Connection) -> Any:
    return connection.exec_driver_sql(_PID).scalar()


def _announced_pid(connection: Connection) -> Any:
    """Return the process id that the driver received when it connected, if it is known; a pooler sends its own."""
    driver: Any = connection.connection.driver_connection
    if hasattr(driver, "get_server_pid"):  # asyncpg
        return driver.get_server_pid()
    return getattr(getattr(driver, "info", None), "backend_pid", None)  # psycopg, psycopg2
