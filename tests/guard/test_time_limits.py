"""Time limits of task queues: a signal handler raises an exception at any point of the program."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import Engine, delete, func, insert, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from support.interrupt import limited_while_locked
from support.marks import on
from support.members import A, User
from support.ways import Rows, Way, each_way, execute, execute_values, flush

from sqlalchemy_public_id import idempotency

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("members")]


class TimeLimit(Exception):
    """The exception that the handler raises."""


# --- while an INSERT waits for another transaction


def insert_once(session: Session, model: Any, rows: Rows) -> list[Any]:
    return [idempotency.insert_once(session, model(public_id=A, **rows[-1]))]


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("error", [TimeLimit, KeyboardInterrupt])
@pytest.mark.parametrize("rows", [[{"email": "taken"}], [{"email": "free"}, {"email": "taken"}]], ids=["one", "two"])
@each_way(flush, execute, execute_values, insert_once)
def test_limit_while_an_insert_waits(
    database: str,
    engine: Engine,
    new_engine: Callable[..., Engine],
    write: Way,
    rows: Rows,
    error: type[BaseException],
) -> None:
    """After a time limit has interrupted an INSERT that waited for a lock, no row is stored, and the pool works."""
    own = new_engine(database, engine.url, pool_size=1, max_overflow=0, pool_timeout=3)
    with engine.connect() as other:
        other.execute(insert(User.__table__), {"email": "taken"})
        session = Session(own)
        session.connection()
        # drivers raise an error for the ROLLBACK on a connection whose statement was interrupted
        with pytest.raises((error, SQLAlchemyError)), limited_while_locked(engine, error):
            write(session, User, rows)
        with suppress(SQLAlchemyError):
            session.rollback()
        session.close()
        other.rollback()

    for number in range(3):
        with own.begin() as connection:
            assert connection.scalar(select(number)) == number
    with Session(own) as session:
        assert session.scalar(select(func.count()).select_from(User)) == 0


# --- between two lines of insert_once()


PLACES = ("idempotency/__init__.py", "idempotency/backrefs.py", "idempotency/contents.py")


def call_with_limit(engine: Engine, number: int) -> str:
    """Call ``insert_once()``, and raise :class:`TimeLimit` before the *number*-th executed line of :data:`PLACES`.

    The call uses its own session, because a limit that is raised while a ``with`` ends makes the session unusable.

    :returns: the line at which the limit was raised; ``""`` if fewer lines were executed.
    """
    lines, place = 0, ""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines, place
        if event == "call":
            return trace if frame.f_code.co_filename.replace(os.sep, "/").endswith(PLACES) else None
        lines += event == "line"
        if event == "line" and lines == number:
            place = f"{frame.f_code.co_name}, line {frame.f_lineno}"
            raise TimeLimit
        return trace

    before = sys.gettrace()
    with Session(engine) as session:
        session.connection()
        sys.settrace(trace)
        try:
            with suppress(TimeLimit):
                idempotency.insert_once(session, User(public_id=A, email="once"))
        finally:
            sys.settrace(before)
    return place


def locks_of(engine: Engine) -> int:
    """Return how many session-level locks the pool's only connection holds, and release them."""
    if engine.dialect.name not in ("mysql", "mariadb"):
        return 0
    with engine.connect() as connection:
        return connection.scalars(text("SELECT RELEASE_ALL_LOCKS()")).one()


@pytest.mark.parametrize("is_stored", [False, True])
def test_limit_in_insert_once(
    database: str, engine: Engine, new_engine: Callable[..., Engine], is_stored: bool
) -> None:
    """Wherever a time limit interrupts ``insert_once()``, no lock remains, and the next call succeeds."""
    own = new_engine(database, engine.url, pool_size=1, max_overflow=0, pool_timeout=3)
    wrong: list[str] = []
    for number in itertools.count(1):
        with Session(own) as session:
            session.execute(delete(User))
            if is_stored:
                session.add(User(public_id=A, email="once"))
            session.commit()
        place = call_with_limit(own, number)
        if not place:
            break
        if locks_of(own):
            wrong.append(f"a lock stays: {place}")
        with Session(own) as session:
            _, is_new = idempotency.insert_once(session, User(public_id=A, email="once"))
            if is_new is is_stored:
                wrong.append(f"the row has changed: {place}")

    assert number > 20
    assert wrong == []
