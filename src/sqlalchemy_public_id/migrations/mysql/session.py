"""The session of a migration of MySQL or MariaDB: time limits, modes, advisory locks, and clusters of nodes.

In Galera, and in group replication with several primaries, every node accepts writes. A node executes an ALTER of
another node some time later, and meanwhile commits rows without the column or its default. A migration has to see these
rows, and must not end a phase before all nodes have executed it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, RowMapping
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects import is_autocommit, traits_for
from sqlalchemy_public_id.dialects.quoting import literal
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrations.mysql.rights import read_user
from sqlalchemy_public_id.migrations.plan import Lock
from sqlalchemy_public_id.migrations.session import (
    MigrationSession,
    describe_server,
    describe_user,
    digest_of,
    no_replica,
    restore,
    send,
)

_READ_ONLY = ("transaction_read_only", "tx_read_only", "super_read_only", "read_only")
_READ = (
    *_READ_ONLY,
    *("lock_wait_timeout", "max_statement_time", "max_execution_time", "sql_mode", "system_versioning_alter_history"),
    *("wsrep_on", "wsrep_sync_wait", "group_replication_single_primary_mode", "group_replication_consistency"),
    *("innodb_lock_wait_timeout", "tx_isolation", "transaction_isolation"),
)
_STATUS = ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")  # MySQL 8.4 has only the first, MySQL before 8.0.22 the second
_STATUS_OF_MARIADB = ("SHOW ALL SLAVES STATUS",)  # the others show only the connection without a name
_SYNTAX_ERROR, _NO_PRIVILEGE = 1064, 1227
_BEHIND = ("Seconds_Behind_Source", "Seconds_Behind_Master")
_SOURCE = ("Source_Server_Id", "Master_Server_Id")
_IS_CONNECTED = ("Replica_IO_Running", "Slave_IO_Running")
_USERS = """
SELECT t.PROCESSLIST_ID, t.PROCESSLIST_USER, t.PROCESSLIST_COMMAND,
  MIN(IF(l.OBJECT_NAME = {name}, '', CONCAT('uses ', l.OBJECT_NAME))), t.PROCESSLIST_TIME
FROM performance_schema.metadata_locks l JOIN performance_schema.threads t ON t.THREAD_ID = l.OWNER_THREAD_ID
WHERE l.OBJECT_TYPE = 'TABLE' AND l.LOCK_STATUS = 'GRANTED' AND t.PROCESSLIST_ID <> CONNECTION_ID()
AND l.OBJECT_SCHEMA = {database} AND (l.OBJECT_NAME = {name} OR l.OBJECT_NAME IN (
  SELECT IF(TABLE_NAME = {name}, REFERENCED_TABLE_NAME, TABLE_NAME) FROM information_schema.REFERENTIAL_CONSTRAINTS
  WHERE CONSTRAINT_SCHEMA = {database} AND {name} IN (TABLE_NAME, REFERENCED_TABLE_NAME)))
GROUP BY 1, 2, 3, 5 ORDER BY MAX(l.OBJECT_NAME = {name}) DESC, 5 DESC LIMIT 3
"""
"""The connections with a metadata lock of a table, or of one that it shares a foreign key with: ALTER locks both."""
_ALWAYS_RUNNING = """
SELECT COUNT(*) + (@@GLOBAL.event_scheduler = 'ON') FROM information_schema.PROCESSLIST
WHERE COMMAND IN ('Binlog Dump', 'Binlog Dump GTID', 'Slave_IO', 'Slave_SQL', 'Slave_worker')
"""
"""Threads in ``Threads_running`` that replicate, or wait for the time of an event; only PROCESS shows the former."""
_OF_ADMINISTRATORS = re.compile(r"\b(SUPER|CONNECTION_ADMIN|READ[_ ]ONLY ADMIN|ALL PRIVILEGES ON \*\.\*)")
_ALL_STATEMENTS = 7
"""Values of ``wsrep_sync_wait``: 1 for SELECT, 2 for UPDATE and DELETE, 4 for INSERT."""
_ALL_ROWS = 2**63 - 1
"""The value of ``sql_select_limit`` that every server accepts; the default may be any limit of the server."""


class MySQLSession(MigrationSession):
    """The session of a connection to MySQL or MariaDB."""

    _turn: str = ""
    _known: Mapping[str, str] = {}
    """The settings when they were read last."""

    @property
    def read_only(self) -> str | None:
        known = self._known or self.read_settings()
        found = [name for name in _READ_ONLY if known.get(name, "OFF") not in ("OFF", "0")]
        if not found or (found == ["read_only"] and self._is_administrator()):
            return None
        if found[0] in _READ_ONLY[:2]:
            return f"the session is read-only ({found[0]})"
        return f"the server is read-only ({found[0]}), as a replica is"

    def _is_administrator(self) -> bool:
        """Return True if the user may change a server that is read-only, or has a role, which may grant it."""
        if send(self.connection, "SELECT CURRENT_ROLE()").scalar() not in (None, "NONE"):
            return True
        return any(_OF_ADMINISTRATORS.search(row[0]) for row in send(self.connection, "SHOW GRANTS"))

    def read_number(self) -> int | None:
        return int(send(self.connection, "SELECT CONNECTION_ID()").scalar())

    def cancel(self, number: int | None) -> None:
        send(self.connection, f"KILL QUERY {number}")

    def read_users(self, table: str, schema: str | None) -> list[str]:
        name = literal(table, self.connection.dialect)
        database = "DATABASE()" if schema is None else literal(schema, self.connection.dialect)
        users = send(self.connection, _USERS.format(name=name, database=database))
        return [describe_user(*facts, seconds=seconds) for *facts, seconds in users]

    @property
    def lock_setting(self) -> str:
        return "lock_wait_timeout"

    def has_written(self, versions: Callable[[], str | None], *, transactional_ddl: bool) -> bool:
        return False  # any DDL statement commits what was written before it, with or without this library

    def read_settings(self) -> dict[str, str]:
        names = ", ".join(f"'{name}'" for name in _READ)
        rows = send(self.connection, f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})")
        self._known = settings = {row[0]: row[1] for row in rows}
        return settings

    @contextmanager
    def settings(self) -> Generator[None]:
        with self.all_rows(), super().settings():  # the limit also cuts what the server says about its settings
            yield

    @contextmanager
    def all_rows(self) -> Generator[None]:
        limit = int(send(self.connection, "SELECT @@SESSION.sql_select_limit LIMIT 1").scalar())
        is_lifted = limit < _ALL_ROWS
        if is_lifted:
            send(self.connection, self.written("sql_select_limit", _ALL_ROWS))
        try:
            yield
        finally:
            if is_lifted:
                restore(self.connection, self.written("sql_select_limit", limit))

    def wanted_settings(self, current: Mapping[str, str]) -> dict[str, object]:
        wanted: dict[str, object] = {
            "sql_mode": mode_for_old_rows(current["sql_mode"]),
            "system_versioning_alter_history": "KEEP",  # system-versioned tables refuse every ALTER otherwise
        }
        if self.is_limited:
            wanted |= {
                "lock_wait_timeout": self._whole(self.timeouts.lock_timeout),
                "max_statement_time": 0,
                "max_execution_time": 0,
            }
        if current.get("wsrep_on") == "ON":
            # in Galera, all nodes execute an ALTER at the same position among the transactions
            wanted["wsrep_sync_wait"] = _ALL_STATEMENTS
        # MySQL before 8.0.14 and OceanBase have no such setting, and no way to wait for the other members
        if current.get("group_replication_single_primary_mode") == "OFF":
            wanted["group_replication_consistency"] = "BEFORE_AND_AFTER"
        return wanted

    def wanted_batch_settings(self) -> dict[str, object]:
        """Limit the wait of a batch for a row to one second, because others wait for the rows that it has locked."""
        if not is_autocommit(self.connection):
            return {}
        # otherwise the subquery of an UPDATE locks the gaps between the rows, and inserts wait
        isolation = dict.fromkeys(("tx_isolation", "transaction_isolation"), "READ-COMMITTED")
        return {"innodb_lock_wait_timeout": 1, **isolation}

    @contextmanager
    def begin_step(self, lock: Lock, seconds: float) -> Generator[None]:
        with self.limited_to(seconds):
            yield

    # --- what a backfill may wait for

    def count_running(self) -> int:
        running = int(send(self.connection, "SHOW GLOBAL STATUS LIKE 'Threads_running'").one()[1]) - 1  # without this
        if running <= 0:
            return 0
        try:
            return max(running - int(send(self.connection, _ALWAYS_RUNNING).scalar()), 0)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            return running  # MySQL cannot show a list in which a statement contains bytes that are not text

    def read_lag(self, primary: Connection, written: deque[tuple[float, int]]) -> float | None:
        rows = self._read_sources()
        if not rows:
            raise no_replica(self.connection)
        # a replica may have several sources; it has the rows of *primary* from one of them, or by way of another server
        number = send(primary, "SELECT @@server_id").scalar()
        direct = [row for row in rows if _value(row, _SOURCE) == number]
        behind = [_read_behind(row) for row in direct or rows]
        known = [seconds for seconds in behind if seconds is not None]
        return max(known) if len(known) == len(behind) else None

    def _read_sources(self, *queries: str) -> list[RowMapping]:
        """Return the state of the replication from each source, by the first of *queries* that the server knows."""
        is_mariadb = getattr(self.connection.dialect, "is_mariadb", False)
        query, *others = queries or (_STATUS_OF_MARIADB if is_mariadb else _STATUS)
        try:
            return [*send(self.connection, query).mappings()]
        except DBAPIError as error:
            code = traits_for(self.connection.dialect).error_code(error.orig)
            if code == _NO_PRIVILEGE:
                raise _hidden_status(self.connection, is_mariadb) from error
            if code != _SYNTAX_ERROR or not others:
                raise
        return self._read_sources(*others)

    # --- the turn

    def try_to_take_turn(self, table: str | None, schema: str | None) -> int | None:
        database = schema or send(self.connection, "SELECT DATABASE()").scalar()
        self._turn = f"'public_id migration {digest_of(database, table)[:40]}'"  # 64 characters at most
        return try_lock(self.connection, self._turn)

    def read_holder(self) -> Any:
        return send(self.connection, f"SELECT IS_USED_LOCK({self._turn})").scalar()

    def end_turn(self) -> None:
        restore(self.connection, f"SELECT RELEASE_LOCK({self._turn})")


def _read_behind(row: RowMapping) -> float | None:
    """Return the seconds that a replica is behind a source; MySQL reports 0 also while it tries to connect."""
    seconds = _value(row, _BEHIND)
    return None if seconds is None or _value(row, _IS_CONNECTED) != "Yes" else float(seconds)


def _hidden_status(connection: Connection, is_mariadb: bool) -> ConfigurationError:
    """Return the error for a user who may not see the state of the replication."""
    is_new = is_mariadb and (connection.dialect.server_version_info or ()) >= (10, 5)
    user, privilege = read_user(connection), "SLAVE MONITOR" if is_new else "REPLICATION CLIENT"
    return ConfigurationError(
        f"{user} may not see how far {describe_server(connection)} is behind: GRANT {privilege} ON *.* TO {user}"
    )


def _value(row: RowMapping, names: Sequence[str]) -> Any:
    """Return the value of the first column of these *names* that the row has."""
    return next(row[name] for name in names if name in row)


def try_lock(connection: Connection, name: str) -> int:
    """Take the advisory lock of the expression *name*; return this connection's number, or 0 if another one has it.

    :raises ConfigurationError: if the server can take no such lock; its answer is then NULL.
    """
    answer = send(connection, f"SELECT GET_LOCK({name}, 0) * CONNECTION_ID()").scalar()
    if answer is None:
        raise ConfigurationError(f"the server takes no advisory lock: GET_LOCK({name}, 0) is NULL")
    return int(answer)


def mode_for_old_rows(mode: str) -> str:
    """Return the SQL *mode* with zero and invalid dates allowed: old rows and defaults have them, and are copied.

    Strict mode is always on: otherwise, the server truncates values, and MODIFY replaces NULL with the empty string.
    TRADITIONAL would forbid zero dates again, and ORACLE would write Oracle's functions into defaults. With
    EMPTY_STRING_IS_NULL, MariaDB finds no row whose key is the empty string.
    """
    left_out = {"NO_ZERO_DATE", "NO_ZERO_IN_DATE", "TRADITIONAL", "ORACLE", "EMPTY_STRING_IS_NULL"}
    kept = [each for each in mode.split(",") if each and each not in left_out]
    return ",".join(dict.fromkeys([*kept, "STRICT_ALL_TABLES", "ALLOW_INVALID_DATES"]))
