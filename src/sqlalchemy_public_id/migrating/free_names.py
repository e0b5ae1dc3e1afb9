"""Find names for new objects that no other object has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from sqlalchemy import Connection, text

from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.naming import derived_name

_POSTGRESQL_RELATION = text(
    "SELECT 1 FROM pg_class c JOIN pg_class t ON t.relnamespace = c.relnamespace"
    " WHERE t.oid = to_regclass(:regclass) AND c.relname = :name"
)
"""An index shares its names with the tables, views and sequences of the schema."""
_POSTGRESQL_CONSTRAINT = text("SELECT 1 FROM pg_constraint WHERE conrelid = to_regclass(:regclass) AND conname = :name")
_MYSQL_INDEX = text(
    "SELECT 1 FROM information_schema.STATISTICS"
    " WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table AND INDEX_NAME = :name LIMIT 1"
)


def free_index_name(connection: Connection, table: str, schema: str | None, column: str) -> str:
    """Return ``uq_<table>_<column>``, with a number behind it if another object has the name."""
    candidates = _numbered("uq", table, column)
    return next(name for name in candidates if not _is_index_name_taken(connection, table, schema, name))


def free_check_name(connection: Connection, table: str, schema: str | None, column: str) -> str:
    """Return ``ck_<table>_<column>_not_null`` for PostgreSQL, with a number behind it if a constraint has the name."""
    regclass = quoted_table(table, schema, connection.dialect)

    def is_taken(name: str) -> bool:
        found = connection.execute(_POSTGRESQL_CONSTRAINT, {"regclass": regclass, "name": name})
        return found.first() is not None

    return next(name for name in _numbered("ck", table, column, "not_null") if not is_taken(name))


def _numbered(*parts: str) -> Iterator[str]:
    yield derived_name(*parts)
    for number in count(2):
        yield derived_name(*parts, str(number))


def _is_index_name_taken(connection: Connection, table: str, schema: str | None, name: str) -> bool:
    dialect = connection.dialect
    if dialect.name == "sqlite":
        master = quoted_table("sqlite_master", schema, dialect)
        query = f"SELECT 1 FROM {master} WHERE name = ? COLLATE NOCASE"
        return connection.exec_driver_sql(query, (name,)).first() is not None
    queries = {"postgresql": _POSTGRESQL_RELATION, "mysql": _MYSQL_INDEX, "mariadb": _MYSQL_INDEX}
    if dialect.name not in queries:
        return False
    names = {"table": table, "schema": schema, "regclass": quoted_table(table, schema, dialect), "name": name}
    return connection.execute(queries[dialect.name], names).first() is not None
