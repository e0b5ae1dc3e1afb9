"""What a repeated insert needs of a database before it begins."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, func, literal_column, select
from sqlalchemy.exc import SQLAlchemyError

__all__ = ["begun", "in_turn"]


def begun(connection: Connection) -> None:
    """Begin the transaction on SQLite, where the end of a savepoint would be that of the transaction otherwise.

    Its driver says BEGIN only before it writes. IMMEDIATE, for a transaction that has read first may not get to write.
    """
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def in_turn(connection: Connection, public_id: str) -> Generator[None]:
    """Let repetitions of one insert take turns on MySQL and MariaDB.

    There, several that wait for the same uncommitted row are a deadlock as soon as it is rolled back: each is left with
    a lock on the gap, and waits for that of the others. So only one waits for the row, and the others for this one.
    """
    if connection.dialect.name not in {"mysql", "mariadb"}:
        yield
        return
    name = "public_id_" + hashlib.sha256(public_id.encode()).hexdigest()[:48]  # 64 characters at most
    connection.execute(select(func.get_lock(name, literal_column("@@innodb_lock_wait_timeout")))).close()
    release = f"DO RELEASE_LOCK('{name}')"
    try:
        yield
    except BaseException:
        _send_past(connection, release)
        raise
    connection.exec_driver_sql(release)


def _send_past(connection: Connection, statement: str) -> None:
    """Send *statement* where the transaction may have failed. A connection that is gone has no turn to end."""
    with suppress(SQLAlchemyError, connection.dialect.loaded_dbapi.Error):
        cursor = connection.connection.cursor()
        cursor.execute(statement)
        cursor.close()
