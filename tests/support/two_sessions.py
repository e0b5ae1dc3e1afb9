"""A flush inside a flush: a listener that writes with a session of its own on the connection of the flush."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session


@contextmanager
def inner_session(
    model: type[Any],
    write: Callable[[Session], object],
    *,
    when: Literal["before_insert", "after_insert"] = "before_insert",
    **options: Any,
) -> Iterator[None]:
    """Let *write* use another session on the same connection whenever a row of *model* is flushed, as audit logs do.

    Rows that *write* itself flushes call it no more. *options* are those of the session, whose transaction is a
    savepoint; *write* commits it, or it is rolled back.
    """
    is_inside = False

    def listen(mapper: Any, connection: Connection, target: Any) -> None:
        nonlocal is_inside
        if is_inside:
            return
        is_inside = True
        try:
            with Session(connection, join_transaction_mode="create_savepoint", **options) as inner:
                write(inner)
        finally:
            is_inside = False

    event.listen(model, when, listen)
    try:
        yield
    finally:
        event.remove(model, when, listen)
