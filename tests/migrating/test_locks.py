"""A table that others keep busy: the migration waits for a short time, lets others pass, and tries again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine
from support.marks import on
from support.people import People, migrating, people, send

from sqlalchemy_public_id.errors import LockNotAvailable

LOCK_TIMEOUT = 1.0
pytestmark = pytest.mark.slow

on_servers = on("postgresql", "mysql", "mariadb")


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    """People, as they were before there were public ids."""
    with people(engine, 50) as made:
        yield made


@contextmanager
def held(table: People) -> Iterator[Any]:
    """Another session has read the table, and its transaction stays open: no ALTER gets its lock."""
    with table.engine.connect() as other:
        send(other, f"SELECT count(*) FROM {table.name}").scalar()
        try:
            yield other
        finally:
            other.rollback()


@contextmanager
def reading(table: People) -> Iterator[list[float]]:
    """Someone reads a row again and again; how long each time took."""
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


@on_servers
@pytest.mark.parametrize("operation", ["expand_public_id", "contract_public_id", "drop_public_id"])
def test_busy_for_a_while(table: People, operation: str) -> None:
    """While a transaction holds the table for three seconds, readers wait no longer than the limit; then it is done."""
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
def test_busy_for_ever(table: People) -> None:
    """When the lock is never to be had, the error says what to look for, and nothing is changed."""
    before = table.state()

    with held(table), pytest.raises(LockNotAvailable, match="2 times for 1 s; find the transaction") as caught:
        table.run("expand_public_id", lock_timeout=1, attempts=2)

    assert (caught.value.table, caught.value.attempts, caught.value.timeout) == ("person", 2, 1)
    assert caught.value.step == "add the column"
    assert table.state().exists == before.exists is False


@on_servers
def test_busy_for_ever_in_the_end(table: People) -> None:
    """When the lock of a later step is never to be had, what was done before stays, and the next run goes on."""
    table.run("expand_public_id")
    table.run("backfill_public_id")
    ids = table.ids()

    with held(table), pytest.raises(LockNotAvailable):
        table.run("contract_public_id", lock_timeout=1, index_timeout=1, attempts=1)

    table.add()
    table.check_complete(50)
    assert table.ids() == ids


@on_servers
def test_settings_after_giving_up(table: People) -> None:
    """A connection on which the migration has given up has its own settings again, and is in no transaction."""
    names = (
        ["lock_timeout"]
        if table.engine.name == "postgresql"
        else ["@@SESSION.lock_wait_timeout", "@@SESSION.sql_mode", "@@SESSION.innodb_lock_wait_timeout"]
    )
    word = "SHOW" if table.engine.name == "postgresql" else "SELECT"

    def settings(connection: Any) -> list[Any]:
        return [send(connection, f"{word} {name}").scalar() for name in names]

    with table.engine.connect() as connection:
        before = settings(connection)
        connection.rollback()
        with held(table), pytest.raises(LockNotAvailable), migrating(connection) as op:
            table.say(op, "expand_public_id", lock_timeout=1, attempts=1)
        assert settings(connection) == before
        send(connection, f"INSERT INTO {table.name} (name) VALUES ('x')")
        connection.rollback()
        assert send(connection, f"SELECT count(*) FROM {table.name}").scalar() == 50


@on("postgresql")
def test_long_transaction_elsewhere(table: People) -> None:
    """The index waits for an old transaction that has written, as long as it may, while others go on writing."""
    table.run("expand_public_id")
    table.run("backfill_public_id")

    with table.engine.connect() as other:
        send(other, "UPDATE person SET name = 'x' WHERE id = 1")
        timer = threading.Timer(2.0, other.rollback)
        timer.start()
        with reading(table) as took:
            table.run("contract_public_id")
        timer.join()

    table.check_complete(50)
    assert max(took) < LOCK_TIMEOUT + 1.0


@on("postgresql")
def test_index_timeout(table: People) -> None:
    """When the index waits too long, its remains are taken away by the next attempt."""
    table.run("expand_public_id")
    table.run("backfill_public_id")

    with table.engine.connect() as other:
        send(other, "UPDATE person SET name = 'x' WHERE id = 1")
        with pytest.raises(LockNotAvailable) as caught:
            table.run("contract_public_id", index_timeout=0.3, attempts=1)
        assert caught.value.step == "build the unique index"
        other.rollback()

    table.add()
    table.check_complete(50)


@on_servers
def test_row_that_is_busy(table: People) -> None:
    """A row that someone else has locked for a while is filled when it is free again."""
    table.run("expand_public_id")

    with table.engine.connect() as other:
        send(other, f"UPDATE {table.name} SET name = 'mine' WHERE id = 7")
        timer = threading.Timer(1.5, other.commit)
        timer.start()
        table.run("backfill_public_id")
        timer.join()

    assert None not in table.ids()
