"""Which errors say that a transaction may be run again: real deadlocks, locks, snapshots and lost connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, event, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, sessionmaker
from support.connections import kill, number_of, own_number
from support.marks import on
from support.retrying import run_transaction
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

from sqlalchemy_public_id import PublicIdMixin, guard
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend

ID, OTHER_ID = "izkpm55j334u", "8w0tnq3c5yzd"
SERVERS = ("postgresql", "mysql", "mariadb")


class Base(DeclarativeBase):
    metadata = MetaData()


class Account(PublicIdMixin, Base):
    __tablename__ = "account"
    balance: Mapped[int]


@pytest.fixture(autouse=True)
def _tables(request: pytest.FixtureRequest) -> None:
    if "engine" in request.fixturenames:
        request.getfixturevalue("create")(Base.metadata)


def balances(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(select(Account.balance).order_by(Account.id)))


@contextmanager
def lost_at_commit(engine: Engine, other: Engine, *, committed: bool) -> Iterator[None]:
    """End the connection that commits first before it gets an answer, with its transaction *committed* or not."""
    left = [engine]

    def committing(connection: Connection) -> None:
        if left:
            left.pop()
            if committed:
                connection.connection.commit()
            # number_of() begins another transaction, without which psycopg would send no COMMIT
            kill(other, number_of(connection))

    event.listen(engine, "commit", committing)
    yield
    event.remove(engine, "commit", committing)


@on(*SERVERS)
@pytest.mark.parametrize("is_nested", [False, True], ids=["transaction", "savepoint"])
def test_deadlocks(engine: Engine, is_nested: bool) -> None:
    """Two transactions that update two rows in opposite order both complete, one of them on its second attempt.

    The deadlock is recognized although ``begin_nested()`` failed after it, because its savepoint was gone.
    """
    with Session(engine) as session:
        session.add_all([Account(public_id=ID, balance=0), Account(public_id=OTHER_ID, balance=0)])
        session.commit()
    both, calls = threading.Barrier(2), []

    def add(*ids: str) -> None:
        def change(session: Session) -> None:
            calls.append(ids)
            for number, public_id in enumerate(ids):
                if number and len(calls) <= 2:
                    both.wait(30)
                with session.begin_nested() if number and is_nested else nullcontext():
                    session.execute(
                        update(Account).values(balance=Account.balance + 1).where(Account.public_id == public_id)
                    )

        run_transaction(sessionmaker(engine), change)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(add, ID, OTHER_ID), threads.submit(add, OTHER_ID, ID)]:
            done.result(60)

    assert balances(engine) == [2, 2]
    assert len(calls) >= 3


@on("postgresql")
def test_serialization_failures(database: str, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A transaction whose snapshot is too old is run again, and sees the new state."""
    with Session(engine) as session:
        session.add(Account(public_id=ID, balance=0))
        session.commit()
    serializable = new_engine(database, engine.url, isolation_level="SERIALIZABLE")
    seen: list[int] = []

    def add(session: Session) -> None:
        account = session.scalars(select(Account)).one()
        seen.append(account.balance)
        if len(seen) == 1:
            with engine.begin() as other:
                other.execute(update(Account).values(balance=5))
        account.balance = account.balance + 1

    run_transaction(sessionmaker(serializable), add)

    assert seen == [0, 5]
    assert balances(engine) == [6]


LOCK = {"sqlite": "BEGIN IMMEDIATE", "mysql": "SELECT 1 FROM account FOR UPDATE"}
LOCK["mariadb"] = LOCK["mysql"]


@contextmanager
def locked(engine: Engine, impatient: Engine) -> Iterator[Connection]:
    """Keep the table locked until the connection is rolled back, so that *impatient* waits for it in vain."""
    if engine.name != "sqlite":
        event.listen(impatient, "connect", lambda raw, _: raw.cursor().execute("SET innodb_lock_wait_timeout = 1"))
    with engine.connect() as connection:
        connection.exec_driver_sql(LOCK[engine.name])
        yield connection


@on("sqlite", "mysql", "mariadb")
def test_locks_that_are_waited_for_in_vain(database: str, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A transaction that does not get a lock in time is run again."""
    impatient = new_engine(database, engine.url, connect_args={"timeout": 0} if database == "sqlite" else {})
    calls = []

    def add(session: Session) -> None:
        calls.append(1)
        if len(calls) == 2:
            blocker.rollback()
        session.add(Account(balance=len(calls)))

    with locked(engine, impatient) as blocker:
        run_transaction(sessionmaker(impatient), add)

    assert balances(engine) == [2]


@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
@on(*SERVERS)
def test_connections_lost_during_the_commit(
    database: str, committed: bool, engine: Engine, new_engine: Callable[..., Engine]
) -> None:
    """A transaction whose outcome is unknown is not run again."""
    calls = []

    def add(session: Session) -> None:
        calls.append(1)
        session.add(Account(balance=1))

    other = new_engine(database, engine.url)
    with lost_at_commit(engine, other, committed=committed), pytest.raises(DBAPIError):
        run_transaction(sessionmaker(engine), add)

    assert len(calls) == 1
    assert balances(engine) == [1] * committed


@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
@on(*SERVERS)
def test_idempotent(database: str, committed: bool, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """An idempotent transaction is run again after a COMMIT with an unknown outcome, and inserts one row."""
    created = []

    def add(session: Session) -> None:
        created.append(insert_once(session, Account(public_id=ID, balance=1))[1])

    with lost_at_commit(engine, new_engine(database, engine.url), committed=committed):
        run_transaction(sessionmaker(engine), add, idempotent=True)
    run_transaction(sessionmaker(engine), add, idempotent=True)

    assert balances(engine) == [1]
    assert created == [True, not committed, False]


def test_async(async_engine: AsyncEngine, new_engine: Callable[..., Engine]) -> None:
    """The error of a lost connection, or of a busy file, is recognized with every asynchronous driver."""
    name = async_engine.dialect.name
    other = new_engine(name, async_engine.url.set(drivername="sqlite") if name == "sqlite" else None)
    calls: list[int] = []

    async def add() -> int:
        async with AsyncSession(async_engine) as session, session.begin():
            calls.append(1)
            session.add(Account(balance=len(calls)))
            if name != "sqlite":
                await session.flush()
                if len(calls) == 1:
                    number: Any = await session.scalar(text(own_number(name)))
                    await asyncio.to_thread(kill, other, number)
            elif len(calls) == 2:
                blocker.rollback()
            session.add(Account(balance=10))
        return len(calls)

    async def main() -> int:
        retryable = retry_if_exception(partial(guard.is_retryable, idempotent=name != "sqlite"))
        try:
            return await AsyncRetrying(retry=retryable, stop=stop_after_attempt(3), reraise=True)(add)
        finally:
            await async_engine.dispose()

    Base.metadata.drop_all(other)
    Base.metadata.create_all(other)
    with other.connect() as blocker:
        if name == "sqlite":
            blocker.exec_driver_sql("BEGIN IMMEDIATE")
            event.listen(
                async_engine.sync_engine, "connect", lambda raw, _: raw.cursor().execute("PRAGMA busy_timeout=0")
            )
        assert asyncio.run(main()) == 2
    assert balances(other) == [2, 10]
    Base.metadata.drop_all(other)
