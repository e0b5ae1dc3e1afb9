"""``run_transaction`` where something else fails, or the function does what it should not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from connections import kill, number_of
from marks import on, on_async
from sqlalchemy import Engine, MetaData, create_engine, event, select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, sessionmaker

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, guard
from sqlalchemy_public_id.asyncio import guard as asyncio_guard

pytestmark = pytest.mark.backend

SERVERS = ("postgresql", "mysql", "mariadb")


class Base(DeclarativeBase):
    metadata = MetaData()


class Purse(PublicIdMixin, Base):
    __tablename__ = "purse"
    coins: Mapped[int]


@pytest.fixture(autouse=True)
def _tables(request: pytest.FixtureRequest) -> None:
    if "engine" in request.fixturenames:
        request.getfixturevalue("create")(Base.metadata)


def coins(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(select(Purse.coins).order_by(Purse.id)))


def deadlock(engine: Engine) -> OperationalError:
    """What the database says of a transaction that it gave up."""
    module = engine.dialect.loaded_dbapi
    if engine.name == "postgresql":
        return OperationalError("…", {}, module.errors.DeadlockDetected("deadlock detected"))
    return OperationalError("…", {}, module.OperationalError(1213, "Deadlock found"))


@on(*SERVERS)
@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, SystemExit], ids=lambda raised: raised.__name__)
def test_exceptions_after_the_connection_was_lost(
    raised: type[BaseException], database: str, engine: Engine, new_engine: Callable[..., Engine]
) -> None:
    """An exception of the function goes through, also where there is no connection any more to roll back."""
    other, calls = new_engine(database), []

    def fail(session: Session) -> None:
        calls.append(1)
        session.add(Purse(coins=1))
        session.flush()
        kill(other, number_of(session))
        raise raised

    with pytest.raises(raised):
        guard.run_transaction(sessionmaker(engine), fail)

    assert len(calls) == 1
    assert coins(other) == []


@on_async("postgresql", "mysql", "mariadb")  # a connection to a file cannot be lost
def test_a_cancelled_task(async_engine: AsyncEngine, new_engine: Callable[..., Engine]) -> None:
    """A task that is cancelled is not run again, also where its connection is gone."""
    other, calls = new_engine(async_engine.dialect.name), []

    async def fail(session: AsyncSession) -> None:
        calls.append(1)
        session.add(Purse(coins=1))
        await session.flush()
        await asyncio.to_thread(kill, other, await session.run_sync(number_of))
        raise asyncio.CancelledError

    async def main() -> None:
        try:
            with pytest.raises(asyncio.CancelledError):
                await asyncio_guard.run_transaction(async_sessionmaker(async_engine), fail)
        finally:
            await async_engine.dispose()

    Base.metadata.drop_all(other)
    Base.metadata.create_all(other)
    try:
        asyncio.run(main())
        assert len(calls) == 1
        assert coins(other) == []
    finally:
        Base.metadata.drop_all(other)


@on(*SERVERS)
def test_a_hook_that_fails_after_the_commit(database: str, engine: Engine) -> None:
    """What was committed is not run again, whatever the error of an ``after_commit`` hook looks like."""
    sessions = sessionmaker(engine)

    def hook(session: Session) -> None:
        raise deadlock(engine)

    event.listen(sessions, "after_commit", hook)

    with pytest.raises(OperationalError):
        guard.run_transaction(sessions, lambda session: session.add(Purse(coins=1)))

    assert coins(engine) == [1]


def test_a_savepoint_that_comes_first(engine: Engine) -> None:
    """What was released is undone with the transaction, on SQLite too, whose driver would begin with the savepoint."""

    def fail(session: Session) -> None:
        with session.begin_nested():
            session.add(Purse(coins=5))
        raise ValueError

    with pytest.raises(ValueError):
        guard.run_transaction(sessionmaker(engine), fail)

    assert coins(engine) == []


def test_a_commit_that_goes_past_the_session(engine: Engine) -> None:
    """The function cannot commit by the connection either: nothing is sent, and nothing is left."""

    def commit(session: Session) -> None:
        session.add(Purse(coins=1))
        session.flush()
        session.connection().commit()

    with pytest.raises(ConfigurationError, match="leave the commit"):
        guard.run_transaction(sessionmaker(engine), commit)

    assert coins(engine) == []


def test_engines_that_commit_each_statement(engine: Engine) -> None:
    """AUTOCOMMIT that was said to ``create_engine()`` is refused like that of an execution option."""
    made = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    try:
        with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
            guard.run_transaction(sessionmaker(made), lambda session: session.add(Purse(coins=1)))
    finally:
        made.dispose()

    assert coins(engine) == []


@on("sqlite")
def test_a_program_that_says_begin_itself(database: str, engine: Engine) -> None:
    """The recipe of SQLAlchemy for SQLite, BEGIN by an event, is no AUTOCOMMIT."""

    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    engine.dispose()

    guard.run_transaction(sessionmaker(engine), lambda session: session.add(Purse(coins=3)))

    assert coins(engine) == [3]


def test_a_session_with_work_in_it(engine: Engine) -> None:
    """A session that is in a transaction is refused, and what it has done so far is still there."""
    with Session(engine) as session:
        session.add(Purse(coins=7))
        session.flush()

        with pytest.raises(ConfigurationError, match="in a transaction already"):
            guard.run_transaction(lambda: session, lambda each: each.execute(update(Purse).values(coins=8)))
        session.commit()

    assert coins(engine) == [7]


def test_very_many_attempts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any number of attempts the last error of the database is told, and no other one."""
    from sqlalchemy_public_id import transactions

    monkeypatch.setattr(transactions.time, "sleep", lambda seconds: None)

    def fail(session: Session) -> None:
        raise (
            deadlock(engine)
            if engine.name != "sqlite"
            else OperationalError("…", {}, engine.dialect.loaded_dbapi.OperationalError("database is locked"))
        )

    with pytest.raises(OperationalError, match="gave up after attempt 1200 of 1200"):
        guard.run_transaction(sessionmaker(engine), fail, attempts=1200, timeout=3600)


def test_a_generator_function(engine: Engine) -> None:
    """A function with ``yield`` would do nothing, and is refused."""

    def add(session: Session) -> Any:
        session.add(Purse(coins=1))
        yield

    with pytest.raises(TypeError, match="generator"):
        guard.run_transaction(sessionmaker(engine), add)
