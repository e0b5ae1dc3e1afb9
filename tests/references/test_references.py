"""Foreign keys seen as public ids: read, compared and assigned, on every database."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import (
    Engine,
    ForeignKey,
    MetaData,
    String,
    delete,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import InvalidRequestError, MissingGreenlet
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    declared_attr,
    joinedload,
    load_only,
    mapped_column,
    relationship,
    selectinload,
)
from sqlalchemy.orm.exc import DetachedInstanceError
from support.filled import EngineOf, filled_once
from support.marks import fast_ways, on
from support.stories import tell

from sqlalchemy_public_id import (
    ConfigurationError,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    PublicIdNotFound,
    TypedId,
    bulk,
    references,
)
from sqlalchemy_public_id import asyncio as awaited
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class CustomerId(TypedId, prefix="rfcus"): ...


ORDER = {"polymorphic_on": "kind", "polymorphic_identity": "order"}


class Customer(PublicIdMixin[CustomerId], Base):
    __tablename__ = "customer"
    name: Mapped[str] = mapped_column(String(50))
    orders: Mapped[list[Order]] = relationship(back_populates="customer", foreign_keys="Order.customer_id")


class Address(PublicIdMixin, Base):
    __tablename__ = "address"
    __public_id__ = NanoId(prefix="rfadr")


class Shipped:
    """A mixin with references of its own."""

    shipping_id: Mapped[int | None] = mapped_column(ForeignKey(Address.id))
    shipping_public_id: Mapped[str | None] = public_ref("shipping")


class Order(Shipped, PublicIdMixin, Base):
    __tablename__ = "order"
    __public_id__ = NanoId(prefix="rford")
    __mapper_args__ = ORDER
    kind: Mapped[str] = mapped_column(String(10))
    note: Mapped[str | None] = mapped_column(String(50))
    customer_id: Mapped[int] = mapped_column("customer_fk", ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship(back_populates="orders")
    customer_public_id: Mapped[CustomerId] = public_ref("customer")
    billing_id: Mapped[int | None] = mapped_column(ForeignKey(Address.id))
    billing: Mapped[Address | None] = relationship(foreign_keys="Order.billing_id")
    billing_public_id: Mapped[str | None] = public_ref("billing")
    shipping: Mapped[Address | None] = relationship(foreign_keys="Order.shipping_id")


class Rush(Order):
    """A joined-table subclass with a reference more."""

    __tablename__ = "rush"

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        return {"polymorphic_identity": "rush", "inherit_condition": cls.__table__.c.id == Order.__table__.c.id}

    id: Mapped[int] = mapped_column(ForeignKey(Order.id), primary_key=True)
    replaces_id: Mapped[int | None] = mapped_column(ForeignKey(Order.id))
    replaces: Mapped[Order | None] = relationship(foreign_keys=replaces_id)
    replaces_public_id: Mapped[str | None] = public_ref("replaces")


class Node(PublicIdMixin, Base):
    """Refers to its own table."""

    __tablename__ = "node"
    __public_id__ = NanoId(prefix="rfnode")
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("node.id"))
    parent: Mapped[Node | None] = relationship(remote_side="Node.id")
    parent_public_id: Mapped[str | None] = public_ref("parent")


class Currency(PublicIdMixin, Base):
    __tablename__ = "currency"
    __public_id__ = NanoId(prefix="rfcur")
    code: Mapped[str] = mapped_column(String(3), unique=True)


class Price(PublicIdMixin, Base):
    """Refers to a unique column that is no primary key."""

    __tablename__ = "price"
    currency_code: Mapped[str | None] = mapped_column(ForeignKey(Currency.code))
    currency: Mapped[Currency | None] = relationship()
    currency_public_id: Mapped[str | None] = public_ref("currency")


UNKNOWN = CustomerId("rfcus_zzzzzzzzzzzz")
MALFORMED = ["", "nonsense", "rford_000000000000", "RFCUS_000000000000", "rfcus_00000000000\0", "a" * 100_000]
CUSTOMERS = [CustomerId(f"rfcus_{number:012}") for number in range(10)]
ADDRESSES = [f"rfadr_{number:012}" for number in range(3)]
NEW = "rfadr_zzzzzzzzzzzz"


def fill(session: Session) -> None:
    """Add ten customers of ten orders each, whose addresses are given in turn: none, first, second."""
    customers = [Customer(public_id=each, name=f"customer {each[-1]}") for each in CUSTOMERS]
    addresses = [None, *(Address(public_id=each) for each in ADDRESSES[1:])]
    session.add_all([*customers, Address(public_id=ADDRESSES[0])])
    for number in range(100):
        customer, billing, shipping = customers[number // 10], addresses[number % 3], addresses[2 - number % 3]
        session.add(Order(note=f"{number:02}", customer=customer, billing=billing, shipping=shipping))


@pytest.fixture(scope="module")
def engine_of() -> Iterator[EngineOf]:
    with filled_once(Base.metadata, fill) as engine_of:
        yield engine_of


@pytest.fixture
def engine(database: str, new_engine: Callable[..., Engine], engine_of: EngineOf) -> Engine:
    return engine_of(database, new_engine)


@pytest.fixture
def db(session: Session) -> Session:
    """A session whose transaction has begun."""
    session.connection()
    return session


def page(session: Session, *options: Any) -> list[Order]:
    return list(session.scalars(select(Order).order_by(Order.note).options(*options)))


# --- read


@pytest.mark.backend
def test_a_page_in_two_statements(db: Session, statements: list[str]) -> None:
    """The first access asks for all objects of the session; no customer is loaded."""
    statements.clear()
    orders = page(db)

    assert [order.customer_public_id for order in orders] == [CUSTOMERS[number // 10] for number in range(100)]
    assert {type(order.customer_public_id) for order in orders} == {CustomerId}
    assert len(statements) == 2
    assert not [each for each in db.identity_map.values() if isinstance(each, Customer)]


def test_references_to_one_model_are_read_together(db: Session, statements: list[str]) -> None:
    """Billing and shipping address: one statement for both, and null for none."""
    orders = page(db)
    statements.clear()

    assert [order.billing_public_id for order in orders[:3]] == [None, *ADDRESSES[1:]]
    assert [order.shipping_public_id for order in orders[:3]] == [ADDRESSES[2], ADDRESSES[1], None]
    assert len(statements) == 1


@pytest.mark.parametrize(
    "option",
    [references.eager(Order.customer_public_id), selectinload(Order.customer), joinedload(Order.customer)],
    ids=["eager", "selectinload", "joinedload"],
)
def test_loaded_with_the_query(db: Session, statements: list[str], option: Any) -> None:
    """What a loader option has fetched needs no statement more."""
    statements.clear()
    orders = page(db, option)
    assert len(statements) <= 2
    statements.clear()

    assert [order.customer_public_id for order in orders] == [CUSTOMERS[number // 10] for number in range(100)]
    assert statements == []


def test_eager_below_another_option(db: Session, statements: list[str]) -> None:
    """The option stands wherever loader options do, aliases included."""
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
    """All references of the objects given, in one statement for each model; none when they are known."""
    orders = page(db)
    statements.clear()
    references.load(db, iter(orders))
    assert len(statements) == 2
    references.load(db, orders)
    references.load(db, [])

    assert {order.customer_public_id for order in orders} == set(CUSTOMERS)
    assert {order.shipping_public_id for order in orders} == {None, *ADDRESSES[1:]}
    assert len(statements) == 2
    wrong: list[Any] = [[1], ["rford_000000000000"], [Order], [None]]
    for objects in wrong:
        with pytest.raises(TypeError, match="mapped objects"):
            references.load(db, objects)


def test_objects_that_are_there_are_asked_first(db: Session, statements: list[str]) -> None:
    """Where the customers are in the session, nothing is sent."""
    customers = db.scalars(select(Customer)).all()
    orders = page(db)
    statements.clear()

    assert {order.customer_public_id for order in orders} == {customer.public_id for customer in customers}
    assert statements == []


def test_reading_does_not_flush(db: Session, statements: Any) -> None:
    """A reference is read without writing what is pending."""
    order = page(db)[0]
    db.add(Address())

    assert order.customer_public_id == CUSTOMERS[0]
    assert statements.starting("INSERT") == []


def test_a_changed_foreign_key(db: Session) -> None:
    """The reference follows the foreign key, and the relationship, as soon as they are set."""
    order, *_, last = page(db)
    assert order.customer_public_id == CUSTOMERS[0]
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
    """After a refresh of one of two foreign keys, or of both, its reference shows the id that is stored now."""
    order = page(db)[1]
    order.shipping_id = order.billing_id
    db.flush()
    assert order.billing_public_id == order.shipping_public_id == ADDRESSES[1]
    db.connection().execute(update(Address.__table__).where(Address.id == order.billing_id).values(public_id=NEW))
    getattr(db, way)(order, keys)

    for name in keys or ["billing_id", "shipping_id"]:
        assert getattr(order, name.replace("_id", "_public_id")) == NEW


def test_refreshed_after_an_update(db: Session) -> None:
    """A foreign key that another statement has changed is seen when the object is refreshed."""
    order, *_, last = page(db)
    assert order.customer_public_id == CUSTOMERS[0]
    changed = update(Order.__table__).where(Order.id == order.id).values({Order.customer_id: last.customer_id})
    db.connection().execute(changed)
    db.refresh(order)
    assert order.customer_public_id == CUSTOMERS[9]


@pytest.mark.parametrize("way", ["refresh", "expire"])
def test_other_attributes_expired(db: Session, statements: list[str], way: Literal["refresh", "expire"]) -> None:
    """What was fetched is kept when attributes other than the foreign key are expired, as by a flush."""
    order = page(db)[0]
    assert order.customer_public_id == CUSTOMERS[0]
    getattr(db, way)(order, ["note"])
    assert order.note == "00"
    statements.clear()

    assert order.customer_public_id == CUSTOMERS[0]
    assert statements == []


def test_two_sessions(db: Session, engine: Engine) -> None:
    """What one session has read, or assigned, is not what another one shows."""
    order = page(db)[0]
    assert order.customer_public_id == CUSTOMERS[0]
    with Session(engine) as other:
        there = other.get_one(Order, order.id)
        there.customer_public_id = CUSTOMERS[9]
        other.flush()
        assert order.customer_public_id == CUSTOMERS[0]
        other.rollback()
        assert there.customer_public_id == CUSTOMERS[0]


@pytest.mark.backend
def test_threads(engine: Engine) -> None:
    """Sessions of several threads read, assign and roll back at once."""

    def work(number: int) -> list[str]:
        with Session(engine) as session:
            orders = page(session)[number * 10 : number * 10 + 10]
            for order in orders:
                order.billing_public_id = ADDRESSES[2]
            if engine.name != "sqlite":  # it has one writer
                session.flush()
            return [order.customer_public_id for order in orders]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(10))) == [[customer] * 10 for customer in CUSTOMERS]


def test_detached(db: Session) -> None:
    """A detached object shows what was loaded, also after pickling; what was not is an error that says what to do."""
    order = page(db)[0]
    assert order.customer_public_id == CUSTOMERS[0]
    db.expunge_all()

    assert pickle.loads(pickle.dumps(order)).customer_public_id == order.customer_public_id == CUSTOMERS[0]
    with pytest.raises(DetachedInstanceError, match=r"Order\.shipping_public_id.*references\.eager"):
        order.shipping_public_id  # noqa: B018


def test_pickled_before_the_flush(db: Session) -> None:
    """An object that waits for its key can be pickled and copied, also after a flush that has found others."""
    db.add(Order(customer_public_id=CUSTOMERS[0], shipping_public_id=ADDRESSES[0]))
    db.flush()
    order = Order(customer_public_id=CUSTOMERS[1], shipping_public_id=ADDRESSES[0])

    for copied in (pickle.loads(pickle.dumps(order)), copy.deepcopy(order)):
        assert copied.customer_public_id == CUSTOMERS[1]
        db.add(copied)
        db.flush()
        assert copied.customer.public_id == CUSTOMERS[1]


def test_assigned_again_after_a_rollback(db: Session) -> None:
    """The key of a row that was rolled back may be given out again: an id that is assigned again finds its own row."""
    savepoint = db.begin_nested()
    customer = Customer(name="Edsger")
    db.add(customer)
    db.flush()
    order = Order(customer_public_id=customer.public_id)
    db.add(order)
    db.flush()
    key = order.customer_id
    savepoint.rollback()
    db.add(Customer(id=key, name="stranger"))
    db.flush()

    customer.id = order.id = None  # type: ignore[assignment]  # new rows
    order.customer_public_id = customer.public_id
    db.add_all([customer, order])
    db.flush()

    assert order.customer_id == customer.id != key
    db.expire_all()
    assert order.customer.name == "Edsger"


# --- compare and sort in SQL


def notes(session: Session, *conditions: Any) -> list[str | None]:
    return list(session.scalars(select(Order.note).where(*conditions).order_by(Order.note)))


@pytest.mark.backend
def test_filter(db: Session) -> None:
    """Equal, in a list, null, and their opposites, answer as a column would."""
    everything = [f"{number:02}" for number in range(100)]
    first, rest = everything[:10], everything[10:]
    ref, billing = Order.customer_public_id, Order.billing_public_id

    assert notes(db, ref == CUSTOMERS[0]) == first
    assert notes(db, ref == str(CUSTOMERS[0])) == first
    assert notes(db, ref != CUSTOMERS[0]) == rest
    assert notes(db, ~(ref == CUSTOMERS[0])) == rest
    assert notes(db, ref.in_([CUSTOMERS[0], UNKNOWN])) == first
    assert notes(db, ref.not_in({CUSTOMERS[0], UNKNOWN})) == rest
    assert notes(db, ref.in_([])) == notes(db, ref == UNKNOWN) == []
    for malformed in MALFORMED:
        assert notes(db, ref == malformed) == notes(db, ref.in_([malformed])) == []
    assert notes(db, ref != UNKNOWN) == notes(db, ref.not_in([UNKNOWN])) == everything
    assert notes(db, billing.is_(None)) == notes(db, billing == None) == everything[::3]  # noqa: E711
    assert len(notes(db, billing.is_not(None))) == len(notes(db, billing != UNKNOWN)) == 66
    assert len(notes(db, billing != ADDRESSES[1])) == len(notes(db, billing.not_in([ADDRESSES[1]]))) == 33
    assert len(notes(db, billing.is_distinct_from(ADDRESSES[1]))) == 67
    assert notes(db, ref.like("%3")) == everything[30:40]
    assert (
        notes(db, ref == select(Customer.public_id).where(Customer.name == "customer 4").scalar_subquery())
        == (everything[40:50])
    )


@pytest.mark.backend
def test_select_and_sort(db: Session, statements: list[str]) -> None:
    """The ids are a column of a query like any other: selected, sorted, grouped, beside the table they come from."""
    statements.clear()
    rows = db.execute(
        select(Order.note, Order.customer_public_id).order_by(Order.customer_public_id.desc(), Order.note)
    )
    assert [public_id for _, public_id in rows] == [CUSTOMERS[9 - number // 10] for number in range(100)]
    alone = db.scalars(select(Order.customer_public_id).order_by(Order.note)).all()
    assert alone == [CUSTOMERS[number // 10] for number in range(100)]
    assert {type(public_id) for public_id in alone} == {CustomerId}
    assert list(db.scalars(select(Order.billing_public_id).order_by(Order.note).limit(3))) == [None, *ADDRESSES[1:]]
    joined = select(Customer.public_id, Order.customer_public_id).join(Order.customer)
    assert all(one == other for one, other in db.execute(joined))
    counted = select(Order.customer_public_id.label("customer"), func.count()).group_by("customer")
    assert [tuple(row) for row in db.execute(counted.order_by("customer"))] == [(each, 10) for each in CUSTOMERS]
    sub = select(Order.customer_public_id).distinct().subquery()
    assert set(db.scalars(select(sub.c.customer_public_id))) == set(CUSTOMERS)


@pytest.mark.backend
def test_aliases(db: Session) -> None:
    """Two aliases of one table are told apart."""
    one, other = aliased(Order), aliased(Order)
    query = select(func.count()).select_from(one).join(other, one.customer_public_id == other.customer_public_id)

    assert db.scalar(query.where(one.customer_public_id == CUSTOMERS[3], other.note == "30")) == 10
    assert db.scalars(select(other.customer_public_id).where(other.note == "55")).all() == [CUSTOMERS[5]]


# --- assign


@pytest.mark.backend
def test_a_hundred_orders(db: Session, statements: Any) -> None:
    """A flush sends one SELECT, however many rows refer to however many customers."""
    new = [Order(note="new", customer_public_id=CUSTOMERS[number % 10]) for number in range(100)]
    statements.clear()
    db.add_all(new)
    db.flush()

    assert len(statements.starting("SELECT")) == 1
    assert [order.customer_public_id for order in new] == [CUSTOMERS[number % 10] for number in range(100)]
    assert len(statements.starting("SELECT")) == 1
    assert new[3].customer.public_id == CUSTOMERS[3]
    db.expire_all()
    assert len(notes(db, Order.customer_public_id == CUSTOMERS[7], Order.note == "new")) == 10


@fast_ways
@pytest.mark.backend
def test_bulk_insert(db: Session, statements: Any) -> None:
    """``bulk.insert`` finds the keys as a flush does, and sends the rows together nevertheless."""
    new = [Order(note="bulk", customer_public_id=CUSTOMERS[number % 10]) for number in range(100)]
    statements.clear()
    bulk.insert(db, new)

    assert len(statements.starting("INSERT")) == 1
    assert len([text for text in statements.starting("SELECT") if "customer.public_id" in text]) == 1

    assert len(notes(db, Order.customer_public_id == CUSTOMERS[7], Order.note == "bulk")) == 10
    assert [order.customer.public_id for order in new[:10]] == CUSTOMERS


def test_reassign(db: Session, statements: Any) -> None:
    """A stored object points to the other row after the flush, relationship included; the same id changes nothing."""
    order = page(db)[0]
    assert order.customer.public_id == CUSTOMERS[0]
    order.customer_public_id = CUSTOMERS[5]
    assert order.customer_public_id == CUSTOMERS[5]
    db.flush()
    assert order.customer.public_id == order.customer_public_id == CUSTOMERS[5]
    statements.clear()
    order.customer_public_id = CustomerId(CUSTOMERS[5])
    db.flush()
    assert statements == []
    db.rollback()
    assert order.customer_public_id == CUSTOMERS[0]
    assert order.customer.public_id == CUSTOMERS[0]


def test_none_clears(db: Session) -> None:
    """``None`` clears a foreign key that may be null, and is an error at once for one that may not."""
    order = page(db)[1]
    assert order.billing is not None
    order.billing_public_id = None
    assert order.billing_public_id is None
    db.flush()
    assert order.billing is order.billing_id is None
    with pytest.raises(InvalidPublicId) as caught:
        order.customer_public_id = None  # type: ignore[assignment]
    assert caught.value.field == "Order.customer_public_id"
    assert order.customer_public_id == CUSTOMERS[0]


@pytest.mark.parametrize("wrong", [*MALFORMED, 1, True, b"rfcus_000000000000", [CUSTOMERS[0]]], ids=type)
def test_malformed_is_an_error_at_once(wrong: Any) -> None:
    """What cannot be an id is refused by the assignment, which names the attribute."""
    order = Order(customer_public_id=CUSTOMERS[0])
    with pytest.raises(InvalidPublicId) as caught:
        order.customer_public_id = wrong

    assert caught.value.field == "Order.customer_public_id"
    assert order.customer_public_id == CUSTOMERS[0]


@pytest.mark.backend
def test_unknown_is_an_error_before_anything_is_written(db: Session, statements: Any) -> None:
    """The error names attribute and value; nothing was sent, and the flush succeeds when the id is put right."""
    order = Order(note="unknown", customer_public_id=UNKNOWN)
    db.add_all([Address(), order])
    statements.clear()
    with pytest.raises(PublicIdNotFound) as caught:
        db.flush()

    assert (caught.value.value, caught.value.field) == (UNKNOWN, "Order.customer_public_id")
    assert caught.value.model == "Customer"
    assert statements.starting("INSERT") == []
    order.customer_public_id = CUSTOMERS[2]
    db.flush()
    assert order.customer.public_id == CUSTOMERS[2]


def test_pending_objects(db: Session, statements: Any) -> None:
    """The public id of an object that the same flush inserts is good, in whatever order they were added."""
    customer = Customer(name="new")
    order = Order(customer_public_id=customer.public_id)
    statements.clear()
    db.add(order)
    db.add(customer)
    db.flush()

    assert statements.starting("SELECT") == []
    assert order.customer is customer
    assert order.customer_id == customer.id
    assert order.customer_public_id == customer.public_id


@pytest.mark.backend
def test_self_reference(db: Session) -> None:
    """A tree, whose nodes refer to each other before any of them is stored."""
    root = Node()
    child = Node(parent_public_id=root.public_id)
    leaf = Node(parent_public_id=child.public_id)
    db.add_all([leaf, child, root])
    db.flush()
    db.expire_all()

    assert (leaf.parent_public_id, child.parent_public_id, root.parent_public_id) == (
        *(child.public_id, root.public_id),
        None,
    )
    found = select(Node.public_id).where(Node.parent_public_id == root.public_id)
    assert db.scalars(found).all() == [child.public_id]
    assert db.scalars(select(Node.parent_public_id).where(Node.id == leaf.id)).all() == [child.public_id]


@pytest.mark.backend
def test_unique_column_that_is_no_primary_key(db: Session, statements: list[str]) -> None:
    """The foreign key may point to any unique column."""
    euro = Currency(code="EUR")
    db.add(euro)
    db.flush()
    price = Price(currency_public_id=euro.public_id)
    db.add(price)
    db.flush()
    db.expire_all()

    assert price.currency_code == "EUR"
    assert price.currency_public_id == euro.public_id
    assert db.scalars(select(Price).where(Price.currency_public_id == euro.public_id)).all() == [price]
    assert db.scalars(select(Price.currency_public_id)).all() == [euro.public_id]


def test_inheritance(db: Session, statements: list[str]) -> None:
    """A subclass has the references of its superclass, and its own; both are read, compared and assigned."""
    order = page(db)[0]
    rush = Rush(note="rush", customer_public_id=CUSTOMERS[4], replaces_public_id=order.public_id)
    db.add(rush)
    db.flush()
    replaced = order.public_id
    db.expunge_all()
    rush = db.scalars(select(Rush)).one()

    assert (rush.customer_public_id, rush.replaces_public_id) == (CUSTOMERS[4], replaced)
    assert db.scalars(select(Rush.customer_public_id)).all() == [CUSTOMERS[4]]
    assert db.scalars(select(Rush.note).where(Rush.customer_public_id == CUSTOMERS[4])).all() == ["rush"]
    assert db.scalars(select(Rush.note).where(Rush.replaces_public_id == replaced)).all() == ["rush"]
    db.expunge_all()
    assert [each.customer_public_id for each in page(db)] == [*(CUSTOMERS[n // 10] for n in range(100)), CUSTOMERS[4]]


# --- reference and relationship at once


@pytest.mark.parametrize("name", ["customer", "customer_id"])
def test_what_is_set_later_wins(db: Session, name: str) -> None:
    """An object, or an integer key, that is set after the id is the one that is stored."""
    customer = db.scalars(select(Customer).where(Customer.public_id == CUSTOMERS[6])).one()
    order = Order(customer_public_id=UNKNOWN)
    setattr(order, name, customer if name == "customer" else customer.id)
    if name == "customer":
        assert order.customer_public_id == CUSTOMERS[6]
    db.add(order)
    db.flush()

    assert order.customer_id == customer.id
    assert order.customer_public_id == CUSTOMERS[6]


def test_the_reference_after_another_object_is_refused(db: Session) -> None:
    """An id that contradicts an object set before it is an error; the id of that object is not."""
    order = Order(customer=Customer(name="new"))
    order.customer_public_id = order.customer.public_id
    with pytest.raises(ConfigurationError, match="set only one of the two"):
        order.customer_public_id = CUSTOMERS[0]


def test_merge(db: Session) -> None:
    """What was assigned to an object goes with it when it is merged."""
    first, second, *_ = page(db)
    merged = db.merge(Order(id=first.id, customer_public_id=CUSTOMERS[9]))
    assert merged is first
    assert merged.customer_public_id == CUSTOMERS[9]
    db.flush()

    assert first.customer.public_id == CUSTOMERS[9]
    assert second.customer_public_id == CUSTOMERS[0]


# --- past the unit of work


@pytest.mark.backend
def test_insert_of_rows(db: Session, statements: Any) -> None:
    """``insert(Model)`` with rows translates their references in one SELECT a model."""
    rows = [{"note": "row", "customer_public_id": CUSTOMERS[number % 10]} for number in range(20)]
    statements.clear()
    db.execute(insert(Order), rows)
    db.execute(insert(Order), {"note": "row", "customer_public_id": CUSTOMERS[7], "billing_public_id": ADDRESSES[1]})

    assert len(statements.starting("SELECT")) == 3
    assert len(notes(db, Order.note == "row", Order.customer_public_id == CUSTOMERS[7])) == 3
    assert len(notes(db, Order.note == "row", Order.billing_public_id == ADDRESSES[1])) == 1
    assert rows[0].keys() == {"note", "customer_public_id"}
    returned = db.scalars(insert(Order).returning(Order), rows[:2]) if db.get_bind().name != "mysql" else ()
    assert all(order.customer_public_id in CUSTOMERS for order in returned)


@pytest.mark.backend
def test_insert_of_unknown_rows(db: Session, statements: Any) -> None:
    """An id that belongs to no row, or is malformed, is an error; nothing was written."""
    for wrong, error in ((UNKNOWN, PublicIdNotFound), ("nonsense", InvalidPublicId), (None, InvalidPublicId)):
        with pytest.raises(error) as caught:
            db.execute(insert(Order), [{"customer_public_id": CUSTOMERS[0]}, {"customer_public_id": wrong}])
        assert caught.value.field == "Order.customer_public_id"
    assert statements.starting("INSERT") == []


@pytest.mark.backend
def test_update_of_rows(db: Session, statements: Any) -> None:
    """So does ``update(Model)`` by primary key."""
    first, second, *_ = page(db)
    db.execute(
        update(Order),
        [
            {"id": first.id, "customer_public_id": CUSTOMERS[3], "billing_public_id": ADDRESSES[2]},
            {"id": second.id, "customer_public_id": CUSTOMERS[4], "billing_public_id": None},
        ],
    )
    db.expire_all()

    assert (first.customer_public_id, first.billing_public_id) == (CUSTOMERS[3], ADDRESSES[2])
    assert (second.customer_public_id, second.billing_public_id) == (CUSTOMERS[4], None)


@pytest.mark.parametrize(
    "make",
    [
        lambda values: insert(Order).values(values),
        lambda values: insert(Order).values([values]),
        lambda values: update(Order).values(values),
        lambda values: update(Order).values({Order.note: "silent", Order.billing_public_id: ADDRESSES[1]}),
    ],
)
def test_never_silently_null(db: Session, make: Callable[[dict[str, Any]], Any]) -> None:
    """Where a reference cannot be translated, it is an error, and not a null."""
    values = {"note": "silent", "customer_id": page(db)[0].customer_id, "billing_public_id": ADDRESSES[1]}
    with pytest.raises(ConfigurationError, match=r"billing_public_id.*lookup\.keys_of"):
        db.execute(make(values))
    assert notes(db, Order.note == "silent") == []


def test_late_assignment(db: Session, listen: Callable[..., None]) -> None:
    """An id that is assigned while the flush is under way is refused, and so is its foreign key as a value in SQL."""
    order = Order(customer_public_id=CUSTOMERS[0])
    with pytest.raises(ConfigurationError, match="flush the session before"):
        select(Order).where(Order.customer_id == order.customer_id)
    listen(Order, "before_insert", lambda *at: setattr(at[2], "customer_public_id", CUSTOMERS[1]))
    db.add(Order())
    with pytest.raises(ConfigurationError, match="flush the session before"):
        db.flush()


def test_the_relationship_before_the_flush(db: Session) -> None:
    """A relationship that is loaded while the id waits leads to the right object, a new one included."""
    order = page(db)[0]
    order.customer_public_id = CUSTOMERS[5]
    assert order.customer.public_id == CUSTOMERS[5]
    db.expire(order)
    order.customer_public_id = CUSTOMERS[6]
    with db.no_autoflush:
        assert order.customer.public_id == CUSTOMERS[6]
    db.flush()
    assert order.customer.public_id == CUSTOMERS[6]
    db.expire(order)
    new = Customer(name="new")
    db.add(new)
    order.customer_public_id = new.public_id
    assert order.customer is new


INDEXES = {"postgresql": "Index", "mysql": "ndex lookup", "mariadb": "uq_customer_public_id"}


@pytest.mark.backend
@on(*INDEXES)
def test_a_comparison_uses_the_indexes(db: Session, engine: Engine) -> None:
    """The plan for the orders of one customer reads no table from end to end."""
    if engine.dialect.name == "postgresql":
        db.execute(text("SET LOCAL enable_seqscan = off"))  # the tables are tiny
        db.execute(text('CREATE INDEX ON "order" (customer_fk)'))
    query = select(Order.id).where(Order.customer_public_id == CUSTOMERS[3])
    compiled = query.compile(engine, compile_kwargs={"literal_binds": True})
    plan = "\n".join(str(row) for row in db.execute(text(f"EXPLAIN {compiled}".replace(":", r"\:"))))

    assert INDEXES[engine.dialect.name] in plan
    assert "Seq Scan" not in plan
    assert "Table scan" not in plan
    assert "ALL" not in plan.split()


@pytest.mark.backend
def test_random_programs(engine: Engine) -> None:
    """Whatever is set, in whatever order, the reference shows what the next flush stores."""

    @given(steps=st.lists(st.tuples(st.sampled_from(["id", "object", "none", "flush", "expire"]), st.integers(0, 2))))
    @settings(max_examples=40)
    def program(steps: list[tuple[str, int]]) -> None:
        with Session(engine) as session:
            addresses = session.scalars(select(Address).order_by(Address.public_id)).all()
            order = session.scalars(select(Order).order_by(Order.note).limit(1)).one()
            expected = stored = order.billing_public_id
            is_object = False
            for what, number in steps:
                if what == "id":
                    if is_object:
                        continue
                    order.billing_public_id, expected = ADDRESSES[number], ADDRESSES[number]
                elif what == "object":
                    order.billing, expected, is_object = addresses[number], ADDRESSES[number], True
                elif what == "none":
                    order.billing, expected, is_object = None, None, True
                elif what == "flush":
                    session.flush()
                    stored, is_object = expected, False
                else:
                    session.expire(order)
                    expected, is_object = stored, False
                assert order.billing_public_id == expected
            session.flush()
            assert order.billing_public_id == expected
            session.expire_all()
            assert order.billing_public_id == expected
            assert (order.billing.public_id if order.billing else None) == expected

    program()


@pytest.mark.backend
def test_deferred_foreign_keys(db: Session, statements: Any) -> None:
    """Where foreign keys are not loaded, or expired, they are fetched for all objects at once, and then the ids."""
    db.add_all([Order(note="late", customer_public_id=CUSTOMERS[number % 10]) for number in range(50)])
    db.commit()
    wanted = [CUSTOMERS[number % 10] for number in range(50)]
    query = select(Order).where(Order.note == "late").order_by(Order.id)

    for options, ask in (
        ([load_only(Order.note)], lambda some: references.load(db, some)),
        ([load_only(Order.note)], lambda some: None),
        ([load_only(Order.note), references.eager(Order.customer_public_id)], lambda some: None),
    ):
        db.expunge_all()
        statements.clear()
        orders = db.scalars(query.options(*options)).all()
        ask(orders)
        assert [order.customer_public_id for order in orders] == wanted
        assert len(statements) <= 4

    db.expire_all()
    statements.clear()
    references.load(db, orders)
    assert [order.customer_public_id for order in orders] == wanted
    assert len(statements) <= 4


@pytest.mark.parametrize("reason", ["gone", "refused"])
def test_neighbour_that_cannot_be_read(db: Session, reason: str) -> None:
    """An object whose row is gone, or whose foreign key may not be loaded, does not keep others from being read."""
    first, second, *_ = page(db)
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


@pytest.mark.backend
def test_self_reference_in_update(db: Session) -> None:
    """UPDATE and DELETE by a reference to the same table, which MySQL reads by way of a copy."""
    root = Node()
    db.add_all([root, Node(parent=root), Node(parent=root)])
    db.flush()
    id = root.public_id

    assert db.execute(update(Node).where(Node.parent_public_id == id).values(parent_id=None)).rowcount == 2
    assert db.execute(delete(Node).where(Node.parent_public_id == "nonsense")).rowcount == 0


# --- with AsyncSession


EXPECTED = [CUSTOMERS[number // 10] for number in range(100)]
Story = Callable[[AsyncSession, list[str]], Awaitable[None]]


@pytest.fixture
def run(async_engine: AsyncEngine) -> Callable[[Story], None]:
    """Run a story with a session on filled tables, and with the statements that it sends."""

    def run(story: Story) -> None:
        async def with_rows(session: AsyncSession) -> None:
            await session.run_sync(fill)
            await session.commit()
            session.expunge_all()
            sent: list[str] = []
            event.listen(async_engine.sync_engine, "before_cursor_execute", lambda *details: sent.append(details[2]))
            await story(session, sent)

        tell(async_engine, Base.metadata, with_rows)

    return run


@pytest.mark.backend
@pytest.mark.parametrize("way", ["eager", "load"])
def test_async_read(run: Callable[[Story], None], way: str) -> None:
    """A page takes two statements, by the option and by ``load()``, and what was fetched survives a commit."""

    async def story(session: AsyncSession, sent: list[str]) -> None:
        query = select(Order).order_by(Order.note)
        options = [references.eager(Order.customer_public_id)] if way == "eager" else []
        orders = (await session.scalars(query.options(*options))).all()
        if way == "load":
            await awaited.references.load(session, orders)
            assert len(sent) == 3  # the addresses are of another model
            await session.commit()
        assert [order.customer_public_id for order in orders] == EXPECTED
        assert len(sent) == (2 if way == "eager" else 3)

    run(story)


@pytest.mark.backend
def test_async_not_loaded(run: Callable[[Story], None]) -> None:
    """An access that would have to wait says what to write; ``run_sync`` may wait."""

    async def story(session: AsyncSession, sent: list[str]) -> None:
        order = (await session.scalars(select(Order).order_by(Order.note).limit(1))).one()
        remedies = r"references\.eager.*await sqlalchemy_public_id\.asyncio\.references\.load"
        with pytest.raises(MissingGreenlet, match=rf"Order\.customer_public_id is not loaded.*{remedies}"):
            order.customer_public_id  # noqa: B018
        assert await session.run_sync(lambda _: order.customer_public_id) == CUSTOMERS[0]
        assert order.customer_public_id == CUSTOMERS[0]

    run(story)


@pytest.mark.backend
def test_async_assign(run: Callable[[Story], None]) -> None:
    """One SELECT finds the keys of all that are flushed; an id that belongs to no row is an error."""

    async def story(session: AsyncSession, sent: list[str]) -> None:
        orders = [Order(customer_public_id=each) for each in EXPECTED]
        await awaited.bulk.insert(session, orders)
        assert len([statement for statement in sent if statement.startswith("SELECT customer")]) == 1
        assert [order.customer_public_id for order in orders] == EXPECTED
        row: dict[str, Any] = {"customer_public_id": CUSTOMERS[0], "billing_public_id": None}
        await session.execute(insert(Order), [row, row])
        found = await session.scalars(select(Order.customer_public_id).where(Order.customer_public_id == CUSTOMERS[0]))
        assert len(found.all()) == 22
        session.add(Order(customer_public_id=UNKNOWN))
        with pytest.raises(PublicIdNotFound) as caught:
            await session.flush()
        assert caught.value.field == "Order.customer_public_id"

    run(story)
