"""Raise an error at one of the statements that an engine sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from sqlalchemy import Connection, Engine

When = Literal["between", "before", "after"]


@contextmanager
def interrupted(
    engine: Engine,
    number: int,
    error: BaseException | type[BaseException] = KeyboardInterrupt,
    when: When = "before",
    only: tuple[str, ...] = ("",),
) -> Iterator[list[str]]:
    """Raise *error* at the statement *number*, counted from 1; yield the statements so far, including this one.

    Only statements that begin with one of the words in *only* count.

    ``"between"`` raises it before SQLAlchemy gets the statement, like a signal in the caller's own code: the
    connection stays open. ``"before"`` raises it instead of calling the driver, and ``"after"`` when the statement has
    taken effect: SQLAlchemy then invalidates the connection, unless *error* is an :class:`Exception`. Statements that
    a retry passes directly to the driver count only for these two.
    """
    sent: list[str] = []

    def count(statement: str) -> bool:
        if not statement.lstrip().startswith(only):
            return False
        sent.append(statement)
        return len(sent) == number

    def between(original: Callable[..., Any]) -> Callable[..., Any]:
        def execute(connection: Connection, statement: Any, *arguments: Any, **options: Any) -> Any:
            if connection.engine.dialect is engine.dialect and count(str(statement)):
                raise error
            return original(connection, statement, *arguments, **options)

        return execute

    def raising(original: Callable[..., None]) -> Callable[..., None]:
        def execute(cursor: Any, statement: str, *arguments: Any, **options: Any) -> None:
            is_now = count(statement)
            if is_now and when == "before":
                raise error
            original(cursor, statement, *arguments, **options)
            if is_now:
                raise error

        return execute

    with pytest.MonkeyPatch.context() as patch:
        if when == "between":
            for name in ("execute", "scalar", "exec_driver_sql"):  # all other methods that execute call one of these
                patch.setattr(Connection, name, between(getattr(Connection, name)))
        else:
            for name in ("do_execute", "do_executemany", "do_execute_no_params"):
                patch.setattr(engine.dialect, name, raising(getattr(engine.dialect, name)))
        yield sent
