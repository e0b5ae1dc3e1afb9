"""A customer and an order, for packages that work with models of an application."""

from __future__ import annotations

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from sqlalchemy_public_id import PublicIdMixin, TypedId
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase): ...


class CustomerId(TypedId, prefix="nbcus"): ...


class OrderId(TypedId, prefix="nbord"): ...


class Customer(PublicIdMixin[CustomerId], Base):
    """A model with typed ids and a name."""

    __tablename__ = "customer"
    name: Mapped[str] = mapped_column(String(50))


class Order(PublicIdMixin[OrderId], Base):
    """A model with typed ids, a total, and a reference to its customer."""

    __tablename__ = "orders"
    total: Mapped[int]
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[CustomerId] = public_ref("customer")


ADA, FIRST = CustomerId("nbcus_000000000ada"), OrderId("nbord_0000000first")
NOBODY, MALFORMED = CustomerId("nbcus_000000nobody"), "nonsense"
