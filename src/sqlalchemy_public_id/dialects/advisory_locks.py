"""Advisory locks. The server gives up such a lock when its connection ends, or its transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Connection, Text, bindparam, cast, func, literal_column, select
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_public_id.errors import ConfigurationError


@contextmanager
def try_lock(connection: Connection, *parts: object, schema: str | None) -> Generator[bool]:
    """Lock the name that *parts* make within *schema*, or within the usual one; yield False if another process has it.

    It yields True on databases without such locks, and on PostgreSQL, which has :func:`lock_of_transaction`. A schema
    has locks of its own, as has another database if such a lock is one of the whole server.

    :raises ConfigurationError: if a pooler sends the statements of one connection to several.
    """
    if connection.dialect.name not in ("mysql", "mariadb"):
        yield True
        return
    place = "''" if schema else "DATABASE()"
    name = f"SHA2(CONCAT({place}, '{_digest(repr((schema, *parts)))}'), 224)"
    if not connection.exec_driver_sql(f"SELECT GET_LOCK({name}, 0)").scalar():
        yield False
        return
    release = f"SELECT RELEASE_LOCK({name})"
    try:
        yield True
    except BaseException:
        connection.exec_driver_sql(release)
        raise
    if not connection.exec_driver_sql(release).scalar():
        raise ConfigurationError(
            "the server did not find the advisory lock that this connection had taken; a pooler sends its statements "
            "to several connections: connect to the server itself"
        )


def lock_of_transaction(*parts: object, schema: str | None) -> ColumnElement[bool]:
    """Return an expression of PostgreSQL that locks the name that *parts* make; False if another process has it.

    The lock ends with the transaction. One of the session would be lost behind a pooler that changes the session.
    """
    place = "" if schema else func.coalesce(cast(func.current_schema(), Text), "")
    digest = bindparam(None, "batch " + _digest(repr((schema, *parts))), type_=Text())
    return func.pg_try_advisory_xact_lock(func.hashtextextended(place + digest, 0), type_=Boolean)


class Turn:
    """A lock that is released at the end of :func:`take_turns`, or by a statement before."""

    def __init__(self, lock: str | None) -> None:
        self.is_over: bool = lock is None
        """True if a statement has evaluated :attr:`release`."""
        self.release: list[ColumnElement[Any]] = [] if lock is None else [func.release_lock(lock)]
        """The expression that releases the lock, if there is one."""


@contextmanager
def take_turns(connection: Connection, name: str) -> Generator[Turn]:
    """Wait for others with the same *name* on MySQL and MariaDB.

    If several inserts wait for one uncommitted row there, its rollback is a deadlock: each keeps a lock on the gap, and
    waits for those of the others. With turns, only one waits for the row.
    """
    if connection.dialect.name not in ("mysql", "mariadb"):
        yield Turn(None)
        return
    lock = "public_id_" + _digest(name)  # 64 characters at most
    release = f"DO RELEASE_LOCK('{lock}')"
    turn = Turn(lock)
    try:  # a time limit may end the wait just when the lock was given
        connection.execute(select(func.get_lock(lock, literal_column("@@innodb_lock_wait_timeout")))).close()
        yield turn
    except BaseException:
        # past SQLAlchemy, whose transaction may have failed; a lost connection has no lock left to release
        with suppress(SQLAlchemyError, connection.dialect.loaded_dbapi.Error):
            cursor = connection.connection.cursor()
            cursor.execute(release)
            cursor.close()
        raise
    if not turn.is_over:
        connection.exec_driver_sql(release)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:48]
