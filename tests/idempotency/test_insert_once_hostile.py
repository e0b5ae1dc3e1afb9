"""``insert_once`` where it is not expected: with others at the same row, in odd transactions, with linked objects."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Column, Engine, ForeignKey, MetaData, String, Table, event, func, insert, select
from sqlalchemy.exc import IntegrityError, PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    WriteOnlyMapped,
    attribute_keyed_dict,
    mapped_column,
    relationship,
    selectinload,
)
from support.marks import on

from sqlalchemy_public_id import ConfigurationError, IdempotencyConflict, NanoId, PublicIdMixin
from sqlalchemy_public_id.asyncio.idempotency import insert_once as async_once
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend

A, B = "izkpm55j334u", "8w0tnq3c5yzd"


class Base(DeclarativeBase):
    metadata = MetaData()


class Customer(PublicIdMixin, Base):
    __tablename__ = "customer"
    name: Mapped[str | None] = mapped_column(String(50), unique=True)
    orders: Mapped[list[Order]] = relationship(back_populates="customer")
    by_number: Mapped[dict[str, Voucher]] = relationship(
        back_populates="customer", collection_class=attribute_keyed_dict("number")
    )
    written: WriteOnlyMapped[Note] = relationship(back_populates="customer")


tagged = Table(
    "tagged",
    Base.metadata,
    Column("order_id", ForeignKey("order.id"), primary_key=True),
    Column("tag_id", ForeignKey("tag.id"), primary_key=True),
)


class Order(PublicIdMixin, Base):
    __tablename__ = "order"
    number: Mapped[str | None] = mapped_column(String(50))
    customer_id: Mapped[int | None] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer | None] = relationship(back_populates="orders")
    tags: Mapped[list[Tag]] = relationship(secondary=tagged, back_populates="orders")
    lines: Mapped[list[Line]] = relationship(back_populates="order")
    bill_id: Mapped[int | None] = mapped_column(ForeignKey("bill.id"))
    bill: Mapped[Bill | None] = relationship(back_populates="order")


class Bill(PublicIdMixin, Base):
    __tablename__ = "bill"
    order: Mapped[Order | None] = relationship(back_populates="bill")


class Tag(PublicIdMixin, Base):
    __tablename__ = "tag"
    orders: Mapped[list[Order]] = relationship(secondary=tagged, back_populates="tags")


class Line(PublicIdMixin, Base):
    __tablename__ = "line"
    order_id: Mapped[int | None] = mapped_column(ForeignKey(Order.id))
    order: Mapped[Order | None] = relationship(back_populates="lines")


class Voucher(PublicIdMixin, Base):
    __tablename__ = "voucher"
    number: Mapped[str] = mapped_column(String(50))
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship(back_populates="by_number")


class Note(PublicIdMixin, Base):
    __tablename__ = "note"
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship(back_populates="written")


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    create(Base.metadata)
    return session


def stored(engine: Engine, model: Any = Order) -> list[str]:
    with Session(engine) as session:
        return sorted(session.scalars(select(model.public_id)))


# --- others at the same row


@pytest.mark.parametrize("is_rolled_back", [False, True], ids=["commit", "some roll back"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first in its transaction", "after other work"])
def test_threads(db: Session, engine: Engine, database: str, is_first: bool, is_rolled_back: bool) -> None:
    """Threads that send the same rows at the same time create each row once, and none of them sees an error."""
    if database == "sqlite" and not is_first:
        pytest.skip("a transaction of SQLite that has read cannot wait to write")
    db.close()
    threads, ids = 4, NanoId().generate_many(15)
    start = threading.Barrier(threads)
    seen: Counter[tuple[str, bool]] = Counter()

    def send(number: int) -> None:
        for round_, public_id in enumerate(ids):
            start.wait(30)
            with Session(engine) as session:
                if not is_first:
                    session.scalars(select(Customer)).all()
                _, created = insert_once(session, Order(public_id=public_id, number="1"))
                if is_rolled_back and round_ % threads == number:
                    session.rollback()
                    _, created = insert_once(session, Order(public_id=public_id, number="1"))
                session.commit()
                seen[public_id, created] += 1

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(send, number) for number in range(threads)]:
            future.result()

    assert stored(engine) == sorted(ids)
    assert all(seen[public_id, True] == 1 and seen[public_id, False] == threads - 1 for public_id in ids)


def test_row_that_comes_and_goes(db: Session, engine: Engine) -> None:
    """The row that has refused an INSERT is deleted before it is looked for: the transaction of the caller goes on."""
    insert_once(db, Order(public_id=A))
    db.add(earlier := Customer(name="earlier"))
    seen: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def delete_row(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement.split()[0])
        if seen[-2:] == ["ROLLBACK", "SELECT"] and seen.count("ROLLBACK") == 1:
            connection.execute(Order.__table__.delete())

    order = Order(public_id=A, number="again")
    assert insert_once(db, order) == (order, True)
    assert seen[-3:] == ["SAVEPOINT", "INSERT", "RELEASE"] or seen[-4:] == ["SAVEPOINT", "INSERT", "RELEASE", "DO"]
    db.commit()

    assert stored(engine) == [A]
    assert stored(engine, Customer) == [earlier.public_id]


@on("postgresql")
def test_row_that_goes_and_comes(db: Session, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A row that is deleted and stored again while it is looked for is no hidden one."""
    insert_once(db, Order(public_id=A, number="1"))
    db.commit()
    others = new_engine("postgresql", engine.url)
    work = [Order.__table__.delete(), insert(Order.__table__).values(public_id=A, number="1")]
    seen: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def change(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement.split()[0])
        if work and "ROLLBACK" in seen and seen[-1] == "SELECT":
            with others.begin() as other:
                other.execute(work.pop(0))

    row, created = insert_once(db, Order(public_id=A, number="1"))
    assert (row.number, created) == ("1", False)
    assert seen.count("INSERT") == 1


# --- transactions


def test_failed_savepoint_of_the_caller(db: Session, engine: Engine) -> None:
    """In a savepoint that has failed the call fails as any other, sends nothing, and succeeds after the rollback."""
    db.add(Customer(name="taken"))
    db.flush()
    ada = db.scalars(select(Customer)).one()
    savepoint = db.begin_nested()
    db.add(Customer(name="taken"))
    with pytest.raises(IntegrityError):
        db.flush()
    order = Order(public_id=A)
    for _ in range(2):
        with pytest.raises(PendingRollbackError):
            insert_once(db, order)
    savepoint.rollback()
    order.customer = ada

    assert insert_once(db, order) == (order, True)
    db.commit()
    assert stored(engine) == [A]


def test_savepoint_that_is_rolled_back(db: Session, engine: Engine) -> None:
    """What a savepoint of the caller undoes can be sent again, as the same object or another, with its relations."""
    ada = Customer(name="Ada")
    db.add(ada)
    db.commit()
    for is_new in (True, False, True):
        with db.begin_nested() as savepoint:
            if is_new:
                each = Order(public_id=A, customer=ada, lines=[Line()])
            assert insert_once(db, each) == (each, True)
            assert not is_new or ada.orders == [each]
            savepoint.rollback()
        assert ada.orders == []
    assert insert_once(db, each) == (each, True)
    db.commit()

    assert (stored(engine), len(stored(engine, Line))) == ([A], 1)


@on("postgresql", "mysql", "mariadb")
def test_two_phases(db: Session, engine: Engine) -> None:
    """A session with two-phase commits has savepoints, too."""
    db.close()
    for created in (True, False):
        with Session(engine, twophase=True) as session:
            assert insert_once(session, Order(public_id=A))[1] is created
            assert insert_once(session, Order(public_id=A))[1] is False
            assert insert_once(session, Order(public_id=B))[1] is True
            session.rollback()
            assert insert_once(session, Order(public_id=A))[1] is created
            session.prepare()
            session.commit()

    assert stored(engine) == [A]


@pytest.mark.parametrize("mode", ["conditional_savepoint", "create_savepoint", "rollback_only", "control_fully"])
def test_transaction_of_a_connection(db: Session, engine: Engine, mode: Any) -> None:
    """A session on a connection whose transaction has begun finds the row that another session on it has written."""
    db.close()
    with engine.connect() as connection:
        connection.begin()
        connection.execute(insert(Customer), {"name": "earlier"})
        for created in (True, False):
            session = Session(connection, join_transaction_mode=mode)
            assert insert_once(session, Order(public_id=A, number="1"))[1] is created
            with pytest.raises(IdempotencyConflict):
                insert_once(session, Order(public_id=A, number="2"))
            if mode != "control_fully":
                session.commit()
        connection.get_transaction().commit()  # type: ignore[union-attr]

    assert (stored(engine), len(stored(engine, Customer))) == ([A], 1)


def test_sessions_of_other_habits(db: Session, engine: Engine) -> None:
    """Neither autoflush nor expiration nor autobegin is needed."""
    db.close()
    with Session(engine, autoflush=False, expire_on_commit=False, autobegin=False) as session:
        for created in (True, False):
            session.begin()
            customer = Customer(name=f"created {created}")
            session.add(customer)
            assert insert_once(session, Order(public_id=A))[1] is created
            session.commit()

    assert len(stored(engine, Customer)) == 2


# --- objects that are linked


def test_nothing_is_heard(db: Session) -> None:
    """No listener of the application hears that the object leaves its parents for a while."""
    ada = Customer(name="Ada")
    db.add(ada)
    db.flush()
    assert ada.orders == []
    heard: list[str] = []
    listeners = [
        (Customer.orders, "append", lambda *args: heard.append("append")),
        (Customer.orders, "remove", lambda *args: heard.append("remove")),
        (Order.customer, "set", lambda *args: heard.append("set")),
    ]
    order = Order(public_id=A, customer=ada)
    for target, name, listener in listeners:
        event.listen(target, name, listener)
    try:
        assert insert_once(db, order)[1] is True
    finally:
        for target, name, listener in listeners:
            event.remove(target, name, listener)

    assert heard == []
    assert (ada.orders, order.customer) == ([order], ada)


@pytest.mark.parametrize("is_loaded", [True, False], ids=["loaded", "not loaded"])
def test_links_of_every_kind(db: Session, engine: Engine, is_loaded: bool) -> None:
    """An object is inserted with all its links, without a warning of the flush, and the other sides show it."""
    ada, tag, bill, line = Customer(name="Ada"), Tag(), Bill(), Line()
    db.add_all([ada, tag, bill, line])
    db.commit()
    if is_loaded:
        assert (ada.orders, tag.orders, bill.order, line.order, ada.by_number) == ([], [], None, None, {})
    pending = Customer(name="pending")
    db.add(pending)
    order = Order(public_id=A, customer=ada, tags=[tag], bill=bill, lines=[line, Line()])

    assert insert_once(db, order) == (order, True)
    voucher = Voucher(public_id=A, number="7", customer=ada)
    assert insert_once(db, voucher) == (voucher, True)
    note = Note(public_id=A, customer=ada)
    assert insert_once(db, note) == (note, True)
    assert insert_once(db, Order(public_id=B, customer=pending))[1] is True
    for _ in range(2):
        assert (ada.orders, tag.orders, bill.order, line.order) == ([order], [order], order, order)
        assert (ada.by_number, db.scalars(ada.written.select()).all()) == ({"7": voucher}, [note])
        assert len(order.lines) == 2
        db.commit()

    again = Order(public_id=A, customer=ada, tags=[tag], bill=bill, lines=[Line()])
    assert insert_once(db, again) == (order, False)
    assert insert_once(db, Voucher(public_id=A, number="7", customer=ada)) == (voucher, False)
    assert insert_once(db, Note(public_id=A, customer=ada)) == (note, False)
    assert (ada.orders, tag.orders, bill.order, order.tags) == ([order], [order], order, [tag])
    db.commit()
    assert (ada.orders, tag.orders, bill.order, line.order, len(order.lines)) == ([order], [order], order, order, 2)
    assert len(stored(engine, Line)) == 2


def test_changes_of_a_parent(db: Session) -> None:
    """What else has changed in the collection of a parent is written."""
    ada, eve = Customer(name="Ada", orders=[Order(number="1")]), Customer(name="Eve")
    db.add_all([ada, eve])
    db.commit()
    first = ada.orders[0]
    eve.orders.append(first)
    other = Order(number="2")
    db.add(other)
    other.customer = ada

    insert_once(db, Order(public_id=A, customer=ada, number="3"))
    db.commit()

    assert sorted(str(order.number) for order in ada.orders) == ["2", "3"]
    assert eve.orders == [first]


def test_loaded_collections_stay_loaded(async_engine: AsyncEngine) -> None:
    """The collection of a parent that was loaded can be read after the call without a wait, which is none there."""

    async def story() -> None:
        try:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            async with AsyncSession(async_engine, expire_on_commit=False) as session:
                session.add(Customer(name="Ada"))
                await session.commit()
                ada = (await session.scalars(select(Customer).options(selectinload(Customer.orders)))).one()
                order, _ = await async_once(session, Order(public_id=A, customer=ada))
                assert ada.orders == [order]
                assert (await async_once(session, Order(public_id=A, customer=ada))) == (order, False)
                assert (ada.orders, ada.name) == ([order], "Ada")
                await session.commit()
        finally:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
            await async_engine.dispose()

    asyncio.run(story())


# --- what is compared


def test_compare(db: Session) -> None:
    """The caller names what a repetition has to repeat: a column, or a relationship for its foreign key."""
    ada, eve = Customer(name="Ada"), Customer(name="Eve")
    db.add_all([ada, eve])
    db.flush()
    order, _ = insert_once(db, Order(public_id=A, number="1", customer=ada))

    assert insert_once(db, Order(public_id=A, number="2", customer=eve), compare=()) == (order, False)
    assert insert_once(db, Order(public_id=A, number="1", customer=eve), compare=["number"]) == (order, False)
    assert insert_once(db, Order(public_id=A, number="2", customer=ada), compare={"customer"}) == (order, False)
    for compare, differing in ((None, ("number", "customer_id")), (("customer",), ("customer_id",))):
        with pytest.raises(IdempotencyConflict) as caught:
            insert_once(db, Order(public_id=A, number="2", customer=eve), compare=compare)
        assert caught.value.differing == differing


@pytest.mark.parametrize("compare", ["number", ["numbr"], [None]])
def test_compare_of_nothing(db: Session, engine: Engine, compare: Any) -> None:
    """A name that the model does not have is refused before anything is sent, as is one string."""
    with pytest.raises(ConfigurationError, match="compare"):
        insert_once(db, Order(public_id=A, number="1"), compare=compare)
    assert db.scalar(select(func.count()).select_from(Order)) == 0
