"""Customers and orders, with all objects that an order is related to."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Column, Engine, ForeignKey, MetaData, Numeric, String, Table, select
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    WriteOnlyMapped,
    attribute_keyed_dict,
    mapped_column,
    relationship,
    validates,
)

from sqlalchemy_public_id import IdempotencyConflict, PublicIdMixin, TypedId, Uuid7, public_id_column, public_ref
from sqlalchemy_public_id.idempotency import insert_once

A, B, C = "izkpm55j334u", "8w0tnq3c5yzd", "cccccccccccc"
ADA = "iocustomer_0000000000ad"


class Base(DeclarativeBase):
    metadata = MetaData()


class CustomerId(TypedId, prefix="iocustomer"): ...


class Customer(PublicIdMixin[CustomerId], Base):
    """A model with typed ids, a unique name, and collections of each kind."""

    __tablename__ = "customer"
    name: Mapped[str | None] = mapped_column(String(50), unique=True)
    orders: Mapped[list[Order]] = relationship(back_populates="customer")
    by_number: Mapped[dict[str, Voucher]] = relationship(
        back_populates="customer", collection_class=attribute_keyed_dict("number")
    )
    written: WriteOnlyMapped[Note] = relationship(back_populates="customer")


tagged = Table(
    "tagged",
    Base.metadata,
    Column("order_id", ForeignKey("order.id"), primary_key=True),
    Column("tag_id", ForeignKey("tag.id"), primary_key=True),
)


class Order(PublicIdMixin, Base):
    """A model with two ids, a unique number, defaults, and relationships of each kind."""

    __tablename__ = "order"
    code: Mapped[str] = public_id_column(Uuid7(prefix="iocode"))
    number: Mapped[str | None] = mapped_column(String(10), unique=True)
    customer_id: Mapped[int | None] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer | None] = relationship(back_populates="orders")
    tags: Mapped[list[Tag]] = relationship(secondary=tagged, back_populates="orders")
    lines: Mapped[list[Line]] = relationship(back_populates="order")
    bill_id: Mapped[int | None] = mapped_column(ForeignKey("bill.id"))
    bill: Mapped[Bill | None] = relationship(back_populates="order")
    total: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
    state: Mapped[str | None] = mapped_column(String(50), default="new")
    served: Mapped[str | None] = mapped_column(String(50), server_default="served")
    note: Mapped[str | None] = mapped_column(String(50), deferred=True)


class Bill(PublicIdMixin, Base):
    """The other side of a one-to-one relationship."""

    __tablename__ = "bill"
    order: Mapped[Order | None] = relationship(back_populates="bill")


class Tag(PublicIdMixin, Base):
    """The other side of a many-to-many relationship."""

    __tablename__ = "tag"
    orders: Mapped[list[Order]] = relationship(secondary=tagged, back_populates="tags")


class Line(PublicIdMixin, Base):
    """The other side of a one-to-many relationship."""

    __tablename__ = "line"
    order_id: Mapped[int | None] = mapped_column(ForeignKey(Order.id))
    order: Mapped[Order | None] = relationship(back_populates="lines")


class Voucher(PublicIdMixin, Base):
    """A model whose customer must never be ``None``, not even temporarily."""

    __tablename__ = "voucher"
    number: Mapped[str] = mapped_column(String(50))
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship(back_populates="by_number")

    @validates("customer")
    def check_customer(self, key: str, value: Any) -> Any:
        if value is None:
            raise ValueError("a voucher has a customer")
        return value


class Note(PublicIdMixin, Base):
    """A model that also has a reference to its customer."""

    __tablename__ = "note"
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship(back_populates="written")
    customer_public_id: Mapped[CustomerId] = public_ref("customer")


def stored(engine: Engine, model: Any = Order) -> list[str]:
    """Return the public ids in the table, sorted."""
    with Session(engine) as session:
        return sorted(session.scalars(select(model.public_id)))


def differing(session: Session, obj: object, **options: Any) -> tuple[str, ...]:
    """Return the attributes in which *obj* differs from the row with its id."""
    with pytest.raises(IdempotencyConflict) as caught:
        insert_once(session, obj, **options)
    return caught.value.differing
