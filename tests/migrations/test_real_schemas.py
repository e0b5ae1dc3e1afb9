"""The smallest tables on which migrations of real schemas failed, such as those of WordPress, Calibre and Zotero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine
from support import command
from support.marks import on
from support.people import People, people, send

from sqlalchemy_public_id import audit
from sqlalchemy_public_id.errors import MigrationRefused

pytestmark = pytest.mark.backend


def create(table: People, columns: str, rows: str = "", after: str = "") -> None:
    """Create the table with only these columns, and insert *rows*."""
    table.execute("DROP TABLE person")
    table.execute(f"CREATE TABLE person ({columns}) {after}")
    if rows:
        table.execute(f"INSERT INTO person VALUES {rows}")


def count_ids(table: People) -> int:
    """Return the number of different ids in the table."""
    with table.engine.connect() as connection:
        count: int = send(connection, "SELECT count(DISTINCT public_id) FROM person").scalar()
        return count


# --- keys


def accept_zero_dates(table: People, new_engine: Callable[..., Engine], mode: str = "NO_ENGINE_SUBSTITUTION") -> People:
    """Return the table, seen by sessions that accept the zero dates of old programs, or what another *mode* accepts."""
    options = {"init_command": f"SET SESSION sql_mode = '{mode}'"}
    return People(new_engine(table.engine.name, table.engine.url, connect_args=options))


@on("mysql", "mariadb")
def test_key_with_a_zero_date(table: People, new_engine: Callable[..., Engine]) -> None:
    """A row with a zero date in its key gets an id, also inside the transaction of a migration."""
    old = accept_zero_dates(table, new_engine)
    create(old, "id int, day date, PRIMARY KEY (day, id)", "(1, '0000-00-00'), (2, '2020-01-01')")

    table.add(online=False)

    assert count_ids(table) == 2


# --- MySQL and MariaDB


@on("mysql")
def test_default_of_a_zero_date(table: People, new_engine: Callable[..., Engine]) -> None:
    """A table with the default '0000-00-00 00:00:00' gets ids with the server's own ``sql_mode``."""
    old = accept_zero_dates(table, new_engine)
    create(old, "id int PRIMARY KEY, registered datetime NOT NULL DEFAULT '0000-00-00 00:00:00'", "(1, '2020-01-01')")

    table.add()

    assert count_ids(table) == 1


@on("mariadb")
def test_zero_date_in_a_column_with_on_update(table: People, new_engine: Callable[..., Engine]) -> None:
    """A zero date in a column with ON UPDATE CURRENT_TIMESTAMP is kept in a session that does not accept zero dates."""
    old = accept_zero_dates(table, new_engine)
    create(old, "id int PRIMARY KEY, changed timestamp NULL ON UPDATE current_timestamp", "(1, '0000-00-00')")
    strict = {"init_command": "SET SESSION sql_mode = 'TRADITIONAL'"}

    People(new_engine("mariadb", table.engine.url, connect_args=strict)).add()

    assert count_ids(table) == 1


@on("mysql", "mariadb")
@pytest.mark.parametrize("options", [{"allow_lock": True}, {"collation": "bytes"}], ids=["rebuild", "collation"])
def test_invalid_date(table: People, new_engine: Callable[..., Engine], options: dict[str, Any]) -> None:
    """An invalid date is kept when the table is copied, in a session that does not accept such dates."""
    old = accept_zero_dates(table, new_engine, "ALLOW_INVALID_DATES")
    create(old, "id int PRIMARY KEY, day date, public_id varchar(12) CHARACTER SET utf8mb4", "(1, '2026-02-31', NULL)")
    if "collation" not in options:
        old.execute("ALTER TABLE person MODIFY public_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin")

    table.add(**options)

    assert count_ids(table) == 1


@on("mysql")
def test_wide_row(table: People) -> None:
    """A table whose rows are too wide for ALGORITHM=INSTANT gets ids with the next algorithm."""
    columns = ", ".join(f"c{number} varchar(255)" for number in range(40))
    create(table, f"id int PRIMARY KEY, {columns}", after="CHARSET latin1")
    table.execute("INSERT INTO person (id) VALUES (1)")

    table.add(allow_lock=True)

    assert count_ids(table) == 1


# --- messages


@on("postgresql")
def test_remedy_in_another_schema(engine: Engine) -> None:
    """The remedy for an obstacle names the schema of the table, so that it works as it is printed."""
    with people(engine, 0) as table:
        table.execute(
            "CREATE SCHEMA sales; CREATE TABLE sales.store (id int PRIMARY KEY, public_id varchar(12) DEFAULT 'x')"
        )
        try:
            with pytest.raises(MigrationRefused) as refused:
                People(engine, "store", schema="sales").add()
        finally:
            table.execute("DROP SCHEMA sales CASCADE")

    assert "schema='sales'" in refused.value.obstacles[0].remedy


@on("postgresql")
def test_types_that_sqlalchemy_lacks(table: People) -> None:
    """Audits, plans and migrations raise no warning about other columns, whatever their types are."""
    table.create(3, more=", place point")

    audit.run(table.engine, tables=["person"])
    command.run("plan", table.engine.url.render_as_string(hide_password=False), "person")
    table.add()
    audit.run(table.engine, tables=["person"])
