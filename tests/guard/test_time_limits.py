"""Time limits of task queues: a signal handler raises an exception wherever the program is at that moment."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, String, delete, func, insert, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on
from support.ways import Rows, Way, each_way, execute, execute_values, flush

from sqlalchemy_public_id import PublicIdMixin, idempotency

pytestmark = pytest.mark.backend

ID = "a" * 12


class TimeLimit(Exception):
    """What the handler raises."""


class Base(DeclarativeBase):
    metadata = MetaData()


class Job(PublicIdMixin, Base):
    __tablename__ = "job"
    code: Mapped[str | None] = mapped_column(String(9), unique=True)


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


# --- while an INSERT waits for another transaction


def insert_once(session: Session, model: Any, rows: Rows) -> list[Any]:
    return [idempotency.insert_once(session, model(public_id=ID, **rows[-1]))]


@contextmanager
def time_limit(seconds: float, error: type[BaseException]) -> Iterator[None]:
    """Raise *error* after some *seconds*. The signal is not that of pytest-timeout."""

    def raise_limit(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGUSR1, raise_limit)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR1, before)


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("error", [TimeLimit, KeyboardInterrupt])
@pytest.mark.parametrize("rows", [[{"code": "taken"}], [{"code": "free"}, {"code": "taken"}]], ids=["one", "two"])
@each_way(flush, execute, execute_values, insert_once)
def test_limit_while_an_insert_waits(
    database: str,
    engine: Engine,
    new_engine: Callable[..., Engine],
    write: Way,
    rows: Rows,
    error: type[BaseException],
) -> None:
    """After a limit has ended the wait for another transaction, no row is stored, and the pool works."""
    own = new_engine(database, engine.url, pool_size=1, max_overflow=0, pool_timeout=3)
    with engine.connect() as other:
        other.execute(insert(Job.__table__), {"code": "taken"})
        session = Session(own)
        session.connection()
        # drivers answer the ROLLBACK of a connection whose statement was interrupted with an error
        with pytest.raises((error, SQLAlchemyError)), time_limit(0.2, error):
            write(session, Job, rows)
        with suppress(SQLAlchemyError):
            session.rollback()
        session.close()
        other.rollback()

    for number in range(3):
        with own.begin() as connection:
            assert connection.scalar(select(number)) == number
    with Session(own) as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 0


# --- between two lines of insert_once()


PLACES = ("idempotency/__init__.py", "idempotency/backrefs.py", "idempotency/contents.py")


class Limit:
    """Raises a :class:`TimeLimit` before the line *number* that is executed of :data:`PLACES`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lines = 0
        self.place = ""

    def __enter__(self) -> Limit:
        self._before = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._on_line if frame.f_code.co_filename.replace(os.sep, "/").endswith(PLACES) else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.lines += event == "line"
        if event == "line" and self.lines == self.number:
            self.place = f"{frame.f_code.co_name}, line {frame.f_lineno}"
            raise TimeLimit
        return self._on_line


def call_with_limit(engine: Engine, limit: Limit) -> None:
    """Call ``insert_once()`` in a session of its own: one that a limit leaves in the end of a ``with`` is lost."""
    with Session(engine) as session:
        session.connection()
        with suppress(TimeLimit), limit:
            idempotency.insert_once(session, Job(public_id=ID, code="once"))


def locks_of(engine: Engine) -> int:
    """Return the number of locks that the one connection of the pool keeps beyond a transaction, and release them."""
    if engine.dialect.name not in ("mysql", "mariadb"):
        return 0
    with engine.connect() as connection:
        return connection.scalars(text("SELECT RELEASE_ALL_LOCKS()")).one()


@pytest.mark.parametrize("is_stored", [False, True])
def test_limit_in_insert_once(
    database: str, engine: Engine, new_engine: Callable[..., Engine], is_stored: bool
) -> None:
    """Wherever a limit ends ``insert_once()``, no lock stays, and the next call succeeds."""
    own = new_engine(database, engine.url, pool_size=1, max_overflow=0, pool_timeout=3)
    wrong: list[str] = []
    number, limit = 0, Limit(0)
    while number == 0 or limit.place:
        number, limit = number + 1, Limit(number + 1)
        with Session(own) as session:
            session.execute(delete(Job))
            if is_stored:
                session.add(Job(public_id=ID, code="once"))
            session.commit()
        call_with_limit(own, limit)
        if limit.place and locks_of(own):
            wrong.append(f"a lock stays: {limit.place}")
        with Session(own) as session:
            _, is_new = idempotency.insert_once(session, Job(public_id=ID, code="once"))
            if is_new is is_stored:
                wrong.append(f"the row has changed: {limit.place}")

    assert number > 20
    assert wrong == []
