"""Advisory locks. The server gives up such a lock when its connection ends."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection, func, literal_column, select
from sqlalchemy.exc import SQLAlchemyError


@contextmanager
def try_lock(connection: Connection, *parts: object, schema: str | None) -> Generator[bool]:
    """Lock the name that *parts* make within *schema*, or within the usual one; yield False if another process has it.

    On databases without advisory locks, it yields True. A schema has locks of its own, as has another database if such
    a lock is one of the whole server.
    """
    digest = _digest(repr((schema, *parts)))
    if connection.dialect.name == "postgresql":
        place = "''" if schema else "current_schema()"
        number = f"('x' || left(encode(sha256(convert_to({place} || '{digest}', 'UTF8')), 'hex'), 16))::bit(64)::bigint"
        lock, unlock = f"SELECT pg_try_advisory_lock({number})", f"SELECT pg_advisory_unlock({number})"
    elif connection.dialect.name in ("mysql", "mariadb"):
        place = "''" if schema else "DATABASE()"
        name = f"SHA2(CONCAT({place}, '{digest}'), 224)"
        lock, unlock = f"SELECT GET_LOCK({name}, 0)", f"SELECT RELEASE_LOCK({name})"
    else:
        yield True
        return
    if not connection.exec_driver_sql(lock).scalar():
        yield False
        return
    try:
        yield True
    finally:
        connection.exec_driver_sql(unlock)


@contextmanager
def take_turns(connection: Connection, name: str) -> Generator[None]:
    """Wait for others with the same *name* on MySQL and MariaDB.

    If several inserts wait for one uncommitted row there, its rollback is a deadlock: each keeps a lock on the gap, and
    waits for those of the others. With turns, only one waits for the row.
    """
    if connection.dialect.name not in ("mysql", "mariadb"):
        yield
        return
    lock = "public_id_" + _digest(name)  # 64 characters at most
    connection.execute(select(func.get_lock(lock, literal_column("@@innodb_lock_wait_timeout")))).close()
    release = f"DO RELEASE_LOCK('{lock}')"
    try:
        yield
    except BaseException:
        # past SQLAlchemy, whose transaction may have failed; a lost connection has no lock left to release
        with suppress(SQLAlchemyError, connection.dialect.loaded_dbapi.Error):
            cursor = connection.connection.cursor()
            cursor.execute(release)
            cursor.close()
        raise
    connection.exec_driver_sql(release)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:48]
