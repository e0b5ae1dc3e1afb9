"""Advisory locks. The server gives up such a lock when its connection ends, or its transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Boolean, ColumnElement, Connection, Text, bindparam, cast, func

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrating.nodes import restore


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
    digest = bindparam(None, "batch " + _digest(repr((schema, *parts))), type_=Text())
    return func.pg_try_advisory_xact_lock(func.hashtextextended(place + digest, 0), type_=Boolean)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:48]
