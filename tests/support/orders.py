"""Orders of customers, which refer to customers and addresses by their public ids."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, MetaData, String, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, TypedId
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class CustomerId(TypedId, prefix="rfcus"): ...


class Customer(PublicIdMixin[CustomerId], Base):
    """A model with typed ids, and a collection of its orders."""

    __tablename__ = "customer"
    name: Mapped[str] = mapped_column(String(50))
    orders: Mapped[list[Order]] = relationship(back_populates="customer", foreign_keys="Order.customer_id")


class Address(PublicIdMixin, Base):
    """A model without columns of its own."""

    __tablename__ = "address"
    __public_id__ = NanoId(prefix="rfadr")


class Shipped:
    """A mixin with its own references."""

    shipping_id: Mapped[int | None] = mapped_column(ForeignKey(Address.id))
    shipping_public_id: Mapped[str | None] = public_ref("shipping")


class Order(Shipped, PublicIdMixin, Base):
    """A model with references to a customer and to two addresses."""

    __tablename__ = "order"
    __public_id__ = NanoId(prefix="rford")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "order"}  # noqa: RUF012
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
    """A joined-table subclass with an additional reference."""

    __tablename__ = "rush"
    id: Mapped[int] = mapped_column(ForeignKey(Order.id), primary_key=True)
    __mapper_args__ = {"polymorphic_identity": "rush", "inherit_condition": id == Order.id}  # noqa: A003, RUF012
    replaces_id: Mapped[int | None] = mapped_column(ForeignKey(Order.id))
    replaces: Mapped[Order | None] = relationship(foreign_keys=replaces_id)
    replaces_public_id: Mapped[str | None] = public_ref("replaces")


class Node(PublicIdMixin, Base):
    """A model that refers to its own table."""

    __tablename__ = "node"
    __public_id__ = NanoId(prefix="rfnode")
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("node.id"))
    parent: Mapped[Node | None] = relationship(remote_side="Node.id")
    parent_public_id: Mapped[str | None] = public_ref("parent")


UNKNOWN = CustomerId("rfcus_zzzzzzzzzzzz")
CUSTOMERS = [CustomerId(f"rfcus_{number:012}") for number in range(10)]
ADDRESSES = [f"rfadr_{number:012}" for number in range(3)]


def fill(session: Session) -> None:
    """Add ten customers with ten orders each, whose addresses are in turn: none, the first, the second."""
    customers = [Customer(public_id=each, name=f"customer {each[-1]}") for each in CUSTOMERS]
    addresses = [None, *(Address(public_id=each) for each in ADDRESSES[1:])]
    session.add_all([*customers, Address(public_id=ADDRESSES[0])])
    for number in range(100):
        customer, billing, shipping = customers[number // 10], addresses[number % 3], addresses[2 - number % 3]
        session.add(Order(note=f"{number:02}", customer=customer, billing=billing, shipping=shipping))


def orders_in(session: Session, *options: Any) -> list[Order]:
    """Return all orders, with loader *options*."""
    return list(session.scalars(select(Order).order_by(Order.note).options(*options)))


def notes(session: Session, *conditions: Any) -> list[str | None]:
    """Return the notes of the orders that meet all *conditions*."""
    return list(session.scalars(select(Order.note).where(*conditions).order_by(Order.note)))
