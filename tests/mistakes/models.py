"""The models of the mistakes: customers, and their orders."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from sqlalchemy_public_id import PublicIdMixin, TypedId, public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class CustomerId(TypedId, prefix="mkcus"): ...


class OrderId(TypedId, prefix="mkord"): ...


class Customer(PublicIdMixin[CustomerId], Base):
    __tablename__ = "customer"
    name: Mapped[str | None] = mapped_column(String(50))
    orders: Mapped[list[Order]] = relationship(back_populates="customer")


class Order(PublicIdMixin[OrderId], Base):
    __tablename__ = "order"
    total: Mapped[int | None]
    customer_id: Mapped[int | None] = mapped_column(ForeignKey("customer.id"))
    customer: Mapped[Customer | None] = relationship(back_populates="orders")
    customer_public_id: Mapped[CustomerId | None] = public_ref("customer")


def new_base(**members: Any) -> Any:
    """Return a new declarative base, for the models of one mistake."""
    return type("Base", (DeclarativeBase,), {"metadata": MetaData(), **members})
