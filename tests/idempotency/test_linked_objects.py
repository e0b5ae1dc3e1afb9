"""``insert_once()`` for objects with parents, children and links of every kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, select
from sqlalchemy.exc import InvalidRequestError, SAWarning
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload
from support.async_sessions import tell
from support.purchases import A, B, Base, Bill, Customer, Line, Note, Order, Tag, Voucher, differing, stored

from sqlalchemy_public_id import ConfigurationError, IdempotencyConflict, PublicIdMixin
from sqlalchemy_public_id.asyncio.idempotency import insert_once as async_once
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend


def test_parent(db: Session) -> None:
    """A many-to-one relationship is compared as its foreign key, whether the object or the key is given."""
    ada, grace = Customer(name="Ada"), Customer(name="Grace")
    db.add_all([ada, grace])
    db.flush()
    order, _ = insert_once(db, Order(public_id=A, customer=ada))
    assert order.customer_id == ada.id
    db.commit()

    same = [{"customer": ada}, {"customer_id": ada.id}, {}]
    assert [insert_once(db, Order(public_id=A, **each)) for each in same] == [(order, False)] * 3
    others = [{"customer": grace}, {"customer_id": grace.id}, {"customer_id": None}]
    assert [differing(db, Order(public_id=A, **other)) for other in others] == [("customer_id",)] * 3
    assert (ada.orders, grace.orders) == ([order], [])


def test_parent_that_is_not_stored(db: Session, engine: Engine) -> None:
    """A pending parent is flushed first, and kept even if the row exists; a new one is rejected."""
    insert_once(db, Order(public_id=A))
    db.add(grace := Customer(name="Grace"))
    with pytest.raises(IdempotencyConflict):
        insert_once(db, Order(public_id=A, customer=grace))
    with pytest.raises(ConfigurationError, match=r"Order\.customer is new"):
        insert_once(db, Order(public_id=B, customer=Customer(name="Eve")))
    db.commit()

    assert len(stored(engine, Customer)) == 1
    assert grace.orders == []


def test_parent_of_another_session(db: Session, engine: Engine) -> None:
    """A parent of another session raises the error of ``session.add()``, and the other session is unchanged."""
    with Session(engine) as other:
        other.add(ada := Customer(name="Ada"))
        other.commit()
        with pytest.raises(InvalidRequestError, match="already attached to session"):
            insert_once(db, Order(public_id=A, customer=ada))


def test_reference_that_differs(db: Session) -> None:
    """A foreign key that differs is reported under the name of its reference, which the client sent."""
    db.add_all([first := Customer(name="Ada"), second := Customer(name="Grace")])
    db.flush()
    insert_once(db, Note(public_id=A, customer_public_id=first.public_id))

    assert differing(db, Note(public_id=A, customer_public_id=second.public_id)) == ("customer_public_id",)


def test_nothing_is_heard(db: Session, listen: Callable[..., None]) -> None:
    """No attribute listener is called while the object is temporarily removed from its parents."""
    db.add(ada := Customer(name="Ada"))
    db.flush()
    assert ada.orders == []
    heard: list[str] = []
    order = Order(public_id=A, customer=ada)
    for target, name in ((Customer.orders, "append"), (Customer.orders, "remove"), (Order.customer, "set")):
        listen(target, name, lambda *at, name=name: heard.append(name))

    assert insert_once(db, order)[1] is True
    assert heard == []
    assert (ada.orders, order.customer) == ([order], ada)


@pytest.mark.parametrize("is_loaded", [True, False], ids=["loaded", "not loaded"])
def test_links_of_every_kind(db: Session, engine: Engine, is_loaded: bool) -> None:
    """An object is inserted with all its links, without a flush warning, and the other sides contain it."""
    ada, tag, bill, line = Customer(name="Ada"), Tag(), Bill(), Line()
    db.add_all([ada, tag, bill, line])
    db.commit()
    if is_loaded:
        assert (ada.orders, tag.orders, bill.order, line.order, ada.by_number) == ([], [], None, None, {})
    order = Order(public_id=A, customer=ada, tags=[tag], bill=bill, lines=[line, Line()])

    assert insert_once(db, order) == (order, True)
    voucher = Voucher(public_id=A, number="7", customer=ada)
    assert insert_once(db, voucher) == (voucher, True)
    note = Note(public_id=A, customer=ada)
    assert insert_once(db, note) == (note, True)
    db.add_all([pending := Customer(name="pending"), pending_bill := Bill()])
    other, created = insert_once(db, Order(public_id=B, customer=pending, bill=pending_bill))
    assert (pending.orders, pending_bill.order, created) == ([other], other, True)
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
    """Other changes to the collection of a parent are written."""
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


@pytest.mark.parametrize("way", ["refresh", "expire"])
def test_collection_that_a_listener_loads_again(db: Session, listen: Callable[..., None], way: str) -> None:
    """An object is in the collection of its parent once, even if a listener refreshes or expires the collection."""
    db.add(ada := Customer(name="Ada"))
    db.flush()
    assert ada.orders == []
    listen(db, "after_flush_postexec", lambda session, context: getattr(session, way)(ada, ["orders"]))

    order, _ = insert_once(db, Order(public_id=A, customer=ada))
    assert ada.orders == [order]


def test_relationship_that_one_side_knows(create: Callable[[MetaData], None], session: Session) -> None:
    """Objects added to a collection without ``back_populates`` are kept, although the flush warns."""

    class Own(DeclarativeBase): ...

    class Shelf(PublicIdMixin, Own):
        __tablename__ = "shelf"
        books = relationship("Book", lazy="write_only")

    class Book(PublicIdMixin, Own):
        __tablename__ = "book"
        shelf_id: Mapped[int | None] = mapped_column(ForeignKey(Shelf.id))
        shelf = relationship("Shelf", back_populates="books")

    create(Own.metadata)
    session.add(shelf := Shelf())
    session.commit()
    shelf.books.add(earlier := Book())

    with pytest.warns(SAWarning, match="not in session"):
        book, _ = insert_once(session, Book(public_id=A, shelf=shelf))
    session.commit()
    assert earlier.shelf_id == book.shelf_id == shelf.id


def test_loaded_collections_stay_loaded(async_engine: AsyncEngine) -> None:
    """A loaded collection of the parent can be read after the call without a lazy load, which asyncio forbids."""

    async def story(session: AsyncSession) -> None:
        session.add(Customer(name="Ada"))
        await session.commit()
        ada = (await session.scalars(select(Customer).options(selectinload(Customer.orders)))).one()
        order, _ = await async_once(session, Order(public_id=A, customer=ada))
        assert ada.orders == [order]
        assert (await async_once(session, Order(public_id=A, customer=ada))) == (order, False)
        assert (ada.orders, ada.name) == ([order], "Ada")

    tell(async_engine, Base.metadata, story)
