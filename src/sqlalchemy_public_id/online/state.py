"""What there is of a column of public ids: the steps of a migration look at it, and go on from there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import Connection, func, inspect, select, text

from sqlalchemy_public_id.dialects.quoting import quoted
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.online.target import Target

__all__ = ["State", "missing_rows", "read"]


@dataclass(frozen=True)
class State:
    """What the catalogs of the database say."""

    exists: bool = False
    """Whether the column is there."""
    nullable: bool = True
    collated: bool = True
    """Whether ids are compared byte by byte."""
    comment: str | None = None
    default: str | None = None
    """The database-side default, whosever it is, as an expression."""
    function: bool = False
    """Whether the function of PostgreSQL is there that makes ids."""
    trigger: bool = False
    """Whether the trigger of MySQL or MariaDB is there that makes ids."""
    index: bool = False
    """Whether the unique index is there, be it valid or not."""
    valid: bool = False
    """Whether it is complete."""
    constraint: bool = False
    """Whether it belongs to a constraint."""
    check: bool = False
    """Whether the CHECK constraint is there that forbids NULL meanwhile."""
    checked: bool = False
    """Whether it is known to hold for the old rows."""
    strict: bool = False
    """Whether the table of SQLite is STRICT."""

    @property
    def complete(self) -> bool:
        """Whether the column is NOT NULL, unique, and collated as it should be."""
        return self.exists and not self.nullable and self.index and self.valid and self.collated


def read(connection: Connection, target: Target) -> State:
    """Look at the table of *target*.

    :raises ConfigurationError: where there is no such table.
    """
    inspector = inspect(connection)
    if not inspector.has_table(target.table, schema=target.schema):
        raise ConfigurationError(f"there is no table {target.table!r}{_in_schema(target)}")
    return _READERS.get(connection.dialect.name, _read_sqlite)(connection, target)


def missing_rows(connection: Connection, target: Target) -> int:
    """How many rows have no id."""
    table = target.as_table()
    return connection.scalar(select(func.count()).select_from(table).where(table.c[target.column].is_(None))) or 0


def _in_schema(target: Target) -> str:
    return f" in schema {target.schema!r}" if target.schema else ""


# --- PostgreSQL

_POSTGRESQL = text("""
SELECT NOT a.attnotnull AS nullable,
       pg_get_expr(d.adbin, d.adrelid) AS "default",
       col_description(a.attrelid, a.attnum) AS comment,
       (SELECT collname FROM pg_collation WHERE oid = a.attcollation) AS collation,
       i.indisvalid AS valid, i.indisunique AS is_unique,
       EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid AND contype = 'u') AS "constraint",
       (SELECT convalidated FROM pg_constraint WHERE conrelid = a.attrelid AND conname = :check) AS checked,
       EXISTS (SELECT FROM pg_proc
               WHERE proname = :helper AND pronamespace = c.relnamespace AND pronargs = 0) AS function,
       a.attnum IS NOT NULL AS "exists",
       c.relkind = 'p' AS partitioned
FROM pg_class c
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = :column AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indexrelid = (
    SELECT oid FROM pg_class WHERE relname = :name AND relnamespace = c.relnamespace)
WHERE c.relkind IN ('r', 'p') AND c.relname = :table
  AND (c.relnamespace = to_regnamespace(:schema) OR (CAST(:schema AS text) IS NULL AND pg_table_is_visible(c.oid)))
""")


def _read_postgresql(connection: Connection, target: Target) -> State:
    found = connection.execute(
        _POSTGRESQL,
        {
            "check": target.check_name,
            "helper": target.helper_name,
            "column": target.column,
            "name": target.unique_name,
            "table": target.table,
            "schema": target.schema and quoted(target.schema, connection.dialect),
        },
    ).one_or_none()
    if found is None:
        raise ConfigurationError(f"{target.table!r}{_in_schema(target)} is no ordinary table")
    if found.partitioned:
        raise ConfigurationError(
            f"{target.table!r}{_in_schema(target)} is partitioned: PostgreSQL wants the partition key in every unique "
            f"index, so {target.column!r} alone cannot be unique there; add column and index to each partition by hand"
        )
    return State(
        exists=found.exists,
        nullable=found.nullable is not False,
        collated=found.collation in ("C", "POSIX", None),
        comment=found.comment,
        default=found.default,
        function=found.function,
        index=found.valid is not None and found.is_unique,
        valid=bool(found.valid),
        constraint=found.constraint,
        check=found.checked is not None,
        checked=bool(found.checked),
    )


# --- MySQL and MariaDB

_MYSQL = text("""
SELECT c.IS_NULLABLE AS nullable, c.COLUMN_DEFAULT AS `default`, c.COLUMN_COMMENT AS comment,
       c.COLLATION_NAME AS collation, c.EXTRA AS extra,
       EXISTS (SELECT 1 FROM information_schema.TRIGGERS t WHERE t.TRIGGER_SCHEMA = c.TABLE_SCHEMA
               AND t.EVENT_OBJECT_TABLE = c.TABLE_NAME AND t.TRIGGER_NAME = :helper) AS has_trigger,
       EXISTS (SELECT 1 FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = c.TABLE_SCHEMA
               AND s.TABLE_NAME = c.TABLE_NAME AND s.INDEX_NAME = :name AND s.NON_UNIQUE = 0) AS has_index
FROM information_schema.COLUMNS c
WHERE c.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND c.TABLE_NAME = :table AND c.COLUMN_NAME = :column
""")


def _read_mysql(connection: Connection, target: Target) -> State:
    names = {"helper": target.helper_name, "name": target.unique_name, "schema": target.schema}
    found = connection.execute(_MYSQL, {**names, "table": target.table, "column": target.column}).one_or_none()
    if found is None:
        return State()
    default = None if found.default in (None, "NULL") else str(found.default)  # MariaDB writes NULL as a word
    if default is not None and not getattr(connection.dialect, "is_mariadb", False):
        is_expression = "DEFAULT_GENERATED" in found.extra
        default = default.replace("\\'", "'") if is_expression else "'" + default.replace("'", "''") + "'"
    return State(
        exists=True,
        nullable=found.nullable == "YES",
        collated=found.collation in ("ascii_bin", None),
        comment=found.comment or None,
        default=default,
        trigger=bool(found.has_trigger),
        index=bool(found.has_index),
        valid=bool(found.has_index),
        constraint=bool(found.has_index),
    )


# --- SQLite


_SQLITE = text("""
SELECT "notnull" AS not_null, dflt_value AS "default" FROM pragma_table_xinfo(:table, :schema) WHERE name = :column
""")
_SQLITE_UNIQUE = text("""
SELECT l.name, l.origin FROM pragma_index_list(:table, :schema) l
WHERE l."unique" AND l.partial = 0
  AND (SELECT count(*) = 1 AND min(i.name) = :column FROM pragma_index_info(l.name, :schema) i)
""")
_STRICT = re.compile(r"\)[^()]*\bSTRICT\b[^()]*$", re.IGNORECASE)


def _read_sqlite(connection: Connection, target: Target) -> State:
    names = {"table": target.table, "schema": target.schema or "main", "column": target.column}
    master = f"{quoted(names['schema'], connection.dialect)}.sqlite_master"
    query = f"SELECT sql FROM {master} WHERE type = 'table' AND name = ?"  # a schema may be called ":table"
    created = connection.exec_driver_sql(query, (target.table,)).scalar()
    strict = _STRICT.search(created or "") is not None
    found = connection.execute(_SQLITE, names).one_or_none()
    if found is None:
        return State(strict=strict)
    uniques = connection.execute(_SQLITE_UNIQUE, names).all()
    is_constraint = any(unique.origin == "u" for unique in uniques)
    is_index = any(unique.name == target.unique_name for unique in uniques)
    there = is_constraint if target.unique == "constraint" else is_index
    return State(
        exists=True,
        nullable=not found.not_null,
        default=found.default,
        index=there,
        valid=there,
        constraint=is_constraint,
        strict=strict,
    )


_READERS = {
    "mariadb": _read_mysql,
    "mysql": _read_mysql,
    "postgresql": _read_postgresql,
    "sqlite": _read_sqlite,
}
