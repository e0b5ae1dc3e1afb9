"""Sockets that forked children inherit, and for which the server keeps the locks of a killed parent.

A server undoes a transaction when it sees the end of its connection, and no end is seen while any process has the
socket. So no child may hold the one of a lease. A connection that was opened before a fork is not used for leases after
it: see :func:`connect`. A lease that is under way at a fork goes on in the parent, and in the child its socket is taken
away: see :func:`let_go`.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection, Engine, event

__all__ = ["connect", "count_forks", "let_go"]

_FORKS = "sqlalchemy_public_id.forks"
"""The key of :attr:`Connection.info` under which stands the value of ``_forks`` when it was opened."""

_OLD = 100
"""How many old connections of a pool are closed at most, for one lease."""

_forks = 0
"""Another number before and after each fork: threads open connections while one of them forks."""
_counting = False


def count_forks(engine: Engine) -> None:
    """Mark each connection that *engine* opens from now on, so that a fork since then is noticed."""
    global _counting
    if not _counting:
        _counting = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_count, after_in_parent=_count)
    if not event.contains(engine, "connect", _mark):
        event.listen(engine, "connect", _mark)


def _count() -> None:
    global _forks
    _forks += 1


def _mark(_: Any, record: Any) -> None:
    record.info[_FORKS] = _forks


def connect(engine: Engine, leasing: WeakSet[Connection]) -> Connection:
    """Return a connection of *engine* that no child holds; it is one of *leasing* before it can be inherited again."""
    before = _forks
    connection = engine.connect()
    leasing.add(connection)
    try:
        for _ in range(_OLD):
            # not marked: opened before this was counted; marked, and a fork since then: maybe opened during that fork
            if connection.info.get(_FORKS) == before == _forks:
                break
            before = _forks
            connection.invalidate()  # closed, and the pool gives another one, an old one too if it has any
    except BaseException:
        connection.close()
        raise
    return connection


def let_go(leasing: WeakSet[Connection]) -> None:
    """Take the sockets of *leasing* away from this process, a forked child, and send nothing.

    The number of the socket stays in use, by a socket whose other end is closed: what still has the connection finds it
    broken, and closes that one instead of a file that has got the same number since.
    """
    for connection in list(leasing):
        if connection.closed or connection.invalidated:
            continue
        with suppress(Exception):  # a driver that hides its socket, or has none any more
            number = _socket_of(connection.connection.driver_connection)
            end, other = socket.socketpair()
            other.close()
            os.dup2(end.fileno(), number, inheritable=False)
            end.close()
    leasing.clear()


def _socket_of(driver: Any) -> int:
    """Return the number of the socket that *driver* has, a connection of a database driver."""
    if hasattr(driver, "fileno"):  # psycopg, psycopg2
        return int(driver.fileno())
    for name in ("_sock", "_transport", "_writer"):  # PyMySQL and asyncmy; asyncpg; aiomysql
        holder = getattr(driver, name, None)
        if holder is not None:
            held = holder.get_extra_info("socket") if hasattr(holder, "get_extra_info") else holder
            return int(held.fileno())
    raise LookupError(type(driver).__name__)
