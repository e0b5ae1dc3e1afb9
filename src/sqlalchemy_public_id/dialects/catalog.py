"""Read one table from the catalogs: through the Inspector, and by queries if it reports too little.

A migration reads the :class:`State` of a column before each of its steps; an audit reads :class:`Facts` once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import BigInteger, Connection, Inspector, Integer, SmallInteger, String, func, inspect, select, text
from sqlalchemy import column as sql_column
from sqlalchemy import table as sql_table
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects import mysql, postgresql, sqlite, traits_for
from sqlalchemy_public_id.dialects.quoting import quoted, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.naming import generator_name, not_null_check_name


@dataclass(frozen=True)
class State:
    """The column of public ids as a migration has left it so far."""

    exists: bool = False
    nullable: bool = True
    collated: bool = True
    """True if ids are compared byte by byte."""
    comment: str | None = None
    default: str | None = None
    """The server default as an expression, of this library or not."""
    function: bool = False
    """True if the function of PostgreSQL exists that generates ids."""
    trigger: bool = False
    """True if the trigger of MySQL or MariaDB exists that generates ids."""
    index: bool = False
    """True if the unique index exists, valid or not."""
    valid: bool = False
    constraint: bool = False
    """True if the index belongs to a constraint."""
    check: bool = False
    """True if the temporary CHECK constraint exists that forbids NULL."""
    checked: bool = False
    """True if that constraint is validated for the existing rows."""
    strict: bool = False
    """True if the table of SQLite is STRICT."""

    @property
    def complete(self) -> bool:
        """True if the column is NOT NULL, unique, and compared byte by byte."""
        return self.exists and not self.nullable and self.index and self.valid and self.collated


@dataclass(frozen=True)
class IndexFacts:
    """An index on the column of public ids alone."""

    name: str
    unique: bool
    valid: bool = True
    """False after a failed ``CREATE INDEX CONCURRENTLY`` on PostgreSQL."""
    partial: bool = False
    constraint: bool = False
    """True if it belongs to a UNIQUE or PRIMARY KEY constraint."""
    primary: bool = False

    @property
    def guards(self) -> bool:
        """True if it keeps duplicates out."""
        return self.unique and self.valid and not self.partial


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
    key: KeyFacts | None


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


# --- the state of a migration


def read_state(
    connection: Connection, table: str, schema: str | None, column: str, *, unique_name: str, is_constraint: bool
) -> State:
    """Read the state of *column*.

    :param unique_name: the name of its unique index, or of the constraint if *is_constraint*.
    :raises ConfigurationError: if there is no such table, or PostgreSQL cannot make the column unique.
    """
    where = f"{table!r} in schema {schema!r}" if schema else repr(table)
    if not inspect(connection).has_table(table, schema=schema):
        raise ConfigurationError(f"there is no table {where}; create it first, or correct its name")
    dialect = connection.dialect.name
    names = _parameters(connection, table, schema, column, unique_name)
    if dialect == "postgresql":
        row = connection.execute(postgresql.COLUMN, names).one()
        if row.kind not in ("r", "p"):
            raise ConfigurationError(f"{where} is not an ordinary table; name the table that holds the rows")
        if row.kind == "p":
            raise ConfigurationError(
                f"{where} is partitioned: PostgreSQL requires the partition key in every unique index, so {column!r} "
                f"alone cannot be unique there; add column and index to each partition by hand"
            )
        indexes = connection.execute(postgresql.INDEXES, names)
        index = next((index for index in indexes if index.name == unique_name), None)
        return State(
            exists=row.exists,
            nullable=row.nullable is not False,
            collated=row.collation in ("C", "POSIX", None),
            comment=row.comment,
            default=row.default,
            function=row.function,
            index=index is not None and index.is_unique,
            valid=index is not None and index.valid,
            constraint=index is not None and index.is_unique_constraint,
            check=row.checked is not None,
            checked=bool(row.checked),
        )
    if dialect in ("mysql", "mariadb"):
        return _mysql_state(connection, connection.execute(mysql.COLUMN, names).one_or_none())
    return _sqlite_state(connection, names, is_constraint)


def _mysql_state(connection: Connection, row: Any) -> State:
    if row is None:
        return State()
    default = None if row.default in (None, "NULL") else str(row.default)  # MariaDB returns NULL as a word
    if default is not None and not getattr(connection.dialect, "is_mariadb", False):
        # MySQL returns a constant without its quotes, and an expression with escaped ones
        is_expression = "DEFAULT_GENERATED" in row.extra
        default = default.replace("\\'", "'") if is_expression else "'" + default.replace("'", "''") + "'"
    has_index = bool(row.has_index)
    return State(
        exists=True,
        nullable=bool(row.nullable),
        collated=row.collation in ("ascii_bin", None),
        comment=row.comment or None,
        default=default,
        trigger=bool(row.has_generator),
        index=has_index,
        valid=has_index,
        constraint=has_index,
    )


_STRICT = re.compile(r"\)[^()]*\bSTRICT\b[^()]*$", re.IGNORECASE)


def _sqlite_state(connection: Connection, names: dict[str, Any], is_constraint: bool) -> State:
    master = f"{quoted(names['database'], connection.dialect)}.sqlite_master"
    query = f"SELECT sql FROM {master} WHERE type = 'table' AND name = ?"  # a schema may be called ":table"
    created = connection.exec_driver_sql(query, (names["table"],)).scalar()
    strict = _STRICT.search(created or "") is not None
    row = connection.execute(sqlite.COLUMN, names).one_or_none()
    if row is None:
        return State(strict=strict)
    uniques = connection.execute(sqlite.UNIQUE, names).all()
    has_constraint = any(unique.origin == "u" for unique in uniques)
    is_unique = has_constraint if is_constraint else any(unique.name == names["unique"] for unique in uniques)
    return State(
        exists=True,
        nullable=not row.not_null,
        default=row.default,
        index=is_unique,
        valid=is_unique,
        constraint=has_constraint,
        strict=strict,
    )


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
        nullable=columns[column]["nullable"],
        has_default=default not in (None, "NULL") or columns[column].get("identity") is not None,
        collation=None,
        collated=True,
        indexes=tuple(_indexes(inspector, table, schema, column, primary_key)),
        searchable=any(_columns(index, inspector)[:1] == [column] for index in inspector.get_indexes(table, schema)),
        checks=tuple(str(check["name"]) for check in inspector.get_check_constraints(table, schema=schema)),
        primary_key=primary_key,
        key=None,
    )
    refine = _REFINERS.get(connection.dialect.name)
    facts = facts if refine is None else refine(connection, facts)
    if len(primary_key) != 1:
        return facts
    return replace(facts, key=_key(connection, facts, primary_key[0], columns[primary_key[0]]["type"]))


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
    names = _parameters(connection, facts.table, facts.schema, facts.column)
    row = connection.execute(postgresql.COLUMN, names).one()
    indexes = tuple(
        IndexFacts(index.name, index.is_unique, index.valid, index.partial, index.is_constraint, index.is_primary)
        for index in connection.execute(postgresql.INDEXES, names)
        if index.only_column == facts.column
    )
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
    row = connection.execute(mysql.COLUMN, _parameters(connection, facts.table, facts.schema, facts.column)).one()
    return replace(
        facts,
        nullable=bool(row.nullable),
        has_default=row.default not in (None, "NULL") or bool(row.filled),  # MariaDB returns NULL as a word
        collation=row.collation,
        collated=row.collation is None or str(row.collation).endswith(("_bin", "binary")),
    )


def _refine_sqlite(connection: Connection, facts: Facts) -> Facts:
    # no pragma returns the collation of a column; its indexes have it
    names = _parameters(connection, facts.table, facts.schema, facts.column)
    collations = connection.execute(sqlite.COLLATIONS, names).scalars()
    others = [collation for collation in collations if collation != "BINARY"]
    return replace(facts, collation=(others or ["BINARY"])[0], collated=not others)


_REFINERS = {
    "mariadb": _refine_mysql,
    "mysql": _refine_mysql,
    "postgresql": _refine_postgresql,
    "sqlite": _refine_sqlite,
}


def _key(connection: Connection, facts: Facts, column: str, type_: TypeEngine[Any]) -> KeyFacts | None:
    if not isinstance(type_, Integer):
        return None
    limit = _limit(connection.dialect.name, type_)
    table = sql_table(facts.table, sql_column(column), schema=facts.schema)
    value = connection.scalar(select(func.max(table.c[column])))  # the last one of its index
    if connection.dialect.name == "postgresql":
        # a sequence that was created for serial ends at 2**31 on a bigint, too
        query = "SELECT seqmax FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence(:name, :column)::regclass"
        name = quoted_table(facts.table, facts.schema, connection.dialect)
        limit = min(limit, connection.scalar(text(query), {"name": name, "column": column}) or limit)
    return KeyFacts(column, str(type_.compile(connection.dialect)), limit, value or 0)


def _limit(dialect: str, type_: Integer) -> int:
    bits = {"TINYINT": 8, "MEDIUMINT": 24}.get(type(type_).__name__.upper(), 32)
    if dialect == "sqlite" or isinstance(type_, BigInteger):  # SQLite stores 64 bits, whatever the type is called
        bits = 64
    elif isinstance(type_, SmallInteger):
        bits = 16
    return (1 << bits if getattr(type_, "unsigned", False) else 1 << bits - 1) - 1


def _parameters(
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
    }
