"""A public id, or another text that is no integer, is refused in place of an internal key, on every database."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import (
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    any_,
    bindparam,
    delete,
    insert,
    null,
    select,
    union,
    update,
)
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column, relationship
from sqlalchemy.types import BigInteger

from sqlalchemy_public_id import PublicIdMixin, TypedId, bulk, lookup, public_ref
from sqlalchemy_public_id.errors import InvalidKey
from sqlalchemy_public_id.keys import cluster_key

pytestmark = pytest.mark.backend

LOOKS_LIKE_7 = "7abcdefghijk"
"""An id that MySQL and MariaDB compare with a number as 7."""


class Base(DeclarativeBase):
    metadata = MetaData()


class OwnerId(TypedId, prefix="ktown"): ...


class Customer(PublicIdMixin, Base):
    __tablename__ = "kt_customer"
    name: Mapped[str] = mapped_column(String(50))


class Order(PublicIdMixin, Base):
    __tablename__ = "kt_order"
    customer_id: Mapped[int | None] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer | None] = relationship()
    customer_public_id: Mapped[str | None] = public_ref("customer")


@pytest.fixture
def seven(session: Session, create: Callable[[MetaData], None]) -> Customer:
    """The customer with the key 7, who has an order; the other customer has an id that begins with 7."""
    create(Base.metadata)
    seven = Customer(id=7, name="seven")
    session.add_all([seven, Customer(id=1, name="me", public_id=LOOKS_LIKE_7), Order(customer=seven)])
    session.flush()
    return seven


OTHER = aliased(Customer)

COMPARED: dict[str, Callable[[Any], Any]] = {
    "==": lambda value: select(Customer).where(Customer.id == value),
    "!=": lambda value: select(Customer).where(Customer.id != value),
    "<": lambda value: select(Customer).where(Customer.id < value),
    "between": lambda value: select(Customer).where(Customer.id.between(value, 9)),
    "filter_by": lambda value: select(Customer).filter_by(id=value),
    "a foreign key": lambda value: select(Order).where(Order.customer_id == value),
    "in_": lambda value: select(Order).where(Order.customer_id.in_([value])),
    "in_, the second": lambda value: select(Order).where(Order.customer_id.in_([1, value])),
    "an alias": lambda value: select(OTHER).where(OTHER.id == value),
    "a parameter": lambda value: select(Customer).where(Customer.id == bindparam("key")).params(key=value),
    "UPDATE": lambda value: update(Customer).where(Customer.id == value).values(name="stolen"),
    "DELETE": lambda value: delete(Order).where(Order.customer_id == value),
}


@pytest.mark.parametrize("form", COMPARED)
def test_comparisons(form: str, session: Session, seven: Customer) -> None:
    """A statement that compares a key with a public id is refused before it is sent; an integer is compared."""
    with pytest.raises(InvalidKey, match=r"'7abcdefghijk' is compared with.*lookup\.get\(session, Model"):
        session.execute(COMPARED[form](LOOKS_LIKE_7))

    session.execute(COMPARED[form](7))


@pytest.mark.parametrize(
    "value", [LOOKS_LIKE_7, OwnerId("ktown_izkpm55j334u"), "7.0", "", "seven", b"7a", UUID(int=7)], ids=repr
)
def test_values(value: object, session: Session, seven: Customer) -> None:
    """``session.get()`` refuses whatever is neither a number nor the text of an integer."""
    with pytest.raises(InvalidKey) as caught:
        session.get(Customer, value)

    assert caught.value.value is value


@pytest.mark.parametrize("value", [7, "7", "+7", "007", b"7"])
def test_integers(value: Any, session: Session, seven: Customer) -> None:
    """Numbers, and the text of an integer, find the row with that key."""
    session.expunge_all()

    found = session.get_one(Customer, value)

    assert (found.id, found.name) == (7, "seven")


def test_stored_values(session: Session, seven: Customer) -> None:
    """A foreign key is not stored with the public id of its row, by a flush, a statement or a bulk insert."""
    with pytest.raises(InvalidKey, match=r"public_ref\(\)"), session.begin_nested():
        session.add(Order(customer_id=LOOKS_LIKE_7))
        session.flush()
    with pytest.raises(InvalidKey):
        session.execute(insert(Order).values(customer_id=LOOKS_LIKE_7))
    with pytest.raises(InvalidKey):
        session.execute(insert(Order), [{"customer_id": None}, {"customer_id": LOOKS_LIKE_7}])
    with pytest.raises(InvalidKey), session.begin_nested():
        bulk.insert(session, [Order(customer_id=LOOKS_LIKE_7) for _ in range(30)])

    bulk.insert(session, [Order(customer_id=7 if number % 2 else None) for number in range(40)])
    assert len(session.scalars(select(Order).where(Order.customer_id == 7)).all()) == 21


QUERIES: dict[str, Callable[[Session, Any], Any]] = {
    "SELECT": lambda session, column: select(column),
    "UNION": lambda session, column: union(select(column), select(column)),
    "the second part of a UNION": lambda session, column: union(select(null()), select(column)),
    "a subquery": lambda session, column: select(select(column).subquery().c[0]),
    "a CTE": lambda session, column: select(select(column).cte().c[0]),
    "a label": lambda session, column: select(column.label("found")),
    "a scalar subquery": lambda session, column: select(column).scalar_subquery(),
    "session.query()": lambda session, column: session.query(column),
}


@pytest.mark.parametrize("form", QUERIES)
def test_queries_of_ids(form: str, session: Session, seven: Customer) -> None:
    """A query of public ids is refused in place of a query of keys."""
    query = partial(QUERIES[form], session)
    for given in (query(Customer.public_id), query(Order.customer_public_id)):
        with pytest.raises(InvalidKey, match="public_id"):
            Order.customer_id.in_(given)

    session.execute(select(Order).where(Order.customer_id.in_(query(Customer.id))))


@pytest.mark.parametrize("form", QUERIES)
def test_queries_of_keys(form: str, session: Session, seven: Customer) -> None:
    """A query of keys is refused in place of a query of public ids, which MySQL would compare by their digits."""
    query = partial(QUERIES[form], session)
    for ids in (Customer.public_id, Order.customer_public_id):
        for given in (query(Customer.id), query(Order.customer_id)):
            with pytest.raises(InvalidKey, match="public_id"):
                session.execute(select(ids).where(ids.in_(given)))

        session.execute(select(ids).where(ids.in_(query(OTHER.public_id))))


def test_scalar_subqueries(session: Session, seven: Customer) -> None:
    """A public id and a key are not compared if one of them is the result of a query."""
    ids, keys = (
        select(column).where(Customer.id == 7).scalar_subquery() for column in (Customer.public_id, Customer.id)
    )
    for given in (ids, any_(ids)):
        with pytest.raises(InvalidKey):
            Order.customer_id == given  # noqa: B015
    for condition in (Order.customer_public_id == keys, Order.public_id != keys, Order.public_id == any_(keys)):
        with pytest.raises(InvalidKey):
            session.execute(select(Order).where(condition))

    assert session.scalars(select(Order).where(Order.customer_id == keys, Order.customer_public_id == ids)).all()


def test_columns_in_lists(seven: Customer) -> None:
    """Building a comparison raises nothing: ``in`` compares a column with each item of a list."""
    assert Customer.__table__.c.id not in [Customer.__table__.c.public_id, Customer.__table__.c.name]
    assert "name" not in [Customer.__table__.c.id]


def test_lookups(session: Session, seven: Customer) -> None:
    """``lookup.get()`` finds the row that has the public id."""
    found = lookup.get(session, Customer, LOOKS_LIKE_7)

    assert found is not None
    assert found.name == "me"


def test_asynchronous_drivers(async_engine: AsyncEngine) -> None:
    """The check is the same with an asynchronous driver, whose own types replace SQLAlchemy's."""
    import asyncio

    async def get() -> None:
        async with AsyncSession(async_engine) as session:
            await session.get(Customer, LOOKS_LIKE_7)

    with pytest.raises(InvalidKey):
        asyncio.run(get())


def test_kinds_of_keys(engine: Engine) -> None:
    """Keys of clusters, and foreign keys to them, are checked as well, and are signed on MySQL."""

    class Apart(DeclarativeBase):
        metadata = MetaData()

    class Region(Apart):
        __tablename__ = "kt_region"
        id = cluster_key(cluster=10)

    class City(Apart):
        __tablename__ = "kt_city"
        id = mapped_column(Integer, primary_key=True)
        region_id = mapped_column(ForeignKey(Region.id))

    table = City.__table__
    written = str(table.c.region_id.type.compile(engine.dialect))

    assert written == ("INTEGER" if engine.name == "sqlite" else "BIGINT")
    with Session(engine) as session, pytest.raises(InvalidKey):
        session.execute(select(City.id).where(City.region_id == LOOKS_LIKE_7))


def test_other_keys(engine: Engine) -> None:
    """A key that the model declares itself, as a plain integer, keeps the comparisons of SQLAlchemy."""
    own: Any = mapped_column(BigInteger, primary_key=True).column

    assert own.type.bind_processor(engine.dialect) is None


def test_error_can_be_pickled(session: Session, seven: Customer) -> None:
    """The error survives pickling, which process pools and task queues do, with its value."""
    with pytest.raises(InvalidKey) as caught:
        session.get(Customer, LOOKS_LIKE_7)

    copied = pickle.loads(pickle.dumps(caught.value))

    assert type(copied) is InvalidKey
    assert copied.value == LOOKS_LIKE_7
    assert str(copied) == str(caught.value)
