"""Advisory locks: an operation holds one for its table, an upgrade one for the database, a backfill one for its rows.

Two processes that change one table at once undo each other's work: each would drop the index that the other one builds.
The lock belongs to the session that does the work, and ends with it. It is asked for again and again, because a session
of PostgreSQL that waits for it has a snapshot, for which ``CREATE INDEX CONCURRENTLY`` waits in turn.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Connection, Text, bindparam, cast, func, text
from sqlalchemy.engine.interfaces import IsolationLevel

from sqlalchemy_public_id.dialects import is_autocommit
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.errors import ConfigurationError, LockNotAvailable
from sqlalchemy_public_id.migrating.nodes import restore
from sqlalchemy_public_id.migrating.poolers import changes_session

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrating")

_CLASS = 1_886_743_908
"""The ``classid`` of our locks in ``pg_locks``: "puid" in ASCII. Their ``objid`` is the table, or 0."""
_LONGEST_PAUSE = 1.0


@contextmanager
def hold_turn(
    connection: Connection, table: str | None = None, schema: str | None = None, *, timeout: float
) -> Generator[bool]:
    """Wait until no other migration works on *table*, or on the database, and keep others out until the block ends.

    Inside a transaction of PostgreSQL, they are kept out until that ends. SQLite has one writer: no lock is needed.

    Yields False behind a pooler that changes the session of PostgreSQL: there is no turn, nor may settings of the
    session be changed.

    :param timeout: how many seconds to wait.
    :raises LockNotAvailable: if the other migration has not ended by then, with the number of its connection.
    """
    lock = _find_lock(connection, table, schema)
    if lock is None:
        yield True
        return
    if lock.is_of_session and connection.dialect.name == "postgresql" and changes_session(connection):
        yield False
        return
    _wait_for(connection, lock, table or str(connection.engine.url.database), timeout)
    try:
        yield True
    finally:
        if lock.is_of_session:
            restore(connection, lock.release)


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
    if connection.dialect.name not in ("postgresql", "mysql", "mariadb"):
        yield
        return
    level = connection.get_isolation_level()
    # not inside a transaction, which would have a snapshot
    with _isolation(connection, "AUTOCOMMIT"), hold_turn(connection, timeout=timeout) as is_held:
        if not is_held:
            log.warning("a pooler changes the session of PostgreSQL, so other processes can migrate at the same time")
        with _isolation(connection, level):
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


@dataclass(frozen=True)
class _Lock:
    """An advisory lock, as statements."""

    take: str
    """Returns true if the lock is taken, without waiting."""
    holder: str
    """Returns the number of the connection that has it."""
    release: str
    is_of_session: bool = True
    """False if it ends with the transaction."""


def _find_lock(connection: Connection, table: str | None, schema: str | None) -> _Lock | None:
    if connection.dialect.name == "postgresql":
        return _find_lock_of_postgresql(connection, table, schema)
    if connection.dialect.name in ("mysql", "mariadb"):
        database = schema or connection.exec_driver_sql("SELECT DATABASE()").scalar()
        name = f"'public_id migration {_digest(database, table)[:40]}'"  # 64 characters at most
        return _Lock(f"SELECT GET_LOCK({name}, 0)", f"SELECT IS_USED_LOCK({name})", f"SELECT RELEASE_LOCK({name})")
    return None


def _find_lock_of_postgresql(connection: Connection, table: str | None, schema: str | None) -> _Lock | None:
    oid = 0
    if table is not None:
        query = text("SELECT CAST(CAST(to_regclass(:name) AS oid) AS bigint)")
        found = connection.scalar(query, {"name": quoted_table(table, schema, connection.dialect)})
        if found is None:
            return None  # the operation is about to say so
        oid = found
    key = (_CLASS << 32) + oid
    is_of_session = is_autocommit(connection)
    return _Lock(
        f"SELECT pg_try_advisory_{'' if is_of_session else 'xact_'}lock({key})",
        f"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid = {_CLASS} "
        f"AND objid = {oid} AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        f"SELECT pg_advisory_unlock({key})",
        is_of_session,
    )


def _wait_for(connection: Connection, lock: _Lock, name: str, timeout: float) -> None:
    began, pause, holder = time.monotonic(), 0.05, None
    while not connection.exec_driver_sql(lock.take).scalar():
        now: Any = connection.exec_driver_sql(lock.holder).scalar()
        if now not in (None, holder):
            holder = now
            log.warning("%s: waiting for another migration of it, which has the connection %s", name, holder)
        if time.monotonic() - began >= timeout:
            raise LockNotAvailable(step="begin", table=name, attempts=1, timeout=timeout, holder=holder)
        pause = min(_LONGEST_PAUSE, pause * 2)
        time.sleep(pause)


# --- one window of a backfill


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
    name = f"SHA2(CONCAT({place}, '{_digest(schema, *parts)}'), 224)"
    if not connection.exec_driver_sql(f"SELECT GET_LOCK({name}, 0)").scalar():
        yield False
        return
    release = f"SELECT RELEASE_LOCK({name})"
    try:
        yield True
    except BaseException:
        restore(connection, release)
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
    digest = bindparam(None, "batch " + _digest(schema, *parts), type_=Text())
    return func.pg_try_advisory_xact_lock(func.hashtextextended(place + digest, 0), type_=Boolean)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:48]
