"""SQLite: a failed statement is rolled back alone; the error message names the violated columns."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, ClassVar

from sqlalchemy import Integer
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects._base import KeyCounter, LimitPerRow, Traits, Violation, execute_unlogged

_UNIQUE = re.compile(r"UNIQUE constraint failed: (index '(?P<index>.*)'|(?P<columns>.*))\s*$", re.DOTALL)
_BUSY = frozenset({"database is locked"})
"""The message of SQLITE_BUSY and SQLITE_BUSY_SNAPSHOT. On Python 3.10, an error has a message, but no code."""


class SQLite(Traits):
    """SQLite, through sqlite3 and aiosqlite."""

    retries = True
    aborts_transaction = False
    commits_each_row = True
    key_counter: KeyCounter | None = KeyCounter.SQLITE_SEQUENCE
    has_row_locks = False
    # 32 766 are possible (SQLITE_MAX_VARIABLE_NUMBER since 3.32), but with that many, each one takes longer.
    max_parameters: int | None = 10_000
    lock_errors: ClassVar[frozenset[object]] = _BUSY
    retryable_errors: ClassVar[frozenset[object]] = _BUSY

    def key_type(self, unsigned: bool = True) -> TypeEngine[int]:
        return Integer()  # no other type autoincrements

    def limit_per_row(self, dialect: Dialect) -> LimitPerRow:
        return LimitPerRow.CORRELATED  # SQLite has no LATERAL, and at most 500 SELECTs in a UNION

    def error_code(self, error: BaseException | None) -> object:
        return str(error)

    def in_autocommit(self, dbapi_connection: Any) -> bool:
        # an application that sends BEGIN itself has done so by now
        driver = _driver(dbapi_connection)
        # since Python 3.12 there is autocommit=True as well
        is_wanted = driver.isolation_level is None or getattr(driver, "autocommit", None) is True
        return is_wanted and not driver.in_transaction

    def in_transaction(self, dbapi_connection: Any) -> bool:
        return bool(_driver(dbapi_connection).in_transaction)

    def is_in_memory(self, connection: Connection) -> bool:
        return not connection.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar()

    @contextmanager
    def failing_at_locks(self, connection: Connection) -> Generator[None]:
        before = connection.exec_driver_sql("PRAGMA busy_timeout").scalar()
        connection.exec_driver_sql("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            if not connection.invalidated:  # an interrupt invalidates it
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {before}")

    def begin(self, connection: PoolProxiedConnection) -> None:
        driver: Any = connection.driver_connection
        if not driver.in_transaction:
            execute_unlogged(connection, f"BEGIN {driver.isolation_level}".strip())  # as the driver does

    def violation(self, error: Exception) -> Violation | None:
        match = _UNIQUE.search(str(error))
        if match is None:
            return None
        if match["index"] is not None:
            return Violation(constraint=match["index"])
        return Violation(columns=match["columns"])

    def forget_statement(self, cursor: Any) -> None:
        # an open or failed statement keeps a closed connection alive until it is garbage-collected
        cursor.execute("")


def _driver(dbapi_connection: Any) -> Any:
    return getattr(dbapi_connection, "driver_connection", dbapi_connection)  # aiosqlite's adapter wraps it
