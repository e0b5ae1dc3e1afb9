"""Obstacles in the kind of a table, which cannot have such a column, or not a unique index on it alone.

No change of rows, rights or options removes them. So autogenerate reads them as well, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, text

from sqlalchemy_public_id.dialects.quoting import quoted, quoted_table
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.catalog import names_in_queries

_POSTGRESQL = text("""
SELECT c.relkind = 'p' AS is_partitioned, c.relispartition AS is_partition,
       (SELECT min(CAST(CAST(i.inhparent AS regclass) AS text)) FROM pg_inherits i WHERE i.inhrelid = c.oid) AS parent,
       EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid OR inhrelid = c.oid) AS inherits,
       CASE WHEN c.reloftype <> 0 THEN format_type(c.reloftype, NULL) END AS of_type
FROM pg_class c
WHERE c.oid = to_regclass(:regclass)
""")
_MYSQL = text("""
SELECT 1 FROM information_schema.PARTITIONS p
WHERE p.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND p.TABLE_NAME = :table AND p.PARTITION_NAME IS NOT NULL
LIMIT 1
""")


def obstacles_of_structure(connection: Connection, table: str, schema: str | None) -> Iterator[Obstacle]:
    """Yield the obstacle that the kind of *table* is; none if there is no such table."""
    names = names_in_queries(connection, table, schema, "")
    if connection.dialect.name == "postgresql":
        yield from _of_postgresql(connection, table, schema, names)
    elif connection.dialect.name in ("mysql", "mariadb") and connection.execute(_MYSQL, names).first():
        yield _partitioned(table)
    elif connection.dialect.name == "sqlite":
        kind = _kind_of_sqlite(connection, table, schema)
        if kind in ("virtual", "shadow"):
            problem = f"{table} is a {kind} table, whose columns are those of a module of SQLite"
            yield Obstacle("virtual", problem, "keep the ids in a table of their own that refers to its rows")


def _kind_of_sqlite(connection: Connection, table: str, schema: str | None) -> str | None:
    """Return "table", "view", "shadow" or "virtual"; None before SQLite 3.37, which does not tell."""
    dialect = connection.dialect
    found = connection.exec_driver_sql(
        f"PRAGMA {quoted(schema or 'main', dialect)}.table_list({quoted(table, dialect)})"
    )
    row = found.first() if found.returns_rows else None
    return row.type if row is not None else None


def _of_postgresql(
    connection: Connection, table: str, schema: str | None, names: dict[str, object]
) -> Iterator[Obstacle]:
    row = connection.execute(_POSTGRESQL, names).one_or_none()
    if row is None:
        return
    if row.is_partition:
        problem = f"{table} is a partition of {row.parent}, and has the columns of {row.parent} only"
        yield Obstacle("partition", problem, f"keep the ids in a table of their own that refers to {row.parent}")
    elif row.is_partitioned:
        yield _partitioned(table)
    elif row.inherits:
        problem = f"{table} inherits, or other tables inherit from it, and they share no unique index"
        yield Obstacle("inheritance", problem, "add the column and the index to each of these tables by hand")
    elif row.of_type:
        problem = f"{table} is a table of the type {row.of_type}, and has the columns of the type only"
        yield Obstacle("typed", problem, f"ALTER TABLE {quoted_table(table, schema, connection.dialect)} NOT OF")


def _partitioned(table: str) -> Obstacle:
    problem = f"{table} is partitioned, and every unique index needs the columns of the partitions"
    remedy = "keep the ids in a table of their own that refers to this one, and remove the column from the model"
    return Obstacle("partitioned", problem, remedy)
