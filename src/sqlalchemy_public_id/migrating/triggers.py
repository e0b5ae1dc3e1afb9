"""Read what an UPDATE of one column sets off: triggers, rules, and columns that the server changes by itself."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from sqlalchemy import Connection, text

from sqlalchemy_public_id.migrating.indexes import names_in_queries

Triggers: TypeAlias = Literal["refuse", "fire", "skip"]
"""What a migration does about triggers that its UPDATEs fire; ``"skip"`` works on PostgreSQL and SQLite."""

# 16: for UPDATE. Without columns (UPDATE OF), a trigger fires for all. Rules: ev_type 2 is UPDATE.
_POSTGRESQL = text("""
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
_MYSQL = text("""
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
    query = _POSTGRESQL if connection.dialect.name == "postgresql" else _MYSQL
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
