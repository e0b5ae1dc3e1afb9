"""PostgreSQL: a failed statement aborts the transaction; drivers name the violated constraint."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from sqlalchemy import String, Uuid, text
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects._base import Fate, Traits, Violation

__all__ = ["PostgreSQL", "PostgresProtocol"]

_UNIQUE_VIOLATION = "23505"
_FORBIDDEN = "42501"
_ENTRY = re.compile(r"""\(("(?:[^"]|"")+"|\w+)\)=\((.*)\)""", re.DOTALL)
"""``Key (public_id)=(a1b2c3) already exists.``, in whatever language the words around it are."""
_UNDONE = {"40001", "40P01"}  # serialization failures and deadlocks
_UNKNOWN = {"40003", "57P01", "57P02", "57P03"}  # CockroachDB's ambiguous commits; the server goes down, or comes up

_EARLY_TRIGGERS = text(
    "SELECT DISTINCT tgname FROM pg_catalog.pg_trigger"
    " WHERE (tgrelid = to_regclass(:name) OR tgrelid IN (SELECT relid FROM pg_partition_tree(to_regclass(:name))))"
    " AND NOT tgisinternal AND tgenabled IN ('O', 'A')"
    " AND tgtype & 4 <> 0 AND (tgtype & 2 <> 0 OR tgtype & 1 = 0) ORDER BY tgname"
)
"""4: for INSERT; 2: before it; 1: for each row. Those for each statement run even if there is no row."""


class PostgresProtocol(Traits):
    """What speaks PostgreSQL's protocol, has a type for UUIDs, and tells the SQLSTATE of an error."""

    def native(self, bits: int) -> TypeEngine[Any]:
        return Uuid() if bits == 128 else super().native(bits)

    def to_native(self, number: int, bits: int) -> Any:
        return UUID(int=number) if bits == 128 else super().to_native(number, bits)

    def from_native(self, value: Any) -> int:
        return value.int if isinstance(value, UUID) else super().from_native(value)

    def literal(self, value: Any) -> str:
        return f"'{value}'::uuid" if isinstance(value, UUID) else super().literal(value)

    def fate(self, error: Exception) -> Fate:
        """What the SQLSTATE of *error* says; class 08 is a connection that is lost, or was not made."""
        state = _state(error)
        if state in _UNDONE:
            return Fate.UNDONE
        return Fate.UNKNOWN if state in _UNKNOWN or str(state).startswith("08") else Fate.FINAL

    def in_autocommit(self, dbapi_connection: Any) -> bool:
        return bool(getattr(dbapi_connection, "autocommit", False))


class PostgreSQL(PostgresProtocol):
    """PostgreSQL, through psycopg, psycopg2 and asyncpg, which tell the SQLSTATE and the name of the constraint."""

    retries = True
    max_parameters = 32_767  # asyncpg's limit; psycopg and the protocol have 65 535
    array_parameters = True

    def text(self, length: int) -> TypeEngine[str]:
        """``COLLATE "C"``: memcmp instead of strcoll, and an index that no upgrade of the C library can corrupt."""
        return String(length, collation="C")

    def literal(self, value: Any) -> str:
        return f"'\\x{value.hex()}'::bytea" if isinstance(value, bytes) else super().literal(value)

    def violation(self, error: Exception) -> Violation | None:
        # psycopg says sqlstate, psycopg2 pgcode; SQLAlchemy's asyncpg adapter wraps the driver's own error
        if _state(error) != _UNIQUE_VIOLATION:
            return None
        diagnostics = getattr(error, "diag", None)
        name = getattr(diagnostics, "constraint_name", None) or getattr(error.__cause__, "constraint_name", None)
        detail = getattr(diagnostics, "message_detail", None) or getattr(error.__cause__, "detail", None)
        return Violation(constraint=name, entry=_entry(detail))

    def forbids(self, error: BaseException | None) -> bool:
        return error is not None and _state(error) == _FORBIDDEN

    def written(self, value: Any) -> str:
        return f"\\x{value.hex()}" if isinstance(value, (bytes, bytearray)) else str(value)

    def sees_commits(self, dbapi_connection: Any, dialect: Dialect) -> bool:
        # psycopg has an enum, asyncpg's adapter a name, psycopg2 a number; None is the server's default
        level = getattr(dbapi_connection, "isolation_level", None)
        if level is None:  # the adapter of psycopg's asynchronous connections does not say it
            level = getattr(getattr(dbapi_connection, "driver_connection", None), "isolation_level", None)
        name = getattr(level, "name", level) or dialect.default_isolation_level
        return name in (1, 4) or str(name).upper().replace("_", " ") in {"READ COMMITTED", "READ UNCOMMITTED"}

    def early_triggers(self, connection: Connection, table: str, schema: str | None) -> list[str]:
        name = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table) if part)
        return list(connection.execute(_EARLY_TRIGGERS, {"name": name}).scalars())

    def defers_results(self, driver_connection: Any) -> bool:
        # inside ``with connection.pipeline()`` of psycopg
        return bool(getattr(getattr(driver_connection, "info", None), "pipeline_status", False))


def _entry(detail: object) -> tuple[str, str] | None:
    """What *detail* names, if that can be read in one way only. It is missing where the role may not see the row."""
    found = _ENTRY.search(detail) if isinstance(detail, str) and detail.count(")=(") == 1 else None
    if found is None:
        return None
    column, value = found.groups()
    return (column[1:-1].replace('""', '"') if column[0] == '"' else column), value


def _state(error: BaseException) -> object:
    return _first(error, "sqlstate", "pgcode")


def _first(source: object, *names: str) -> object:
    return next((value for name in names if (value := getattr(source, name, None)) is not None), None)
