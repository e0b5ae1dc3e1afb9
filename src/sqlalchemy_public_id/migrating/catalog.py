"""What the catalogs say of one table: its columns and keys, its indexes, and what an UPDATE of a column sets off."""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Inspector, text
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import SAWarning

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.naming import MARK, generator_name, not_null_check_name


def columns_of(inspector: Inspector, table: str, schema: str | None) -> dict[str, ReflectedColumn]:
    """Return the columns of *table* by name. The type of one that SQLAlchemy has none for is ``NullType``."""
    with _without_warnings():
        columns = inspector.get_columns(table, schema=schema)
    return {_unescaped(column["name"], inspector.dialect): column for column in columns}


def primary_key_of(inspector: Inspector, table: str, schema: str | None) -> list[str]:
    """Return the names of the columns of the primary key, in its order."""
    with _without_warnings():  # on MySQL and MariaDB, it reads all columns as well
        names = inspector.get_pk_constraint(table, schema=schema)["constrained_columns"]
    return [_unescaped(name, inspector.dialect) for name in names]


@contextmanager
def _without_warnings() -> Generator[None]:
    """Hide SQLAlchemy's warnings of types that it does not know: they are those of other columns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)
        yield


def _unescaped(name: str, dialect: Dialect) -> str:
    # on MySQL and MariaDB, SQLAlchemy parses SHOW CREATE TABLE, and leaves a quote inside a name doubled
    quote: str = dialect.identifier_preparer.initial_quote
    return name.replace(quote * 2, quote) if traits_for(dialect).escapes_reflected_names else name


# --- indexes


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


# --- triggers, rules, and columns that the server changes by itself

Triggers: TypeAlias = Literal["refuse", "fire", "skip"]
"""What a migration does about triggers that its UPDATEs fire; ``"skip"`` works on PostgreSQL and SQLite."""

# 16: for UPDATE. Without columns (UPDATE OF), a trigger fires for all. Rules: ev_type 2 is UPDATE.
_POSTGRESQL_TRIGGERS = text("""
SELECT tgname FROM pg_trigger
WHERE tgrelid = to_regclass(:regclass) AND NOT tgisinternal AND tgtype & 16 <> 0
  AND (tgenabled = 'A' OR tgenabled = CASE current_setting('session_replication_role')
       WHEN 'replica' THEN 'R' ELSE 'O' END)
  AND (cardinality(CAST(tgattr AS int2[])) = 0 OR EXISTS (
      SELECT FROM pg_attribute a WHERE a.attrelid = tgrelid AND a.attname = :column AND a.attnum = ANY (tgattr)))
UNION ALL
SELECT rulename FROM pg_rewrite WHERE ev_class = to_regclass(:regclass) AND ev_type = '2' AND ev_enabled <> 'D'
ORDER BY 1
""")
_ALWAYS = text("""
SELECT tgname FROM pg_trigger
WHERE tgrelid = to_regclass(:regclass) AND NOT tgisinternal AND tgtype & 16 <> 0 AND tgenabled IN ('A', 'R')
""")
_MYSQL_TRIGGERS = text("""
SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = COALESCE(:schema, DATABASE()) AND EVENT_OBJECT_TABLE = :table
  AND EVENT_MANIPULATION = 'UPDATE'
ORDER BY TRIGGER_NAME
""")
_CHANGED_BY_MYSQL = text("""
SELECT COLUMN_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table AND EXTRA LIKE '%on update%'
ORDER BY ORDINAL_POSITION
""")
_NAME = r"""(?:"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[\w$]+)"""
_EVENT = re.compile(
    rf"\bUPDATE(?:\s+OF\s+(?P<columns>{_NAME}(?:\s*,\s*{_NAME})*))?\s+ON\s+(?:{_NAME}\s*\.\s*)?{_NAME}", re.IGNORECASE
)


def update_triggers(connection: Connection, table: str, schema: str | None, column: str) -> list[str]:
    """Return the names of the triggers and rules that an UPDATE of *column* fires.

    MySQL and MariaDB list them only for users with the privilege ``TRIGGER``.
    """
    names = names_in_queries(connection, table, schema, column)
    if connection.dialect.name == "sqlite":
        return [name for name, sql in sqlite_triggers(connection, table, schema) if _fires(sql, column)]
    query = _POSTGRESQL_TRIGGERS if connection.dialect.name == "postgresql" else _MYSQL_TRIGGERS
    return list(connection.execute(query, names).scalars())


def unskippable_triggers(connection: Connection, table: str, schema: str | None) -> list[str]:
    """Return the names of PostgreSQL's triggers that fire for replicated changes, too."""
    return list(connection.execute(_ALWAYS, names_in_queries(connection, table, schema, "")).scalars())


def columns_changed_by_updates(connection: Connection, table: str, schema: str | None) -> list[str]:
    """Return the columns with ``ON UPDATE CURRENT_TIMESTAMP`` of MySQL and MariaDB."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return []
    return list(connection.execute(_CHANGED_BY_MYSQL, names_in_queries(connection, table, schema, "")).scalars())


def sqlite_triggers(connection: Connection, table: str, schema: str | None) -> list[tuple[str, str]]:
    """Return names and statements of the triggers of a table of SQLite."""
    master = connection.dialect.identifier_preparer.quote(schema or "main")
    query = f"SELECT name, sql FROM {master}.sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(?)"
    return [(row.name, row.sql) for row in connection.exec_driver_sql(query, (table,))]


def _fires(sql: str, column: str) -> bool:
    event = _EVENT.search(sql)
    if event is None:
        return False
    columns = re.findall(_NAME, event["columns"] or "")
    names = {name.strip('"`[]').lower() if name[0] in '"`[' else name.lower() for name in columns}
    return not names or column.lower() in names
