"""Forty mistakes of the first week, written by someone who had read the README only, in the order of that list.

Rows that are only documented are those that the library cannot notice, or whose error is Python's or the database's.
"""

import asyncio
import random
import sys
from typing import Any

import pytest
from mistakes.models import Base, Customer, CustomerId, Order, OrderId, new_base
from mistakes.table import mistake
from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy import ForeignKey, String, insert, select, text, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import IntegrityError, LegacyAPIWarning
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, make_transient, mapped_column, relationship, selectinload
from support.command import run
from support.marks import on
from support.projects import Project

from sqlalchemy_public_id import PublicIdMixin, TypedId, lookup

notes = pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")


def client(base: Any, **members: Any) -> Any:
    """Declare a model, and configure it."""
    model = type("Client", (PublicIdMixin, base), {"__tablename__": "client", **members})
    model.registry.configure()
    return model


# --- 1 to 10: models


@mistake("class Customer(Base, PublicIdMixin[CustomerId])")
def test_base_first() -> None:
    """The model of the README is meant."""

    class Client(new_base(), PublicIdMixin[CustomerId]):
        __tablename__ = "client"

    assert type(Client().public_id) is CustomerId


@mistake(
    "class Customer(PublicIdMixin(CustomerId), Base)",
    documented=("guides/declaring-ids", r"`PublicIdMixin\[CustomerId\]`"),
)
def test_mixin_is_called() -> None:
    """The brackets are meant; Python says that PublicIdMixin takes no arguments."""
    with pytest.raises(TypeError, match=r"PublicIdMixin\(\) takes no arguments"):
        PublicIdMixin(CustomerId)


@mistake('class Customer(PublicIdMixin["cus"], Base)', says=r'class …\(TypedId, prefix="…"\)')
def test_prefix_in_brackets() -> None:
    """The ids should begin with ``cus_``."""

    class Client(PublicIdMixin["cus"], new_base()):
        __tablename__ = "client"


@mistake('class CustomerId(TypedId): prefix = "cus"', says=r'class CustomerId\(…, prefix="\.\.\."\)|prefix="cus"\)')
def test_prefix_as_an_attribute() -> None:
    """The ids should have this prefix."""
    type("AttributeId", (TypedId,), {"prefix": "cus"})()


@mistake('class CustomerId(TypedId, prefix="cus_")', says=r"write prefix='mkcusy'")
def test_prefix_with_its_separator() -> None:
    """The ids should begin with ``cus_``, as Stripe writes them."""
    type("StripeId", (TypedId,), {}, prefix="mkcusy_")


@mistake("class Order(PublicIdMixin[CustomerId], Base), copied", says=r"choose another prefix for one of them")
def test_typed_id_of_another_model() -> None:
    """The line was copied from the customer, and orders should have ids of their own."""
    client(base := new_base(), __public_id__=CustomerId)

    class Item(PublicIdMixin[CustomerId], base):
        __tablename__ = "item"

    base.registry.configure()


@mistake("id: Mapped[int] = mapped_column(primary_key=True)", warns=r"leave it out, or write bigint_key\(\)")
def test_key_beside_the_mixin() -> None:
    """The key of the mixin is meant, as tutorials write it; this one reads '7abc' as 7 on MySQL."""

    class Client(PublicIdMixin, new_base()):
        __tablename__ = "client"
        id: Mapped[int] = mapped_column(primary_key=True)


@mistake("public_id: Mapped[str] = mapped_column(String(36), default=uuid4)", says=r"remove it, or write public_id_col")
def test_column_beside_the_mixin() -> None:
    """The ids should be made by the library."""

    class Client(PublicIdMixin, new_base()):
        __tablename__ = "client"
        public_id: Mapped[str] = mapped_column(String(36), default=CustomerId)


@mistake("class Base(PublicIdMixin[CustomerId], DeclarativeBase)", says=r"belongs to .*choose another prefix")
def test_mixin_of_the_base() -> None:
    """Every table should have ids, each of its own type."""

    class Own(PublicIdMixin[CustomerId], DeclarativeBase): ...

    for name in ("client", "vendor"):
        type(name, (Own,), {"__tablename__": name})
    Own.registry.configure()


@mistake(
    "class Vip(PublicIdMixin[VipId], Customer)",
    documented=("guides/declaring-ids#inheritance", "the base table holds the public ids of all subclasses"),
)
def test_typed_id_of_a_subclass() -> None:
    """Vips should have ids of their own; Python refuses this order of the bases, and the library the other one."""
    model = client(new_base(), __public_id__=CustomerId)
    with pytest.raises(TypeError, match="method resolution"):

        class Vip(PublicIdMixin[OrderId], model): ...


# --- 11 to 14: formats and typed ids


@mistake('class CustomerId(TypedId, prefix="cus", length=6)', says=r"format=NanoId\(length=8\)")
def test_length_of_a_typed_id() -> None:
    """The ids should be short."""
    type("ShortId", (TypedId,), {}, prefix="mksix", length=6)


@mistake('class CustomerId(TypedId, prefix="cus", format="uuid7")', says=r"expected a format such as NanoId\(")
def test_name_of_a_format() -> None:
    """The ids should be UUIDs with a prefix."""
    type("UuidId", (TypedId,), {}, prefix="mkuuid", format="uuid7")


@mistake("Customer(public_id=CustomerId())")
def test_call_of_a_typed_id(session: Session, ada: Customer) -> None:
    """A fresh id is meant, as with ``uuid4()``."""
    session.add(bob := Customer(public_id=CustomerId()))
    session.commit()
    assert lookup.get(session, Customer, bob.public_id) is bob


@mistake("CustomerId(ada.id)", says=r"an integer is a key: session\.get\(Model, key\)")
def test_key_is_encoded(ada: Customer) -> None:
    """The public id of this key is meant, as with hashids."""
    CustomerId(ada.id)


# --- 15 to 18: objects


@mistake('f"/customers/{ada.public_id}" before the flush')
def test_link_before_the_flush(session: Session, ada: Customer) -> None:
    """The link should contain the id."""
    session.add(bob := Customer())
    link = f"/customers/{bob.public_id}"
    assert session.scalar(select("/customers/" + Customer.public_id).where(Customer.id != ada.id)) == link


@mistake("setattr(ada, name, value) of each field, public_id=None", says=r"leave public_id out of the values")
def test_null_of_a_patch(ada: Customer) -> None:
    """A PATCH has a field for the id, which is None; the id should stay."""
    assert ada.public_id
    for name, value in {"name": "Ada L.", "public_id": None}.items():
        setattr(ada, name, value)


@notes
@mistake("session.merge(Customer(public_id=known, name=…))", says=r"look it up: merge\(\) finds rows by key")
def test_merge_by_public_id(session: Session, ada: Customer) -> None:
    """The row with this id should be updated."""
    session.merge(Customer(public_id=ada.public_id, name="Ada L."))
    session.flush()


@notes
@mistake("make_transient(ada); ada.id = None; session.add(ada)", says=r"set the id of the copy to None")
def test_clone(session: Session, ada: Customer) -> None:
    """A second row is meant, with an id of its own."""
    session.refresh(ada)
    session.expunge(ada)
    make_transient(ada)
    ada.id, ada.orders = None, []
    session.add(ada)
    session.flush()


# --- 19 to 22: references


@mistake(
    "order.customer_public_id = …, without public_ref",
    documented=("guides/foreign-keys#limits", r"or without `public_ref`.* is an attribute of Python without effect"),
)
def test_reference_is_not_declared() -> None:
    """The foreign key should be set, as the README says; it stays NULL."""
    made = client(new_base())()
    made.customer_public_id = CustomerId()
    assert "customer_public_id" in vars(made)


@mistake('customer_id: Mapped[str] = mapped_column(ForeignKey("customer.public_id"))')
def test_foreign_key_of_public_ids() -> None:
    """The foreign key shows the public id; its type is that of the column that it refers to."""
    vendor = client(base := new_base(), __public_id__=OrderId)

    class Item(PublicIdMixin, base):
        __tablename__ = "item"
        client_id: Mapped[str] = mapped_column(ForeignKey("client.public_id"))
        client: Mapped[Any] = relationship("Client")

    assert Item.__table__.c.client_id.type.format is vendor.__table__.c.public_id.type.format is OrderId


@mistake("Order(customer_public_id=ada.public_id), ada is not flushed")
def test_reference_to_a_new_object(session: Session, ada: Customer) -> None:
    """The order of the new customer is meant."""
    session.add(bob := Customer())
    session.add(order := Order(customer_public_id=bob.public_id))
    session.commit()
    assert order.customer is bob


@mistake("update(Order).values(customer_public_id=…)", says=r"set the foreign key to the key that lookup\.keys_of\(\)")
def test_reference_in_an_update(session: Session, order: Order) -> None:
    """The orders should be those of another customer."""
    session.execute(update(Order).where(Order.id == order.id).values(customer_public_id=order.customer_public_id))


# --- 23 to 30: lookups and queries


@mistake("lookup.get(session, Customer, public_id=id)")
def test_keyword_of_a_lookup(session: Session, ada: Customer) -> None:
    """The row is meant, as Django writes it."""
    assert lookup.get(session, Customer, public_id=ada.public_id) is ada


@mistake(
    "lookup.get(session, Customer, [first, second])", warns=r"write lookup\.get_many\(session, Model, public_ids\)"
)
def test_list_in_a_lookup(session: Session, ada: Customer) -> None:
    """Both rows are meant."""
    assert lookup.get(session, Customer, [ada.public_id, CustomerId()]) is None


@mistake("lookup.get(session, Customer, id, with_for_update=True, options=[…])")
def test_options_of_a_lookup(session: Session, ada: Customer) -> None:
    """The row should be locked, and its orders loaded, as with session.get()."""
    options = [selectinload(Customer.orders)]
    assert lookup.get(session, Customer, ada.public_id, with_for_update=True, options=options) is ada


@mistake(
    'lookup.get(session, Customer, " cus_…\\n")', documented=("guides/cookbook#ids-that-people-type", "Strip blanks")
)
def test_blanks_around_an_id(session: Session, ada: Customer) -> None:
    """The id was copied from an e-mail; links keep one spelling, so it is not found."""
    assert lookup.get(session, Customer, f" {ada.public_id}\n") is None


@mistake('lookup.get(session, Customer, request.args.get("id")), which is None')
def test_missing_parameter(session: Session, ada: Customer) -> None:
    """The parameter is missing, and the answer should be 404."""
    assert lookup.get(session, Customer, None) is None


@mistake("Customer.query.get_or_404(id)", says=r"write lookup\.get\(session, Model, public_id\)")
def test_query_get(session: Session, ada: Customer) -> None:
    """The row with this public id is meant, as Flask-SQLAlchemy finds it."""
    with pytest.warns(LegacyAPIWarning):
        session.query(Customer).get(ada.public_id)


@mistake('where(Customer.public_id.ilike(f"%{text}%"))')
def test_search_box(session: Session, ada: Customer) -> None:
    """Rows whose id contains the text are meant."""
    assert session.scalar(select(Customer).where(Customer.public_id.ilike(f"%{ada.public_id[8:].upper()}%"))) is ada


@mistake(
    "text('… WHERE id = :id') with a public id",
    documented=("guides/looking-up#the-key-is-another-number", r"These are not seen:.*`text\(\)`"),
)
@on("mysql")
def test_public_id_in_a_text(session: Session, ada: Customer) -> None:
    """The row with this public id is meant; MySQL reads the digits at its beginning as the key of another row."""
    key = session.scalar(text("SELECT id FROM customer WHERE id = :id"), {"id": f"{ada.id}abcdefghijk"})
    assert key == ada.id


# --- 31 and 32: pages


@mistake(
    "order_by(Customer.public_id), then where(Customer.public_id > last)",
    documented=("guides/cookbook#questions", r"Random ids have no meaningful order"),
)
def test_pages_by_random_ids(session: Session, ada: Customer) -> None:
    """The oldest rows should come first; all rows come, in no order that means anything."""
    session.add_all(Customer() for _ in range(9))
    ids = session.scalars(select(Customer.public_id).order_by(Customer.public_id)).all()
    assert sorted(ids) == [*ids]


@mistake("lookup.page(session, Customer, limit=20, after=2)", says=r"pass the next or previous of a page")
def test_number_of_a_page(session: Session, ada: Customer) -> None:
    """The second page is meant."""
    lookup.page(session, Customer, limit=20, after=2)


# --- 33 to 35: bulk and upserts


@mistake("on_conflict_do_update(set_=all columns of excluded)", says=r"leave it and the key out of the update")
def test_upsert_of_all_columns(session: Session, ada: Customer) -> None:
    """The row should be updated, and keep its ids."""
    statement = sqlite.insert(Customer).values(id=ada.id, name="Ada L.")
    session.execute(statement.on_conflict_do_update(index_elements=["id"], set_=dict(statement.excluded.items())))


@mistake("insert(Customer).from_select(…)", says=r"would give every row the same public_id.*Read the rows and insert")
def test_insert_from_select(session: Session, ada: Customer) -> None:
    """Each new row should have an id of its own."""
    session.execute(insert(Customer).from_select(["name"], select(Customer.name)))


@mistake(
    "text('INSERT INTO customer (name) …'), or DataFrame.to_sql()",
    documented=("guides/cookbook#questions", r"inserts rows with raw SQL.*server default"),
)
def test_raw_insert(session: Session, ada: Customer) -> None:
    """The row should get an id; the database says that it is missing."""
    with pytest.raises(IntegrityError, match="public_id"):
        session.execute(text("INSERT INTO customer (name) VALUES ('Bob')"))


# --- 36 to 40: async, migrations, command line, FastAPI, tests


@mistake("order.customer_public_id after the commit of an AsyncSession", says=r"references\.eager\(")
def test_reference_after_an_async_commit(async_engine: AsyncEngine) -> None:
    """The id is the answer of the endpoint."""

    async def answer() -> str:
        async with AsyncSession(async_engine, expire_on_commit=True) as session:
            await session.run_sync(lambda sync: Base.metadata.create_all(sync.connection()))
            session.add(order := Order(customer=Customer()))
            await session.commit()
            return order.customer_public_id

    asyncio.run(answer())


@mistake("op.add_public_id(Customer)", says=r"table is .*, expected a name")
def test_model_for_an_operation(project: Project) -> None:
    """The table of this model is meant."""
    project.write("op.add_public_id(int)")
    project.upgrade()


@mistake("public-id generate cus", says=r"The commands are .*\bnew\b")
def test_command_by_another_name() -> str:
    """An id with this prefix should be printed."""
    return str(run("generate", "cus").stderr)


@mistake(
    "class CustomerOut(BaseModel): id: CustomerId, from_attributes",
    documented=("guides/pydantic-and-fastapi", r"`id: \w+ = Field\(validation_alias=\"public_id\"\)`"),
)
def test_public_id_by_the_name_id(ada: Customer) -> None:
    """The public id is meant; Pydantic reads the key, and says that it is an int."""

    class CustomerOut(BaseModel):
        model_config = ConfigDict(from_attributes=True)
        id: CustomerId

    with pytest.raises(ValidationError, match=r"it is of type int \(expected mkcus_"):
        CustomerOut.model_validate(ada)


@mistake("random.seed(1), for fixed ids", documented=("guides/testing", r"`random\.seed\(\)` has no effect"))
def test_seeded_ids() -> None:
    """Tests should have the same ids in each run; ids that a seed repeats could be guessed, so they ignore it."""
    random.seed(1)
    first = CustomerId()
    random.seed(1)
    assert CustomerId() != first
