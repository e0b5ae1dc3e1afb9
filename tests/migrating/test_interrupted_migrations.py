"""A backfill that an exception interrupts leaves nothing open, and the settings of its connection as they were."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, Engine
from support.interrupt import interrupted
from support.people import People, send

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


@pytest.mark.parametrize(
    ("database", "triggers"),
    [*((each, "fire") for each in SETTINGS), ("sqlite", "skip"), ("postgresql", "skip")],
    indirect=["database"],
)
def test_backfill(engine: Engine, triggers: Any) -> None:
    """A backfill on a connection of the caller that is in AUTOCOMMIT leaves no transaction open."""

    people = People(engine)

    def start() -> Engine:
        people.create(3)
        people.run("expand_public_id")
        return engine

    def work(connection: Connection) -> None:
        backfill.run(connection, "person", update_triggers=triggers)

    changes = interrupt_each(start, work, isolation_level="AUTOCOMMIT")

    people.drop()
    assert [change for change in changes if "UPDATE" in change]
