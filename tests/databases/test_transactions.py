"""``run_transaction``: run again where the database asks for it, and never otherwise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from connections import kill, number_of, own_number
from marks import on
from sqlalchemy import Connection, Engine, MetaData, event, func, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, sessionmaker

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin, guard
from sqlalchemy_public_id.asyncio import guard as asyncio_guard
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
    """End the connection that is the first to commit, before it hears an answer: *committed* after all, or not."""
    left = [engine]

    def committing(connection: Connection) -> None:
        if left:
            left.pop()
            if committed:
                connection.connection.commit()
            # this begins another transaction then, or psycopg would have no COMMIT to send
            kill(other, number_of(connection))

    event.listen(engine, "commit", committing)
    yield
    event.remove(engine, "commit", committing)


def test_commits_what_fn_did(engine: Engine) -> None:
    """The transaction is committed, the session closed, and the answer is that of the function."""
    given: list[Session] = []

    def add(session: Session) -> str:
        given.append(session)
        account = Account(balance=1)
        session.add(account)
        return account.public_id

    public_id = guard.run_transaction(sessionmaker(engine), add)

    with Session(engine) as session:
        assert session.scalars(select(Account.public_id)).all() == [public_id]
    assert [session.in_transaction() for session in given] == [False]


@on(*SERVERS)
def test_deadlocks(database: str, engine: Engine) -> None:
    """Two transactions that change two rows in opposite orders are both done, one of them twice."""
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
                session.execute(
                    update(Account).values(balance=Account.balance + 1).where(Account.public_id == public_id)
                )

        guard.run_transaction(sessionmaker(engine), change)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(add, ID, OTHER_ID), threads.submit(add, OTHER_ID, ID)]:
            done.result(60)

    assert balances(engine) == [2, 2]
    assert len(calls) >= 3


@on("postgresql")
def test_serialization_failures(database: str, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A transaction whose snapshot has become too old begins again, and sees the new state."""
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

    guard.run_transaction(sessionmaker(serializable), add)

    assert seen == [0, 5]
    assert balances(engine) == [6]


LOCK = {"sqlite": "BEGIN IMMEDIATE", "mysql": "SELECT 1 FROM account FOR UPDATE"}
LOCK["mariadb"] = LOCK["mysql"]


@contextmanager
def locked(engine: Engine, impatient: Engine) -> Iterator[Connection]:
    """Keep the table locked, for *impatient* to run into; until the connection is rolled back."""
    if engine.name != "sqlite":
        event.listen(impatient, "connect", lambda raw, _: raw.cursor().execute("SET innodb_lock_wait_timeout = 1"))
    with engine.connect() as connection:
        connection.exec_driver_sql(LOCK[engine.name])
        yield connection


@on("sqlite", "mysql", "mariadb")
def test_locks_that_are_waited_for_in_vain(database: str, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A transaction that could not get a lock in time is run again."""
    impatient = new_engine(database, engine.url, connect_args={"timeout": 0} if database == "sqlite" else {})
    calls = []

    def add(session: Session) -> None:
        calls.append(1)
        if len(calls) == 2:
            blocker.rollback()
        session.add(Account(balance=len(calls)))

    with locked(engine, impatient) as blocker:
        guard.run_transaction(sessionmaker(impatient), add)

    assert balances(engine) == [2]


@on("sqlite")
def test_a_commit_that_finds_the_file_busy(database: str, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A COMMIT that could not be done is rolled back, and comes again with the whole transaction."""
    impatient = new_engine(database, engine.url, connect_args={"timeout": 0})
    calls = []

    def add(session: Session) -> None:
        calls.append(1)
        if len(calls) == 2:
            reader.rollback()
        session.add(Account(balance=len(calls)))
        session.flush()
        if len(calls) == 1:
            reader.exec_driver_sql("BEGIN")
            reader.exec_driver_sql("SELECT 1 FROM account").all()

    with engine.connect() as reader:
        guard.run_transaction(sessionmaker(impatient), add)

    assert balances(engine) == [2]


@on("sqlite")
def test_gives_up(database: str, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """The last error comes after so many attempts, and tells of them."""
    impatient = new_engine(database, engine.url, connect_args={"timeout": 0})
    calls = []

    def add(session: Session) -> None:
        calls.append(1)
        session.add(Account(balance=1))
        session.flush()

    with locked(engine, impatient), pytest.raises(OperationalError) as caught:
        guard.run_transaction(sessionmaker(impatient), add, attempts=3)
    with locked(engine, impatient), pytest.raises(OperationalError, match="gave up after attempt 1 of 10"):
        guard.run_transaction(sessionmaker(impatient), add, timeout=0)

    assert len(calls) == 3 + 1
    assert "gave up after attempt 3 of 3" in str(caught.value)
    assert str(caught.value.orig) == "database is locked"


@on(*SERVERS)
def test_connections_lost_before_the_commit(database: str, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """Nothing was committed, so the transaction is run again on another connection."""
    other = new_engine(database, engine.url)
    calls = []

    def add(session: Session) -> None:
        calls.append(1)
        session.add(Account(balance=len(calls)))
        session.flush()
        if len(calls) == 1:
            kill(other, number_of(session))
        session.add(Account(balance=10))

    guard.run_transaction(sessionmaker(engine), add)

    assert balances(engine) == [2, 10]


@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
@on(*SERVERS)
def test_connections_lost_during_the_commit(
    database: str, committed: bool, engine: Engine, new_engine: Callable[..., Engine]
) -> None:
    """Nobody knows what became of the transaction, so the error says so, and there is no second attempt."""
    calls = []

    def add(session: Session) -> None:
        calls.append(1)
        session.add(Account(balance=1))

    other = new_engine(database, engine.url)
    with lost_at_commit(engine, other, committed=committed), pytest.raises(DBAPIError, match="idempotent=True"):
        guard.run_transaction(sessionmaker(engine), add)

    assert len(calls) == 1
    assert balances(engine) == [1] * committed


@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
@on(*SERVERS)
def test_idempotent(database: str, committed: bool, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """What may be repeated is run again after a COMMIT with an unknown end, and makes one row."""
    created = []

    def add(session: Session) -> None:
        created.append(insert_once(session, Account(public_id=ID, balance=1))[1])

    with lost_at_commit(engine, new_engine(database, engine.url), committed=committed):
        guard.run_transaction(sessionmaker(engine), add, idempotent=True)
    guard.run_transaction(sessionmaker(engine), add, idempotent=True)

    assert balances(engine) == [1]
    assert created == [True, not committed, False]


def test_other_errors_of_the_database(engine: Engine) -> None:
    """A violated constraint is no reason to try again: it goes through, after a rollback."""
    calls = []

    def add(session: Session) -> None:
        calls.append(1)
        session.add_all([Account(public_id=ID, balance=1), Account(public_id=ID, balance=2)])

    with pytest.raises(IntegrityError):
        guard.run_transaction(sessionmaker(engine), add)

    assert balances(engine) == []
    assert len(calls) == 1


def test_exceptions_of_the_function(engine: Engine) -> None:
    """An exception of the function goes through as it is, after a rollback."""
    error = LookupError("mine")

    def add(session: Session) -> None:
        session.add(Account(balance=1))
        session.flush()
        raise error

    with pytest.raises(LookupError) as caught:
        guard.run_transaction(sessionmaker(engine), add)

    assert caught.value is error
    assert balances(engine) == []


def test_a_function_that_commits(engine: Engine) -> None:
    """A commit inside the function is refused before it is sent."""

    def add(session: Session) -> None:
        session.add(Account(balance=1))
        session.commit()

    with pytest.raises(ConfigurationError, match="leave the commit to run_transaction"):
        guard.run_transaction(sessionmaker(engine), add)

    assert balances(engine) == []


def test_savepoints_and_rollbacks_of_the_function(engine: Engine) -> None:
    """The function may use savepoints, and begin its transaction anew."""

    def add(session: Session) -> None:
        session.add(Account(balance=1))
        session.flush()
        session.rollback()
        session.add(Account(balance=2))
        with session.begin_nested():
            session.add(Account(balance=3))

    guard.run_transaction(sessionmaker(engine), add)

    assert balances(engine) == [2, 3]


def test_collisions_are_no_matter_of_the_transaction(engine: Engine) -> None:
    """An id that collides is replaced by the guard, and the function is called once."""
    format = NanoId(length=1, alphabet="01")

    class Own(DeclarativeBase):
        metadata = MetaData()

    class Coin(PublicIdMixin, Own):
        __tablename__ = "coin"
        __public_id__ = format

    Own.metadata.create_all(engine)
    calls = []

    def add(session: Session) -> None:
        calls.append(1)
        session.add(Coin())

    try:
        guard.run_transaction(sessionmaker(engine), add)
        guard.run_transaction(sessionmaker(engine), add)
        with engine.connect() as connection:
            assert connection.scalar(select(func.count()).select_from(Coin)) == 2
    finally:
        Own.metadata.drop_all(engine)
    assert len(calls) == 2


def test_transactions_of_others(engine: Engine) -> None:
    """Inside of a transaction that somebody else began, there is nothing to run again."""
    calls = []

    def fail(session: Session) -> None:
        calls.append(1)
        session.add(Account(balance=1))
        session.flush()
        raise OperationalError("…", {}, engine.dialect.loaded_dbapi.OperationalError(1213, "database is locked"))

    with engine.connect() as connection, connection.begin(), pytest.raises(OperationalError):
        guard.run_transaction(sessionmaker(connection, join_transaction_mode="create_savepoint"), fail)

    assert len(calls) == 1


@on("postgresql", "sqlite")
def test_autocommit(database: str, new_engine: Callable[..., Engine]) -> None:
    """What commits each statement by itself cannot be run again, and is refused."""
    engine = new_engine(database).execution_options(isolation_level="AUTOCOMMIT")

    with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
        guard.run_transaction(sessionmaker(engine), lambda session: session.scalar(select(1)))


def test_async(async_engine: AsyncEngine, new_engine: Callable[..., Engine]) -> None:
    """With an AsyncSession and every asynchronous driver, a lost connection or a busy file is a second attempt too."""
    name = async_engine.dialect.name
    other = new_engine(name, async_engine.url.set(drivername="sqlite") if name == "sqlite" else None)
    calls: list[int] = []

    async def add(session: AsyncSession) -> int:
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
        try:
            return await asyncio_guard.run_transaction(async_sessionmaker(async_engine), add)
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
