"""Detect a pooler that may run each transaction of a connection in another session of PostgreSQL.

A setting of the session would then hold for statements of others, and not for those that need it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

_PID = "SELECT pg_backend_pid()"
_ATTEMPTS = 10
"""In a busy pool, one attempt may get the same session by chance."""


def changes_session(connection: Connection) -> bool:
    """Return True if a pooler changes the session of a *connection* in AUTOCOMMIT mode after each statement."""
    mine = _read_pid(connection)
    if mine == _announced_pid(connection):
        return False  # the server itself
    # A connection that is not in a transaction keeps its session, unless another connection can use it meanwhile. The
    # other one is not of the same pool, which may be exhausted.
    pool = connection.engine.pool.recreate()
    other = pool.connect()
    try:
        cursor = other.cursor()
        for _ in range(_ATTEMPTS):
            cursor.execute(_PID)  # begins a transaction, which keeps that session
            [theirs] = cursor.fetchone() or (None,)
            if theirs == mine or _read_pid(connection) != mine:
                return True
            other.rollback()
        return False
    finally:
        other.close()
        pool.dispose()


def _read_pid(connection: Connection) -> Any:
    return connection.exec_driver_sql(_PID).scalar()


def _announced_pid(connection: Connection) -> Any:
    """Return the process that answered when the driver connected, if it is known: a pooler answers with its own."""
    driver: Any = connection.connection.driver_connection
    if hasattr(driver, "get_server_pid"):  # asyncpg
        return driver.get_server_pid()
    return getattr(getattr(driver, "info", None), "backend_pid", None)  # psycopg, psycopg2
