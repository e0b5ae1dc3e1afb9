"""Find and end the connections of a server, and see what they execute."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from support.private_servers import wait_until


def own_number(name: str) -> str:
    """Return an SQL expression for the number of the connection that executes it."""
    return "SELECT pg_backend_pid()" if name == "postgresql" else "SELECT connection_id()"


def number_of(session: Session | Connection) -> int:
    """Return the number of the connection that *session* has."""
    bind = session.get_bind() if isinstance(session, Session) else session
    return session.scalar(text(own_number(bind.dialect.name))) or 0


@contextmanager
def monitor(engine: Engine) -> Iterator[Connection]:
    """Open a connection that can read the statements of all others, even if these contain bytes that are not text."""
    url = engine.url if engine.name == "postgresql" else engine.url.update_query_dict({"charset": "latin1"})
    own = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with own.connect() as connection:
        yield connection


def processes(connection: Connection) -> list[Any]:
    """Return the connections of MySQL or MariaDB to this database; *connection* is that of :func:`monitor`.

    Other tests use other databases of the same server at the same time, and their statements wait as well.
    MySQL refuses to read ``information_schema.processlist`` while another connection sends bytes that are not text
    (error 3854).
    """
    database = connection.engine.url.database
    return [each for each in connection.exec_driver_sql("SHOW PROCESSLIST").all() if each.db == database]


_LOCK_WAIT = re.compile(r"^LOCK WAIT .*?thread id (\d+),", re.MULTILINE | re.DOTALL)
"""A transaction in the report of InnoDB, whose table ``innodb_trx`` is not refreshed while anybody reads it often."""


def count_waiting(connection: Connection) -> int:
    """Return how many statements in this database wait for a lock; *connection* is that of :func:`monitor`."""
    if connection.dialect.name == "postgresql":
        return int(
            connection.exec_driver_sql(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            ).scalar()
        )
    report: str = connection.exec_driver_sql("SHOW ENGINE INNODB STATUS").one().Status
    waiting = {*map(int, _LOCK_WAIT.findall(report))}
    return sum(process.Id in waiting or process.State == "User lock" for process in processes(connection))


def is_alive(connection: Connection, number: int) -> bool:
    """Return True if the server has the connection *number*; *connection* is that of :func:`monitor`."""
    if connection.dialect.name == "postgresql":
        return bool(connection.scalar(text(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {number}")))
    return number in [process.Id for process in processes(connection)]


def kill(engine: Engine, number: int) -> None:
    """End a connection, and wait until the server has done so."""
    with monitor(engine) as own:
        own.exec_driver_sql(
            f"SELECT pg_terminate_backend({number})" if engine.name == "postgresql" else f"KILL {number}"
        )
        wait_until(lambda: not is_alive(own, number), f"the end of connection {number}", seconds=30)
