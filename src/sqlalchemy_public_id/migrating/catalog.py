"""Read one table for an audit: through the Inspector, and by queries of the catalogs if it reports too little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Connection,
    Date,
    DateTime,
    Float,
    Inspector,
    Integer,
    Numeric,
    SmallInteger,
    String,
    func,
    select,
    text,
)
from sqlalchemy import column as sql_column
from sqlalchemy import table as sql_table
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import ReflectedColumn

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.migrating.column_state import MYSQL_COLUMN, POSTGRESQL_COLUMN
from sqlalchemy_public_id.migrating.indexes import IndexFacts, names_in_queries, read_indexes


@dataclass(frozen=True)
class KeyFacts:
    """The integer key."""

    column: str
    type: str
    limit: int
    """The largest number it can store."""
    value: int
    """The largest number in the table."""


@dataclass(frozen=True)
class Facts:
    """One table with a column of public ids, for an audit."""

    table: str
    schema: str | None
    column: str
    length: int | None
    type: str | None
    """The type of the column; ``None`` for a string type."""
    storable: bool
    """False if no format is stored in a column of this type."""
    nullable: bool
    has_default: bool
    """True if a server default or a trigger generates ids."""
    collation: str | None
    """``None`` if the column is no string."""
    collated: bool
    """True if ids are compared byte by byte."""
    indexes: tuple[IndexFacts, ...]
    searchable: bool
    """True if an index finds the rows without an id."""
    checks: tuple[str, ...]
    """The names of the CHECK constraints."""
    primary_key: tuple[str, ...]


# --- names, as the Inspector reflects them


def columns_of(inspector: Inspector, table: str, schema: str | None) -> dict[str, ReflectedColumn]:
    """Return the columns of *table* by name."""
    columns = inspector.get_columns(table, schema=schema)
    return {_unescaped(column["name"], inspector.dialect): column for column in columns}


def primary_key_of(inspector: Inspector, table: str, schema: str | None) -> list[str]:
    """Return the names of the columns of the primary key, in its order."""
    names = inspector.get_pk_constraint(table, schema=schema)["constrained_columns"]
    return [_unescaped(name, inspector.dialect) for name in names]


def _unescaped(name: str, dialect: Dialect) -> str:
    # on MySQL and MariaDB, SQLAlchemy parses SHOW CREATE TABLE, and leaves a quote inside a name doubled
    quote: str = dialect.identifier_preparer.initial_quote
    return name.replace(quote * 2, quote) if traits_for(dialect).escapes_reflected_names else name


# --- the facts of an audit


def read_facts(
    connection: Connection, inspector: Inspector, table: str, schema: str | None, column: str
) -> Facts | None:
    """Read the facts of *table*; ``None`` if it has no such *column*."""
    columns = columns_of(inspector, table, schema)
    if column not in columns:
        return None
    type_, default = columns[column]["type"], columns[column]["default"]
    primary_key = tuple(primary_key_of(inspector, table, schema))
    facts = Facts(
        table=table,
        schema=schema,
        column=column,
        length=getattr(type_, "length", None),
        type=None if isinstance(type_, String) else type_.compile(connection.dialect),
        storable=isinstance(type_, BigInteger) or not isinstance(type_, _OTHER_TYPES),
        nullable=columns[column]["nullable"],
        has_default=default not in (None, "NULL") or columns[column].get("identity") is not None,
        collation=None,
        collated=True,
        indexes=tuple(_indexes(inspector, table, schema, column, primary_key)),
        searchable=any(_columns(index, inspector)[:1] == [column] for index in inspector.get_indexes(table, schema)),
        checks=tuple(str(check["name"]) for check in inspector.get_check_constraints(table, schema=schema)),
        primary_key=primary_key,
    )
    refine = _REFINERS.get(connection.dialect.name)
    return facts if refine is None else refine(connection, facts)


_OTHER_TYPES = (Integer, Numeric, Float, Date, DateTime, JSON)
"""Formats are stored as text, as bytes, as a UUID or as a BIGINT. A type that SQLAlchemy cannot name may be any."""


def _indexes(
    inspector: Inspector, table: str, schema: str | None, column: str, primary_key: Sequence[str]
) -> Iterator[IndexFacts]:
    seen: set[str | None] = set()  # MySQL and MariaDB report a constraint as an index, too
    if list(primary_key) == [column]:
        yield IndexFacts("primary key", unique=True, constraint=True, primary=True)
    for constraint in inspector.get_unique_constraints(table, schema=schema):
        if _columns(constraint, inspector) == [column]:
            seen.add(constraint["name"])
            yield IndexFacts(str(constraint["name"] or "unnamed"), unique=True, constraint=True)
    for index in inspector.get_indexes(table, schema=schema):
        if _columns(index, inspector) == [column] and index["name"] not in seen:
            options = index.get("dialect_options") or {}
            partial = any(key.endswith("_where") and value is not None for key, value in options.items())
            yield IndexFacts(str(index["name"]), unique=bool(index["unique"]), partial=partial)


def _columns(index: Any, inspector: Inspector) -> list[str | None]:
    # None is an expression
    return [name and _unescaped(name, inspector.dialect) for name in index["column_names"]]


_BYTEWISE = {"C", "POSIX", "ucs_basic", "pg_c_utf8"}


def _refine_postgresql(connection: Connection, facts: Facts) -> Facts:
    names = names_in_queries(connection, facts.table, facts.schema, facts.column)
    row = connection.execute(POSTGRESQL_COLUMN, names).one()
    indexes = _indexes_on_column(connection, facts)
    return replace(
        facts,
        nullable=facts.nullable or row.unproven,
        has_default=facts.has_default or row.filled,
        collation=row.effective_collation,
        collated=row.effective_collation is None or row.effective_collation in _BYTEWISE,
        indexes=indexes,
        searchable=any(index.valid and not index.partial for index in indexes),
    )


def _refine_mysql(connection: Connection, facts: Facts) -> Facts:
    # reflection loses what follows a default with parentheses inside parentheses
    row = connection.execute(MYSQL_COLUMN, names_in_queries(connection, facts.table, facts.schema, facts.column)).one()
    return replace(
        facts,
        nullable=bool(row.nullable),
        indexes=_indexes_on_column(connection, facts),  # reflection has no length of a prefix
        has_default=row.default not in (None, "NULL") or bool(row.filled),  # MariaDB returns NULL as a word
        collation=row.collation,
        collated=row.collation is None or str(row.collation).endswith(("_bin", "binary")),
    )


def _indexes_on_column(connection: Connection, facts: Facts) -> tuple[IndexFacts, ...]:
    indexes = read_indexes(connection, facts.table, facts.schema)
    return tuple(index for index in indexes if index.is_on(facts.column))


_SQLITE_COLLATIONS = text("""
SELECT DISTINCT x.coll FROM pragma_index_list(:table, :database) l, pragma_index_xinfo(l.name, :database) x
WHERE x.name = :column AND x.key = 1
""")


def _refine_sqlite(connection: Connection, facts: Facts) -> Facts:
    # no pragma returns the collation of a column; its indexes have it
    names = names_in_queries(connection, facts.table, facts.schema, facts.column)
    collations = connection.execute(_SQLITE_COLLATIONS, names).scalars()
    others = [collation for collation in collations if collation != "BINARY"]
    return replace(facts, collation=(others or ["BINARY"])[0], collated=not others)


_REFINERS = {
    "mariadb": _refine_mysql,
    "mysql": _refine_mysql,
    "postgresql": _refine_postgresql,
    "sqlite": _refine_sqlite,
}


def read_key(connection: Connection, inspector: Inspector, table: str, schema: str | None) -> KeyFacts | None:
    """Read the integer key of *table*; ``None`` if its primary key is none."""
    primary_key = primary_key_of(inspector, table, schema)
    type_ = columns_of(inspector, table, schema)[primary_key[0]]["type"] if len(primary_key) == 1 else None
    if not isinstance(type_, Integer):
        return None
    column, limit = primary_key[0], _limit(connection.dialect.name, type_)
    source = sql_table(table, sql_column(column), schema=schema)
    value = connection.scalar(select(func.max(source.c[column])))  # the last one of its index
    if connection.dialect.name == "postgresql":
        # a sequence that was created for serial ends at 2**31 on a bigint, too
        query = "SELECT seqmax FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence(:name, :column)::regclass"
        name = quoted_table(table, schema, connection.dialect)
        limit = min(limit, connection.scalar(text(query), {"name": name, "column": column}) or limit)
    return KeyFacts(column, str(type_.compile(connection.dialect)), limit, value or 0)


def _limit(dialect: str, type_: Integer) -> int:
    bits = {"TINYINT": 8, "MEDIUMINT": 24}.get(type(type_).__name__.upper(), 32)
    if dialect == "sqlite" or isinstance(type_, BigInteger):  # SQLite stores 64 bits, whatever the type is called
        bits = 64
    elif isinstance(type_, SmallInteger):
        bits = 16
    return (1 << bits if getattr(type_, "unsigned", False) else 1 << bits - 1) - 1
