"""Reading references: loaded together, loaded ahead of time, and after their foreign keys have changed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest
from sqlalchemy import Engine, delete, select, update
from sqlalchemy.exc import InvalidRequestError, MissingGreenlet
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, aliased, joinedload, load_only, selectinload
from sqlalchemy.orm.exc import DetachedInstanceError
from support.async_sessions import tell
from support.calls import calls_of
from support.orders import (
    ADDRESSES,
    CUSTOMERS,
    UNKNOWN,
    Address,
    Base,
    Customer,
    CustomerId,
    Node,
    Order,
    fill,
    orders_in,
)
from support.shared_tables import filled_engine

from conftest import Statements
from sqlalchemy_public_id import PublicIdNotFound, references
from sqlalchemy_public_id.asyncio import references as awaited

EXPECTED = [CUSTOMERS[number // 10] for number in range(100)]
engine = filled_engine(Base.metadata, fill)


@pytest.mark.backend
def test_a_page_in_two_statements(db: Session, statements: list[str]) -> None:
    """The first access loads the ids for all objects of the session; no customer is loaded."""
    statements.clear()
    orders = orders_in(db)

    assert [order.customer_public_id for order in orders] == EXPECTED
    assert {type(order.customer_public_id) for order in orders} == {CustomerId}
    assert len(statements) == 2
    assert not [each for each in db.identity_map.values() if isinstance(each, Customer)]


@pytest.mark.parametrize(
    "option",
    [references.eager(Order.customer_public_id), selectinload(Order.customer), joinedload(Order.customer), None],
    ids=["eager", "selectinload", "joinedload", "in the session"],
)
def test_loaded_with_the_query(db: Session, statements: list[str], option: Any) -> None:
    """A reference whose row a loader option has loaded, or the session holds, takes no further statement."""
    kept = db.scalars(select(Customer)).all() if option is None else []  # noqa: F841  alive
    statements.clear()
    orders = orders_in(db, *filter(None, [option]))
    assert len(statements) <= 2
    statements.clear()

    assert [order.customer_public_id for order in orders] == EXPECTED
    assert statements == []


def test_eager_below_another_option(db: Session, statements: list[str]) -> None:
    """``eager()`` works below other loader options, and on aliases."""
    query = select(Customer).options(selectinload(Customer.orders).options(references.eager(Order.billing_public_id)))
    customers = db.scalars(query.order_by(Customer.id)).all()
    other = aliased(Order)
    statements.clear()

    assert [order.billing_public_id for order in customers[0].orders][:3] == [None, *ADDRESSES[1:]]
    assert statements == []
    db.expunge_all()
    order = db.scalars(select(other).options(references.eager(other.customer_public_id)).limit(1)).one()
    statements.clear()
    assert order.customer_public_id in CUSTOMERS
    assert statements == []


@pytest.mark.backend
def test_load(db: Session, statements: list[str]) -> None:
    """``load()`` loads all references of the objects with one statement per model, and none if they are loaded."""
    db.add(node := Node())
    db.flush()
    orders = orders_in(db)
    statements.clear()
    references.load(db, iter([node, *orders]))
    assert len(statements) == 2
    references.load(db, orders)
    references.load(db, [])

    assert {order.customer_public_id for order in orders} == set(CUSTOMERS)
    assert [order.billing_public_id for order in orders[:3]] == [None, *ADDRESSES[1:]]
    assert [order.shipping_public_id for order in orders[:3]] == [ADDRESSES[2], ADDRESSES[1], None]
    assert len(statements) == 2
    db.expire_all()
    references.load(db, [node, *orders])
    assert len(statements) == 2 + 4  # a refresh of the node, and the foreign keys of the orders
    for wrong in (1, "rford_000000000000", Order, None):
        with pytest.raises(TypeError, match="mapped objects"):
            references.load(db, [wrong])


def test_reading_does_not_flush(db: Session, statements: Statements) -> None:
    """Reading a reference does not flush pending objects."""
    order = orders_in(db)[0]
    db.add(Address())

    assert order.customer_public_id == CUSTOMERS[0]
    assert statements.starting("INSERT") == []


def test_a_changed_foreign_key(db: Session) -> None:
    """The reference follows the foreign key and the relationship as soon as they are set."""
    order, *_, last = orders_in(db)
    assert order.customer_public_id == order.customer.public_id == CUSTOMERS[0]
    order.customer_id = last.customer_id
    assert order.customer_public_id == CUSTOMERS[9]
    other = Customer(name="new")
    order.customer = other
    assert order.customer_public_id == other.public_id
    db.flush()
    assert order.customer_public_id == other.public_id
    order.customer = last.customer
    assert order.customer_public_id == CUSTOMERS[9]
    order.billing = None
    assert order.billing_public_id is None


@pytest.mark.backend
@pytest.mark.parametrize("way", ["refresh", "expire"])
@pytest.mark.parametrize("keys", [["billing_id"], ["shipping_id"], ["billing_id", "shipping_id"], None], ids=str)
def test_refreshed_foreign_keys(db: Session, keys: list[str] | None, way: Literal["refresh", "expire"]) -> None:
    """After one or both foreign keys are refreshed or expired, their references show the current ids."""
    order, new = orders_in(db)[1], "rfadr_zzzzzzzzzzzz"
    order.shipping_id = order.billing_id
    db.flush()
    assert order.billing_public_id == order.shipping_public_id == ADDRESSES[1]
    db.connection().execute(update(Address.__table__).where(Address.id == order.billing_id).values(public_id=new))
    getattr(db, way)(order, keys)

    names = [name.replace("_id", "_public_id") for name in keys or ["billing_id", "shipping_id"]]
    assert {name: getattr(order, name) for name in names} == dict.fromkeys(names, new)


def test_populated_again(db: Session, statements: list[str]) -> None:
    """References of foreign keys that ``populate_existing`` refreshes are loaded together."""
    orders = orders_in(db)
    assert orders[0].customer_public_id == CUSTOMERS[0]
    db.connection().execute(update(Order.__table__).values(customer_fk=orders[-1].customer_id))
    db.scalars(select(Order).execution_options(populate_existing=True)).all()
    statements.clear()

    assert {order.customer_public_id for order in orders} == {CUSTOMERS[9]}
    assert len(statements) == 1


@pytest.mark.parametrize("way", ["refresh", "expire"])
def test_other_attributes_expired(db: Session, statements: list[str], way: Literal["refresh", "expire"]) -> None:
    """A loaded id is kept when attributes other than the foreign key are expired, as by a flush."""
    order = orders_in(db)[0]
    assert order.customer_public_id == CUSTOMERS[0]
    getattr(db, way)(order, ["note"])
    assert order.note == "00"
    statements.clear()

    assert order.customer_public_id == CUSTOMERS[0]
    assert statements == []


@pytest.mark.backend
def test_deferred_foreign_keys(db: Session, statements: Statements) -> None:
    """Foreign keys that are deferred or expired are loaded for all objects at once, and then the ids are."""
    db.add_all([Order(note="late", customer_public_id=CUSTOMERS[number % 10]) for number in range(50)])
    db.commit()
    wanted = [CUSTOMERS[number % 10] for number in range(50)]
    query = select(Order).where(Order.note == "late").order_by(Order.id)

    found, sent = [], []
    for options, ask in (
        ([load_only(Order.note)], lambda some: references.load(db, some)),
        ([load_only(Order.note)], lambda some: None),
        ([load_only(Order.note), references.eager(Order.customer_public_id)], lambda some: None),
    ):
        db.expunge_all()
        statements.clear()
        orders = db.scalars(query.options(*options)).all()
        ask(orders)
        found.append([order.customer_public_id for order in orders])
        sent.append(len(statements))
    assert found == [wanted] * 3
    assert max(sent) <= 4, sent

    db.expire_all()
    statements.clear()
    references.load(db, orders)
    assert [order.customer_public_id for order in orders] == wanted
    assert len(statements) <= 4


@pytest.mark.parametrize("reason", ["gone", "refused"])
def test_neighbour_that_cannot_be_read(db: Session, reason: str) -> None:
    """An object whose row is gone, or whose foreign key may not be loaded, does not affect other objects."""
    first, second, *_ = orders_in(db)
    if reason == "gone":
        db.connection().execute(delete(Order.__table__).where(Order.id == first.id))
        db.expire(first)
    else:
        db.expunge(first)
        strict = select(Order).where(Order.id == first.id).options(load_only(Order.note, raiseload=True))
        first = db.scalars(strict).one()

    assert second.customer_public_id == CUSTOMERS[0]
    references.load(db, [first, second])
    with pytest.raises(InvalidRequestError):
        first.customer_public_id  # noqa: B018


def test_moved_to_another_session(db: Session, engine: Engine) -> None:
    """A session does not load references for an object that has left it."""
    first, second, *_ = orders_in(db)
    db.expunge(first)
    with Session(engine) as other:
        other.add(first)
        assert second.customer_public_id == CUSTOMERS[0]
        other.expunge(first)
    with pytest.raises(DetachedInstanceError):
        first.customer_public_id  # noqa: B018


@pytest.mark.backend
@pytest.mark.parametrize("way", ["new", "flushed", "detached"])
def test_added_to_a_session(db: Session, statements: list[str], way: str) -> None:
    """References of objects that were added to a session are read together, at the second page, too."""
    every = orders_in(db)
    db.expunge_all()
    if way != "detached":
        every = [Order(customer_id=order.customer_id) for order in every]
    for first in (0, 50):
        orders = every[first : first + 50]
        db.add_all(orders)
        if way == "flushed":
            db.flush()
        statements.clear()

        assert [order.customer_public_id for order in orders] == EXPECTED[first : first + 50]
        # the first statement reads the foreign keys that an INSERT has left out
        assert len(statements) == (2 if way == "flushed" else 1)


def test_searches_of_a_large_session(engine: Engine) -> None:
    """A session is not searched for each object that is added to it, unless it is small."""

    class Searched(Session):
        count = 0

        def __iter__(self) -> Iterator[object]:
            self.count += 1
            return super().__iter__()

    with Searched(engine) as session:
        kept = [Address() for _ in range(1000)]
        session.add_all(kept)
        session.flush()
        for _ in range(30):
            order = Order(customer_id=1)
            session.add(order)
            assert order.customer_public_id == CUSTOMERS[0]

        assert 2 <= session.count <= 4


def test_models_without_references(db: Session) -> None:
    """Objects of a model without references cost no call of those of other models."""

    def calls(count: int) -> int:
        objects = [Address() for _ in range(count)]

        def flush() -> None:
            db.add_all(objects)
            db.flush()

        return calls_of(flush, folder="references")

    calls(1)

    assert calls(10) == calls(20) > 0


@pytest.mark.backend
def test_threads(engine: Engine) -> None:
    """Sessions in several threads can read, assign and roll back concurrently."""

    def work(number: int) -> list[str]:
        with Session(engine) as session:
            orders = orders_in(session)[number * 10 : number * 10 + 10]
            for order in orders:
                order.billing_public_id = ADDRESSES[2]
            if engine.name != "sqlite":  # SQLite allows only one writer
                session.flush()
            return [order.customer_public_id for order in orders]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(10))) == [[customer] * 10 for customer in CUSTOMERS]


def test_detached(db: Session) -> None:
    """A detached object shows loaded ids, even after pickling; for other ids, the error says what to do."""
    order = orders_in(db)[0]
    assert order.customer_public_id == CUSTOMERS[0]
    db.expunge_all()

    assert pickle.loads(pickle.dumps(order)).customer_public_id == order.customer_public_id == CUSTOMERS[0]
    with pytest.raises(DetachedInstanceError, match=r"Order\.shipping_public_id.*references\.eager"):
        order.shipping_public_id  # noqa: B018


def test_async(async_engine: AsyncEngine) -> None:
    """``eager()`` and ``load()`` load ids ahead, as the error of a lazy load says; a flush rejects unknown ids."""

    async def story(session: AsyncSession) -> None:
        await session.run_sync(fill)
        await session.commit()
        session.expunge_all()
        query = select(Order).order_by(Order.note)
        order, *orders = (await session.scalars(query)).all()
        remedies = r"references\.eager.*await sqlalchemy_public_id\.asyncio\.references\.load"
        with pytest.raises(MissingGreenlet, match=rf"Order\.customer_public_id is not loaded.*{remedies}"):
            order.customer_public_id  # noqa: B018
        assert await session.run_sync(lambda _: order.customer_public_id) == CUSTOMERS[0]
        await awaited.load(session, orders)
        await session.commit()
        assert [order.customer_public_id for order in orders] == EXPECTED[1:]
        session.expunge_all()
        orders = list(await session.scalars(query.options(references.eager(Order.customer_public_id))))
        assert [order.customer_public_id for order in orders] == EXPECTED
        session.add(Order(customer_public_id=UNKNOWN))
        with pytest.raises(PublicIdNotFound):
            await session.flush()

    tell(async_engine, Base.metadata, story)
