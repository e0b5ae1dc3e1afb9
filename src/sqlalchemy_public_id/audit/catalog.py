"""What the catalog of a database says of one table: read by the Inspector, and by queries where it knows too little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import BigInteger, Connection, Inspector, Integer, SmallInteger, String, func, select, table, text
from sqlalchemy import column as sql_column
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.dialects.reflection import columns_of, primary_key_of, unescaped

__all__ = ["Facts", "IndexFacts", "KeyFacts", "read"]


@dataclass(frozen=True)
class IndexFacts:
    """An index on the column of public ids alone."""

    name: str
    unique: bool
    valid: bool = True
    """``False`` for what a failed ``CREATE INDEX CONCURRENTLY`` leaves on PostgreSQL."""
    partial: bool = False
    """Whether it leaves rows out."""
    constraint: bool = False
    """Whether it belongs to a UNIQUE or PRIMARY KEY constraint."""
    primary: bool = False

    @property
    def guards(self) -> bool:
        """Whether it keeps duplicates out."""
        return self.unique and self.valid and not self.partial


@dataclass(frozen=True)
class KeyFacts:
    """The integer key."""

    column: str
    type: str
    limit: int
    """The largest number it can hold."""
    value: int
    """The largest number it holds."""


@dataclass(frozen=True)
class Facts:
    """What is known of one table."""

    table: str
    schema: str | None
    column: str
    length: int | None
    type: str | None
    """The type of the column; ``None`` where it is text."""
    nullable: bool
    has_default: bool
    """Whether the database makes ids for rows that come without one, by a default or a trigger."""
    collation: str | None
    """The collation; ``None`` where the column is no text."""
    collated: bool
    """Whether ids are compared byte by byte."""
    indexes: tuple[IndexFacts, ...]
    searchable: bool
    """Whether rows without an id are found by an index."""
    checks: tuple[str, ...]
    """The names of CHECK constraints."""
    primary_key: tuple[str, ...]
    key: KeyFacts | None


def read(connection: Connection, inspector: Inspector, name: str, schema: str | None, column: str) -> Facts | None:
    """What is known of the table *name*; ``None`` where it has no such *column*."""
    columns = columns_of(inspector, name, schema)
    if column not in columns:
        return None
    found = columns[column]
    primary_key = tuple(primary_key_of(inspector, name, schema))
    facts = Facts(
        table=name,
        schema=schema,
        column=column,
        length=getattr(found["type"], "length", None),
        type=None if isinstance(found["type"], String) else found["type"].compile(connection.dialect),
        nullable=found["nullable"],
        has_default=found["default"] not in (None, "NULL") or found.get("identity") is not None,
        collation=None,
        collated=True,
        indexes=tuple(_indexes(inspector, name, schema, column, primary_key)),
        searchable=any(_columns(index, inspector)[:1] == [column] for index in inspector.get_indexes(name, schema)),
        checks=tuple(str(check["name"]) for check in inspector.get_check_constraints(name, schema=schema)),
        primary_key=primary_key,
        key=None,
    )
    dialect = connection.dialect.name
    if dialect == "postgresql":
        facts = _postgresql(connection, facts)
    elif dialect in {"mysql", "mariadb"}:
        facts = _mysql(connection, facts)
    elif dialect == "sqlite":
        facts = _sqlite(connection, facts)
    key = columns[primary_key[0]] if len(primary_key) == 1 else None
    return facts if key is None else replace(facts, key=_key(connection, facts, primary_key[0], key["type"]))


def _indexes(
    inspector: Inspector, name: str, schema: str | None, column: str, primary_key: Sequence[str]
) -> Iterator[IndexFacts]:
    """The indexes and constraints on *column* alone; PostgreSQL's are read from its own catalog."""
    seen: set[str | None] = set()
    if list(primary_key) == [column]:
        yield IndexFacts("primary key", unique=True, constraint=True, primary=True)
    for constraint in inspector.get_unique_constraints(name, schema=schema):
        if _columns(constraint, inspector) == [column]:
            seen.add(constraint["name"])
            yield IndexFacts(str(constraint["name"] or "unnamed"), unique=True, constraint=True)
    for index in inspector.get_indexes(name, schema=schema):
        if _columns(index, inspector) == [column] and index["name"] not in seen:
            partial = any(key.endswith("_where") and value is not None for key, value in _options(index).items())
            yield IndexFacts(str(index["name"]), unique=bool(index["unique"]), partial=partial)


def _columns(index: Any, inspector: Inspector) -> list[str | None]:
    """The names of what *index* is on; ``None`` for an expression."""
    return [name and unescaped(name, inspector.dialect) for name in index["column_names"]]


def _options(index: Any) -> dict[str, Any]:
    return dict(index.get("dialect_options") or {})


# --- PostgreSQL

_BYTEWISE = {"C", "POSIX", "ucs_basic", "pg_c_utf8"}

_POSTGRESQL_COLUMN = text("""
SELECT CASE WHEN co.collname = 'default' AND to_jsonb(d) ->> 'datlocprovider' IS DISTINCT FROM 'i'
            THEN COALESCE(to_jsonb(d) ->> 'datcollate', 'default') ELSE co.collname END AS collation,
       EXISTS (SELECT FROM pg_constraint n WHERE n.conrelid = a.attrelid AND n.contype = 'n'
               AND a.attnum = ANY (n.conkey) AND NOT n.convalidated) AS unproven,
       EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
               WHERE t.tgrelid = a.attrelid AND NOT t.tgisinternal AND t.tgtype & 7 = 7
               AND strpos(p.prosrc, replace(a.attname, '"', '""')) > 0) AS filled
FROM pg_attribute a
LEFT JOIN pg_collation co ON co.oid = a.attcollation
CROSS JOIN (SELECT * FROM pg_database WHERE datname = current_database()) d
WHERE a.attrelid = to_regclass(:name) AND a.attname = :column
""")

_POSTGRESQL_INDEXES = text("""
SELECT c.relname AS name, i.indisunique AS is_unique, i.indisvalid AS valid, i.indpred IS NOT NULL AS partial,
       i.indisprimary AS is_primary, EXISTS (SELECT FROM pg_constraint n WHERE n.conindid = c.oid) AS is_constraint
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = to_regclass(:name) AND a.attname = :column AND i.indnkeyatts = 1
ORDER BY c.relname
""")


def _postgresql(connection: Connection, facts: Facts) -> Facts:
    named = {"name": _quoted(connection, facts), "column": facts.column}
    found = connection.execute(_POSTGRESQL_COLUMN, named).one()
    indexes = tuple(
        IndexFacts(row.name, row.is_unique, row.valid, row.partial, row.is_constraint, row.is_primary)
        for row in connection.execute(_POSTGRESQL_INDEXES, named)
    )
    return replace(
        facts,
        nullable=facts.nullable or found.unproven,  # NOT NULL NOT VALID, of PostgreSQL 18
        has_default=facts.has_default or found.filled,
        collation=found.collation,
        collated=found.collation is None or found.collation in _BYTEWISE,
        indexes=indexes,
        searchable=any(index.valid and not index.partial for index in indexes),
    )


def _quoted(connection: Connection, facts: Facts) -> str:
    return quoted_table(facts.table, facts.schema, connection.dialect)


# --- MySQL and MariaDB

_MYSQL_COLUMN = text("""
SELECT c.COLLATION_NAME AS collation, c.IS_NULLABLE = 'YES' AS nullable, c.COLUMN_DEFAULT AS made,
       (SELECT COUNT(*) FROM information_schema.TRIGGERS t WHERE t.EVENT_OBJECT_SCHEMA = c.TABLE_SCHEMA
        AND t.EVENT_OBJECT_TABLE = c.TABLE_NAME AND t.ACTION_TIMING = 'BEFORE' AND t.EVENT_MANIPULATION = 'INSERT'
        AND INSTR(t.ACTION_STATEMENT, REPLACE(c.COLUMN_NAME, '`', '``')) > 0) AS filled
FROM information_schema.COLUMNS c
WHERE c.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND c.TABLE_NAME = :name AND c.COLUMN_NAME = :column
""")


def _mysql(connection: Connection, facts: Facts) -> Facts:
    """From the catalog: reflection loses what stands behind a default with parentheses inside parentheses."""
    named = {"schema": facts.schema, "name": facts.table, "column": facts.column}
    found = connection.execute(_MYSQL_COLUMN, named).one()
    return replace(
        facts,
        nullable=bool(found.nullable),
        has_default=found.made not in (None, "NULL") or bool(found.filled),  # MariaDB writes NULL as a word
        collation=found.collation,
        collated=found.collation is None or str(found.collation).endswith(("_bin", "binary")),
    )


# --- SQLite


def _sqlite(connection: Connection, facts: Facts) -> Facts:
    """The collation of a column is seen in its indexes alone."""
    collations = connection.execute(
        text(
            "SELECT DISTINCT x.coll FROM pragma_index_list(:name, :schema) l, pragma_index_xinfo(l.name, :schema) x "
            "WHERE x.name = :column AND x.key = 1"
        ),
        {"name": facts.table, "schema": facts.schema or "main", "column": facts.column},
    ).scalars()
    other = [collation for collation in collations if collation != "BINARY"]
    return replace(facts, collation=(other or ["BINARY"])[0], collated=not other)


# --- the key


def _key(connection: Connection, facts: Facts, column: str, type_: TypeEngine[Any]) -> KeyFacts | None:
    """How full the key is, where it is an integer. The largest value is the last one of its index."""
    limit = _limit(connection.dialect.name, type_)
    if limit is None:
        return None
    from_ = table(facts.table, sql_column(column), schema=facts.schema)
    value = connection.scalar(select(func.max(from_.c[column])))
    if connection.dialect.name == "postgresql":
        limit = min(limit, _sequence_limit(connection, facts, column) or limit)
    return KeyFacts(column, str(type_.compile(connection.dialect)), limit, value or 0)


def _limit(dialect: str, type_: TypeEngine[Any]) -> int | None:
    """The largest number that *type_* holds; ``None`` where it is no integer."""
    if not isinstance(type_, Integer):
        return None
    names = {"TINYINT": 8, "MEDIUMINT": 24}
    name = type(type_).__name__.upper()
    if dialect == "sqlite" or isinstance(type_, BigInteger):  # SQLite stores 64 bits, whatever the type is called
        bits = 64
    elif name in names:
        bits = names[name]
    else:
        bits = 16 if isinstance(type_, SmallInteger) else 32
    return (1 << bits if getattr(type_, "unsigned", False) else 1 << bits - 1) - 1


def _sequence_limit(connection: Connection, facts: Facts, column: str) -> int | None:
    """Where the sequence of the key ends: one that was made for ``serial`` ends at 2**31 on a ``bigint`` too."""
    query = "SELECT seqmax FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence(:name, :column)::regclass"
    found = connection.scalar(text(query), {"name": _quoted(connection, facts), "column": column})
    return None if found is None else int(found)
