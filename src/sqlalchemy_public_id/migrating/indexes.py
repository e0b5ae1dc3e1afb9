"""Read the indexes of one table from the catalogs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, text

from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.naming import MARK, generator_name, not_null_check_name


@dataclass(frozen=True)
class IndexFacts:
    """An index, or the index of a constraint."""

    name: str
    unique: bool
    valid: bool = True
    """False after a failed ``CREATE INDEX CONCURRENTLY`` on PostgreSQL."""
    partial: bool = False
    constraint: bool = False
    """True if it belongs to a UNIQUE or PRIMARY KEY constraint."""
    primary: bool = False
    only_column: str | None = None
    """Its column, if it has one only, and that as a whole."""
    deferrable: bool = False
    """True if PostgreSQL may look for duplicates as late as at COMMIT."""
    prefix_of: str | None = None
    """Its column, if it has the first characters of that only (MySQL and MariaDB)."""
    prefix: int = 0
    """The number of these characters."""
    kind: str = ""
    """The method of the index in lower case, such as ``btree`` or ``fulltext``, if it is known."""

    @property
    def guards(self) -> bool:
        """True if it keeps duplicates out."""
        return self.unique and self.valid and not self.partial and self.prefix_of is None

    def can_be_unique_index_of(self, column: str) -> bool:
        """Return True if it is the unique index of *column*, or will be when its build is finished."""
        return self.unique and not self.partial and not self.deferrable and self.only_column == column

    def is_on(self, column: str) -> bool:
        """Return True if it has the *column* only, or the first characters of it."""
        return column in {self.only_column, self.prefix_of}


_BOOLEANS = {field.name for field in fields(IndexFacts) if isinstance(field.default, bool)} | {"unique"}


def read_indexes(connection: Connection, table: str, schema: str | None) -> tuple[IndexFacts, ...]:
    """Read all indexes of *table* on PostgreSQL, MySQL, MariaDB or SQLite."""
    result = connection.execute(_QUERIES[connection.dialect.name], names_in_queries(connection, table, schema, ""))
    return tuple(IndexFacts(**_with_booleans(row)) for row in result.mappings())


def _with_booleans(row: Mapping[Any, Any]) -> dict[str, Any]:
    # MySQL and SQLite return 0 and 1
    return {name: bool(value) if name in _BOOLEANS else value for name, value in row.items()}


# conindid is the index of a foreign key's target, too
_POSTGRESQL = text("""
SELECT c.relname AS name, i.indisunique AS "unique", i.indisvalid AS valid, i.indpred IS NOT NULL AS partial,
       i.indisprimary AS "primary", CASE WHEN i.indnkeyatts = 1 THEN a.attname END AS only_column,
       NOT i.indimmediate AS "deferrable", CAST(am.amname AS text) AS kind,
       EXISTS (SELECT FROM pg_constraint n WHERE n.conindid = c.oid AND n.contype IN ('u', 'p', 'x')) AS "constraint"
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am am ON am.oid = c.relam
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = to_regclass(:regclass)
ORDER BY c.relname
""")

# a part without a column is an expression; SUB_PART is the length of a prefix
_MYSQL = text("""
SELECT INDEX_NAME AS name, NON_UNIQUE = 0 AS `unique`, NON_UNIQUE = 0 AS `constraint`,
       INDEX_NAME = 'PRIMARY' AS `primary`,
       CASE WHEN COUNT(*) = 1 AND MAX(SUB_PART) IS NULL THEN MAX(COLUMN_NAME) END AS only_column,
       CASE WHEN COUNT(*) = 1 AND MAX(SUB_PART) IS NOT NULL THEN MAX(COLUMN_NAME) END AS prefix_of,
       COALESCE(MAX(SUB_PART), 0) AS prefix,
       LOWER(MAX(INDEX_TYPE)) AS kind
FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table
GROUP BY INDEX_NAME, NON_UNIQUE
ORDER BY INDEX_NAME
""")

_SQLITE = text("""
SELECT l.name AS name, l."unique" AS "unique", l.partial AS partial, l.origin <> 'c' AS "constraint",
       l.origin = 'pk' AS "primary",
       (SELECT CASE WHEN count(*) = 1 THEN min(i.name) END FROM pragma_index_info(l.name, :database) i) AS only_column
FROM pragma_index_list(:table, :database) l
""")
_QUERIES = {"mariadb": _MYSQL, "mysql": _MYSQL, "postgresql": _POSTGRESQL, "sqlite": _SQLITE}


def names_in_queries(
    connection: Connection, table: str, schema: str | None, column: str, unique_name: str = ""
) -> dict[str, Any]:
    """Return the parameters of all catalog queries; each one uses some of them."""
    return {
        "table": table,
        "schema": schema,
        "database": schema or "main",
        "regclass": quoted_table(table, schema, connection.dialect),
        "column": column,
        "unique": unique_name,
        "check": not_null_check_name(table, column),
        "generator": generator_name(table, column),
        "mark": MARK,
        "generates": "IF NEW.% IS NULL THEN BEGIN DECLARE n0 INT DEFAULT CAST(CONV(HEX(RANDOM_BYTES(%",
    }
