"""Forty more mistakes of the first week, by what the README promises."""

from collections.abc import Callable
from typing import Any

import pytest
from mistakes.models import Customer, CustomerId, Order, new_base
from mistakes.table import mistake
from sqlalchemy import Engine, ForeignKey, Integer, MetaData, String, func, insert, select, text, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Mapped, Session, mapped_column
from support.command import run
from support.projects import Project
from support.shops import shop

from sqlalchemy_public_id import NanoId, PublicIdMixin, PublicIdNotFound, TypedId, lookup, public_id_column, public_ref

Create = Callable[[MetaData], None]

# --- typed ids


@mistake('CustomerId("izkpm55j334u")', says=r"does not begin with 'mkcus_' \(expected mkcus_ and 12")
def test_id_without_its_prefix() -> None:
    """The prefix should be added."""
    CustomerId("izkpm55j334u")


@mistake("CustomerId(1)", says=r"it is of type int \(expected mkcus_ and 12")
def test_id_of_a_key() -> None:
    """The key should be translated into the public id."""
    CustomerId(1)


@mistake("CustomerId.generate()", documented=("guides/declaring-ids#typed-ids", r"`CustomerId\(\)` generates an id"))
def test_generate_of_a_typed_id() -> None:
    """A new id is meant; Python says that there is no such attribute."""
    with pytest.raises(AttributeError):
        CustomerId.generate()


@mistake('class CustomerId(TypedId): prefix = "cus"', says=r'class CustomerId\(\w+, prefix="cus"\)')
def test_prefix_as_an_attribute() -> None:
    """The ids should have this prefix."""
    type("AttributeId", (TypedId,), {"prefix": "cus"})()


@mistake('class CustomerId(TypedId, prefix="")', says=r"expected ASCII letters, digits and '_'")
def test_empty_prefix() -> None:
    """The ids should have a type, and no prefix."""
    type("EmptyId", (TypedId,), {}, prefix="")


@mistake('isinstance("cus_izkpm55j334u", CustomerId)')
def test_text_is_no_typed_id() -> None:
    """The text should be recognized; only a checked text is a CustomerId."""
    assert not isinstance("mkcus_izkpm55j334u", CustomerId)
    assert isinstance(CustomerId("mkcus_izkpm55j334u"), CustomerId)


# --- models


@mistake(
    "class Customer(PublicIdMixin(CustomerId), Base)",
    says=r"PublicIdMixin\(\) takes no arguments",
    documented=("guides/declaring-ids", r"`PublicIdMixin\[CustomerId\]`"),
)
def test_mixin_is_called() -> None:
    """The ids should have this type."""

    class Client(PublicIdMixin(CustomerId), new_base()):
        __tablename__ = "client"


@mistake(
    "public_id: Mapped[CustomerId], without the mixin",
    says=r"Could not locate SQLAlchemy Core type.*CustomerId",
    documented=("guides/declaring-ids", r"`PublicIdMixin\[CustomerId\]` .* the usual choice"),
)
def test_annotation_alone() -> None:
    """The annotation should make the column."""

    class Client(new_base()):
        __tablename__ = "client"
        id: Mapped[int] = mapped_column(primary_key=True)
        public_id: Mapped[CustomerId]


@mistake(
    "public_id = mapped_column(String(30), default=CustomerId)", says=r"declare the column with public_id_column\(\)"
)
def test_default_of_ones_own(session: Session) -> None:
    """The column should be one that look-ups know."""

    class Client(new_base()):
        __tablename__ = "client"
        id: Mapped[int] = mapped_column(primary_key=True)
        public_id: Mapped[str] = mapped_column(String(30), default=CustomerId)

    lookup.get(session, Client, "mkcus_izkpm55j334u")


@mistake("public_id = public_id_column(NanoId(length=8)), beside the mixin")
def test_column_beside_the_mixin() -> None:
    """The ids should have eight characters."""

    class Client(PublicIdMixin, new_base()):
        __tablename__ = "client"
        public_id: Mapped[str] = public_id_column(NanoId(length=8))

    assert len(Client().public_id) == 8


@mistake(
    "id: Mapped[int] = mapped_column(primary_key=True), beside the mixin",
    documented=("guides/looking-up#the-key-is-another-number", r"a key that the model declares itself"),
)
def test_key_beside_the_mixin() -> None:
    """The key should be visible in the class; it is then an INTEGER that takes any text."""

    class Client(PublicIdMixin, new_base()):
        __tablename__ = "client"
        id: Mapped[int] = mapped_column(primary_key=True)

    assert type(Client.__table__.c.id.type) is Integer


@mistake(
    "customer_id: Mapped[CustomerId] = mapped_column(ForeignKey('customer.id'))",
    says=r"client_id is annotated as CustomerId.*client_public_id: Mapped\[CustomerId\] = public_ref\(",
)
def test_annotation_of_a_foreign_key() -> None:
    """The foreign key is taken for the public id of the customer; type checkers believe the annotation."""
    base = new_base()
    type("Client", (PublicIdMixin, base), {"__tablename__": "client", "__public_id__": CustomerId})

    class Order(PublicIdMixin, base):
        __tablename__ = "order"
        client_id: Mapped[CustomerId] = mapped_column(ForeignKey("client.id"))

    base.registry.configure()


@mistake(
    "customer_id = mapped_column(Integer, ForeignKey('customer.id')), which then gets a public id",
    documented=("guides/looking-up#the-key-is-another-number", r"foreign keys with such a type.*leave the type .* out"),
)
def test_type_of_a_foreign_key() -> None:
    """The foreign key should be a number; its own type does not refuse a public id."""
    assert type(mapped_column(Integer, ForeignKey("customer.id")).column.type) is Integer


@mistake(
    "customer_public_id: Mapped[CustomerId], without public_ref",
    says=r"Could not locate SQLAlchemy Core type",
    documented=("guides/foreign-keys", r"`public_ref` adds an attribute"),
)
def test_reference_by_annotation() -> None:
    """The reference should come with the foreign key."""

    class Order(PublicIdMixin, new_base()):
        __tablename__ = "order"
        customer_id: Mapped[int] = mapped_column(ForeignKey("customer.id"))
        customer_public_id: Mapped[CustomerId]


@mistake(
    'public_ref("customer_id"), without a relationship', says=r"Order has no relationship 'customer_id'; it has none"
)
def test_reference_without_a_relationship() -> None:
    """The reference should show the foreign key."""
    base = new_base()

    class Order(PublicIdMixin, base):
        __tablename__ = "order"
        customer_id: Mapped[int] = mapped_column(ForeignKey("customer.id"))
        customer_public_id: Mapped[str] = public_ref("customer_id")

    base.registry.configure()


@mistake("Order(customer_public_id=…), without public_ref", says=r"is an invalid keyword argument for Item")
def test_value_of_no_reference() -> None:
    """The README says that the reference assigns the id; it must be declared."""
    type("Item", (PublicIdMixin, new_base()), {"__tablename__": "item"})(customer_public_id=CustomerId())


@mistake(
    "create_all() with a table that exists",
    documented=("guides/declaring-ids", r"If your table has rows already, see \[Add ids to a table in production\]"),
)
def test_table_without_the_column(session: Session, create: Create) -> None:
    """The column should be added; create_all() changes no table, so the database says that there is no such column."""
    base = new_base()
    old: Any = type("Old", (PublicIdMixin, base), {"__tablename__": "old"})
    session.execute(text("CREATE TABLE old (id INTEGER PRIMARY KEY)"))
    base.metadata.create_all(session.connection())
    with pytest.raises(OperationalError, match="public_id"):
        session.scalars(select(old)).all()


# --- look-ups and queries


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


@mistake("where(Order.customer_public_id.in_(select(Customer.id)))", says=r"public_id")
def test_keys_of_a_subquery(session: Session, order: Order) -> None:
    """The orders of these customers are meant; public ids are compared with keys."""
    session.scalars(select(Order).where(Order.customer_public_id.in_(select(Customer.id)))).all()


@mistake("where(Order.customer_id.in_(select(Customer.public_id)))", says=r"public_ref\(\)")
def test_public_ids_of_a_subquery(session: Session, order: Order) -> None:
    """The orders of these customers are meant; keys are compared with public ids."""
    session.scalars(select(Order).where(Order.customer_id.in_(select(Customer.public_id)))).all()


@mistake("where(Order.customer_public_id.in_(select(Customer.public_id)))")
def test_references_of_a_subquery(session: Session, order: Order) -> None:
    """The orders of these customers are meant."""
    assert session.scalars(select(Order).where(Order.customer_public_id.in_(select(Customer.public_id)))).all() == [
        order
    ]


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


# --- writing and migrating


@mistake(
    "insert(Customer).from_select(…)", says=r"would give every row the same public_id.*Read the rows and insert them"
)
def test_insert_from_select(session: Session, ada: Customer) -> None:
    """Each new row should have an id of its own."""
    session.execute(insert(Customer).from_select(["name"], select(Customer.name)))


@mistake("update(Customer).values(public_id=CustomerId)", says=r"it is of type type \(expected mkcus_")
def test_class_as_a_value(session: Session, ada: Customer) -> None:
    """Each customer should get a new id."""
    session.execute(update(Customer).values(public_id=CustomerId))


@mistake("Core: insert(Customer.__table__), without public_id")
def test_core_insert(session: Session, ada: Customer) -> None:
    """The rows should get ids."""
    session.execute(insert(Customer.__table__), [{"name": "Bob"}, {"name": "Eve"}])
    assert session.scalar(select(func.count(Customer.public_id.distinct()))) == 3


@mistake("op.add_public_id(Customer)", says=r"table is .*, expected a name")
def test_model_for_an_operation(project: Project) -> None:
    """The table of this model is meant."""
    project.write("op.add_public_id(int)")
    project.upgrade()


@mistake('op.add_public_id("customer", format="cus")', says=r"expected a format such as NanoId\(length=12\)")
def test_prefix_as_format_of_an_operation(project: Project) -> None:
    """The ids should have this prefix."""
    project.write("op.add_public_id('customer', format='cus')")
    project.upgrade()


@mistake(
    'op.add_public_id("customer"), as in the README, of a model with a prefix', says=r"format=NanoId\(prefix='cus'\)"
)
def test_operation_without_the_format(project: Project, caplog: pytest.LogCaptureFixture) -> str | None:
    """The ids should be those of the model; they are those of the default format, and look-ups find none of them."""
    project.config.attributes["metadata"] = shop(NanoId(prefix="cus"))
    project.write("op.add_public_id('customer')")
    project.upgrade()
    return caplog.text or None


@mistake("public-id add sqlite:///… customer, twice")
def test_command_twice(project: Project, engine: Engine) -> None:
    """The table should have ids; the second run changes nothing."""
    assert run("add", engine.url, "customer").exit_code == 0
    with engine.connect() as connection:
        before = connection.scalars(text("SELECT public_id FROM customer")).all()
    assert run("add", engine.url, "customer").exit_code == 0
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT public_id FROM customer")).all() == before
