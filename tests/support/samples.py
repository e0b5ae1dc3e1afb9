"""Well-known sample databases of PostgreSQL and MySQL: their schemas from tests/data, with rows of our own."""

from __future__ import annotations

import re
import struct
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Column, Connection, Enum, MetaData, Table, insert, inspect, select
from sqlalchemy.dialects.mysql import SET, TINYINT, YEAR
from sqlalchemy.dialects.postgresql import DOMAIN, TSVECTOR
from sqlalchemy.types import NullType

DATA = Path(__file__).parents[1] / "data"
ROWS = 200
"""The number of rows in each table, fewer than 256 because of TINYINT."""
PARTITIONED = "payment"
FILLED_BY_TRIGGERS = {"film_text"}

Rows = dict[str, list[tuple[Any, ...]]]


def load(connection: Connection, name: str) -> None:
    """Create the schema of tests/data/*name*, whose paragraphs are its statements."""
    if connection.dialect.name != "postgresql":
        run(connection, "SET FOREIGN_KEY_CHECKS = 0")
    for paragraph in (DATA / name / "schema.sql").read_text().split("\n\n")[1:]:
        run(connection, paragraph.strip())


def unload(connection: Connection) -> None:
    """Drop the views and functions, which outlive the tables on MySQL and MariaDB."""
    if connection.dialect.name == "postgresql":
        return
    for view in inspect(connection).get_view_names():
        run(connection, f"DROP VIEW {view}")
    routines = "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE()"
    for (routine,) in run(connection, routines).all():
        run(connection, f"DROP FUNCTION {routine}")


def run(connection: Connection, statement: str) -> Any:
    """Execute a statement with colons and percent signs."""
    return connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


# --- rows


def fill(connection: Connection, metadata: MetaData, first: int = 0, count: int = ROWS) -> None:
    """Insert *count* rows into each table, like an application that knows only the columns of *metadata*."""
    if connection.dialect.name != "postgresql":
        run(connection, "SET FOREIGN_KEY_CHECKS = 0")  # stores and their managers refer to each other
    for table in sorted(metadata.sorted_tables, key=lambda table: table.name == PARTITIONED):  # its partitions refer
        if table.name not in FILLED_BY_TRIGGERS and not table.name.startswith(f"{PARTITIONED}_"):
            connection.execute(insert(table), [_row(table, at) for at in range(first, first + count)])


def _row(table: Table, at: int) -> dict[str, Any]:
    references = [column.name for column in table.columns if column.foreign_keys]
    row: dict[str, Any] = {}
    for column in table.columns:
        if column is table.autoincrement_column or isinstance(column.type, TSVECTOR):
            continue  # the database or a trigger generates it
        number = at
        if column.foreign_keys and column.name != references[0]:
            number = at * 3 % ROWS
        row[column.name] = _value(column, number)
    return row


def _value(column: Column[Any], number: int) -> Any:
    type_ = column.type
    if isinstance(type_, Enum):
        return type_.enums[number % len(type_.enums)]
    if isinstance(type_, SET):
        return {type_.values[number % len(type_.values)]}
    if isinstance(type_, ARRAY):
        return ["Trailers", f"Ärger {number}"]
    if isinstance(type_, (DOMAIN, YEAR)):
        return 1950 + number % 50
    if isinstance(type_, TINYINT) and type_.display_width == 1:
        return number % 2
    if isinstance(type_, NullType):  # a point, as MySQL stores it
        return struct.pack("<IBIdd", 0, 1, 1, number, number)
    moment = datetime(2022, 1, 1) + number * timedelta(hours=6)
    values: dict[type, Any] = {
        bool: number % 2 == 0,
        bytes: b"\x00\xff%s" % str(number).encode(),
        date: date(1990, 1, 1) + timedelta(days=number),
        datetime: moment.replace(tzinfo=timezone.utc) if getattr(type_, "timezone", False) else moment,
        Decimal: Decimal(number % 90) + Decimal("0.99"),
        int: number + 1,
        str: f"{number:04} {column.name} Ä%"[: getattr(type_, "length", None)],
        UUID: UUID(int=number + 1),
    }
    return values[type_.python_type]


def read(connection: Connection, metadata: MetaData) -> Rows:
    """Read all rows, with the columns of *metadata* only."""
    return {
        table.name: [tuple(row) for row in connection.execute(select(*table.c).order_by(*table.primary_key))]
        for table in metadata.tables.values()
    }


_CALLS = {
    "rewards_report": "(SELECT customer_id, last_update FROM rewards_report(0, 0)) called",
    "film_in_stock": "(SELECT film_in_stock(1, 1)) called",
    "get_customer_balance": "(SELECT get_customer_balance(1, '2023-01-01')) called",
}
"""Function → the element of FROM that calls it, and with it the functions that it calls."""


def read_views(connection: Connection) -> Rows:
    """Read all views, and call functions. Rows are sorted, and so are the names that GROUP_CONCAT joins."""
    found: Rows = {}
    functions = "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA IN ('public', DATABASE())"
    if connection.dialect.name == "postgresql":
        functions = functions.replace("DATABASE()", "''")
    called = {_CALLS[name] for (name,) in run(connection, functions) if name in _CALLS}
    for name in [*inspect(connection).get_view_names(), *sorted(called)]:
        rows = run(connection, f"SELECT * FROM {name}").all()
        found[name] = sorted((tuple(map(_sorted, row)) for row in rows), key=repr)
    return found


def _sorted(value: Any) -> Any:
    return sorted(value.split(", ")) if isinstance(value, str) else value


# --- the catalogs

_OF_POSTGRESQL = """
SELECT CAST(c.oid AS regclass), c.relkind, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       a.attcollation, pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = CAST('public' AS regnamespace) ORDER BY c.relname, a.attnum;
SELECT CAST(conrelid AS regclass), conname, pg_get_constraintdef(oid), convalidated FROM pg_constraint
WHERE connamespace = CAST('public' AS regnamespace) ORDER BY 1, 2;
SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2;
SELECT CAST(tgrelid AS regclass), pg_get_triggerdef(oid), tgenabled FROM pg_trigger
WHERE NOT tgisinternal ORDER BY 1, 2;
SELECT proname, prosrc FROM pg_proc WHERE pronamespace = CAST('public' AS regnamespace) ORDER BY 1, 2;
SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' ORDER BY 1;
SELECT typname, typtype FROM pg_type WHERE typnamespace = CAST('public' AS regnamespace) ORDER BY 1
"""
_OF_MYSQL = """
SELECT TABLE_NAME, VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE() ORDER BY 1;
SELECT TRIGGER_NAME, EVENT_OBJECT_TABLE, ACTION_STATEMENT, SQL_MODE FROM information_schema.TRIGGERS
WHERE TRIGGER_SCHEMA = DATABASE() ORDER BY 1;
SELECT ROUTINE_NAME, ROUTINE_DEFINITION, LAST_ALTERED FROM information_schema.ROUTINES
WHERE ROUTINE_SCHEMA = DATABASE() ORDER BY 1
"""


def catalog(connection: Connection) -> list[str]:
    """Return the catalog entries of the schema, without Alembic's table and the counters."""
    on_postgresql = connection.dialect.name == "postgresql"
    queries = (_OF_POSTGRESQL if on_postgresql else _OF_MYSQL).split(";")
    lines = [repr(row) for query in queries for row in run(connection, query)]
    for name in [] if on_postgresql else sorted(inspect(connection).get_table_names()):
        text = re.sub(r" AUTO_INCREMENT=\d+", "", run(connection, f"SHOW CREATE TABLE {name}").one()[1])
        lines += [f"{name}: {line}" for line in text.splitlines()]
    return [line for line in lines if "alembic_version" not in line]
