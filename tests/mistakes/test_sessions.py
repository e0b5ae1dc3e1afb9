"""Mistakes in writing: objects and their ids, sessions, bulk inserts, jobs, and what becomes text."""

import asyncio
import copy
import json
import pickle
import random
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from mistakes.models import Customer, CustomerId, Order, new_base
from mistakes.table import mistake
from sqlalchemy import MetaData, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError, MissingGreenlet
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session
from sqlalchemy.orm.exc import DetachedInstanceError
from support.marks import before_sqlalchemy

from sqlalchemy_public_id import NanoId, PublicIdMixin, PublicIdMixinDataclass, Uuid4, Uuid7, bulk, idempotency, lookup

Create = Callable[[MetaData], None]

refused_by_sqlalchemy = pytest.mark.skipif(before_sqlalchemy(2, 1), reason="SQLAlchemy 2.0 ignores other names")

# --- ids that are assigned


@mistake("ada.public_id = another id", says=r"Customer\.public_id .*cannot become")
def test_stored_id_is_changed(session: Session, ada: Customer) -> None:
    """The row should get another id."""
    assert ada.public_id
    ada.public_id = CustomerId()


@mistake("Customer(public_id=order.public_id)", says=r"the prefix is 'mkord' \(expected mkcus_")
def test_id_of_another_model_is_assigned(order: Order) -> None:
    """The ids are mixed up."""
    Customer(public_id=order.public_id)


@mistake("Customer(public_id=5)", says=r"it is of type int \(expected mkcus_ and 12")
def test_number_is_assigned() -> None:
    """A fixture numbers its customers."""
    Customer(public_id=5)


@mistake('Customer(public_id="cus_1")', says=r"\(expected mkcus_ and 12 of 0-9 a-z\)")
def test_short_id_is_assigned() -> None:
    """A fixture numbers its customers."""
    Customer(public_id="mkcus_1")


@mistake("form.populate_obj(customer) with an empty public_id", says=r"Customer\.public_id")
def test_empty_id_of_a_form(session: Session, ada: Customer) -> None:
    """The hidden field of a form was emptied by the client, and the customer should stay as it is."""
    assert ada.public_id
    ada.public_id = ""


@mistake("for name, value in body: setattr(ada, name, value)", says=r"Customer\.public_id .*cannot become")
def test_body_with_an_id(session: Session, ada: Customer) -> None:
    """A PATCH assigns each field that the client has sent, its id included."""
    assert ada.public_id
    for name, value in {"name": "Ada L.", "public_id": str(CustomerId())}.items():
        setattr(ada, name, value)


@mistake("Document(public_id=uuid4())")
def test_uuid_object_is_assigned() -> None:
    """The UUID is the id of the document."""
    names = {"__tablename__": "document", "__public_id__": Uuid4(encoding="hyphenated")}
    document: Any = type("Document", (PublicIdMixin, new_base()), names)
    value = uuid.uuid4()
    assert document(public_id=value).public_id == str(value)


@mistake("random.seed(0), for fixed ids")
def test_random_is_seeded() -> None:
    """Tests should have fixed ids; ids that a seed repeats could be guessed, so they ignore it."""
    random.seed(0)
    first = NanoId().generate()
    random.seed(0)
    assert NanoId().generate() != first


# --- rows that exist


@mistake(
    "session.add(Customer(public_id=a fixed id)), twice",
    documented=("guides/cookbook#fixed-ids-in-seed-data", r"If the seed may run twice, use \[`insert_once`\]"),
)
def test_seed_runs_twice(session: Session, ada: Customer) -> None:
    """The second run should find the rows of the first; the database says that the id is not unique."""
    session.add(Customer(public_id=ada.public_id))
    with pytest.raises(IntegrityError):
        session.flush()


@mistake(
    "session.merge(Customer(public_id=known)), as an upsert",
    documented=(
        "guides/history-and-listeners#copies-of-objects",
        r"`merge\(\)` with the id of a row, and no key.*`insert_once`",
    ),
)
def test_merge_as_an_upsert(session: Session, ada: Customer) -> None:
    """The customer with this id should get the name; merge() knows rows by their keys only."""
    session.merge(Customer(public_id=ada.public_id, name="Ada L."))
    with pytest.raises(IntegrityError):
        session.flush()


@mistake("idempotency.insert_once(session, Customer(name=…))", says=r"pass one that the client keeps")
def test_insert_once_without_an_id(session: Session, ada: Customer) -> None:
    """The row should be inserted once; without an id, nothing says which one it is."""
    idempotency.insert_once(session, Customer(name="Bob"))


@mistake(
    "Customer(name=…, public_id=ada.public_id), as a copy",
    documented=("guides/history-and-listeners#copy-an-object", r"set its key and its id to `None`"),
)
def test_copy_of_all_columns(session: Session, ada: Customer) -> None:
    """A second customer with the same data is meant; the id was copied with it."""
    session.add(Customer(name=ada.name, public_id=ada.public_id))
    with pytest.raises(IntegrityError):
        session.flush()


@mistake("a message with a pickled new object, delivered twice")
def test_pickled_object_without_id(session: Session, ada: Customer) -> None:
    """The job should store the object; its id was not read, so each delivery is a row."""
    message = pickle.dumps(Customer(name="Bob"))
    session.add_all([pickle.loads(message), pickle.loads(message)])
    session.flush()


@mistake(
    "the same, after its id was read",
    documented=("guides/history-and-listeners#copies-of-objects", r"`pickle`, .*so only one copy can be stored"),
)
def test_pickled_object_with_id(session: Session, ada: Customer) -> None:
    """The job should store the object; the database refuses the second delivery."""
    customer = Customer(name="Bob")
    assert customer.public_id
    message = pickle.dumps(customer)
    session.add_all([pickle.loads(message), pickle.loads(message)])
    with pytest.raises(IntegrityError):
        session.flush()


@mistake(
    "text('INSERT INTO customer (name) VALUES …')",
    documented=("guides/cookbook#questions", r"inserts rows with raw SQL.*server default"),
)
def test_raw_insert(session: Session, ada: Customer) -> None:
    """The row should get an id as any other; the database says that it may not be NULL."""
    with pytest.raises(IntegrityError):
        session.execute(text("INSERT INTO customer (name) VALUES ('Bob')"))


@mistake("Customer(id=1) in a seed, on PostgreSQL, then ordinary inserts")
@pytest.mark.backend
def test_keys_in_a_seed(create: Create, session: Session) -> None:
    """The seed numbers its rows; a later row takes the key 1 from the sequence, and it is not called a collision."""
    base = new_base()
    plain: Any = type("Plain", (PublicIdMixin, base), {"__tablename__": "mistakes_seeded"})
    create(base.metadata)
    session.add(plain(id=1))
    session.commit()
    session.add(plain())
    try:
        session.commit()
    except IntegrityError:
        session.rollback()


@mistake("bulk.insert(session, dictionaries)", says=r"use session\.execute\(insert\(Model\), rows\)")
def test_dictionaries_for_bulk(session: Session, ada: Customer) -> None:
    """A row for each dictionary is meant."""
    bulk.insert(session, [{"name": "Bob"}])


@mistake("bulk.insert(session, customer)", says=r"expected an iterable of mapped objects")
def test_one_object_for_bulk(session: Session, ada: Customer) -> None:
    """The one object should be stored."""
    bulk.insert(session, Customer())


@mistake(
    "session.bulk_insert_mappings(Order, [{'customer_public_id': …}])",
    says=r"pass it in a row",
    documented=("guides/foreign-keys#limits", r"SQLAlchemy 2\.0 silently ignores them"),
)
@refused_by_sqlalchemy
def test_reference_in_mappings(session: Session, ada: Customer) -> None:
    """The order should belong to Ada."""
    session.bulk_insert_mappings(Order, [{"customer_public_id": ada.public_id}])


@mistake(
    "session.bulk_update_mappings(Order, [{'customer_public_id': …}])",
    says=r"update\(Order\)|pass it in a row",
    documented=("guides/foreign-keys#limits", r"SQLAlchemy 2\.0 silently ignores them"),
)
@refused_by_sqlalchemy
def test_reference_in_updated_mappings(session: Session, ada: Customer, order: Order) -> None:
    """The order should belong to Ada."""
    session.bulk_update_mappings(Order, [{"id": order.id, "customer_public_id": ada.public_id}])


@mistake("session.execute(insert(Order), rows with references)")
def test_reference_in_rows(session: Session, ada: Customer) -> None:
    """The orders should belong to Ada."""
    session.execute(insert(Order), [{"customer_public_id": ada.public_id}] * 2)
    assert session.scalar(select(func.count()).select_from(Order).where(Order.customer == ada)) == 3


# --- sessions that are over


@mistake(
    "customer.public_id after session.close()",
    documented=("guides/cookbook#background-tasks", r"Pass the public id to a task"),
)
def test_detached_object(session: Session, ada: Customer) -> None:
    """A job reads the id of an object that it was given; SQLAlchemy says that the object has no session."""
    session.expire(ada)
    session.close()
    with pytest.raises(DetachedInstanceError):
        str(ada.public_id)


@mistake("order.public_id after the commit of an AsyncSession", documented=("guides/async", r"expire_on_commit=False"))
def test_id_after_an_async_commit(async_engine: AsyncEngine) -> None:
    """The id is the answer of the endpoint; SQLAlchemy says that the attribute cannot be loaded."""

    async def insert() -> None:
        async with AsyncSession(async_engine) as session:
            await session.run_sync(lambda sync: Customer.metadata.create_all(sync.connection()))
            customer = Customer()
            session.add(customer)
            await session.commit()
            with pytest.raises(Exception, match="greenlet_spawn") as caught:
                str(customer.public_id)
            assert MissingGreenlet in (type(caught.value), type(caught.value.__cause__))

    asyncio.run(insert())


@mistake("order.customer_public_id in an AsyncSession", says=r"references\.eager\(Order\.customer_public_id\)")
def test_reference_in_an_async_session(async_engine: AsyncEngine) -> None:
    """The answer shows the customer of an order, which is not loaded."""

    async def read() -> None:
        async with AsyncSession(async_engine) as session:
            await session.run_sync(lambda sync: Customer.metadata.create_all(sync.connection()))
            session.add(Order(customer=Customer()))
            await session.flush()
            session.expunge_all()
            order = (await session.scalars(select(Order))).one()
            str(order.customer_public_id)

    asyncio.run(read())


@mistake("Session(binds={Order: one, Customer: another}) and public_ref")
def test_reference_between_two_databases(new_engine: Callable[..., Any]) -> None:
    """The order and its customer are in two databases, and the id should be shown."""
    orders, customers = new_engine("sqlite"), new_engine("sqlite")
    Order.__table__.create(orders)
    Customer.__table__.create(customers)
    with Session(binds={Order: orders, Customer: customers}) as session:
        ada = Customer()
        session.add(ada)
        session.flush()
        order = Order(customer_public_id=ada.public_id)
        session.add(order)
        session.flush()
        session.expire_all()

        assert order.customer_public_id == ada.public_id


# --- formats that change without a migration


def shown_with(session: Session, create: Create, before: Any, after: Any) -> tuple[str, Any]:
    """Return the id of a row of one format, and what a look-up with another format finds."""
    first, second = (
        type("Plain", (PublicIdMixin, new_base()), {"__tablename__": "mistakes_plain", "__public_id__": format})
        for format in (before, after)
    )
    create(first.metadata)
    row: Any = first()
    session.add(row)
    session.commit()
    return row.public_id, lookup.get(session, second, row.public_id)


@mistake(
    "NanoId(length=12) becomes NanoId(length=8)",
    documented=("guides/choosing-a-format#change-the-format-later", r"Without `accepting\(\)`, old ids are not found"),
)
def test_shorter_format(session: Session, create: Create) -> None:
    """New ids should be shorter, and old ones stay valid; they need ``accepting()``."""
    _, row = shown_with(session, create, NanoId(length=12), NanoId(length=8))
    assert row is None


@mistake(
    "a prefix is added",
    documented=("guides/choosing-a-format#change-the-format-later", r"Without `accepting\(\)`, old ids are not found"),
)
def test_prefix_is_added(session: Session, create: Create) -> None:
    """New ids should have the prefix, and old ones stay valid; they need ``accepting()``."""
    _, row = shown_with(session, create, NanoId(), NanoId(prefix="cus"))
    assert row is None


@mistake(
    "NanoId() becomes Uuid7()",
    documented=("guides/choosing-a-format#change-the-format-later", r"must also store numbers.*storage=\"text\""),
)
def test_another_storage(session: Session, create: Create) -> None:
    """New ids should be UUIDs, and old ones stay valid; UUIDs are stored as numbers."""
    _, row = shown_with(session, create, NanoId(), Uuid7())
    assert row is None


# --- texts


@mistake("json.dumps, pickle and deepcopy of a typed id, also as a key")
def test_typed_id_is_encoded() -> None:
    """An id should be a text everywhere, and stay one."""
    id = CustomerId()

    assert json.loads(json.dumps({id: id})) == {str(id): str(id)}
    assert pickle.loads(pickle.dumps(id)) == copy.deepcopy(id) == id


@mistake("f'cart:{ids}' as the key of a cache")
def test_ids_in_the_key_of_a_cache(session: Session, ada: Customer) -> None:
    """The ids of rows and the ids of a request should lead to one entry."""
    of_rows, of_request = [ada.public_id], [str(ada.public_id)]
    assert f"cart:{of_rows}" == f"cart:{of_request}"


@mistake(
    "{column.name: getattr(ada, column.name) for …}", documented=("guides/cookbook#questions", r"`__table__\.columns`")
)
def test_dictionary_of_all_columns(session: Session, ada: Customer) -> None:
    """The dictionary is the answer of an endpoint; it has the key, because the key is a column."""
    assert "id" in {column.name: getattr(ada, column.name) for column in Customer.__table__.columns}


@mistake("dataclasses.asdict(a model of PublicIdMixinDataclass)")
def test_dictionary_of_a_dataclass() -> None:
    """The dictionary should have the public id, before the object is stored, too."""

    class Base(MappedAsDataclass, DeclarativeBase): ...

    class Label(PublicIdMixinDataclass, Base):
        __tablename__ = "label"
        text: Mapped[str]

    assert NanoId().is_valid(asdict(Label(text="urgent"))["public_id"])


@mistake("update(Customer).values(public_id=CustomerId)", says=r"it is of type type \(expected mkcus_")
def test_class_as_a_value(session: Session, ada: Customer) -> None:
    """Each customer should get a new id."""
    session.execute(update(Customer).values(public_id=CustomerId))


@mistake("Core: insert(Customer.__table__), without public_id")
def test_core_insert(session: Session, ada: Customer) -> None:
    """The rows should get ids."""
    session.execute(insert(Customer.__table__), [{"name": "Bob"}, {"name": "Eve"}])
    assert session.scalar(select(func.count(Customer.public_id.distinct()))) == 3
