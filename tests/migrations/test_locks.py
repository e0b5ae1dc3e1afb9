"""A migration of a busy table waits only briefly for its lock, lets other statements pass, and tries again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from support.connections import count_waiting, monitor, processes
from support.marks import on
from support.people import People, send
from support.private_servers import wait_until

from sqlalchemy_public_id import guard
from sqlalchemy_public_id.errors import LockNotAvailable
from sqlalchemy_public_id.migrations import Timeouts
from sqlalchemy_public_id.migrations.databases import database_of, plan_for
from sqlalchemy_public_id.migrations.steps import Runner

LOCK_TIMEOUT = 1.0

on_servers = on("postgresql", "mysql", "mariadb")


@pytest.fixture
def table(new_people: Callable[..., People]) -> People:
    """A table of people without public ids."""
    return new_people(50)


@contextmanager
def held(table: People) -> Iterator[Any]:
    """Keep the transaction of another session open that has read the table, so that no ALTER gets its lock."""
    with table.engine.connect() as other:
        send(other, f"SELECT count(*) FROM {table.name}").scalar()
        try:
            yield other
        finally:
            other.rollback()


@contextmanager
def reading(table: People) -> Iterator[list[float]]:
    """Read a row again and again in a thread, and yield the list of how long each read took."""
    took: list[float] = []
    over = threading.Event()

    def read() -> None:
        with table.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while not over.wait(0.01):
                began = time.monotonic()
                send(connection, f"SELECT name FROM {table.name} WHERE id = 1").scalar()
                took.append(time.monotonic() - began)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield took
    finally:
        over.set()
        reader.join()


@pytest.mark.slow
@on_servers
@pytest.mark.parametrize("operation", ["expand_public_id", "contract_public_id", "drop_public_id"])
def test_busy_for_a_while(table: People, operation: str) -> None:
    """While a transaction holds the table for three seconds, readers wait no longer than the limit."""
    if operation == "contract_public_id":
        table.run("expand_public_id")
        table.run("backfill_public_id")
    if operation == "drop_public_id":
        table.add()

    with reading(table) as took, held(table) as other:
        timer = threading.Timer(3.0, other.rollback)
        timer.start()
        table.run(operation, lock_timeout=LOCK_TIMEOUT)
        timer.join()

    assert max(took) < LOCK_TIMEOUT + 1.0
    assert len(took) > 20
    assert (table.column in table.columns()) == (operation != "drop_public_id")
    assert table.state().complete == (operation == "contract_public_id")


@on_servers
def test_limit_of_each_step(table: People) -> None:
    """Only the build of the index and the search for NULL wait long for a lock; each step sets its own limit."""
    for operation in ("expand_public_id", "backfill_public_id"):
        table.run(operation)
    is_postgresql = table.engine.name == "postgresql"
    ask = "SHOW lock_timeout" if is_postgresql else "SELECT @@SESSION.lock_wait_timeout"
    limits: dict[bool, list[str]] = {True: [], False: []}
    long_steps = ("CREATE UNIQUE", "VALIDATE") if is_postgresql else ("MODIFY",)

    @event.listens_for(table.engine, "before_cursor_execute")
    def look(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith(("ALTER", "CREATE UNIQUE")) and "rehearsal" not in statement:
            cursor.execute(ask)
            limits[any(word in statement for word in long_steps)].append(str(cursor.fetchone()[0]))

    table.run("contract_public_id", lock_timeout=2, attempts=3, index_timeout=50, server_default="drop")
    short, long = ("2s", "50s") if is_postgresql else ("2", "6")  # the time of all attempts, as it rewrites the table

    assert {*limits[True]} == {long}
    assert {*limits[False]} == {short}  # before the long steps, as of the statement that takes their lock, and after
    assert len(limits[False]) == (4 if is_postgresql else 2)


@on_servers
@pytest.mark.parametrize("seconds", [0.0004, 0.9])
def test_shortest_limit(table: People, seconds: float) -> None:
    """A limit below a millisecond, or below a second, is not rounded down to 0, which would be no limit."""
    with held(table) as other:
        timer = threading.Timer(10, other.rollback)
        timer.start()
        with pytest.raises(LockNotAvailable):
            table.run("expand_public_id", lock_timeout=seconds, attempts=1)
        timer.cancel()


@on_servers
def test_transaction_that_reads_and_then_writes(table: People) -> None:
    """While an ALTER waits for it, MySQL and MariaDB refuse its write as a deadlock, and PostgreSQL lets it go on."""

    def alter_waits() -> bool:
        if table.engine.name == "postgresql":
            return count_waiting(own) > 0
        return any(each.State == "Waiting for table metadata lock" for each in processes(own))

    with monitor(table.engine) as own, held(table) as other, ThreadPoolExecutor() as threads:
        expanded = threads.submit(table.run, "expand_public_id", lock_timeout=30)
        wait_until(alter_waits, "the ALTER does not wait")
        try:
            send(other, f"UPDATE {table.name} SET name = 'changed' WHERE id = 1")
            refusal = None
            other.commit()
        except DBAPIError as error:
            refusal = error
            other.rollback()
        expanded.result()

    assert (refusal is None) == (table.engine.name == "postgresql")
    assert refusal is None or guard.is_retryable(refusal)
    assert table.column in table.columns()


@on("mysql", "mariadb")
def test_rewrite_of_a_busy_table(table: People) -> None:
    """While others use the table, a long rewrite is not begun, which would keep readers waiting for half a minute."""
    table.run("expand_public_id")
    table.run("backfill_public_id")
    sent: list[str] = []
    event.listen(table.engine, "before_cursor_execute", lambda *given: sent.append(given[2]))

    with held(table), pytest.raises(LockNotAvailable):
        table.run("contract_public_id", lock_timeout=LOCK_TIMEOUT, attempts=1)

    assert [sql for sql in sent if "ENABLE KEYS" in sql]
    assert not [sql for sql in sent if "MODIFY" in sql and "rehearsal" not in sql]


@on("postgresql")
def test_limit_in_the_error(table: People) -> None:
    """If an index cannot be built, the error has the limit of this step."""
    table.run("expand_public_id")
    table.run("backfill_public_id")

    with held(table) as other, pytest.raises(LockNotAvailable) as caught:
        send(other, "UPDATE person SET name = name WHERE id = 1")
        table.run("contract_public_id", lock_timeout=2, index_timeout=0.2, attempts=1)

    assert caught.value.timeout == 0.2


@on("mysql", "mariadb")
def test_definition_that_changes(table: People) -> None:
    """While another session changes the definition of the table, the catalogs of MariaDB lack it: a migration waits."""
    table.execute("DROP TABLE IF EXISTS zebra")
    table.execute("CREATE TABLE zebra (id int PRIMARY KEY)")

    def states() -> list[tuple[str, str]]:
        with monitor(table.engine) as own:
            waiting = [each for each in processes(own) if each.State == "Waiting for table metadata lock"]
            return [(each.Info or "")[:6] for each in waiting]

    with ThreadPoolExecutor() as threads, table.engine.connect() as reader:
        send(reader, "SELECT * FROM zebra").all()
        # locks person, and then waits for zebra
        swap = threads.submit(table.execute, "RENAME TABLE person TO zoo, zoo TO person, zebra TO zebu")
        wait_until(lambda: states() == ["RENAME"], "the other session waits")
        migration = threads.submit(table.add, lock_timeout=60)
        wait_until(lambda: len(states()) == 2 or migration.done(), "the migration waits")
        reader.rollback()
        swap.result()
        migration.result()

    table.execute("DROP TABLE zebu")
    table.check_complete(50)


@on("mariadb")
def test_catalogs_of_other_databases(table: People) -> None:
    """A migration reads the catalogs of its own table alone, whatever other tables the server has."""
    plans: list[tuple[str, str]] = []

    @event.listens_for(table.engine, "before_cursor_execute")
    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        # any table may have a foreign key that refers to the column
        if "information_schema" in statement and "REFERENCED_TABLE_NAME" not in statement:
            cursor.execute(f"EXPLAIN {statement}", parameters)
            plans.extend((statement, str(row)) for row in cursor.fetchall())

    for operation in ("expand", "backfill", "contract", "loosen", "drop"):
        table.run(f"{operation}_public_id")

    assert len({statement for statement, _ in plans}) > 8
    assert [statement for statement, plan in plans if "Scanned all databases" in plan] == []


@on_servers
def test_probe_that_the_database_does_not_know(table: People) -> None:
    """A database that refuses the short statement before a long one is not refused: the long one takes the lock."""
    table.run("expand_public_id")
    table.run("backfill_public_id")
    with table.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        database, plan = database_of(connection.dialect), plan_for(table.target, connection.dialect)
        session = database.session(connection, Timeouts())
        runner = Runner(database.table(connection, table.target), session)
        runner.run([replace(step, probe=f"ALTER TABLE {table.name} ENABLE NOTHING") for step in plan.contract()])

    table.check_complete(50)
