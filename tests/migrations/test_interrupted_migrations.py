"""A backfill that an exception interrupts leaves nothing open, and restores the settings of its connection."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, Engine
from support.interrupt import interrupted
from support.people import People, send

from sqlalchemy_public_id import backfill
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.migrations.databases import live_table, rows_of

pytestmark = pytest.mark.backend

OF_BOTH = "@@lock_wait_timeout, @@innodb_lock_wait_timeout, @@sql_mode"
SETTINGS = {
    "sqlite": "* FROM pragma_legacy_alter_table, pragma_foreign_keys",
    "postgresql": "name, setting FROM pg_settings WHERE name ~ '_timeout$' OR name = 'session_replication_role'",
    "mysql": f"{OF_BOTH}, @@transaction_isolation",
    "mariadb": f"{OF_BOTH}, @@tx_isolation, @@system_versioning_alter_history",
}
CHANGES = ("ALTER", "CREATE", "DROP", "INSERT", "UPDATE", "WITH")
"""The beginnings of statements that change a table."""


def is_open(connection: Connection) -> bool:
    """Return True if the driver has an open transaction, which AUTOCOMMIT mode does not show."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        return bool(driver.in_transaction)
    if connection.dialect.name == "postgresql":
        return str(driver.info.transaction_status.name) != "IDLE"
    return bool(driver.server_status & 1)  # SERVER_STATUS_IN_TRANS


@pytest.mark.parametrize(
    ("database", "triggers"),
    [*((each, "fire") for each in SETTINGS), ("sqlite", "skip"), ("postgresql", "skip")],
    indirect=["database"],
)
def test_backfill(table: People, engine: Engine, triggers: Any) -> None:
    """An interrupted backfill on the caller's AUTOCOMMIT connection leaves no transaction open, and no claim."""
    changes: list[str] = []

    def settings() -> list[Any]:
        return list(send(connection, f"SELECT {SETTINGS[engine.name]}").all())

    for number in count(1):
        table.create(3)
        table.run("expand_public_id")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            before = settings()
            try:
                with interrupted(engine, number, when="between", only=CHANGES) as sent:
                    backfill.run(connection, "person", update_triggers=triggers)
                break  # each change was interrupted once
            except KeyboardInterrupt:
                changes.append(sent[-1])
            assert (is_open(connection), settings()) == (False, before), changes[-1]
            with engine.connect() as other, rows_of(live_table(other, table.target)).claim(None) as is_free:
                assert is_free, changes[-1]

    assert [change for change in changes if "UPDATE" in change]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_refused_backfill(table: People, engine: Engine, ends: str) -> None:
    """A refused backfill in a transaction of the caller restores the settings, however the caller goes on."""

    def settings() -> list[Any]:
        return list(send(connection, f"SELECT {SETTINGS[engine.name]}").all())

    table.create(3)
    table.run("expand_public_id")
    with engine.connect() as connection:
        before = settings()
        connection.commit()
        send(connection, "CREATE TEMPORARY TABLE person (id int PRIMARY KEY, public_id varchar(12))")
        with pytest.raises(MigrationRefused, match="a temporary table"):
            backfill.run(connection, "person")
        assert settings() == before
        getattr(connection, ends)()
        assert settings() == before
        connection.invalidate()
