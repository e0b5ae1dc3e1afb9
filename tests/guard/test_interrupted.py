"""What an interrupted retry leaves behind, and what the caller sees when the connection is lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, func, insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session
from support.async_sessions import session_on
from support.connections import kill, number_of
from support.interrupt import interrupted
from support.marks import on, on_async
from support.members import A, B, Base, C, D, User
from support.ways import Rows, Way, each_way, execute, execute_returning, execute_values, flush, insert_in_bulk

from conftest import url_of
from sqlalchemy_public_id import guard, testing

pytestmark = [pytest.mark.backend, pytest.mark.slow]


ROWS: Rows = [{"name": str(number)} for number in range(3)]


def flush_one(session: Session, model: Any, rows: Rows) -> list[Any]:
    return flush(session, model, rows[:1])


ALL_WAYS = each_way(flush_one, flush, execute, execute_values, execute_returning)


@pytest.fixture
def stored(members: None, engine: Engine) -> None:
    """Store one row, whose id will be generated again."""
    with Session(engine) as session:
        session.add(User(public_id=A))
        session.commit()


@contextmanager
def before_call(number: int, engine: Engine, act: Callable[[], None], *, after: bool = False) -> Iterator[None]:
    """Call *act* right before, or after, the *number*-th statement is passed to the driver."""
    dialect, calls = engine.dialect, 0

    def acting(original: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **options: Any) -> None:
            nonlocal calls
            calls += 1
            now = calls == number
            if now and not after:
                act()
            original(*args, **options)
            if now and after:
                act()

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in ("do_execute", "do_executemany"):
            patch.setattr(dialect, name, acting(getattr(dialect, name)))
        yield


# --- interrupted


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Disable the garbage collector, so that only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def begin_immediate(engine: Engine) -> None:
    event.listen(engine, "connect", lambda connection, record: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))


@on("sqlite")
@ALL_WAYS
@pytest.mark.parametrize("after", [False, True], ids=["before the statement", "after it"])
@pytest.mark.usefixtures("stored", "no_collector")
def test_interrupt_frees_the_file(new_engine: Callable[..., Engine], engine: Engine, write: Way, after: bool) -> None:
    """A KeyboardInterrupt in a retry leaves no lock on the file."""
    own = new_engine("sqlite", engine.url, connect_args={"timeout": 0})
    begin_immediate(own)
    with Session(own) as session:
        session.connection()
        # the second statement is the retried INSERT, or the SELECT that finds out which ids have collided
        when = "after" if after else "before"
        with interrupted(own, 2, when=when), testing.fixed_ids(User, A), pytest.raises(KeyboardInterrupt):
            write(session, User, ROWS)
    with Session(own) as session:
        session.add(User())
        session.commit()
        assert session.scalar(select(func.count()).select_from(User)) == 2


@on_async("sqlite")
@each_way(flush_one, execute)
@pytest.mark.usefixtures("no_collector")
def test_cancelled_task_frees_the_file(async_engine: AsyncEngine, write: Way) -> None:
    """A task that is cancelled while a retry waits for the database leaves no lock on the file."""

    async def main() -> None:
        begin_immediate(async_engine.sync_engine)
        async with async_engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            await connection.execute(insert(User).values(public_id=A))

        async def work() -> None:
            task: Any = asyncio.current_task()
            async with AsyncSession(async_engine) as session:
                await session.connection()
                with before_call(2, async_engine.sync_engine, task.cancel), testing.fixed_ids(User, A):
                    await session.run_sync(write, User, ROWS)

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(work())
        async with async_engine.execution_options(logging_token="other").begin() as connection:
            await connection.exec_driver_sql("PRAGMA busy_timeout = 0")
            await connection.execute(insert(User).values(name="other"))
            assert await connection.scalar(select(func.count()).select_from(User)) == 2
        await async_engine.dispose()

    asyncio.run(main())


class InterruptedOnce(type):
    """A metaclass that interrupts SQLAlchemy while it copies the listeners of ``Session`` to a subclass."""

    rest = 0
    """How many more times SQLAlchemy asks for the bases of a class until then; 0 for never."""

    def __getattribute__(cls, name: str) -> Any:
        if name == "__mro__" and InterruptedOnce.rest:
            InterruptedOnce.rest -= 1
            if not InterruptedOnce.rest:
                raise KeyboardInterrupt
        return super().__getattribute__(name)


@each_way(flush_one, flush, insert_in_bulk)
def test_interrupt_in_the_first_session_of_a_class(
    stored: None, engine: Engine, new_engine: Callable[..., Engine], write: Way
) -> None:
    """A collision is retried also if a signal has made sessions of a class lack any event of ``Session``.

    A history of 29 November 2026 (seed 520869) had a limit of time in the first session of a process.
    """
    for number in count(1):

        class OwnSession(Session, metaclass=InterruptedOnce): ...

        InterruptedOnce.rest = number
        with suppress(KeyboardInterrupt):
            OwnSession(engine).close()
        if InterruptedOnce.rest:  # all events have been tried
            InterruptedOnce.rest = 0
            break
        with OwnSession(new_engine(engine.name, engine.url)) as session, testing.fixed_ids(User, A, B, C, D):
            write(session, User, ROWS)
    assert number > 20


# --- listeners of the program


class Stop(Exception): ...


def test_listener_that_raises(stored: None, engine: Engine) -> None:
    """An error that a listener raises for a statement of the guard reaches the caller; the transaction can go on."""
    guard.install(engine)

    @event.listens_for(engine, "before_cursor_execute")
    def refuse(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("SELECT"):
            raise Stop

    with engine.begin() as connection:
        with testing.fixed_ids(User, A), pytest.raises(Stop):
            connection.execute(insert(User.__table__).values(ROWS))
        event.remove(engine, "before_cursor_execute", refuse)
        assert connection.scalar(select(func.count()).select_from(User)) == 1
        connection.execute(insert(User.__table__).values(name="other"))
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(User)) == 2


# --- lost connections


def lose_and_go_on(session: Session, engine: Engine, write: Way, call: int, *, after: bool = False) -> None:
    """Lose the connection at a statement of a retry: the caller gets an error, and can begin a new transaction."""
    session.add(User(public_id=A))
    session.commit()
    number, other = number_of(session), create_engine(url_of(engine.dialect.name))
    lose = before_call(call, engine, lambda: kill(other, number), after=after)
    lost = None
    with lose, testing.fixed_ids(User, A):
        try:
            write(session, User, ROWS)
        except DBAPIError as error:
            lost = error
    session.rollback()

    assert lost.connection_invalidated if lost else call > 2  # the retry sent fewer statements
    assert session.scalar(select(func.count()).select_from(User)) == 1
    session.add(User())
    session.commit()


@on("postgresql", "mysql", "mariadb")
@ALL_WAYS
@pytest.mark.parametrize("call", [2, 3, 4, 5])
def test_lost_connection(members: None, session: Session, engine: Engine, write: Way, call: int) -> None:
    """A connection lost during a retry raises an error that says so, rather than one about the transaction."""
    lose_and_go_on(session, engine, write, call)


@on("postgresql")
@pytest.mark.parametrize("call", [1, 3])
def test_connection_lost_before_a_savepoint(members: None, session: Session, engine: Engine, call: int) -> None:
    """A connection that the guard's own SAVEPOINT or RELEASE finds lost raises the same error."""
    lose_and_go_on(session, engine, flush_one, call, after=True)


@on_async("postgresql", "mysql", "mariadb")
@each_way(flush_one, execute_values)
def test_lost_connection_of_each_driver(async_engine: AsyncEngine, write: Way) -> None:
    """A connection lost during a retry raises the same error with the asynchronous drivers."""

    async def story() -> None:
        async with session_on(async_engine, Base.metadata) as session:
            await session.run_sync(lose_and_go_on, async_engine.sync_engine, write, 2)

    asyncio.run(story())
