"""What the catalogs of a database say of the keys of one table: their counter, and their range."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection, text

from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.keys.cluster.ddl import FUNCTION
from sqlalchemy_public_id.keys.ranges import LAST_KEY, Range
from sqlalchemy_public_id.naming import cluster_name

_BETWEEN = re.compile(r"NOT BETWEEN (\d+) AND (\d+)")
_NAME = r"""(?:`(?:[^`]|``)+`|"(?:[^"]|"")+"|[^\s`".()]+)"""
_DRAW = re.compile(rf"(?:NEXTVAL\(|INSERT INTO )(?:{_NAME}\.)?({_NAME})")
"""What takes a number from a counter in a trigger, after the schema of the counter."""


def read_counter(connection: Connection, name: str, schema: str | None, key: str) -> str | None:
    """Return the name of the counter of ``strategy="function"`` that the table *name* has, or ``None``.

    It is that in the default or in the trigger that makes the keys.
    """
    if connection.dialect.name == "postgresql":
        query = (
            "SELECT coalesce((SELECT relname FROM pg_class WHERE oid = pg_get_serial_sequence(:name, :key)::regclass), "
            "'') FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum "
            "WHERE d.adrelid = to_regclass(:name) AND a.attname = :key "
            "AND strpos(pg_get_expr(d.adbin, d.adrelid), :function) > 0"
        )
        names = {"name": quoted_table(name, schema, connection.dialect), "key": key, "function": FUNCTION}
        counter = connection.scalar(text(query), names)
        return None if counter is None else str(counter)
    body = _trigger(connection, cluster_name("key", name), schema)
    if body is None:
        return None
    drawn = _DRAW.search(body)
    if drawn is None:
        return ""  # somebody else's
    quote = drawn[1][0]
    return drawn[1][1:-1].replace(quote * 2, quote) if quote in '"`' else drawn[1]


def read_key_range(connection: Connection, name: str, schema: str | None, key: str) -> Range | None:
    """Return the range of a sequence of PostgreSQL, or elsewhere of a trigger; ``None`` if there is none."""
    if connection.dialect.name != "postgresql":
        match = _BETWEEN.search(_trigger(connection, cluster_name("range", name), schema) or "")
        return None if match is None else Range(int(match[1]), int(match[2]) + 1)
    quoted = quoted_table(name, schema, connection.dialect)
    query = "SELECT seqmin, seqmax FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence(:name, :key)::regclass"
    sequence = connection.execute(text(query), {"name": quoted, "key": key}).one_or_none()
    if sequence is None or sequence.seqmin < 1:
        return None
    if sequence.seqmin == 1 and sequence.seqmax in {2**31 - 1, 2**15 - 1, LAST_KEY}:
        return None  # the default of PostgreSQL
    return Range(sequence.seqmin, sequence.seqmax + 1)


def _trigger(connection: Connection, name: str, schema: str | None) -> str | None:
    """Return the body of the trigger *name*; ``None`` if there is none."""
    body: Any = None
    if connection.dialect.name == "sqlite":
        master = quoted_table("sqlite_master", schema, connection.dialect)
        query = f"SELECT sql FROM {master} WHERE type = 'trigger' AND name = ?"
        body = connection.exec_driver_sql(query, (name,)).scalar()
    elif connection.dialect.name in {"mysql", "mariadb"}:
        query = (
            "SELECT ACTION_STATEMENT FROM information_schema.TRIGGERS "
            "WHERE TRIGGER_SCHEMA = COALESCE(:schema, DATABASE()) AND TRIGGER_NAME = :name"
        )
        body = connection.scalar(text(query), {"name": name, "schema": schema})
        if body is not None and "`" in body:  # MySQL garbles names with a backquote in information_schema
            query = f"SHOW CREATE TRIGGER {quoted_table(name, schema, connection.dialect)}"
            body = connection.exec_driver_sql(query, execution_options={"no_parameters": True}).one()[2]
    return None if body is None else str(body)
