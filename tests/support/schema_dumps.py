"""All catalog entries of a schema, line by line, and the rows of its tables."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection
from support.people import send

# {} is the schema as a literal
_POSTGRESQL = [
    """SELECT relname, relkind, relpersistence, relrowsecurity, relforcerowsecurity, relreplident, reloptions, relacl,
              reltablespace, relam, obj_description(c.oid, 'pg_class') FROM pg_class c WHERE relnamespace = {}""",
    """SELECT c.relname, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated, attstorage,
              attstattarget, attacl, attcollation, pg_get_expr(adbin, adrelid), col_description(c.oid, attnum)
       FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
       LEFT JOIN pg_attrdef ON adrelid = c.oid AND adnum = attnum
       WHERE relnamespace = {} AND NOT attisdropped AND attnum > 0""",
    "SELECT conname, pg_get_constraintdef(oid), convalidated FROM pg_constraint WHERE connamespace = {}",
    """SELECT indexrelid::regclass, pg_get_indexdef(indexrelid), indisvalid, indisreplident, indisclustered
       FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE relnamespace = {}""",
    """SELECT pg_get_triggerdef(t.oid), tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
       WHERE relnamespace = {} AND NOT tgisinternal""",
    """SELECT pg_get_ruledef(r.oid), ev_enabled FROM pg_rewrite r JOIN pg_class c ON c.oid = ev_class
       WHERE relnamespace = {}""",
    "SELECT p.* FROM pg_policies p WHERE to_regnamespace(quote_ident(schemaname)) = {}",
    "SELECT pg_get_statisticsobjdef(oid) FROM pg_statistic_ext WHERE stxnamespace = {}",
    "SELECT proname, prosrc, proacl, obj_description(oid, 'pg_proc') FROM pg_proc WHERE pronamespace = {}",
    "SELECT typname, typtype FROM pg_type WHERE typnamespace = {}",
]
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")
_INTRODUCER = re.compile(r"\b_\w+(?=')")
"""``_latin1'x'``: with each change of a table, MySQL rewrites the literals of a CHECK in another charset."""


def dump(connection: Connection, schema: str) -> list[str]:
    """Return the definitions of *schema* and the rows of its tables, in a fixed order."""
    read = {"sqlite": _of_sqlite, "postgresql": _of_postgresql}.get(connection.dialect.name, _of_mysql)
    return sorted(read(connection, schema))


def without_ids(lines: list[str]) -> list[str]:
    """Return the *lines* that do not mention a public id."""
    return [line for line in lines if "public_id" not in line.lower()]


def _rows(connection: Connection, table: str, columns: list[str]) -> list[str]:
    quote = connection.dialect.identifier_preparer.quote_identifier
    names = ", ".join(
        quote(name).replace("%%", "%") for name in columns if name.lower() not in {"public_id", "upper_id"}
    )
    return [f"{table}: {tuple(row)}" for row in send(connection, f"SELECT {names} FROM {table}")]


def _of_sqlite(connection: Connection, schema: str) -> list[str]:
    quote = connection.dialect.identifier_preparer.quote_identifier
    master = send(
        connection, f"SELECT type, name, sql FROM {quote(schema)}.sqlite_master WHERE name NOT LIKE 'sqlite_%'"
    ).all()
    lines = [str(row.sql) for row in master if row.type != "table" and row.sql]
    for row in master:
        if row.type == "table":
            lines.append(f"with public_id or without it: {row.sql}")
            found = connection.exec_driver_sql("SELECT * FROM pragma_table_xinfo(?, ?)", (row.name, schema)).all()
            lines += [f"{row.name} {tuple(column[1:])}" for column in found]
            keys = connection.exec_driver_sql("SELECT * FROM pragma_foreign_key_list(?, ?)", (row.name, schema))
            lines += [f"{row.name} {tuple(key)}" for key in keys]
            lines += _rows(connection, f"{quote(schema)}.{quote(row.name)}".replace("%%", "%"), [c.name for c in found])
    return lines


def definitions(connection: Connection, schema: str) -> list[str]:
    """Return the definitions of a *schema* of PostgreSQL, in a fixed order."""
    literal = _literal(connection, schema)
    return sorted(str(tuple(row)) for query in _POSTGRESQL for row in send(connection, query.format(literal)))


def _literal(connection: Connection, schema: str) -> Any:
    return connection.exec_driver_sql("SELECT quote_literal(quote_ident(%s)) || '::regnamespace'", (schema,)).scalar()


def _of_postgresql(connection: Connection, schema: str) -> list[str]:
    preparer = connection.dialect.identifier_preparer
    literal, lines = _literal(connection, schema), definitions(connection, schema)
    query = f"SELECT relname, oid FROM pg_class WHERE relnamespace = {literal} AND relkind IN ('r', 'p')"
    for name, oid in send(connection, query).all():
        columns = f"SELECT attname FROM pg_attribute WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped"
        found = list(send(connection, f"{columns} ORDER BY attnum").scalars())
        table = f"{preparer.quote_identifier(schema)}.{preparer.quote_identifier(name)}".replace("%%", "%")
        lines += _rows(connection, table, found)
    return lines


def _of_mysql(connection: Connection, schema: str) -> list[str]:
    quote = connection.dialect.identifier_preparer.quote_identifier
    own = "SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
    lines: list[str] = []
    for name, kind in connection.exec_driver_sql(own, (schema,)).all():
        table = f"{quote(schema)}.{quote(name)}".replace("%%", "%")
        created: Any = send(connection, f"SHOW CREATE TABLE {table}").one()[1]
        lines += [f"{name} {line.rstrip(',')}" for line in _INTRODUCER.sub("", _COUNTER.sub("", created)).splitlines()]
        if kind != "VIEW":
            columns = "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
            found = [*connection.exec_driver_sql(f"{columns} ORDER BY ORDINAL_POSITION", (schema, name)).scalars()]
            lines += _rows(connection, table, found)
    lines += [str(tuple(row)) for row in send(connection, f"SHOW TRIGGERS FROM {quote(schema).replace('%%', '%')}")]
    return lines
