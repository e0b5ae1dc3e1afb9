"""Connections of a server, and their end."""

from __future__ import annotations

import time

from sqlalchemy import Engine, text


def own_number(name: str) -> str:
    """SQL for the number of the connection that asks."""
    return "SELECT pg_backend_pid()" if name == "postgresql" else "SELECT connection_id()"


def kill(engine: Engine, number: int) -> None:
    """End a connection, and wait until the server has done so."""
    pg = engine.name == "postgresql"
    table, column = ("pg_stat_activity", "pid") if pg else ("information_schema.processlist", "id")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as own:
        own.exec_driver_sql(f"SELECT pg_terminate_backend({number})" if pg else f"KILL {number}")
        until = time.monotonic() + 30
        while own.scalar(text(f"SELECT count(*) FROM {table} WHERE {column} = {number}")):
            assert time.monotonic() < until
            time.sleep(0.01)
