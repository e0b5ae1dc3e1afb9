"""One process at a time migrates a database: what ``env.py`` calls around an upgrade."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import IsolationLevel

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrating.databases import database_of, is_supported

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrating")


@contextmanager
def take_turn(connection: Connection, *, timeout: float = 3600.0) -> Generator[None]:
    """Let one process at a time migrate the database. The others wait, and find nothing left to do.

    In ``env.py``, it surrounds ``context.configure()`` and ``context.run_migrations()``. The lock belongs to the
    session of *connection*. Behind a pooler that changes sessions there is none, and a warning is logged.

    :param timeout: how many seconds to wait.
    :raises LockNotAvailable: if the other process has not ended by then, with the number of its connection.
    :raises ConfigurationError: if *connection* is inside a transaction.
    """
    if connection.in_transaction():
        raise ConfigurationError(
            "the connection is inside a transaction, in which no other process can be waited for; call take_turn() "
            "with connectable.connect(), and execute nothing before it"
        )
    if not is_supported(connection.dialect) or not database_of(connection.dialect).session.has_turns:
        yield
        return
    level = connection.get_isolation_level()
    with _isolation(connection, "AUTOCOMMIT"):  # not inside a transaction, which would have a snapshot
        session = database_of(connection.dialect).session(connection)
        if not session.is_stable:
            log.warning("a pooler changes the session of PostgreSQL, so other processes can migrate at the same time")
        with session.turn(timeout=timeout), _isolation(connection, level):
            yield


@contextmanager
def _isolation(connection: Connection, level: IsolationLevel) -> Generator[None]:
    before = connection.get_isolation_level()
    connection.rollback()
    connection.execution_options(isolation_level=level)
    try:
        yield
    finally:
        connection.rollback()
        if not connection.invalidated:
            connection.execution_options(isolation_level=before)
