"""The settings of a session: what a migration changes on which server, how long each step waits, what is restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event
from support.marks import SERVERS, on
from support.people import People, migrating, send
from support.rights import user_with

from sqlalchemy_public_id.migrations import Timeouts
from sqlalchemy_public_id.migrations.databases import database_of
from sqlalchemy_public_id.migrations.mysql.session import MySQLSession
from sqlalchemy_public_id.migrations.plan import Lock, Step
from sqlalchemy_public_id.migrations.state import Partition, State

pytestmark = pytest.mark.backend

TIMEOUTS = Timeouts(lock_timeout=2.5, attempts=3, index_timeout=50)
PARTITIONED = State(exists=True, partitions=(Partition("public", "a", "public", "b", "r", True, True),))


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection in AUTOCOMMIT mode."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection


# --- how long a step waits


@pytest.mark.parametrize(
    ("lock", "state", "seconds"),
    [
        (Lock.STRONG, State(), 2.5),
        (Lock.STRONG, State(partitions=()), 2.5),
        (Lock.STRONG, PARTITIONED, 0.5),
        (Lock.BUILD, State(), 50),
        (Lock.BUILD, PARTITIONED, 50),
        (Lock.REWRITE, State(), 7.5),
        (Lock.REWRITE, PARTITIONED, 7.5),
        (Lock.WRITERS, State(), 2.5),
    ],
    ids=str,
)
@on("sqlite")
def test_time_of_a_step(connection: Connection, lock: Lock, state: State, seconds: float) -> None:
    """A step waits for ``lock_timeout``, for a fifth of it if partitions are locked one by one, for ``index_timeout``
    if it builds an index, and for all attempts together if it rewrites the table.
    """
    session = database_of(connection.dialect).session(connection, TIMEOUTS)

    assert session.timeout_of(Step("do it", lambda state: [], lock), state) == seconds


LIMITS = {
    "sqlite": ("PRAGMA busy_timeout", 2500, 50),
    "postgresql": ("SELECT setting::int FROM pg_settings WHERE name = 'lock_timeout'", 2500, 50),
    "mysql": ("SELECT @@lock_wait_timeout", 3, 1),
    "mariadb": ("SELECT @@lock_wait_timeout", 3, 1),
}


@on(*SERVERS)
def test_limit_of_locks(connection: Connection) -> None:
    """Statements wait for ``lock_timeout``, in the steps for their own time, and afterwards as before the migration."""
    query, usual, short = LIMITS[connection.dialect.name]
    session = database_of(connection.dialect).session(connection, TIMEOUTS)

    def limit() -> int:
        return int(send(connection, query).scalar())

    before, found = limit(), []
    with session.settings():
        found.append(limit())
        with session.limited_to(0.05):
            found.append(limit())
        found.append(limit())
        with session.limited_to(2.5):
            found.append(limit())
        with pytest.raises(RuntimeError), session.limited_to(0.05):
            raise RuntimeError
        found.append(limit())

    assert (found, limit()) == ([usual, short, usual, usual, usual], before)
    assert before not in found


def test_no_limit_inside_a_transaction(table: People) -> None:
    """With ``online=False``, an operation leaves the limits of the session alone: the transaction waits as usual."""
    name = table.engine.name
    query = LIMITS[name][0]
    with table.engine.connect() as connection:
        before = send(connection, query).scalar()
        found: list[Any] = []

        def look(_: Connection, cursor: Any, statement: str, *rest: object) -> None:
            if statement.startswith("ALTER TABLE") and "rehearsal" not in statement:
                cursor.execute(query)
                found.extend(cursor.fetchone())

        connection.rollback()
        with migrating(connection) as op:
            event.listen(table.engine, "before_cursor_execute", look)
            table.say(op, "expand_public_id", online=False, lock_timeout=7)
        event.remove(table.engine, "before_cursor_execute", look)

    assert {*found} == {before}


# --- what MySQL and MariaDB need


class _Session(MySQLSession):
    """A session of a server with other settings."""

    settings_of_server: Mapping[str, str] = {}

    def read_settings(self) -> dict[str, str]:
        return {"sql_mode": "", **self.settings_of_server}


MODES = {
    "": "STRICT_ALL_TABLES,ALLOW_INVALID_DATES",
    "ANSI_QUOTES,STRICT_ALL_TABLES,NO_ZERO_DATE": "ANSI_QUOTES,STRICT_ALL_TABLES,ALLOW_INVALID_DATES",
    "STRICT_TRANS_TABLES,NO_ZERO_IN_DATE": "STRICT_TRANS_TABLES,STRICT_ALL_TABLES,ALLOW_INVALID_DATES",
    "TRADITIONAL,ORACLE,EMPTY_STRING_IS_NULL": "STRICT_ALL_TABLES,ALLOW_INVALID_DATES",
    "NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH": (
        "NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,STRICT_ALL_TABLES,ALLOW_INVALID_DATES"
    ),
}
ALWAYS = {"sql_mode": MODES[""], "system_versioning_alter_history": "KEEP"}


@on("mysql", "mariadb")
def test_wanted_settings(connection: Connection) -> None:
    """A migration limits locks only if it commits each step; in a cluster, it waits for the other nodes."""

    def wanted(timeouts: Timeouts | None = None, **current: str) -> dict[str, object]:
        return MySQLSession(connection, timeouts).wanted_settings({"sql_mode": "", **current})

    limits = {"lock_wait_timeout": 3, "max_statement_time": 0, "max_execution_time": 0}
    primary, consistency = "group_replication_single_primary_mode", "group_replication_consistency"
    assert wanted() == ALWAYS
    assert wanted(TIMEOUTS) == {**ALWAYS, **limits}
    assert wanted(Timeouts(lock_timeout=0.2)) == {**ALWAYS, **limits, "lock_wait_timeout": 1}
    assert wanted(wsrep_on="ON") == {**ALWAYS, "wsrep_sync_wait": 7}
    assert wanted(wsrep_on="OFF") == ALWAYS
    assert wanted(**{primary: "OFF"}) == {**ALWAYS, consistency: "BEFORE_AND_AFTER"}
    assert wanted(**{primary: "ON"}) == ALWAYS
    assert {mode: wanted(sql_mode=mode)["sql_mode"] for mode in MODES} == MODES


@on("mysql")
def test_changed_settings(connection: Connection) -> None:
    """Only settings that the server has, and that have another value, are changed, and all of them are restored."""
    session = _Session(connection, TIMEOUTS)
    session.settings_of_server = {
        "sql_mode": "it's,ORACLE",
        "lock_wait_timeout": "3",
        "max_execution_time": "1000",
        "wsrep_on": "ON",
        "wsrep_sync_wait": "0",
    }

    assert session.changes() == (
        [
            "SET SESSION sql_mode = 'it''s,STRICT_ALL_TABLES,ALLOW_INVALID_DATES'",
            "SET SESSION max_execution_time = 0",
            "SET SESSION wsrep_sync_wait = 7",
        ],
        [
            "SET SESSION sql_mode = 'it''s,ORACLE'",
            "SET SESSION max_execution_time = 1000",
            "SET SESSION wsrep_sync_wait = 0",
        ],
    )


@pytest.mark.parametrize("limit", [0, 3, 2**63 + 1, 2**64 - 1])
@on("mysql", "mariadb")
def test_limit_of_rows(connection: Connection, limit: int) -> None:
    """A migration reads all settings and all rows, whatever ``sql_select_limit`` of the session, which is restored."""
    numbers = " UNION ALL ".join(f"SELECT {number}" for number in range(9))
    send(connection, f"SET SESSION sql_select_limit = {limit}")
    session = MySQLSession(connection, TIMEOUTS)
    with session.settings():
        found = len(send(connection, numbers).all()), send(connection, "SELECT @@lock_wait_timeout").scalar()
        read = {"sql_mode", "lock_wait_timeout", "innodb_lock_wait_timeout"} - {*session.read_settings()}
    after = send(connection, "SELECT @@sql_select_limit LIMIT 1").scalar()
    connection.invalidate()

    assert (found, read, after) == ((9, 3), set(), limit)


@on("mysql", "mariadb")
def test_settings_of_batches(engine: Engine) -> None:
    """Batches wait a second for a row, and lock no gaps; inside the caller's transaction, nothing is changed."""
    isolation = "@@tx_isolation" if engine.name == "mariadb" else "@@transaction_isolation"

    def settings(connection: Connection) -> tuple[Any, ...]:
        return tuple(send(connection, f"SELECT @@innodb_lock_wait_timeout, {isolation}").one())

    with engine.connect() as connection:
        before = settings(connection)
        with MySQLSession(connection).batches():
            assert settings(connection) == before == (50, "REPEATABLE-READ")
        connection.rollback()
        connection.execution_options(isolation_level="AUTOCOMMIT")
        with MySQLSession(connection).batches():
            assert settings(connection) == (1, "READ-COMMITTED")
        assert settings(connection) == before


READ_ONLY: list[tuple[dict[str, str], str | None, str | None]] = [
    ({}, None, None),
    ({"read_only": "OFF", "super_read_only": "OFF", "transaction_read_only": "OFF"}, None, None),
    ({"read_only": "0", "tx_read_only": "0"}, None, None),
    ({"read_only": "ON"}, None, "the server is read-only (read_only), as a replica is"),
    ({"read_only": "NO_LOCK_NO_ADMIN"}, None, "the server is read-only (read_only), as a replica is"),
    ({"super_read_only": "ON", "read_only": "ON"}, *["the server is read-only (super_read_only), as a replica is"] * 2),
    ({"transaction_read_only": "ON"}, *["the session is read-only (transaction_read_only)"] * 2),
    ({"tx_read_only": "ON", "read_only": "ON"}, *["the session is read-only (tx_read_only)"] * 2),
]


@on("mysql", "mariadb")
def test_read_only(engine: Engine, connection: Connection) -> None:
    """A session and a server that are read-only are told apart; an administrator may change a server in spite of it."""

    def said(connection: Connection) -> list[str | None]:
        session = _Session(connection)
        found = []
        for settings, *_ in READ_ONLY:
            session.settings_of_server = settings
            found.append(session.read_only)
        return found

    assert said(connection) == [of_administrators for _, of_administrators, _ in READ_ONLY]
    with user_with(engine) as url:
        other = create_engine(url.set(database="information_schema"))
        try:
            with other.connect() as limited:
                assert said(limited) == [of_users for _, _, of_users in READ_ONLY]
        finally:
            other.dispose()
