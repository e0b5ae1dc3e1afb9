"""Read the state of a column of public ids from the catalogs, before each step of a migration."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, func, inspect, literal, select, text
from sqlalchemy import table as sql_table

from sqlalchemy_public_id.dialects.quoting import quoted, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrating.catalog import IndexFacts, names_in_queries, read_indexes


@dataclass(frozen=True)
class State:
    """The column of public ids as a migration has left it so far."""

    exists: bool = False
    type: str | None = None
    """The type as DDL, with the character set on MySQL and MariaDB, and without the collation on PostgreSQL."""
    nullable: bool = True
    collation: str | None = None
    """The collation; None if the type has none, and on SQLite."""
    order: str | None = None
    """The collation of PostgreSQL that orders the column: that of the database if its own is ``default``."""
    exact: bool = True
    """True if an id is found by its own spelling only, whatever collation orders them."""
    comment: str | None = None
    attributes: str = ""
    """What a MODIFY of MySQL or MariaDB has to repeat beside type, default and comment, as SQL."""
    default: str | None = None
    """The server default as an expression, of this library or not."""
    function: bool = False
    """True if the function of PostgreSQL exists that generates ids, and no other column calls it."""
    called: str | None = None
    """The function of this library that the default of PostgreSQL calls, as SQL. A renamed table keeps it."""
    is_shared: bool = False
    """True if the default of another column calls that function, too."""
    trigger: str | None = None
    """The name of the trigger of MySQL or MariaDB that generates ids. A renamed table keeps it."""
    filled: bool = False
    """True if a trigger before each INSERT mentions the column: this library's, or another."""
    unique: IndexFacts | None = None
    """The index, or that of the constraint, that makes the column unique, whatever its name is. An index that is not
    valid has the name that a migration gives it."""
    constrained: bool = False
    """True if a UNIQUE constraint of SQLite, of whatever name, is on the column alone."""
    check: bool = False
    """True if the temporary CHECK constraint exists that forbids NULL."""
    checked: bool = False
    """True if that constraint is validated for the existing rows."""
    builder: int | None = None
    """The process of PostgreSQL that builds an index of the table at the moment."""
    versioned: bool = False
    """True if the table of MariaDB keeps the history of its rows."""
    strict: bool = False
    """True if the table of SQLite is STRICT."""

    @property
    def index(self) -> bool:
        """True if the unique index exists, valid or not."""
        return self.unique is not None

    @property
    def valid(self) -> bool:
        """True if the unique index exists, and keeps duplicates out."""
        return self.unique is not None and self.unique.valid

    @property
    def constraint(self) -> bool:
        """True if the unique index belongs to a constraint."""
        return self.unique is not None and self.unique.constraint

    @property
    def complete(self) -> bool:
        """True if the column is NOT NULL and unique, and finds an id by its own spelling only."""
        return self.exists and not self.nullable and self.valid and self.exact


FEW_ROWS = 10_000
"""A strong lock on so many rows takes milliseconds."""


def has_few_rows(connection: Connection, table: str, schema: str | None) -> bool:
    """Return True if a strong lock on all rows takes milliseconds. Reads :data:`FEW_ROWS` rows at most."""
    rows = select(literal(1)).select_from(sql_table(table, schema=schema)).limit(FEW_ROWS + 1).subquery()
    return (connection.scalar(select(func.count()).select_from(rows)) or 0) <= FEW_ROWS


_POSTGRESQL_ROWS = text("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(:name)")
_MYSQL_ROWS = text(
    "SELECT table_rows FROM information_schema.tables"
    " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name"
)


_POSTGRESQL_BYTES = text("SELECT pg_total_relation_size(to_regclass(:name))")
_MYSQL_BYTES = text(
    "SELECT data_length + index_length FROM information_schema.tables"
    " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
)


def estimate_rows(connection: Connection, table: str, schema: str | None) -> int | None:
    """Return the number of rows that the database estimates, which SQLite counts; None if it has no estimate."""
    name = quoted_table(table, schema, connection.dialect)
    if connection.dialect.name == "sqlite":
        return connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar() or None
    if connection.dialect.name == "postgresql":
        rows = connection.scalar(_POSTGRESQL_ROWS, {"name": name})
        return rows if rows and rows > 0 else None  # -1 before the first ANALYZE
    return connection.scalar(_MYSQL_ROWS, {"schema": schema, "name": table}) or None


def estimate_bytes(connection: Connection, table: str, schema: str | None) -> int | None:
    """Return the bytes of the table and its indexes, as the catalogs have them; None on SQLite."""
    if connection.dialect.name == "sqlite":
        return None
    query = _POSTGRESQL_BYTES if connection.dialect.name == "postgresql" else _MYSQL_BYTES
    names = {"name": quoted_table(table, schema, connection.dialect), "schema": schema, "table": table}
    taken = connection.scalar(query, {name: names[name] for name in query.compile().params})
    return None if taken is None else int(taken)


def read_state(connection: Connection, table: str, schema: str | None, column: str, *, unique_name: str) -> State:
    """Read the state of *column*.

    :param unique_name: the name of its unique index or constraint, unless it has one of another name.
    :raises ConfigurationError: if there is no such table, or if it holds no rows, as a view does.
    """
    where = f"{table!r} in schema {schema!r}" if schema else repr(table)
    names = names_in_queries(connection, table, schema, column, unique_name)
    read = {"postgresql": _postgresql_state, "sqlite": _sqlite_state}.get(connection.dialect.name, _mysql_state)
    state = read(connection, names, where)
    if state is None:
        raise ConfigurationError(f"there is no table {where}; create it first, or correct its name")
    if not state.exists:
        return state
    indexes = read_indexes(connection, table, schema)
    found = [index for index in indexes if index.can_be_unique_index_of(column) and not index.primary]
    found.sort(key=lambda index: (not index.valid, index.name != unique_name))
    return replace(
        state,
        unique=next((index for index in found if index.valid or index.name == unique_name), None),
        constrained=connection.dialect.name == "sqlite" and any(index.constraint for index in found),
    )


# unproven: NOT NULL NOT VALID, of PostgreSQL 18. filled: a BEFORE INSERT trigger for each row mentions the column.
POSTGRESQL_COLUMN = text("""
SELECT CAST(c.relkind AS text) AS kind, a.attnum IS NOT NULL AS "exists", NOT a.attnotnull AS nullable,
       pg_get_expr(d.adbin, d.adrelid) AS "default", col_description(a.attrelid, a.attnum) AS comment,
       co.collname AS collation, COALESCE(co.collisdeterministic, true) AS deterministic,
       format_type(a.atttypid, a.atttypmod) AS type,
       EXISTS (SELECT FROM pg_type t WHERE t.oid = a.atttypid
               AND 'citext' IN (t.typname, CAST(CAST(t.typbasetype AS regtype) AS text))) AS is_citext,
       CASE WHEN co.collname = 'default' AND to_jsonb(db) ->> 'datlocprovider' IS DISTINCT FROM 'i'
            THEN COALESCE(to_jsonb(db) ->> 'datcollate', 'default') ELSE co.collname END AS effective_collation,
       (SELECT n.convalidated FROM pg_constraint n WHERE n.conrelid = c.oid AND n.conname = :check
        AND pg_get_expr(n.conbin, n.conrelid) = '(' || quote_ident(a.attname) || ' IS NOT NULL)') AS checked,
       EXISTS (SELECT FROM pg_proc p WHERE p.proname = :generator AND p.pronamespace = c.relnamespace
               AND p.pronargs = 0 AND obj_description(p.oid, 'pg_proc') = :mark AND NOT EXISTS (
                   SELECT FROM pg_depend other WHERE other.refclassid = 'pg_proc'::regclass AND other.refobjid = p.oid
                   AND other.classid = 'pg_attrdef'::regclass AND other.objid IS DISTINCT FROM d.oid)) AS function,
       (SELECT quote_ident(pn.nspname) || '.' || quote_ident(p.proname) || '|' || EXISTS (
            SELECT FROM pg_depend other WHERE other.refclassid = 'pg_proc'::regclass AND other.refobjid = p.oid
            AND other.classid = 'pg_attrdef'::regclass AND other.objid <> d.oid)
        FROM pg_depend dep JOIN pg_proc p ON p.oid = dep.refobjid JOIN pg_namespace pn ON pn.oid = p.pronamespace
        WHERE dep.classid = 'pg_attrdef'::regclass AND dep.objid = d.oid AND dep.refclassid = 'pg_proc'::regclass
          AND obj_description(p.oid, 'pg_proc') = :mark LIMIT 1) AS called,
       EXISTS (SELECT FROM pg_constraint n WHERE n.conrelid = c.oid AND n.contype = 'n'
               AND a.attnum = ANY (n.conkey) AND NOT n.convalidated) AS unproven,
       EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
               WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgtype & 7 = 7
               AND strpos(p.prosrc, replace(a.attname, '"', '""')) > 0) AS filled,
       (SELECT min(b.pid) FROM pg_stat_progress_create_index b
        WHERE b.relid = c.oid AND b.datname = current_database()) AS builder
FROM pg_class c
CROSS JOIN (SELECT * FROM pg_database WHERE datname = current_database()) db
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = :column AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_collation co ON co.oid = a.attcollation
WHERE c.oid = to_regclass(:regclass)
""")


def _postgresql_state(connection: Connection, names: dict[str, Any], where: str) -> State | None:
    row = connection.execute(POSTGRESQL_COLUMN, names).one_or_none()
    if row is None:
        return None
    if row.kind not in ("r", "p"):
        raise ConfigurationError(f"{where} is not an ordinary table; name the table that holds the rows")
    called, _, is_shared = (row.called or "").rpartition("|")
    return State(
        exists=row.exists,
        type=row.type,
        nullable=row.nullable is not False or row.unproven,
        collation=row.collation,
        order=row.effective_collation,
        exact=row.deterministic and not row.is_citext,
        comment=row.comment,
        default=row.default,
        function=row.function,
        called=called or None,
        is_shared=is_shared == "true",
        filled=row.filled,
        check=row.checked is not None,
        checked=bool(row.checked),
        builder=row.builder,
    )


# filled: a BEFORE INSERT trigger mentions the column
MYSQL_COLUMN = text("""
SELECT c.IS_NULLABLE = 'YES' AS nullable, c.COLUMN_DEFAULT AS `default`, c.COLUMN_COMMENT AS comment,
       c.COLLATION_NAME AS collation, c.EXTRA AS extra, c.COLUMN_TYPE AS type, c.CHARACTER_SET_NAME AS charset,
       (SELECT MIN(t.TRIGGER_NAME) FROM information_schema.TRIGGERS t WHERE t.EVENT_OBJECT_SCHEMA = c.TABLE_SCHEMA
        AND t.EVENT_OBJECT_TABLE = c.TABLE_NAME AND t.ACTION_TIMING = 'BEFORE' AND t.EVENT_MANIPULATION = 'INSERT'
        AND t.ACTION_STATEMENT LIKE :generates
        AND INSTR(t.ACTION_STATEMENT, REPLACE(c.COLUMN_NAME, '`', '``')) > 0) AS generator,
       EXISTS (SELECT 1 FROM information_schema.TRIGGERS t WHERE t.EVENT_OBJECT_SCHEMA = c.TABLE_SCHEMA
               AND t.EVENT_OBJECT_TABLE = c.TABLE_NAME AND t.ACTION_TIMING = 'BEFORE'
               AND t.EVENT_MANIPULATION = 'INSERT'
               AND INSTR(t.ACTION_STATEMENT, REPLACE(c.COLUMN_NAME, '`', '``')) > 0) AS filled
FROM information_schema.COLUMNS c
WHERE c.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND c.TABLE_NAME = :table AND c.COLUMN_NAME = :column
""")

_MARIADB_CHECKS = text("""
SELECT * FROM information_schema.CHECK_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table AND CONSTRAINT_NAME = :column
""")

_MYSQL_TABLE_TYPE = text(
    "SELECT TABLE_TYPE FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table"
)


_ESCAPED = re.compile(r"\\(['\\])")


def _mysql_state(connection: Connection, names: dict[str, Any], where: str) -> State | None:
    row = connection.execute(MYSQL_COLUMN, names).one_or_none()
    kind = connection.scalar(_MYSQL_TABLE_TYPE, names)
    if kind is None:
        return None
    versioned = kind == "SYSTEM VERSIONED"
    if row is None:
        return State(versioned=versioned)
    default = None if row.default in (None, "NULL") else str(row.default)  # MariaDB returns NULL as a word
    if default is not None and not getattr(connection.dialect, "is_mariadb", False):
        # MySQL returns a constant without its quotes, and an expression with escaped quotes and backslashes
        is_expression = "DEFAULT_GENERATED" in row.extra
        default = _ESCAPED.sub(r"\1", default) if is_expression else "'" + default.replace("'", "''") + "'"
    collation = f" CHARACTER SET {row.charset} COLLATE {row.collation}" if row.charset else ""
    return State(
        exists=True,
        type=f"{row.type}{collation}",
        nullable=bool(row.nullable),
        collation=row.collation,
        exact=row.collation is None or row.collation.endswith("_bin"),
        comment=row.comment or None,
        attributes=_mysql_attributes(connection, names, row.extra),
        default=default,
        trigger=row.generator,
        filled=bool(row.filled),
        versioned=versioned,
    )


def _mysql_attributes(connection: Connection, names: dict[str, Any], extra: str) -> str:
    attributes = " INVISIBLE" if "INVISIBLE" in extra else ""
    if getattr(connection.dialect, "is_mariadb", False):  # the CHECK of a column of MySQL is one of the table
        for check in connection.execute(_MARIADB_CHECKS, names).mappings():
            if check.get("LEVEL", "Column") == "Column":  # since MariaDB 10.5.10
                attributes += f" CHECK ({check['CHECK_CLAUSE']})"
    return attributes


_STRICT = re.compile(r"\)[^()]*\bSTRICT\b[^()]*$", re.IGNORECASE)


_SQLITE_COLUMN = text("""
SELECT "notnull" AS not_null, dflt_value AS "default", type AS type
FROM pragma_table_xinfo(:table, :database) WHERE lower(name) = lower(:column)
""")


def _sqlite_state(connection: Connection, names: dict[str, Any], where: str) -> State | None:
    if not inspect(connection).has_table(names["table"], schema=names["schema"]):
        return None
    master = f"{quoted(names['database'], connection.dialect)}.sqlite_master"
    query = (
        f"SELECT sql FROM {master} WHERE type = 'table' AND lower(name) = lower(?)"  # a schema may be called ":table"
    )
    created = connection.exec_driver_sql(query, (names["table"],)).scalar()
    strict = _STRICT.search(created or "") is not None
    row = connection.execute(_SQLITE_COLUMN, names).one_or_none()
    if row is None:
        return State(strict=strict)
    default = None if str(row.default).upper() == "NULL" else row.default  # DEFAULT NULL
    return State(
        exists=True,
        type=row.type,
        exact=_is_exact(connection, names),
        nullable=not row.not_null,
        default=default,
        strict=strict,
    )


def _is_exact(connection: Connection, names: dict[str, Any]) -> bool:
    # the catalogs have no collation of a column, but a UNION compares by that of its first part
    column, dialect = quoted(names["column"], connection.dialect), connection.dialect
    name = quoted_table(names["table"], names["schema"], dialect)
    spellings = f"SELECT {column} FROM {name} WHERE 0 UNION SELECT column1 FROM (VALUES ('a'), ('A'), ('a '))"
    return len(connection.exec_driver_sql(spellings).all()) == 3
