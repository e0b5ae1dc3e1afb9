"""Let connections that insert the same row take turns, on MySQL and MariaDB."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, literal_column, select
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_public_id.dialects import execute_unlogged, traits_for
from sqlalchemy_public_id.dialects.mysql import MySQL


class Turn:
    """A lock that :func:`take_turns` releases at its end, unless a statement has evaluated :attr:`release` before."""

    def __init__(self, lock: str | None) -> None:
        self.is_over: bool = lock is None
        """True if a statement has evaluated :attr:`release`."""
        self.release: list[ColumnElement[Any]] = [] if lock is None else [func.release_lock(lock)]
        """The expression that releases the lock, if there is one."""


@contextmanager
def take_turns(connection: Connection, name: str) -> Generator[Turn]:
    """Wait for other connections that hold the turn of this *name*, on MySQL and MariaDB.

    If several INSERTs wait for one uncommitted row there, its rollback makes them deadlock: each holds a lock on the
    gap and waits for the others. With turns, only one INSERT waits for the row.
    """
    if not isinstance(traits_for(connection.dialect), MySQL):
        yield Turn(None)
        return
    lock = "public_id_" + hashlib.sha256(name.encode()).hexdigest()[:48]  # GET_LOCK takes 64 characters at most
    release = f"DO RELEASE_LOCK('{lock}')"
    turn = Turn(lock)
    try:  # a timeout may end the wait just when the lock was granted
        connection.execute(select(func.get_lock(lock, literal_column("@@innodb_lock_wait_timeout")))).close()
        yield turn
        if not turn.is_over:
            connection.exec_driver_sql(release)
    except BaseException:
        try:
            # bypasses SQLAlchemy, whose transaction may have failed; a lost connection has no lock left to release
            execute_unlogged(connection.connection, release)
        except BaseException as error:
            # with the lock, the connection must not be used by others, who would keep it without knowing
            connection.invalidate()
            if not isinstance(error, (SQLAlchemyError, connection.dialect.loaded_dbapi.Error)):
                raise
        raise
