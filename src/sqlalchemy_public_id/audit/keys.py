"""The integer key of a table: the used share of its type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import BigInteger, Connection, Inspector, Integer, SmallInteger, column, func, select, table, text

from sqlalchemy_public_id.audit.report import Finding, Severity
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.keys.ranges import LAST_KEY
from sqlalchemy_public_id.migrating.catalog import columns_of, primary_key_of

_HALF_FULL = 0.5
_NEARLY_FULL = 0.9


@dataclass(frozen=True)
class _Key:
    column: str
    type: str
    limit: int
    """The largest number it can store."""
    value: int
    """The largest number in the table."""


def key_findings(
    connection: Connection, inspector: Inspector, name: str, schema: str | None, full_name: str
) -> Iterator[Finding]:
    """Yield the problem of the key of the table *name*, with or without public ids, if it has one."""
    key = _read_key(connection, inspector, name, schema)
    if key is None or key.value / key.limit < _HALF_FULL:
        return
    full = key.value / key.limit
    severity: Severity = "error" if full >= _NEARLY_FULL else "warning"
    message = (
        f"the key {key.column} ({key.type}) is {full:.0%} full, at {key.value} of {key.limit}: "
        f"it runs out after another {(key.limit - key.value) / key.value:.0%} of the rows so far"
    )
    if key.limit == LAST_KEY:  # no counter that begins at 1 gets so far
        message += "; if its keys are those of a cluster, pass the cluster: clusters=, or --cluster"
    else:
        message += "; make it a BIGINT, after the foreign keys that refer to it"
    facts = {"type": key.type, "value": key.value, "limit": key.limit, "full": round(full, 4)}
    yield Finding(full_name, key.column, "key-nearly-full", severity, message, facts)


def _read_key(connection: Connection, inspector: Inspector, name: str, schema: str | None) -> _Key | None:
    """Read the integer key of the table *name*; ``None`` if its primary key is none."""
    primary_key = primary_key_of(inspector, name, schema)
    type_ = columns_of(inspector, name, schema)[primary_key[0]]["type"] if len(primary_key) == 1 else None
    if not isinstance(type_, Integer):
        return None
    key, limit = primary_key[0], _limit(connection.dialect.name, type_)
    source = table(name, column(key), schema=schema)
    value = connection.scalar(select(func.max(source.c[key])))  # the last one of its index
    if connection.dialect.name == "postgresql":
        # a sequence that was created for serial ends at 2**31 on a bigint, too
        query = "SELECT seqmax FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence(:name, :column)::regclass"
        names = {"name": quoted_table(name, schema, connection.dialect), "column": key}
        limit = min(limit, connection.scalar(text(query), names) or limit)
    return _Key(key, str(type_.compile(connection.dialect)), limit, value or 0)


def _limit(dialect: str, type_: Integer) -> int:
    bits = {"TINYINT": 8, "MEDIUMINT": 24}.get(type(type_).__name__.upper(), 32)
    if dialect == "sqlite" or isinstance(type_, BigInteger):  # SQLite stores 64 bits, whatever the type is called
        bits = 64
    elif isinstance(type_, SmallInteger):
        bits = 16
    return (1 << bits if getattr(type_, "unsigned", False) else 1 << bits - 1) - 1
