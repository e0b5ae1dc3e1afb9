"""Mistakes in lookups, pages and queries."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from mistakes.models import Customer, CustomerId, Order, new_base
from mistakes.table import mistake
from sqlalchemy import Engine, Integer, bindparam, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, mapped_column, sessionmaker
from support.marks import on

from sqlalchemy_public_id import PublicIdMixin, PublicIdNotFound, Uuid4, lookup
from sqlalchemy_public_id.asyncio import lookup as awaited

# --- a public id in place of a key


@mistake("session.get(Customer, ada.public_id)", says=r"write lookup\.get\(session, Model, public_id\)")
@pytest.mark.backend
def test_session_get(session: Session, ada: Customer) -> None:
    """The customer with this public id is meant."""
    session.get(Customer, ada.public_id)


@mistake("session.get(Customer, an id of digits)", says=r"write lookup\.get\(session, Model, public_id\)")
@pytest.mark.backend
@on("mysql", "mariadb")
def test_session_get_with_leading_digits(session: Session, create: Callable[..., None]) -> None:
    """The row with this public id is meant; MySQL would read it as the key 1."""
    base = new_base()
    plain: Any = type("Plain", (PublicIdMixin, base), {"__tablename__": "mistakes_plain"})
    create(base.metadata)
    session.add_all([plain(public_id="izkpm55j334u"), plain(public_id="1abcdefghijk")])
    session.commit()
    session.get(plain, "1abcdefghijk")


@mistake("where(Customer.id == ada.public_id)", says=r"write lookup\.get\(session, Model, public_id\)")
@pytest.mark.backend
def test_key_compared_with_a_public_id(session: Session, ada: Customer) -> None:
    """The customer with this public id is meant."""
    session.scalars(select(Customer).where(Customer.id == ada.public_id)).all()


@mistake("filter_by(id=ada.public_id)", says=r"write lookup\.get\(session, Model, public_id\)")
def test_filter_by(session: Session, ada: Customer) -> None:
    """The customer with this public id is meant."""
    session.scalars(select(Customer).filter_by(id=ada.public_id)).all()


@mistake("where(Customer.id.in_(public_ids))", says=r"write lookup\.get\(session, Model, public_id\)")
def test_keys_in_public_ids(session: Session, ada: Customer) -> None:
    """The customers with these public ids are meant."""
    session.scalars(select(Customer).where(Customer.id.in_([ada.public_id]))).all()


@mistake("where(Order.customer_id == ada.public_id)", says=r"its public id to a public_ref\(\)")
def test_foreign_key_compared_with_a_public_id(session: Session, ada: Customer) -> None:
    """The orders of this customer are meant."""
    session.scalars(select(Order).where(Order.customer_id == ada.public_id)).all()


@mistake("join(Customer, Order.customer_id == Customer.public_id)", says=r"public_ref\(\)")
def test_join_of_a_key_and_a_public_id(session: Session, order: Order) -> None:
    """The customers of the orders are meant."""
    session.scalars(select(Order).join(Customer, Order.customer_id == Customer.public_id)).all()


@mistake(
    "text('… WHERE public_id = :id') with a key",
    documented=("guides/looking-up#the-key-is-another-number", r"These are not seen:.*`text\(\)`"),
)
def test_key_in_text(session: Session, ada: Customer) -> None:
    """The customer with this key is meant; the database compares a text with a number."""
    session.execute(text("SELECT name FROM customer WHERE public_id = :id"), {"id": ada.id}).all()


@mistake("order.customer_id == customer.public_id, as a permission")
def test_key_and_public_id_in_python(order: Order, ada: Customer) -> None:
    """The owner should be recognized; a number and an id are never equal, so nobody is."""
    assert order.customer_id != ada.public_id
    assert ada.public_id != ada.id


# --- arguments of a lookup


@mistake("lookup.get(Customer, session, id)", says=r"pass a Session first")
def test_model_before_the_session(session: Session, ada: Customer) -> None:
    """The arguments are swapped."""
    lookup.get(Customer, session, ada.public_id)


@mistake("lookup.get(session, id, Customer)", says=r"is not a mapped class: pass the class")
def test_id_before_the_model(session: Session, ada: Customer) -> None:
    """The arguments are swapped."""
    lookup.get(session, ada.public_id, Customer)


@mistake("lookup.get(engine, Customer, id)", says=r"expected a Session, not Engine: pass a Session first")
def test_engine_instead_of_session(engine: Engine, ada: Customer) -> None:
    """The customer is meant, without a session."""
    lookup.get(engine, Customer, ada.public_id)


@mistake("lookup.get(SessionLocal, Customer, id)", says=r"expected a Session, not sessionmaker: pass a Session first")
def test_sessionmaker_instead_of_session(engine: Engine, ada: Customer) -> None:
    """A session of this factory is meant."""
    lookup.get(sessionmaker(engine), Customer, ada.public_id)


@mistake('lookup.get(session, "customer", id)', says=r"pass the class, not its name")
def test_name_instead_of_model(session: Session, ada: Customer) -> None:
    """The model of this table is meant."""
    lookup.get(session, "customer", ada.public_id)


@mistake("lookup.get(session, CustomerId, id)", says=r"expected a model")
def test_typed_id_instead_of_model(session: Session, ada: Customer) -> None:
    """The model with these ids is meant."""
    lookup.get(session, CustomerId, ada.public_id)


@mistake("lookup.get(session, Customer.public_id, id)", says=r"an attribute of one: pass Customer")
def test_attribute_instead_of_model(session: Session, ada: Customer) -> None:
    """The customer is meant, by this attribute."""
    lookup.get(session, Customer.public_id, ada.public_id)


@mistake("lookup.get(session, model without public id, id)", says=r"add PublicIdMixin or public_id_column\(\)")
def test_model_without_id(session: Session) -> None:
    """The row is meant; the mixin is forgotten."""
    plain = type("Plain", (new_base(),), {"__tablename__": "plain", "id": mapped_column(Integer, primary_key=True)})
    lookup.get(session, plain, "izkpm55j334u")


@mistake("lookup.get(async_session, …)", says=r"use the function of this name in sqlalchemy_public_id\.asyncio")
def test_async_session_without_await(ada: Customer) -> None:
    """The row is meant, in an asynchronous program."""
    lookup.get(AsyncSession(), Customer, ada.public_id)


@mistake("await asyncio.lookup.get(session, …)", says=r"use the function of this name in sqlalchemy_public_id")
def test_session_with_await(session: Session, ada: Customer) -> None:
    """The row is meant, in a synchronous program."""
    asyncio.run(awaited.get(session, Customer, ada.public_id))


@mistake(
    "await lookup.get(session, …) of the synchronous module",
    documented=("errors", r"can't be awaited`.* \| .*sqlalchemy_public_id\.asyncio import lookup"),
)
def test_await_of_a_row(session: Session, ada: Customer) -> None:
    """The row is meant; Python says that a Customer cannot be awaited."""

    async def wait() -> None:
        await lookup.get(session, Customer, ada.public_id)

    with pytest.raises(TypeError, match=r"can't be (used in 'await' expression|awaited)"):
        asyncio.run(wait())


@mistake("lookup.get(session, Customer, 1)", warns=r"int")
def test_key_instead_of_public_id(session: Session, ada: Customer) -> None:
    """A task got ``customer.id``, and looks the customer up."""
    lookup.get(session, Customer, ada.id)


@mistake("lookup.get(session, Document, uuid.UUID(…))")
def test_uuid_object(session: Session, create: Callable[..., None]) -> None:
    """The framework has parsed the UUID of the path."""
    base = new_base()
    names = {"__tablename__": "document", "__public_id__": Uuid4(encoding="hyphenated")}
    document_class: Any = type("Document", (PublicIdMixin, base), names)
    create(base.metadata)
    document = document_class()
    session.add(document)
    session.flush()

    assert lookup.get(session, document_class, uuid.UUID(document.public_id)) is document


@mistake("lookup.get(session, Customer, order.public_id)")
def test_id_of_another_model(session: Session, order: Order) -> None:
    """The ids are mixed up; an id of another model finds nothing."""
    assert lookup.get(session, Customer, order.public_id) is None


@mistake("lookup.get(session, Customer, id.upper())", documented=("guides/cookbook#questions", "id in another case"))
def test_other_case(session: Session, ada: Customer) -> None:
    """A telephone has capitalized the id."""
    assert lookup.get(session, Customer, ada.public_id.upper()) is None


@mistake("lookup.get_many(session, Customer, id)", says=r"write \[public_id\], or use lookup\.get\(\)")
def test_one_id_instead_of_many(session: Session, ada: Customer) -> None:
    """The row of this id is meant."""
    lookup.get_many(session, Customer, ada.public_id)


@mistake(
    "zip(ids, lookup.get_many(session, Customer, ids))",
    documented=(
        "guides/looking-up#many-rows",
        r"a dictionary in the order of the ids, as you passed them, and leaves out",
    ),
)
def test_zip_of_many(session: Session, ada: Customer) -> None:
    """Each id should be beside its row; unknown ids are left out, so the rest is shifted."""
    assert list(zip(["x"], lookup.get_many(session, Customer, ["x", ada.public_id]), strict=True))


@mistake("lookup.get(…, where=\"name = 'Ada'\")", says=r"expected a condition such as Customer\.owner_id == user\.id")
def test_text_as_condition(session: Session, ada: Customer) -> None:
    """The row is meant if it meets the condition."""
    lookup.get(session, Customer, ada.public_id, where="name = 'Ada'")


# --- pages and queries


@mistake('lookup.page(session, Customer, limit=5, order_by="name")', says=r"expected attributes of the model")
def test_name_of_an_order(session: Session, ada: Customer) -> None:
    """The page should be sorted by name."""
    lookup.page(session, Customer, limit=5, order_by="name")


@mistake("lookup.page(session, Customer, limit=0)", says=r"expected a whole number from 1")
def test_limit_of_zero(session: Session, ada: Customer) -> None:
    """All rows are meant, or none."""
    lookup.page(session, Customer, limit=0)


@mistake("where(Customer.public_id == 1)", says=r"it is of type int \(expected mkcus_ and 12")
def test_public_id_compared_with_a_key(session: Session, ada: Customer) -> None:
    """The customer with this key is meant."""
    session.scalars(select(Customer).where(Customer.public_id == ada.id)).all()


@mistake(
    "order_by(Customer.public_id.desc())",
    documented=("guides/cookbook#questions", r"Random ids have no meaningful order"),
)
def test_newest_by_public_id(session: Session, ada: Customer) -> None:
    """The newest customer is meant."""
    assert session.scalars(select(Customer).order_by(Customer.public_id.desc())).all()


@mistake("text('… IN :ids'), with typed ids as parameters")
@pytest.mark.backend
def test_ids_in_text(session: Session, ada: Customer) -> None:
    """The customers with these ids are meant; drivers take a typed id as the text that it is."""
    statement = text("SELECT name FROM customer WHERE public_id = :id AND public_id IN :ids")
    parameters = {"id": ada.public_id, "ids": [ada.public_id]}
    found = session.scalars(statement.bindparams(bindparam("ids", expanding=True)), parameters)
    assert found.all() == ["Ada"]


@mistake("text(f'… IN {tuple(ids)}')")
def test_ids_in_a_formatted_statement(session: Session, ada: Customer) -> None:
    """The ids of rows are put into the statement as text."""
    ids = tuple([ada.public_id] * 2)
    assert session.scalars(text(f"SELECT name FROM customer WHERE public_id IN {ids}")).all() == ["Ada"]


@mistake("session.get(Customer, (ada.public_id,))", says=r"write lookup\.get\(session, Model, public_id\)")
def test_tuple_of_a_public_id(session: Session, ada: Customer) -> None:
    """The customer with this public id is meant."""
    session.get(Customer, (ada.public_id,))


@mistake(
    'session.get(Customer, {"public_id": …})',
    says=r"primary key attribute names are 'id'",
    documented=("guides/looking-up#the-key-is-another-number", r"`session\.get\(\)`, .* take the \*key\*"),
)
def test_dictionary_of_a_public_id(session: Session, ada: Customer) -> None:
    """The customer with this public id is meant."""
    session.get(Customer, {"public_id": ada.public_id})


@mistake(
    "session.get(Customer, lookup.keys_of(session, Customer, [id]))",
    says=r"Incorrect names of values in identifier",
    documented=("guides/looking-up#keys-and-public-ids", r"keys\[item\["),
)
def test_keys_as_a_key(session: Session, ada: Customer) -> None:
    """The key of the id is meant; keys_of() returns a dictionary."""
    session.get(Customer, lookup.keys_of(session, Customer, [ada.public_id]))


@mistake("where(Customer.public_id == CustomerId)", says=r"it is of type type \(expected mkcus_")
def test_class_in_a_condition(session: Session, ada: Customer) -> None:
    """Customers with an id are meant; parentheses are forgotten."""
    session.scalars(select(Customer).where(Customer.public_id == CustomerId)).all()


@mistake(
    "lookup.get(session, Customer, ada)", warns=r"of class Customer was looked up as a public id.*pass its public_id"
)
def test_object_is_looked_up(session: Session, ada: Customer) -> None:
    """The object should be loaded again."""
    lookup.get(session, Customer, ada)


@mistake("lookup.get(session, Customer, f'cus_{ada.public_id}')")
def test_prefix_twice(session: Session, ada: Customer) -> None:
    """The prefix is added to an id that has it; such an id belongs to nobody."""
    assert lookup.get(session, Customer, f"mkcus_{ada.public_id}") is None


@mistake(
    "try: lookup.get(…) except PublicIdNotFound",
    documented=("guides/looking-up#one-row", r"`get` returns `None`, and `get_one` raises `PublicIdNotFound`"),
)
def test_error_of_get(session: Session, ada: Customer) -> None:
    """An unknown id should be an error."""
    try:
        assert lookup.get(session, Customer, CustomerId()) is None
    except PublicIdNotFound:
        raise AssertionError from None


@mistake("lookup.get(session, Customer, id, for_update=True)", says=r"expected options, with_for_update")
def test_misspelled_option(session: Session, ada: Customer) -> None:
    """The row should be locked."""
    lookup.get(session, Customer, ada.public_id, for_update=True)


@mistake("lookup.get(session, Customer, id, where={'name': 'Ada'})", says=r"expected a condition such as")
def test_dictionary_as_condition(session: Session, ada: Customer) -> None:
    """The row is meant if it has this name."""
    lookup.get(session, Customer, ada.public_id, where={"name": "Ada"})


@mistake("lookup.get(session, Customer, id, where=(first, second))", says=r"join several by sqlalchemy\.and_\(\)")
def test_several_conditions(session: Session, ada: Customer) -> None:
    """The row is meant if it meets both."""
    conditions: Any = (Customer.name == "Ada", Customer.public_id != "")
    lookup.get(session, Customer, ada.public_id, where=conditions)


@mistake(
    "lookup.get_many(session, Customer, first, second)",
    says=r"takes 3 positional arguments but 4 were given",
    documented=("guides/looking-up#many-rows", r"lookup\.get_many\(session, Book, \["),
)
def test_ids_as_arguments(session: Session, ada: Customer) -> None:
    """The rows of both ids are meant."""
    lookup.get_many(session, Customer, ada.public_id, ada.public_id)


@mistake("lookup.resolve(session, id, models=Customer)", says=r"expected a list of models: write \[Customer\]")
def test_one_model(session: Session, ada: Customer) -> None:
    """Only customers should be found."""
    lookup.resolve(session, ada.public_id, models=Customer)


@mistake("lookup.page(session, Customer)", says=r"missing 1 required keyword-only argument: 'limit'")
def test_page_without_limit(session: Session, ada: Customer) -> None:
    """A page of the usual size is meant."""
    lookup.page(session, Customer)


@mistake(
    "lookup.page(session, Customer, limit=10, after=page)",
    says=r"after: no Customer has the public id Page\(",
    documented=("guides/pages", r"after=\w+\.next"),
)
def test_page_after_a_page(session: Session, ada: Customer) -> None:
    """The page after this one is meant, which begins at ``page.next``."""
    lookup.page(session, Customer, limit=1, after=lookup.page(session, Customer, limit=1))
