"""What a session of PostgreSQL, MySQL or MariaDB knows of its server, of other sessions, and of its user."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine
from support.connections import count_waiting, number_of
from support.marks import on
from support.people import People, send
from support.private_servers import wait_until
from support.rights import USER, user_with

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrations import Timeouts
from sqlalchemy_public_id.migrations.databases import database_of, live_table
from sqlalchemy_public_id.migrations.mysql.session import MySQLSession, mode_for_old_rows
from sqlalchemy_public_id.migrations.plan import Lock
from sqlalchemy_public_id.migrations.postgresql.session import PostgreSQLSession

pytestmark = pytest.mark.backend


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection in AUTOCOMMIT mode."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection


# --- who uses a table


@on("postgresql")
def test_users_of_a_table(new_people: Callable[..., People], connection: Connection) -> None:
    """The three sessions that have used the table for the longest time are named in this order, and none that waits."""
    people, numbers = new_people(1), []
    with ThreadPoolExecutor() as threads, ExitStack() as stack:
        waiting = stack.enter_context(people.engine.connect())
        send(waiting, "SELECT 1")  # begins the first transaction
        lock = stack.enter_context(ExitStack())
        for _ in range(4):
            other = stack.enter_context(people.engine.connect())
            send(other, "SELECT * FROM person").all()
            numbers.append(send(other, "SELECT pg_backend_pid()").scalar())
        lock.callback(threads.submit(send, waiting, "LOCK TABLE person").result)
        wait_until(lambda: count_waiting(connection) == 1, "a session that waits")
        users = PostgreSQLSession(connection).read_users("person", None)

    assert [user.split(" (")[0] for user in users] == [f"connection {number}" for number in numbers[:3]]


@on("postgresql")
def test_users_of_a_copy(engine: Engine, connection: Connection, new_engine: Callable[..., Engine]) -> None:
    """Who uses the table of the same number in a copy of the database is not named."""
    names = [f"{engine.url.database}_{kind}" for kind in ("model", "copy")]
    model, copy = (new_engine("postgresql", engine.url.set(database=name), poolclass=NullPool) for name in names)
    try:
        send(connection, f"CREATE DATABASE {names[0]}")
        with model.begin() as first:
            send(first, "CREATE TABLE person (id int)")
        is_used = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{names[0]}'"
        wait_until(lambda: not send(connection, is_used).scalar(), "the end of the first connection")
        send(connection, f"CREATE DATABASE {names[1]} TEMPLATE {names[0]}")
        with model.connect() as own, model.connect() as user, copy.connect() as other:
            for each in (user, other):
                send(each, "SELECT * FROM person").all()
            [found] = PostgreSQLSession(own).read_users("person", None)
            assert found.startswith(f"connection {number_of(user)} ")
    finally:
        for name in names:
            send(connection, f"DROP DATABASE IF EXISTS {name} (FORCE)")


# --- settings


@on("postgresql")
@pytest.mark.parametrize(
    "name", ["statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout", "lock_timeout"]
)
def test_limits_of_a_role(connection: Connection, name: str) -> None:
    """A limit that a role has for its requests does not end a step, and is restored after the migration."""
    if send(connection, f"SELECT current_setting('{name}', true)").scalar() is None:
        pytest.skip(f"this server has no {name}")
    send(connection, f"SET {name} = 54321")
    try:
        with PostgreSQLSession(connection, Timeouts(lock_timeout=2)).settings():
            during = send(connection, f"SHOW {name}").scalar()
        after = send(connection, f"SHOW {name}").scalar()
    finally:
        send(connection, f"RESET {name}")

    assert (during, after) == ("2s" if name == "lock_timeout" else "0", "54321ms")


@on("postgresql")
@pytest.mark.parametrize("is_stable", [True, False])
def test_limit_behind_a_pooler(connection: Connection, monkeypatch: pytest.MonkeyPatch, is_stable: bool) -> None:
    """A step waits for the usual time also if a pooler runs it in a session without the settings."""
    session = PostgreSQLSession(connection, Timeouts(lock_timeout=2))
    monkeypatch.setattr(session, "_is_stable", is_stable)
    with session.settings(), session.begin_step(Lock.STRONG, 2):
        assert send(connection, "SHOW lock_timeout").scalar() == "2s"
    assert send(connection, "SHOW lock_timeout").scalar() == "0"


@pytest.mark.parametrize(
    "mode", ["NO_ZERO_DATE", "NO_ZERO_IN_DATE", "TRADITIONAL", "ORACLE", "EMPTY_STRING_IS_NULL", "ANSI_QUOTES"]
)
def test_modes_that_change_rows(mode: str) -> None:
    """A mode with which old rows could not be copied or found is left out, and any other one is kept."""
    expected = {"STRICT_ALL_TABLES", "ALLOW_INVALID_DATES", "PIPES_AS_CONCAT"} | {"ANSI_QUOTES"} & {mode}
    assert {*mode_for_old_rows(f"PIPES_AS_CONCAT,{mode}").split(",")} == expected


# --- what a backfill may wait for


@pytest.mark.slow
@on("postgresql")
def test_load_while_sessions_begin(connection: Connection, new_engine: Callable[..., Engine]) -> None:
    """A session that is just beginning, which has no state yet, does not pass for one that the role may not see."""
    engine, is_over = new_engine("postgresql", poolclass=NullPool), threading.Event()

    def connect() -> None:
        while not is_over.is_set():
            with engine.connect():
                pass

    with ThreadPoolExecutor(4) as threads:
        writers = [threads.submit(connect) for _ in range(4)]
        try:
            for _ in range(500):
                PostgreSQLSession(connection).count_running()
        finally:
            is_over.set()
        for each in writers:
            each.result()


@on("postgresql")
def test_load_that_is_hidden(connection: Connection, engine: Engine) -> None:
    """The load is unknown to a role that may not see the activity of others, and the error says what to grant."""
    with user_with(engine) as url, ThreadPoolExecutor() as threads:
        limited = create_engine(url)
        try:
            with limited.connect() as own, limited.connect() as busy:
                session = PostgreSQLSession(own)
                with pytest.raises(ConfigurationError, match=f"GRANT pg_read_all_stats TO {USER}"):
                    session.count_running()
                send(connection, "SELECT pg_advisory_lock(1)")
                running = threads.submit(send, busy, "SELECT pg_advisory_xact_lock(1)")
                try:
                    wait_until(lambda: count_waiting(connection) == 1, "a statement of the same role")
                    with pytest.raises(ConfigurationError, match=f"GRANT pg_read_all_stats TO {USER}"):
                        session.count_running()
                    send(connection, f"GRANT pg_read_all_stats TO {USER}")
                    own.rollback()
                    assert session.count_running() >= 1
                finally:
                    send(connection, "SELECT pg_advisory_unlock(1)")
                    running.result()
        finally:
            limited.dispose()


@pytest.mark.parametrize(("replayed", "is_behind"), [(99, True), (100, False), (101, False)])
def test_lag_of_a_replica(replayed: int, is_behind: bool) -> None:
    """A replica of PostgreSQL is behind until it has replayed what the primary has written, to the last byte."""
    replica: Any = SimpleNamespace(scalar=lambda query: replayed)
    session: Any = SimpleNamespace(connection=replica)
    primary: Any = SimpleNamespace(scalar=lambda query: 100)
    written = deque([(0.0, 100)])

    lag = PostgreSQLSession.read_lag(session, primary, written)

    assert lag is not None
    assert (lag > 0) == is_behind == bool(written)


# --- the user and its transaction


@on("mysql", "mariadb")
@pytest.mark.parametrize("right", ["", "SUPER", "CONNECTION_ADMIN", "READ_ONLY ADMIN", "a role"])
def test_who_may_change_a_server_that_is_read_only(
    engine: Engine, connection: Connection, monkeypatch: pytest.MonkeyPatch, right: str
) -> None:
    """A server that is read-only stops a user without the right to change it; a role may contain the right."""
    if right == {"mysql": "READ_ONLY ADMIN", "mariadb": "CONNECTION_ADMIN"}[engine.name]:
        pytest.skip("a right of the other server")
    with user_with(engine) as url:
        send(connection, f"GRANT SELECT ON {engine.url.database}.* TO {USER}")
        if right == "a role":
            send(connection, "CREATE ROLE IF NOT EXISTS public_id_writers")
            send(connection, f"GRANT public_id_writers TO {USER}")
        elif right:
            send(connection, f"GRANT {right} ON *.* TO {USER}")
        limited = create_engine(url)
        try:
            with limited.connect() as own:
                if right == "a role":
                    send(own, "SET ROLE public_id_writers")
                session = MySQLSession(own)
                monkeypatch.setattr(session, "_known", {"read_only": "ON"})
                assert (session.read_only is None) == bool(right)
        finally:
            limited.dispose()
            if right == "a role":
                send(connection, "DROP ROLE public_id_writers")


@on("postgresql")
@pytest.mark.parametrize(
    ("statements", "has_written"),
    [
        ((), False),
        (("INSERT INTO person (name) VALUES ('x')",), True),
        (("INSERT INTO versions VALUES ('a')",), False),
        (("INSERT INTO versions VALUES ('a')", "INSERT INTO person (name) VALUES ('x')"), False),
    ],
    ids=["nothing", "rows", "a version", "both"],
)
def test_transaction_that_has_written(new_people: Callable[..., People], statements: Any, has_written: bool) -> None:
    """A transaction has written if it has changed anything, unless it stores versions: it then began with others."""
    people = new_people(0)
    people.execute("CREATE TABLE versions (version text)")
    people.execute("INSERT INTO versions VALUES ('before')")
    try:
        with people.engine.connect() as own:
            for statement in statements:
                send(own, statement)
            session = database_of(own.dialect).session(own, None)
            assert session.has_written(lambda: "versions", transactional_ddl=True) is has_written
            assert session.has_written(lambda: None, transactional_ddl=True) is False
    finally:
        people.execute("DROP TABLE versions")


# --- which triggers fire


@on("postgresql")
@pytest.mark.parametrize("role", ["origin", "local", "replica"])
@pytest.mark.parametrize("kind", ["TRIGGER", "RULE"])
def test_triggers_and_rules_that_fire(new_people: Callable[..., People], kind: str, role: str) -> None:
    """Those triggers and rules are named that an UPDATE of this session would fire; skipping restores its role."""
    people, found = new_people(0, ", public_id text"), set[str]()
    people.execute("CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$")
    made = {
        "TRIGGER": "CREATE TRIGGER noted BEFORE UPDATE ON person FOR EACH ROW EXECUTE FUNCTION noted()",
        "RULE": "CREATE RULE noted AS ON UPDATE TO person DO ALSO NOTIFY noted",
    }[kind]
    people.execute(made)
    with people.engine.connect() as own:
        send(own, f"SET session_replication_role = {role}")
        for mode in ("ENABLE", "DISABLE", "ENABLE REPLICA", "ENABLE ALWAYS"):
            send(own, f"ALTER TABLE person {mode} {kind} noted")
            live = live_table(own, people.target)
            if live.update_triggers():
                found.add(mode)
            unskippable = [each.code for each in live.obstacles_to_skipping()]
            assert unskippable == ["update-triggers"] * (mode in ("ENABLE REPLICA", "ENABLE ALWAYS"))
        with live.without_triggers():
            assert send(own, "SHOW session_replication_role").scalar() == "replica"
        assert send(own, "SHOW session_replication_role").scalar() == role
        own.rollback()
    people.drop()
    people.execute("DROP FUNCTION noted")

    fires = {"ENABLE REPLICA" if role == "replica" else "ENABLE", "ENABLE ALWAYS"}
    assert found == fires
