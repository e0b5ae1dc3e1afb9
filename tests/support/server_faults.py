"""Provoke errors of a real server at one statement: a lost connection, or a refused statement."""

from __future__ import annotations

import sqlite3
from typing import Any, NoReturn

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool
from support.people import send

_REFUSED = {"lock timeout": ("55P03", 1205), "deadlock": ("40P01", 1213), "serialization": ("40001", 1213)}
"""Trouble → SQLSTATE of PostgreSQL, and error number of MySQL and MariaDB."""

_administrators: dict[str, Connection] = {}


def lose(engine: Engine, cursor: Any) -> NoReturn:
    """End the connection of *cursor* and its transaction; raise the driver's error for this."""
    connection = cursor.connection
    if engine.name == "sqlite":
        cursor.execute("")  # an open statement would keep the locks of the closed connection
        connection.rollback()
        connection.close()
    elif engine.name == "postgresql":
        end_session(engine, connection.info.backend_pid)
    else:
        end_session(engine, connection.thread_id())
    cursor.execute("SELECT 1")  # fails
    raise AssertionError("the connection is alive")


def refuse(engine: Engine, cursor: Any, trouble: str) -> NoReturn:
    """Make the server refuse a statement, and abort the transaction as after the real error."""
    sqlstate, number = _REFUSED[trouble]
    if engine.name == "sqlite":
        raise sqlite3.OperationalError("database is locked")
    if engine.name == "postgresql":
        cursor.execute(f"DO $$ BEGIN RAISE 'refused by a test' USING ERRCODE = '{sqlstate}'; END $$")
    if trouble == "deadlock":
        cursor.execute("ROLLBACK")  # as MySQL and MariaDB do after a deadlock
    cursor.execute(f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'refused by a test'")
    raise AssertionError("the statement has not failed")


def administrator(engine: Engine) -> Connection:
    """Return a separate connection to the server of *engine*, which all tests of this process share."""
    url = engine.url if engine.name == "postgresql" else engine.url.update_query_dict({"charset": "latin1"})
    name = url.render_as_string(hide_password=False)
    if name not in _administrators:
        made = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        _administrators[name] = made.connect()
    return _administrators[name]


def end_session(engine: Engine, number: int) -> None:
    """End a session, and wait until it has released its locks."""
    own = administrator(engine)
    if engine.name == "postgresql":
        assert send(own, f"SELECT pg_terminate_backend({number}, 10000)").scalar()
        return
    send(own, f"KILL {number}")
    while number in [process.Id for process in send(own, "SHOW PROCESSLIST").all()]:
        pass
