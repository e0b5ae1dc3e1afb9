"""What a backfill asks of its connection besides reading and writing: patience, estimates, and claims."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Table, text

from sqlalchemy_public_id.backfill.keys import Key
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.online import Target
from sqlalchemy_public_id.online.run import is_busy

__all__ = ["atomic", "claimed", "commits_by_itself", "estimated_rows", "is_busy", "patient"]

_MYSQL = {"mysql", "mariadb"}


@contextmanager
def patient(connection: Connection) -> Generator[None]:
    """Let a batch wait a second for a row at most: meanwhile it keeps others from the rows it has."""
    if connection.dialect.name not in _MYSQL or not commits_by_itself(connection):
        yield
        return
    wait, isolation = connection.exec_driver_sql(
        f"SELECT @@SESSION.innodb_lock_wait_timeout, @@SESSION.{_isolation(connection)}"
    ).one()
    connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
    # otherwise the subquery of an UPDATE locks the gaps between the rows, and inserts wait
    connection.exec_driver_sql(f"SET SESSION {_isolation(connection)} = 'READ-COMMITTED'")
    try:
        yield
    finally:
        connection.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {wait}")
        connection.exec_driver_sql(f"SET SESSION {_isolation(connection)} = '{isolation}'")


def commits_by_itself(connection: Connection) -> bool:
    """Whether *connection* is in AUTOCOMMIT mode, as the backfill itself opens it."""
    return connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"


def _isolation(connection: Connection) -> str:
    is_mariadb: bool = getattr(connection.dialect, "is_mariadb", False)
    return "tx_isolation" if is_mariadb else "transaction_isolation"


@contextmanager
def atomic(connection: Connection) -> Generator[None]:
    """One transaction for what the driver sends as several statements."""
    if connection.dialect.name != "sqlite":
        yield
        return
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")


@contextmanager
def claimed(connection: Connection, target: Target, after: Key | None) -> Generator[bool]:
    """Whether the window behind *after* is ours; another process that asks meanwhile is told no.

    The claim is an advisory lock, which the server gives up when the connection ends. A table of the same name
    in another schema or, where such a lock is one of the whole server, another database, has locks of its own.
    """
    name = hashlib.sha256(repr((target.schema, target.table, target.column, after)).encode()).hexdigest()[:48]
    if connection.dialect.name == "postgresql":
        place = "''" if target.schema else "current_schema()"
        number = f"('x' || left(encode(sha256(convert_to({place} || '{name}', 'UTF8')), 'hex'), 16))::bit(64)::bigint"
        ours, release = f"SELECT pg_try_advisory_lock({number})", f"SELECT pg_advisory_unlock({number})"
    elif connection.dialect.name in _MYSQL:
        place = "''" if target.schema else "DATABASE()"
        lock = f"SHA2(CONCAT({place}, '{name}'), 224)"
        ours, release = f"SELECT GET_LOCK({lock}, 0)", f"SELECT RELEASE_LOCK({lock})"
    else:
        yield True
        return
    if not connection.exec_driver_sql(ours).scalar():
        yield False
        return
    try:
        yield True
    finally:
        connection.exec_driver_sql(release)


def estimated_rows(connection: Connection, table: Table) -> int | None:
    """How many rows the database believes *table* to have; ``None`` where it does not say."""
    name = quoted_table(table.name, table.schema, connection.dialect)
    found: Any = None
    if connection.dialect.name == "postgresql":
        query = text("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(:name)")
        found = connection.scalar(query, {"name": name})
    elif connection.dialect.name in _MYSQL:
        query = text(
            "SELECT TABLE_ROWS FROM information_schema.TABLES "
            "WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table"
        )
        found = connection.scalar(query, {"schema": table.schema, "table": table.name})
    elif connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar()
    return int(found) if found is not None and found > 0 else None
