"""Migrations of one table, and upgrades of one database, that begin at the same time: one runs, the others wait."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool
from support.connections import kill, monitor, number_of, processes
from support.marks import on
from support.people import People, migrating, people, send
from support.private_servers import wait_until
from support.projects import Project
from support.shops import old_shop

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.alembic import take_turn
from sqlalchemy_public_id.errors import LockNotAvailable
from sqlalchemy_public_id.migrations.databases import database_of

on_servers = on("postgresql", "mysql", "mariadb")
pytestmark = pytest.mark.backend

UPGRADE = """
import logging, sys
from alembic import command
from alembic.config import Config
import sqlalchemy_public_id.alembic

logging.basicConfig(level="INFO")
config = Config()
config.set_main_option("script_location", sys.argv[1])
config.set_main_option("path_separator", "os")
config.set_main_option("sqlalchemy.url", sys.argv[2])
config.attributes["metadata"] = None
command.upgrade(config, "head")
"""


@pytest.fixture
def table(new_people: Callable[..., People]) -> People:
    """People without public ids."""
    return new_people(20)


@contextmanager
def autocommit(engine: Engine) -> Iterator[Connection]:
    """Open another session, such as that of another migration."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection


def hold_turn(
    connection: Connection, table: str | None = None, schema: str | None = None, *, timeout: float
) -> AbstractContextManager[None]:
    return database_of(connection.dialect).session(connection).take_turn(table, schema, timeout=timeout)


# --- one table


@on_servers
def test_waits_for_the_other_migration(table: People, caplog: pytest.LogCaptureFixture) -> None:
    """An operation waits while another migration works on the table, and logs the connection of that migration."""
    with autocommit(table.engine) as other, caplog.at_level(logging.WARNING, "sqlalchemy_public_id"):
        number = number_of(other)
        operation = threading.Thread(target=table.add)
        with hold_turn(other, "person", timeout=0):
            operation.start()
            wait_until(lambda: bool(caplog.messages), "the log of the operation")
            state = table.state()
        operation.join()

    expected = f"person: waiting for another migration, which runs on connection {number}"
    assert (caplog.messages, state.exists) == ([expected], False)
    table.check_complete(20)


@on_servers
def test_gives_up(table: People) -> None:
    """After ``index_timeout``, the error names the connection of the other migration, and nothing is changed."""
    with autocommit(table.engine) as other, hold_turn(other, "person", timeout=0):
        with pytest.raises(LockNotAvailable, match=r"another migration is still running after 0\.2 s") as caught:
            table.run("expand_public_id", index_timeout=0.2)
        assert caught.value.holder == number_of(other)

    assert not table.state().exists


@on_servers
def test_turn_of_a_killed_migration(table: People) -> None:
    """The turn of a migration ends when its connection is lost."""
    is_lost = pytest.raises(OperationalError, match=r"(?i)lost|terminat|gone|closed")
    with autocommit(table.engine) as other, is_lost, hold_turn(other, "person", timeout=0):
        kill(table.engine, number_of(other))
        send(other, "SELECT 1")

    table.run("expand_public_id", index_timeout=0.2)


@on_servers
def test_turn_ends_with_the_operation(table: People) -> None:
    """After an operation has succeeded or failed, its connection no longer holds the turn."""
    with table.engine.connect() as connection, autocommit(table.engine) as other:
        with migrating(connection) as op:
            table.say(op, "expand_public_id")
        with hold_turn(other, "person", timeout=0):
            pass
        with pytest.raises(ConfigurationError), migrating(connection) as op:
            op.contract_public_id("person", "no_such_column")
        with hold_turn(other, "person", timeout=0):
            pass


@on_servers
def test_turn_whose_end_is_interrupted(table: People, new_engine: Callable[..., Engine]) -> None:
    """If a signal handler raises while the turn is given back, no connection of the pool keeps it."""

    class TimeLimit(Exception):
        """What the handler raises."""

    def interrupt(_: Connection, cursor: object, statement: str, *rest: object) -> None:
        if "RELEASE_LOCK(" in statement or "pg_advisory_unlock" in statement:
            raise TimeLimit

    event.listen(table.engine, "before_cursor_execute", interrupt)
    with pytest.raises(TimeLimit):
        table.run("expand_public_id")
    event.remove(table.engine, "before_cursor_execute", interrupt)

    People(new_engine(table.engine.name, table.engine.url)).run("backfill_public_id", lock_timeout=0.1, index_timeout=1)


@on("mysql", "mariadb")
def test_statement_without_a_client(table: People, new_engine: Callable[..., Engine]) -> None:
    """A statement whose client has given up does not go on: it would wait for its lock, and change the table later."""
    impatient = People(new_engine(table.engine.name, table.engine.url, connect_args={"read_timeout": 2}))
    with table.engine.connect() as reader, monitor(table.engine) as watched:
        reader.execute(text("SELECT * FROM person"))
        with pytest.raises(OperationalError, match=r"Lost connection|timed out"):
            impatient.run("expand_public_id", lock_timeout=300)

        def has_ended() -> bool:
            return "Waiting for table metadata lock" not in [each.State for each in processes(watched)]

        wait_until(has_ended, "the end of the statement")


@on_servers
def test_turn_of_another_program(table: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that has lost its connection cancels no statement of the migration that now has the turn."""
    canceled: list[int] = []
    with autocommit(table.engine) as lost, autocommit(table.engine) as next_one, ExitStack() as turns:
        kind = type(database_of(lost.dialect).session(lost))
        monkeypatch.setattr(kind, "cancel", lambda session, number: canceled.append(number))
        with suppress(OperationalError), hold_turn(lost, "person", timeout=0):
            kill(table.engine, number_of(lost))
            turns.enter_context(hold_turn(next_one, "person", timeout=10))
            send(lost, "SELECT 1")

        assert lost.invalidated
        assert canceled == []


@on_servers
def test_other_tables_do_not_wait(engine: Engine, table: People) -> None:
    """A migration does not wait for a migration of another table."""
    with autocommit(engine) as other, hold_turn(other, "person", timeout=0), people(engine, 5, table="visitor") as more:
        more.add(index_timeout=0.2)
        more.check_complete(5)


@on("mysql", "mariadb")
def test_names_that_are_one_word(table: People) -> None:
    """The table ``c`` of the database ``ab`` and the table ``bc`` of ``a`` have turns of their own."""
    with (
        autocommit(table.engine) as one,
        autocommit(table.engine) as other,
        hold_turn(one, "bc", "a", timeout=0),
        hold_turn(other, "c", "ab", timeout=0),
    ):
        pass


@on("mysql", "mariadb")
def test_table_of_another_database(table: People) -> None:
    """A table has a single turn, from whatever database it is migrated, and its namesake there has another one."""
    url = table.engine.url
    elsewhere = create_engine(url.set(database="information_schema"))
    try:
        is_refused = pytest.raises(LockNotAvailable)
        with autocommit(elsewhere) as other, hold_turn(other, "person", url.database, timeout=0), is_refused:
            table.run("expand_public_id", index_timeout=0.1)
        with autocommit(elsewhere) as other, hold_turn(other, "person", timeout=0):
            table.run("expand_public_id", index_timeout=0.1)
    finally:
        elsewhere.dispose()


@on_servers
def test_table_with_its_schema(table: People) -> None:
    """A table has a single turn, whether or not the migration names the default schema."""
    with autocommit(table.engine) as other:
        usual = "SELECT current_schema()" if table.engine.name == "postgresql" else "SELECT DATABASE()"
        schema = send(other, usual).scalar()
        with hold_turn(other, "person", schema, timeout=0), pytest.raises(LockNotAvailable):
            table.run("expand_public_id", index_timeout=0.1)


@on_servers
def test_turn_inside_a_transaction(table: People) -> None:
    """With ``online=False``, an operation gives up after ``lock_timeout``; PostgreSQL keeps the turn until COMMIT."""
    with autocommit(table.engine) as other, table.engine.connect() as connection:
        with hold_turn(other, "person", timeout=0), pytest.raises(LockNotAvailable), migrating(connection) as op:
            table.say(op, "expand_public_id", online=False, lock_timeout=0.1)
        with migrating(connection) as op:
            table.say(op, "expand_public_id", online=False)
            if table.engine.name == "postgresql":
                with pytest.raises(LockNotAvailable), hold_turn(other, "person", timeout=0):
                    pass
        with hold_turn(other, "person", timeout=0):
            pass


@on("postgresql")
def test_index_that_is_being_built(table: People) -> None:
    """An INVALID index that another session builds is not dropped: the operation waits until the index is valid."""
    table.run("expand_public_id")
    table.run("backfill_public_id")
    build = "CREATE UNIQUE INDEX CONCURRENTLY uq_person_public_id ON person (public_id)"

    with table.engine.connect() as report, autocommit(table.engine) as builder:
        send(report, "UPDATE person SET name = 'x' WHERE id = 1")  # the build waits for this transaction
        building = threading.Thread(target=send, args=(builder, build))
        building.start()
        wait_until(lambda: table.state().index, "the index")
        with pytest.raises(LockNotAvailable, match="build the unique index"):
            table.run("contract_public_id", attempts=2)
        operation = threading.Thread(target=table.run, args=("contract_public_id",))
        operation.start()
        report.rollback()
        building.join()
        with table.engine.connect() as connection:
            first = send(connection, "SELECT to_regclass('uq_person_public_id')::oid").scalar()
        operation.join()

    with table.engine.connect() as connection:
        assert send(connection, "SELECT to_regclass('uq_person_public_id')::oid").scalar() == first
    table.check_complete(20)


# --- one database


@pytest.mark.slow
@on_servers
def test_upgrades_at_once(new_project: Callable[..., Project]) -> None:
    """Of several processes that upgrade one database at once, one does the work, and the others find it done."""
    project = new_project()
    project.migrate(old_shop())
    project.write("op.add_public_id('customer')")
    url = project.engine.url.render_as_string(hide_password=False).replace("%", "%%")
    logs = [project.folder / f"log{number}" for number in range(3)]
    with autocommit(project.engine) as other, hold_turn(other, timeout=0), ExitStack() as files:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", UPGRADE, str(project.folder), url], stderr=files.enter_context(log.open("w"))
            )
            for log in logs
        ]
        for log in logs:
            wait_until(lambda log=log: "waiting for" in log.read_text(), "the process", log, 60)

    assert [process.wait(120) for process in processes] == [0] * 3, [log.read_text()[-300:] for log in logs]
    assert sum(log.read_text().count("build the unique index") for log in logs) == 1


@on_servers
def test_turn_of_a_database(engine: Engine) -> None:
    """Taking a turn leaves the connection outside a transaction, with its isolation level, also after an error."""
    with engine.connect() as connection:
        level = connection.get_isolation_level()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="as it happens"), take_turn(connection, timeout=0):
                assert not connection.in_transaction()
                assert connection.get_isolation_level() == level
                send(connection, "SELECT 1")
                assert connection.in_transaction()
                raise RuntimeError("as it happens")
            assert not connection.in_transaction()
            assert connection.get_isolation_level() == level


@on_servers
def test_turn_of_a_database_that_does_not_come(engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """After the timeout, the error names the connection of the other process, which keeps its turn."""
    second = new_engine(engine.name, engine.url, poolclass=NullPool)
    with engine.connect() as first, take_turn(first), second.connect() as connection:
        with pytest.raises(LockNotAvailable) as caught, take_turn(connection, timeout=0.1):
            pass
        assert not connection.in_transaction()
        assert caught.value.holder == number_of(first)


def test_turn_inside_another_transaction(engine: Engine) -> None:
    """A connection that is inside a transaction cannot wait for its turn, and the error names the remedy."""
    is_refused = pytest.raises(ConfigurationError, match=r"connectable\.connect\(\)")
    with engine.begin() as connection, is_refused, take_turn(connection):
        pass
