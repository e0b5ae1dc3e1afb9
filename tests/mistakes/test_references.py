"""Mistakes with foreign keys, and with the references that show them."""

from typing import Any

import pytest
from mistakes.models import Customer, CustomerId, Order, OrderId, new_base
from mistakes.table import mistake
from sqlalchemy import ForeignKey, Integer, insert, select, text, update
from sqlalchemy.orm import (
    Mapped,
    Session,
    joinedload,
    load_only,
    mapped_column,
    relationship,
    selectinload,
)

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, ReferenceNotReadable, public_ref

# --- declarations


def team(mixin: Any = PublicIdMixin, **members: Any) -> Any:
    """Return a base and a model that other models refer to."""
    base = new_base()
    key = {} if mixin is PublicIdMixin else {"id": mapped_column(Integer, primary_key=True)}
    bases = (PublicIdMixin, base) if mixin is PublicIdMixin else (base,)
    return base, type("Team", bases, {"__tablename__": "team", **key, **members})


def member(base: Any, team: Any, reference: str, annotation: Any = str) -> None:
    """Declare a model that refers to a team."""

    class Member(PublicIdMixin, base):
        __tablename__ = "member"
        team_id: Mapped[int] = mapped_column(ForeignKey("team.id"))
        team: Mapped[Any] = relationship("Team")
        team_public_id: Mapped[annotation] = public_ref(reference)

    base.registry.configure()


@mistake('public_ref("tem")', says=r"Member has no relationship 'tem'; it has team")
def test_misspelled_relationship() -> None:
    """The relationship ``team`` is meant."""
    member(*team(), "tem")


@mistake('public_ref("team_id")', says=r"Member has no relationship 'team_id'; it has team")
def test_foreign_key_instead_of_the_relationship() -> None:
    """The reference should show this foreign key."""
    member(*team(), "team_id")


@mistake("public_ref(Customer)", says=r'expected the name of the relationship, a string: public_ref\("customer"\)')
def test_class_instead_of_the_relationship() -> None:
    """The reference should show the id of a customer."""
    public_ref(Customer)


@mistake('public_ref("members") of a list', says=r"name a relationship that is many-to-one")
def test_reference_on_the_side_of_the_list() -> None:
    """The team should show the ids of its members."""
    base, model = team(members=relationship("Member", overlaps="team"), member_public_ids=public_ref("members"))
    member(base, model, "team")


@mistake("public_ref to a model without public id", says=r"Team has no public id; add PublicIdMixin")
def test_target_without_id() -> None:
    """The reference should show the team's id, which it does not have."""
    member(*team(mixin=None), "team")


@mistake('customer_public_id: Mapped[OrderId] = public_ref("customer")', says=r"annotat.*CustomerId")
def test_annotation_of_another_model() -> None:
    """The line was copied from another reference; type checkers believe the annotation."""
    member(*team(__public_id__=CustomerId), "team", annotation=OrderId)


@mistake('customer_id: Mapped[CustomerId] = mapped_column(ForeignKey("customer.public_id"))')
def test_foreign_key_to_the_public_id(create: Any, session: Session) -> None:
    """The order should store the public id of its customer."""
    base, model = team()

    class Member(PublicIdMixin, base):
        __tablename__ = "member"
        team_id: Mapped[str] = mapped_column(ForeignKey("team.public_id"))

    create(base.metadata)
    red = model()
    session.add_all([red, Member(team_id=red.public_id)])
    session.commit()

    assert session.scalars(select(Member.team_id)).all() == [red.public_id]


# --- values


@mistake("Order(customer_id=ada.public_id)", says=r"assign the object, or its public id to a public_ref\(\)")
@pytest.mark.backend
def test_public_id_in_a_foreign_key(session: Session, ada: Customer) -> None:
    """The body of a request has a public id, and the order should belong to this customer."""
    session.add(Order(customer_id=ada.public_id))
    session.flush()


@mistake("Order(customer_public_id=ada.id)", says=r"it is of type int \(expected mkcus_ and 12")
def test_key_in_a_reference(ada: Customer) -> None:
    """The order should belong to Ada."""
    Order(customer_public_id=ada.id)


@mistake("Order(customer_public_id=ada)", says=r"it is of type Customer \(expected mkcus_ and 12")
def test_object_in_a_reference(ada: Customer) -> None:
    """The order should belong to Ada."""
    Order(customer_public_id=ada)


@mistake("Order(customer=ada.public_id)", says=r"customer_public_id")
def test_public_id_in_a_relationship(ada: Customer) -> None:
    """The order should belong to Ada."""
    Order(customer=ada.public_id)


@mistake("Order(customer_public_id=order.public_id)", says=r"the prefix is 'mkord' \(expected mkcus_")
def test_id_of_another_model_in_a_reference(order: Order) -> None:
    """The id of the customer is meant; the names are mixed up."""
    Order(customer_public_id=order.public_id)


@mistake("Order(customer_public_id=an unknown id)", says=r"Order.customer_public_id: no Customer has the public id")
def test_unknown_id_in_a_reference(session: Session, ada: Customer) -> None:
    """The customer was deleted meanwhile."""
    session.add(Order(customer_public_id=CustomerId()))
    session.flush()


@mistake('Order(customer_public_id="")', says=r"Order.customer_public_id: '' is not a public id")
def test_empty_field_of_a_form() -> None:
    """The field of the form was left empty, and no customer is meant."""
    Order(customer_public_id="")


@mistake("Order(customer=ada, customer_public_id=bob.public_id)", says=r"Order.customer_public_id.*customer")
def test_relationship_and_reference_that_contradict(session: Session, ada: Customer) -> None:
    """One of the two is left over from a copied line."""
    bob = Customer(name="Bob")
    session.add(bob)
    session.flush()
    order = Order(customer_public_id=bob.public_id)
    session.add(order)
    order.customer = ada
    order.customer_public_id = bob.public_id
    session.flush()


@mistake("Order(customer_publicid=…)", says=r"'customer_publicid' is an invalid keyword argument for Order")
def test_misspelled_reference_of_the_constructor(ada: Customer) -> None:
    """The reference is meant."""
    Order(customer_publicid=ada.public_id)


@mistake(
    "order.customer_publicid = …",
    documented=("guides/foreign-keys#limits", r"\*\*A name that is misspelled.*\*\* is an error in the constructor"),
)
def test_misspelled_reference_of_an_object(order: Order) -> None:
    """The reference is meant; Python objects accept every attribute."""
    order.customer_publicid = CustomerId()


@mistake("a new customer and its order by id, in one flush")
def test_reference_to_a_new_object(session: Session, ada: Customer) -> None:
    """Both objects are new, and only the id connects them."""
    bob = Customer(name="Bob")
    order = Order(customer_public_id=bob.public_id)
    session.add_all([order, bob])
    session.commit()

    assert order.customer is bob


@mistake("DELETE FROM customer, whose orders stay (SQLite)", says=r"the row does not exist")
def test_customer_deleted_under_an_order(session: Session, order: Order) -> None:
    """Nobody noticed that the orders stay: SQLite checks foreign keys only after a PRAGMA."""
    session.execute(text("DELETE FROM customer"))
    session.commit()
    try:
        str(order.customer_public_id)
    except ReferenceNotReadable as error:
        raise LookupError(str(error)) from None


@mistake("session.delete(customer), whose orders stay")
def test_customer_with_orders_is_deleted(session: Session, ada: Customer, order: Order) -> None:
    """The orders should stay, without a customer."""
    session.delete(ada)
    session.commit()

    assert order.customer_public_id is None


# --- statements


@mistake("insert(Order).values(customer_public_id=…)", says=r"pass it in a row, .*lookup.keys_of\(\)")
def test_reference_in_values(session: Session, ada: Customer) -> None:
    """The new order should belong to Ada."""
    session.execute(insert(Order).values(customer_public_id=ada.public_id))


@mistake("update(Order).values(customer_public_id=…)", says=r"pass it in a row, .*lookup.keys_of\(\)")
def test_reference_in_an_update(session: Session, ada: Customer) -> None:
    """All orders should belong to Ada."""
    session.execute(update(Order).values(customer_public_id=ada.public_id))


@mistake(
    "Order.__table__.insert().values(customer_public_id=…)",
    says=r"Unconsumed column names: customer_public_id",
    documented=("guides/foreign-keys", r"A reference has no column"),
)
def test_reference_in_a_core_statement(session: Session, ada: Customer) -> None:
    """The new order should belong to Ada; the table has no such column."""
    session.execute(Order.__table__.insert().values(customer_public_id=ada.public_id))


@mistake("where(Order.customer_public_id.in_(keys))", says=r"it is of type int \(expected mkcus_")
def test_keys_among_public_ids(session: Session, ada: Customer) -> None:
    """The orders of these customers are meant."""
    session.scalars(select(Order).where(Order.customer_public_id.in_([ada.id]))).all()


@mistake("where(Order.customer_public_id.in_(customers))", says=r"it is of type Customer \(expected mkcus_")
def test_objects_among_public_ids(session: Session, ada: Customer) -> None:
    """The orders of these customers are meant."""
    session.scalars(select(Order).where(Order.customer_public_id.in_([ada]))).all()


@mistake("where(Order.customer_public_id == the id of an order)")
def test_id_of_another_model_in_a_condition(session: Session, order: Order) -> None:
    """The ids are mixed up; an id of another model matches no row."""
    assert session.scalars(select(Order).where(Order.customer_public_id == order.public_id)).all() == []


@mistake("filter_by(customer=ada.public_id)", says=r"Order\.customer\.has\(")
def test_public_id_compared_with_a_relationship(session: Session, ada: Customer) -> None:
    """The orders of Ada are meant."""
    session.scalars(select(Order).filter_by(customer=ada.public_id)).all()


@mistake("selectinload(Order.customer_public_id)", says=r"references\.eager")
def test_reference_in_selectinload() -> None:
    """The ids should be loaded with the orders."""
    select(Order).options(selectinload(Order.customer_public_id))


@mistake("joinedload(Order.customer_public_id)", says=r"references\.eager")
def test_reference_in_joinedload() -> None:
    """The ids should be loaded with the orders."""
    select(Order).options(joinedload(Order.customer_public_id))


@mistake(
    "load_only(Order.customer_public_id)",
    documented=("errors", r"`load_only\(Order\.customer_public_id\)`.*foreign key"),
)
def test_reference_in_load_only(session: Session, order: Order) -> None:
    """Only the id of the customer is needed; SQLAlchemy asks the attribute for columns by a private name."""
    with pytest.raises((IndexError, ConfigurationError)):  # the latter from older releases, which ask by a public name
        load_only(Order.customer_public_id)
    row = session.scalars(select(Order).options(load_only(Order.customer_id))).one()

    assert row.customer_public_id == order.customer_public_id


@pytest.mark.parametrize("name", ["refresh", "expire"])
@mistake(
    'session.refresh(order, ["customer_public_id"])',
    documented=("errors", r"`KeyError: 'customer_public_id'`.*foreign key"),
)
def test_reference_is_refreshed(session: Session, order: Order, name: str) -> None:
    """The present customer of the order is meant; SQLAlchemy looks for an attribute with a column."""
    call = getattr(session, name)
    with pytest.raises(KeyError, match="customer_public_id"):
        call(order, ["customer_public_id"])
    session.execute(text('UPDATE "order" SET customer_id = NULL'))
    call(order, ["customer_id"])

    assert order.customer_public_id is None


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


@mistake("where(Order.customer_public_id.in_(select(Customer.id)))", says=r"public_id")
def test_keys_of_a_subquery(session: Session, order: Order) -> None:
    """The orders of these customers are meant; public ids are compared with keys."""
    session.scalars(select(Order).where(Order.customer_public_id.in_(select(Customer.id)))).all()
