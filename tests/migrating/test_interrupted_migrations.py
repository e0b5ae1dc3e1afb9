"""A migration that an exception interrupts leaves nothing open, and the settings of its connection as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, Engine
from support.interrupt import interrupted
from support.people import People, migrating, send

from sqlalchemy_public_id import backfill

pytestmark = pytest.mark.backend

SETTINGS = {
    "sqlite": ["PRAGMA legacy_alter_table", "PRAGMA foreign_keys"],
    "postgresql": [f"SHOW {name}" for name in ("lock_timeout", "statement_timeout", "session_replication_role")],
    "mysql": [
        f"SELECT @@SESSION.{name}"
        for name in ("lock_wait_timeout", "innodb_lock_wait_timeout", "sql_mode", "transaction_isolation")
    ],
    "mariadb": [
        f"SELECT @@SESSION.{name}"
        for name in (
            *("lock_wait_timeout", "innodb_lock_wait_timeout", "sql_mode", "tx_isolation"),
            "system_versioning_alter_history",
        )
    ],
}


CHANGES = ("ALTER", "CREATE", "DROP", "INSERT", "UPDATE", "WITH")
"""The beginnings of statements that change a table."""


def settings(connection: Connection) -> list[Any]:
    return [send(connection, query).scalar() for query in SETTINGS[connection.dialect.name]]


def is_open(connection: Connection) -> bool:
    """Return True if the driver is in a transaction, which AUTOCOMMIT mode does not show."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        return bool(driver.in_transaction)
    if connection.dialect.name == "postgresql":
        return str(driver.info.transaction_status.name) != "IDLE"
    return bool(driver.server_status & 1)  # SERVER_STATUS_IN_TRANS


def interrupt_each(start: Callable[[], Engine], work: Callable[[Connection], None], **options: Any) -> list[str]:
    """Do *work* on a new connection until each of its changes was interrupted once; return these changes.

    After each interruption, the connection has the settings of before, and no transaction.
    """
    changes: list[str] = []
    for number in count(1):
        engine = start()
        with engine.connect().execution_options(**options) as connection:
            before = settings(connection)
            if not options:
                connection.rollback()
            try:
                with interrupted(engine, number, when="between", only=CHANGES) as sent:
                    work(connection)
                return changes
            except KeyboardInterrupt:
                changes.append(sent[-1])
            assert (is_open(connection), settings(connection)) == (False, before), changes[-1]
    raise AssertionError  # counts for ever


@pytest.fixture
def new_people(engine: Engine) -> Iterator[Callable[..., People]]:
    """Make the table, and run some operations on it; it is gone after the test."""
    people = People(engine)

    def make(*operations: str, **options: Any) -> People:
        people.options = options
        people.create(3)
        for operation in operations:
            people.run(operation)
        return people

    yield make
    people.drop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operations", "options"),
    [
        (["add_public_id"], {}),
        (["add_public_id"], {"server_default": "drop"}),
        (["add_public_id", "loosen_public_id"], {}),
        (["add_public_id", "drop_public_id"], {}),
    ],
    ids=["add", "add for a while", "loosen", "drop"],
)
def test_operations(
    new_people: Callable[..., People], engine: Engine, operations: list[str], options: dict[str, Any]
) -> None:
    """An operation that is interrupted before any of its changes can be repeated, on the same connection too."""
    *done, operation = operations

    def start() -> Engine:
        return new_people(*done, **options).engine

    def work(connection: Connection) -> None:
        with migrating(connection) as op:
            op_of = getattr(op, operation)
            op_of("person", **options)

    assert interrupt_each(start, work)
    with engine.connect() as connection:
        work(connection)
    if operation == "add_public_id":
        People(engine, **options).check_complete(3)


@pytest.mark.parametrize(
    ("database", "triggers"),
    [*((each, "fire") for each in SETTINGS), ("sqlite", "skip"), ("postgresql", "skip")],
    indirect=["database"],
)
def test_backfill(new_people: Callable[..., People], triggers: Any) -> None:
    """A backfill on a connection of the caller that is in AUTOCOMMIT leaves no transaction open."""

    def start() -> Engine:
        return new_people("expand_public_id").engine

    def work(connection: Connection) -> None:
        backfill.run(connection, "person", update_triggers=triggers)

    changes = interrupt_each(start, work, isolation_level="AUTOCOMMIT")

    assert [change for change in changes if "UPDATE" in change]
