"""Raise an error at one of the statements that an engine sends, or while one waits for a lock."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal

import pytest
from sqlalchemy import Connection, Engine
from support.connections import count_waiting, monitor
from support.private_servers import wait_until

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


_READING = {"readinto", "select", "wait", "wait_epoll", "wait_poll", "wait_select", "wait_selector"}
"""The functions in which PyMySQL and psycopg wait for an answer of the server."""


@contextmanager
def limited_while_locked(engine: Engine, error: type[BaseException]) -> Iterator[None]:
    """Raise *error* from a signal handler as soon as the main thread waits for a statement that waits for a lock.

    After a number of seconds instead, a busy machine may not have sent the statement, or may be calling a finalizer, in
    which Python discards every error. The signal is another one than that of pytest-timeout.
    """
    is_over = threading.Event()

    def raise_limit(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_name in _READING and not is_over.is_set():
            is_over.set()
            raise error

    def send() -> None:
        with monitor(engine) as own:
            wait_until(lambda: is_over.is_set() or count_waiting(own) > 0, "a statement waits for a lock")
        while not is_over.is_set():
            os.kill(os.getpid(), signal.SIGUSR1)
            is_over.wait(0.5)  # psycopg calls no handler while signals arrive more often than every 0.1 s

    before = signal.signal(signal.SIGUSR1, raise_limit)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        is_over.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
