"""The main cases of collisions with every driver, sync and async, because each driver reports them differently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, String, func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.async_sessions import session_on
from support.rows import agree, stored

from sqlalchemy_public_id import NanoId, PublicIdCollision, PublicIdMixin, bulk, guard, testing
from sqlalchemy_public_id.asyncio import bulk as async_bulk

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId()
    name: Mapped[str | None] = mapped_column(String(50))
    email: Mapped[str | None] = mapped_column(String(50), unique=True)


class Tiny(PublicIdMixin, Base):
    """A model with only thirty-six possible ids."""

    __tablename__ = "tiny"
    __public_id__ = NanoId(length=1)
    number: Mapped[int | None]


A = "a" * 12
tiny = Tiny.__table__


def flush(session: Session, objects: list[Any]) -> None:
    session.add_all(objects)
    session.flush()


def numbered(*numbers: int) -> list[Any]:
    return [Tiny(number=number) for number in range(*numbers)]


def numbers_of(session: Session) -> list[int | None]:
    return list(session.scalars(select(Tiny.number).order_by(Tiny.number)))


def names(session: Session) -> dict[int, str | None]:
    table = User.__table__
    return dict(session.connection().execute(select(table.c.id, table.c.name)).all())


def committed_row(session: Session) -> None:
    """A row that collides with a committed one gets another id."""
    flush(session, [User(name="first", public_id=A)])
    session.commit()
    with testing.collisions(User, A, times=3):
        second = User(name="second")
        flush(session, [second])
    session.commit()

    assert second.public_id != A
    agree(session, [second])


def same_transaction(session: Session) -> None:
    """A collision keeps the earlier writes of the transaction, and its savepoint."""
    first = User(name="first", public_id=A)
    flush(session, [first])
    with session.begin_nested(), testing.collisions(User, A):
        second = User(name="second")
        flush(session, [second])
    session.commit()

    agree(session, [first, second])


def same_batch(session: Session) -> None:
    """Objects of one flush with the same id, or with the id of a stored row, get distinct ids."""
    flush(session, [User(name="first", public_id=A)])
    users = [User(name=str(number)) for number in range(5)]
    with testing.fixed_ids(User, A, "b" * 12, A, "b" * 12, A):
        flush(session, users)

    agree(session, users)
    assert {user.id: user.name for user in users}.items() <= names(session).items()


def nearly_full_space(session: Session) -> None:
    """Thirty-six rows get all thirty-six ids, one by one, in batches and by ``bulk.insert``."""
    objects = numbered(36)
    for each in objects[:12]:
        flush(session, [each])
    flush(session, objects[12:24])
    bulk.insert(session, objects[24:])

    agree(session, objects)


def full_space(session: Session) -> None:
    """If no id is left, ``PublicIdCollision`` is raised, and the transaction stays usable."""
    flush(session, numbered(36))
    for count in (1, 3):
        with pytest.raises(PublicIdCollision) as caught, session.begin_nested():
            flush(session, numbered(count))
        assert caught.value.capacity == 36
    flush(session, [User(name="after")])
    session.commit()

    assert (len(stored(session, Tiny)), len(stored(session, User))) == (36, 1)


def other_constraint(session: Session) -> None:
    """A duplicate in another column raises ``IntegrityError``, even in a row whose id also collides."""
    flush(session, [User(public_id=A, email="a@example.org")])
    for count in (1, 3):
        with testing.collisions(User, A), pytest.raises(IntegrityError, match="email"), session.begin_nested():
            flush(session, [User(email="a@example.org") for _ in range(count)])
    session.commit()

    assert list(stored(session, User).values()) == [A]


def given_duplicate(session: Session) -> None:
    """An id from the caller is not replaced, alone or among generated ids."""
    flush(session, [User(public_id=A)])
    for others in ([], [User(), User()]):
        with pytest.raises(IntegrityError), session.begin_nested():
            flush(session, [User(public_id=A), *others])
    session.commit()

    assert list(stored(session, User).values()) == [A]


def executemany(session: Session) -> None:
    """Several rows in one statement get distinct ids, with the ORM and with Core."""
    session.execute(insert(Tiny), [{"number": number} for number in range(15)])
    session.connection().execute(insert(tiny), [{"number": number} for number in range(15, 30)])
    session.connection().execute(insert(tiny).values([{"number": number} for number in range(30, 36)]))

    assert numbers_of(session) == list(range(36))
    assert session.scalar(select(func.count(Tiny.public_id.distinct()))) == 36


def many_rows(session: Session) -> None:
    """A batch of a thousand rows, some of which collide, is stored completely."""
    taken = NanoId().generate_many(50)
    session.execute(insert(User), [{"public_id": public_id} for public_id in taken])
    users = [User(name=str(number)) for number in range(1000)]
    with testing.fixed_ids(User, *(text for public_id in taken for text in (public_id, *NanoId().generate_many(9)))):
        flush(session, users)

    agree(session, users)
    assert {user.id: user.name for user in users}.items() <= names(session).items()


def returned_rows(session: Session) -> None:
    """``returning()`` returns the ids that were finally stored, if the database has RETURNING."""
    session.execute(insert(Tiny), [{"number": number} for number in range(20)])
    if session.get_bind().dialect.insert_executemany_returning:
        objects = list(session.scalars(insert(Tiny).returning(Tiny), [{"number": 20 + number} for number in range(10)]))
    else:
        objects = numbered(20, 30)
        bulk.insert(session, objects)

    agree(session, objects)


CASES: list[Callable[[Session], None]] = [
    committed_row,
    same_transaction,
    same_batch,
    nearly_full_space,
    full_space,
    other_constraint,
    given_duplicate,
    executemany,
    many_rows,
    returned_rows,
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


def without_transaction(session: Session) -> None:
    """Rows of flushes, of one statement and of ``bulk.insert`` get distinct ids in AUTOCOMMIT mode."""
    objects = numbered(30)
    flush(session, objects[:1])
    flush(session, objects[1:15])
    session.execute(insert(Tiny).values([{"number": number} for number in range(30, 36)]))
    bulk.insert(session, objects[15:])

    agree(session, objects)


# --- sync


@each_case
def test_sync(engine: Engine, create: Callable[[MetaData], None], case: Callable[[Session], None]) -> None:
    """The case holds with the synchronous driver."""
    create(Base.metadata)
    with Session(engine) as session:
        case(session)


def test_sync_autocommit(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Without a transaction, collisions are retried, too, and a rollback undoes nothing."""
    create(Base.metadata)
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        without_transaction(session)
        session.rollback()

        assert len(stored(session, Tiny)) == 36


# --- async


@each_case
def test_async(async_engine: AsyncEngine, case: Callable[[Session], None]) -> None:
    """The case holds with the asynchronous drivers."""

    async def story() -> None:
        async with session_on(async_engine, Base.metadata) as session:
            await session.run_sync(case)

    asyncio.run(story())


def test_async_autocommit(async_engine: AsyncEngine) -> None:
    """Without a transaction, the asynchronous drivers retry collisions, too."""

    async def story() -> None:
        engine = async_engine.execution_options(isolation_level="AUTOCOMMIT")
        async with session_on(engine, Base.metadata) as session:
            await session.run_sync(without_transaction)
            await session.rollback()

            assert len(await session.run_sync(stored, Tiny)) == 36

    asyncio.run(story())


def test_async_core(async_engine: AsyncEngine) -> None:
    """``guard.install`` and ``guard.uninstall`` accept an ``AsyncEngine``."""

    async def fill() -> None:
        async with async_engine.begin() as connection:
            await connection.execute(insert(tiny), [{"number": number} for number in range(36)])

    async def story() -> None:
        async with session_on(async_engine, Base.metadata):
            guard.install(async_engine)
            await fill()
            guard.uninstall(async_engine)
            with pytest.raises(IntegrityError):
                await fill()

    asyncio.run(story())


def test_async_bulk_insert(async_engine: AsyncEngine) -> None:
    """``bulk.insert`` for an ``AsyncSession`` fills in key and id."""

    async def story() -> None:
        async with session_on(async_engine, Base.metadata) as session:
            objects = numbered(30)
            await async_bulk.insert(session, objects)
            await session.run_sync(agree, objects)
            await session.commit()

    asyncio.run(story())
