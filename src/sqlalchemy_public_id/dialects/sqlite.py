"""SQLite: a failed statement is rolled back alone; the error message names the violated columns."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy_public_id.dialects._base import Fate, ManyRows, Traits, Violation

__all__ = ["SQLite"]

_UNIQUE = re.compile(r"UNIQUE constraint failed: (index '(?P<index>.*)'|(?P<columns>.*))\s*$", re.DOTALL)


class SQLite(Traits):
    """SQLite, through sqlite3 and aiosqlite."""

    retries = True
    aborts_transaction = False
    returns_in_order = False  # SQLAlchemy sends one INSERT for each object of a flush
    many_rows = ManyRows.ROW_BY_ROW
    max_parameters = 32_766  # SQLITE_MAX_VARIABLE_NUMBER since 3.32

    def fate(self, error: Exception) -> Fate:
        # SQLITE_BUSY, and SQLITE_BUSY_SNAPSHOT with it; Python 3.10 has the message only
        return Fate.UNDONE if str(error) == "database is locked" else Fate.FINAL

    def in_autocommit(self, dbapi_connection: Any) -> bool:
        # a program that says BEGIN itself has said it by now
        driver = getattr(dbapi_connection, "driver_connection", dbapi_connection)  # of the adapter of aiosqlite
        return driver.isolation_level is None and not driver.in_transaction

    def violation(self, error: Exception) -> Violation | None:
        found = _UNIQUE.search(str(error))
        if found is None:
            return None
        if found["index"] is not None:
            return Violation(constraint=found["index"])
        return Violation(columns=found["columns"])

    def forget_statement(self, cursor: Any) -> None:
        # an open one, and one that has failed, keep a closed connection alive until they are collected as garbage
        cursor.execute("")
