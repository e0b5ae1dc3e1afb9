"""Leases and forks: a fork waits for a lease in a SQLite file, and no child holds the socket of a lease.

**SQLite** keeps the file locks of a process in its memory. A child finds them there without the means to release them,
so it would see the file locked for ever.

**A server** rolls back a transaction when it sees the end of its connection, and it sees none while any process has the
socket. So a child must not hold the socket of a lease. A connection opened before a fork is not used for leases after
it (:func:`connect`). A lease under way at a fork goes on in the parent, and the child closes its copy of the socket
(:func:`drop_sockets`). Numbers in memory are reset by ``formats/pool.py``.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

from sqlalchemy import Connection, Engine, event

# --- files: the fork waits


class HoldsForks(Protocol):
    """A lessor whose leases forks wait for."""

    fork_lock: threading.Lock
    """Held during a lease; a new one in a child."""


_SECONDS = 1.0
"""The longest wait of a fork."""

_holding: WeakSet[HoldsForks] = WeakSet()
_forks = 0
_is_registered = False
_of_thread = threading.local()
"""The locks that this thread acquired for its fork."""


def hold_forks_for(lessor: HoldsForks) -> None:
    """Let each fork of this process wait for the lease of *lessor* under way, as long as *lessor* lives."""
    _register()
    _holding.add(lessor)


def _register() -> None:
    global _is_registered
    if not _is_registered:  # with the first allocator, not at import
        _is_registered = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)


def _before_fork() -> None:
    global _forks
    _forks += 1  # before and after: another thread may open a connection during the fork
    end = time.monotonic() + _SECONDS
    locks = [lessor.fork_lock for lessor in list(_holding)]
    _of_thread.locks = [lock for lock in locks if lock.acquire(timeout=max(end - time.monotonic(), 0))]


def _after_fork() -> None:
    global _forks
    _forks += 1
    for lock in _of_thread.locks:
        lock.release()
    _of_thread.locks = []


# --- servers: no child holds the socket

_FORKS = "sqlalchemy_public_id.forks"
"""The key in ``Connection.info`` of the number of forks when the connection was opened."""

_MOST_INVALIDATED = 100
"""The most old connections of a pool that one lease closes."""


def count_forks(engine: Engine) -> None:
    """Mark each connection that *engine* opens from now on, so that a later fork is noticed."""
    _register()
    if not event.contains(engine, "connect", _mark):
        event.listen(engine, "connect", _mark)


def _mark(_: Any, record: Any) -> None:
    record.info[_FORKS] = _forks


def connect(engine: Engine, leasing: WeakSet[Connection]) -> Connection:
    """Return a connection of *engine* that no child holds, and add it to *leasing*."""
    before = _forks
    connection = engine.connect()
    leasing.add(connection)  # first of all: a fork in the loop below finds it
    try:
        for _ in range(_MOST_INVALIDATED):
            # Without a mark, it was opened before forks were counted. With another mark, it was opened before a fork
            # or during one.
            if connection.info.get(_FORKS) == before == _forks:
                break
            before = _forks
            connection.invalidate()  # closes it; the pool hands out another one, which may be as old
    except BaseException:
        connection.close()
        raise
    return connection


def drop_sockets(leasing: WeakSet[Connection]) -> None:
    """Take the sockets of *leasing* away from this process, a forked child, without a word to the server."""
    for connection in list(leasing):
        if connection.closed or connection.invalidated:
            continue
        with suppress(Exception):  # the driver hides its socket, or has closed it
            descriptor = _descriptor_of(connection.connection.driver_connection)
            # The descriptor stays in use, by a socket whose other end is closed. The driver finds it broken and closes
            # that one, not a file that has got the same number since.
            end, other = socket.socketpair()
            other.close()
            os.dup2(end.fileno(), descriptor, inheritable=False)
            end.close()
    leasing.clear()


def _descriptor_of(driver_connection: Any) -> int:
    if hasattr(driver_connection, "fileno"):  # psycopg, psycopg2
        return int(driver_connection.fileno())
    for name in ("_sock", "_transport", "_writer"):  # PyMySQL and asyncmy; asyncpg; aiomysql
        holder = getattr(driver_connection, name, None)
        if holder is not None:
            held = holder.get_extra_info("socket") if hasattr(holder, "get_extra_info") else holder
            return int(held.fileno())
    raise LookupError(type(driver_connection).__name__)
