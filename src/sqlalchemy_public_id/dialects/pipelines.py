"""Statements that psycopg sends together, without waiting for the answer to each: one round trip instead of several."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

_USABLE = (0, 2)
"""IDLE and INTRANS: not in a transaction that has failed."""


def can_pipeline(dbapi_connection: Any) -> bool:
    """Return True if the driver can send statements together, and does not do so already."""
    psycopg: Any = sys.modules.get("psycopg")  # loaded already if the connection is one of psycopg
    driver_connection = getattr(dbapi_connection, "driver_connection", dbapi_connection)
    if psycopg is None or not isinstance(driver_connection, (psycopg.Connection, psycopg.AsyncConnection)):
        return False
    if driver_connection.info.pipeline_status or not psycopg.Pipeline.is_supported():
        return False
    # If the first statement failed because of an earlier error, psycopg would take the next one for prepared.
    return driver_connection.info.transaction_status in _USABLE


@contextmanager
def pipeline(dbapi_connection: Any) -> Generator[None]:
    """Send the statements of the block together; raise the error of the first that fails. Later ones have no effect."""
    psycopg: Any = sys.modules["psycopg"]
    enter, leave = _methods(dbapi_connection)
    errors: list[Any] = []
    enter()
    try:
        yield
    except psycopg.Error as failed:
        errors.append(failed)  # psycopg would log an error for each later statement
    except BaseException:
        leave(*sys.exc_info())
        raise
    try:
        leave(None, None, None)
    except psycopg.Error as failed:
        errors.append(failed)
    if errors:
        error = errors[0]
        while isinstance(error, psycopg.errors.PipelineAborted) and isinstance(error.__context__, psycopg.Error):
            error = error.__context__
        raise error


@contextmanager
def unprepared(driver_connection: Any) -> Generator[None]:
    """Keep psycopg from preparing the statements of the block on the server.

    It does so after some executions. If a statement before it failed in a pipeline, the server has not prepared it,
    and psycopg would not notice. And ROLLBACK TO would make it forget all other prepared statements.
    """
    if not hasattr(driver_connection, "prepare_threshold"):
        yield
        return
    threshold = driver_connection.prepare_threshold
    driver_connection.prepare_threshold = None
    try:
        yield
    finally:
        driver_connection.prepare_threshold = threshold


def _methods(dbapi_connection: Any) -> tuple[Callable[[], object], Callable[..., object]]:
    if not hasattr(dbapi_connection, "run_async"):
        context = dbapi_connection.pipeline()
        return context.__enter__, context.__exit__
    run, own = dbapi_connection.run_async, dbapi_connection.driver_connection.pipeline()

    def enter(_: object) -> Any:
        return own.__aenter__()

    def leave(*error: object) -> object:
        def leave_with(_: object) -> Any:
            return own.__aexit__(*error)

        return run(leave_with)

    return partial(run, enter), leave
