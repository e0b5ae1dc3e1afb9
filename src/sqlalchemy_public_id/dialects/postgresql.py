"""PostgreSQL: a failed statement aborts the transaction; drivers name the violated constraint."""

from __future__ import annotations

import re
from typing import Any, ClassVar, cast
from uuid import UUID

from sqlalchemy import String, Text, Uuid, text
from sqlalchemy import cast as sql_cast
from sqlalchemy.engine import Connection, Dialect, ExecutionContext
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects._base import KeyCounter, LimitPerRow, Outcome, Traits, Violation
from sqlalchemy_public_id.dialects.quoting import quoted_table

_UNIQUE_VIOLATION = "23505"
_ENTRY = re.compile(r"""\(("(?:[^"]|"")+"|\w+)\)=\((.*)\)""", re.DOTALL)
"""``Key (public_id)=(a1b2c3) already exists.``, whatever the language of the words around it."""

_FORBIDS_ON_CONFLICT = text("""
SELECT c.relkind NOT IN ('r', 'p')
    OR EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_type = '3')
    OR EXISTS (SELECT FROM pg_catalog.pg_trigger t
               WHERE (t.tgrelid = c.oid OR t.tgrelid IN (
                   SELECT CAST(relid AS oid) FROM pg_catalog.pg_partition_tree(c.oid)))
               AND NOT t.tgisinternal AND t.tgenabled <> 'D'
               AND CAST(t.tgtype AS int) & 4 <> 0
               AND (CAST(t.tgtype AS int) & 2 <> 0 OR CAST(t.tgtype AS int) & 1 = 0))
    OR EXISTS (SELECT FROM pg_catalog.pg_index i
               WHERE (i.indrelid = c.oid OR i.indrelid IN (
                   SELECT CAST(relid AS oid) FROM pg_catalog.pg_partition_tree(c.oid)))
               AND NOT i.indimmediate)
FROM pg_catalog.pg_class c WHERE c.oid = CAST(pg_catalog.to_regclass(:name) AS oid)
""")
"""Views, rules for INSERT (ev_type 3), triggers for INSERT (4) that run before it (2) or for the statement (not 1), and
deferrable constraints.

A statement trigger runs even if no row is inserted. The types of operators match exactly, so that PostgreSQL does not
prefer one that another role has created.
"""


_SEES_COMMITS = {"READ COMMITTED", "READ UNCOMMITTED", 1, 4}
"""Isolation levels, as names and as the numbers of psycopg2."""


class _PostgresProtocol(Traits):
    """A database with PostgreSQL's protocol, a UUID type, and an SQLSTATE in each error."""

    conflict_errors: ClassVar[frozenset[object]] = frozenset({"40001", "40P01"})  # serialization failures and deadlocks
    retryable_errors: ClassVar[frozenset[object]] = conflict_errors
    # CockroachDB's ambiguous commits; a server that shuts down or starts
    unknown_errors: ClassVar[frozenset[object]] = frozenset({"40003", "57P01", "57P02", "57P03"})
    lock_errors: ClassVar[frozenset[object]] = frozenset({"55P03", "40P01"})
    overload_errors: ClassVar[frozenset[object]] = frozenset({"55P03", "53300"})

    def integer_type(self, bits: int) -> TypeEngine[Any]:
        return Uuid() if bits == 128 else super().integer_type(bits)

    def to_native(self, number: int, bits: int) -> Any:
        return UUID(int=number) if bits == 128 else super().to_native(number, bits)

    def from_native(self, value: Any) -> int:
        return value.int if isinstance(value, UUID) else super().from_native(value)

    def literal(self, value: Any) -> str:
        return f"'{value}'::uuid" if isinstance(value, UUID) else super().literal(value)

    def error_code(self, error: BaseException | None) -> object:
        # psycopg has sqlstate, psycopg2 pgcode
        codes = (_fields(error).get("C"), *(getattr(error, name, None) for name in ("sqlstate", "pgcode")))
        return next((code for code in codes if code is not None), None)

    def outcome(self, error: Exception) -> Outcome:
        # class 08: the connection was lost, or could not be opened
        is_lost = str(self.error_code(error)).startswith("08") or _is_from_psycopg(error)
        return Outcome.UNKNOWN if is_lost else super().outcome(error)

    def in_autocommit(self, dbapi_connection: Any) -> bool:
        return bool(getattr(dbapi_connection, "autocommit", False))


def key_sequence(table: str, key: str) -> str:
    """Return an SQL expression for the OID of the sequence that generates the values of a column; NULL if none does.

    A column may own sequences that it does not use, and use one that it does not own, as by ``DEFAULT nextval(...)``:
    the right one is that of its IDENTITY, or the one that its default draws from.

    :param table: an SQL expression for the name of the table, quoted and with its schema.
    :param key: an SQL expression for the plain name of the column.
    """
    catalog, default = "'pg_catalog.pg_class'::regclass::oid", "'pg_catalog.pg_attrdef'::regclass::oid"
    column = f"a.attrelid = CAST(pg_catalog.to_regclass({table}) AS oid) AND a.attname = CAST({key} AS text)"
    return (
        "COALESCE((SELECT d.objid FROM pg_catalog.pg_attribute a "
        "JOIN pg_catalog.pg_depend d ON d.refobjid = a.attrelid AND d.refobjsubid = CAST(a.attnum AS int) "
        f"WHERE d.classid = {catalog} AND d.refclassid = {catalog} AND d.deptype = 'i' AND {column}), "
        "(SELECT s.oid FROM pg_catalog.pg_attribute a "
        "JOIN pg_catalog.pg_attrdef e ON e.adrelid = a.attrelid AND e.adnum = a.attnum "
        "JOIN pg_catalog.pg_depend d ON d.objid = e.oid "
        "JOIN pg_catalog.pg_class s ON s.oid = d.refobjid AND s.relkind = 'S' "
        f"WHERE d.classid = {default} AND d.refclassid = {catalog} AND {column} ORDER BY s.oid LIMIT 1))"
    )


class PostgreSQL(_PostgresProtocol):
    """PostgreSQL, through psycopg, psycopg2, asyncpg and pg8000, which report the SQLSTATE and the constraint."""

    retries = True
    max_parameters: int | None = 32_767  # asyncpg's limit; psycopg and the protocol have 65 535
    array_parameters = True
    nulls_are_largest = True
    key_counter: KeyCounter | None = KeyCounter.SEQUENCE
    permission_errors: ClassVar[frozenset[object]] = frozenset({"42501"})

    def limit_per_row(self, dialect: Dialect) -> LimitPerRow:
        return LimitPerRow.LATERAL

    def comparable_text(self, value: Any) -> Any:
        return sql_cast(value, Text)  # pg_catalog has no operator for VARCHAR: one of any role would be called

    def text_type(self, length: int) -> TypeEngine[str]:
        """Return a type with ``COLLATE "C"``, which compares by memcmp: no upgrade of libc can corrupt its index."""
        return String(length, collation="C")

    def literal(self, value: Any) -> str:
        return f"'\\x{value.hex()}'::bytea" if isinstance(value, bytes) else super().literal(value)

    def violation(self, error: Exception) -> Violation | None:
        if self.error_code(error) != _UNIQUE_VIOLATION:
            return None
        # psycopg has diag; SQLAlchemy's asyncpg adapter wraps the driver's own error
        diagnostics, fields = getattr(error, "diag", None), _fields(error)
        name = getattr(diagnostics, "constraint_name", None) or getattr(error.__cause__, "constraint_name", None)
        detail = getattr(diagnostics, "message_detail", None) or getattr(error.__cause__, "detail", None)
        return Violation(constraint=name or fields.get("n"), entry=_entry(detail or fields.get("D")))

    def format_in_error(self, value: Any) -> str:
        return f"\\x{value.hex()}" if isinstance(value, (bytes, bytearray)) else str(value)

    def sees_commits(self, dbapi_connection: Any, dialect: Dialect) -> bool:
        # psycopg has an enum, asyncpg's adapter a name, psycopg2 a number; None is the server's default
        level = getattr(dbapi_connection, "isolation_level", None)
        if level is None:  # the adapter of psycopg's asynchronous connections does not report it
            level = getattr(getattr(dbapi_connection, "driver_connection", None), "isolation_level", None)
        name = getattr(level, "name", level) or dialect.default_isolation_level
        return name in _SEES_COMMITS or str(name).upper().replace("_", " ") in _SEES_COMMITS

    def forbids_on_conflict(self, connection: Connection, table: str, schema: str | None) -> bool:
        name = quoted_table(table, schema, connection.dialect)
        # a table that does not exist yet returns no row: it is unknown which triggers it will have
        return connection.scalar(_FORBIDS_ON_CONFLICT, {"name": name}) is not False

    def defers_result(self, context: ExecutionContext) -> bool:
        if context.execution_options.get("stream_results") and context.dialect.supports_server_side_cursors:
            return True
        # inside ``with connection.pipeline()`` of psycopg, statements are queued; other drivers have no such attribute
        driver_connection = context.root_connection.connection.driver_connection
        return bool(getattr(getattr(driver_connection, "pgconn", None), "pipeline_status", False))


class OtherPostgreSQL(PostgreSQL):
    """A database whose dialect derives from PostgreSQL's: its types and errors, and savepoints around all INSERTs.

    It is unknown whether it supports ``ON CONFLICT`` without a target, arrays as parameters, or ``LATERAL``.
    """

    array_parameters = False
    key_counter: KeyCounter | None = None

    def limit_per_row(self, dialect: Dialect) -> LimitPerRow:
        return LimitPerRow.UNION

    def sees_commits(self, dbapi_connection: Any, dialect: Dialect) -> bool:
        return False


class CockroachDB(_PostgresProtocol):
    """CockroachDB, through any driver of ``sqlalchemy-cockroachdb``. Its DDL is tested, but not on a server.

    Therefore, a collision raises ``IntegrityError``, as on an unsupported database. Ids are stored in a plain
    ``VARCHAR``, which CockroachDB compares byte by byte. Transactions are retried as its documentation recommends:
    after SQLSTATE 40001, and after 40003 if the commit is ambiguous.
    """

    no_retries = "the retry was never run on this database"
    key_counter: KeyCounter | None = KeyCounter.SEQUENCE


class AuroraDSQL(_PostgresProtocol):
    """Aurora DSQL, through ``aurora-dsql-sqlalchemy``. It has no savepoints, one collation, and no COLLATE clause.

    Therefore, a collision raises ``IntegrityError``. This is not tested on a server either.
    """

    no_retries = "this database has no savepoints"


def _is_from_psycopg(error: Exception) -> bool:
    """Return True if psycopg reports, on an established connection, that it cannot reach the server.

    An example is "connection socket closed". The connection may not count as closed before its next statement, so
    SQLAlchemy does not consider it lost. ``pgresult`` is the answer of the server, and ``pgconn`` is set by failed
    attempts to connect.
    """
    is_unanswered = getattr(error, "pgresult", error) is None and getattr(error, "pgconn", error) is None
    return is_unanswered and type(error).__name__ == "OperationalError"


def _fields(error: BaseException | None) -> dict[str, Any]:
    """Return the fields of the server's message, which pg8000 passes to the error in place of a text."""
    first = error.args[0] if error is not None and error.args else None
    return cast("dict[str, Any]", first) if isinstance(first, dict) else {}


def _entry(detail: object) -> tuple[str, str] | None:
    # there is no detail if the role lacks the privilege to see the row; with two ")=(", the detail is ambiguous
    match = _ENTRY.search(detail) if isinstance(detail, str) and detail.count(")=(") == 1 else None
    if match is None:
        return None
    column, value = match.groups()
    return (column[1:-1].replace('""', '"') if column[0] == '"' else column), value
