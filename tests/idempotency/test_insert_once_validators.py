"""``insert_once()`` and what the application does when an attribute is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, validates

from sqlalchemy_public_id import PublicIdMixin, idempotency


class Base(DeclarativeBase):
    metadata = MetaData()


class Customer(PublicIdMixin, Base):
    __tablename__ = "customer"


class Order(PublicIdMixin, Base):
    __tablename__ = "order"
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()

    @validates("customer")
    def check_customer(self, key: str, value: Any) -> Any:
        if value is None:
            raise ValueError("an order has a customer")
        return value


def add(session: Session, order: Order) -> None:
    session.add(order)
    session.flush()


@pytest.mark.parametrize("insert", [add, idempotency.insert_once])
def test_validator_of_a_relationship(
    create: Callable[[MetaData], None], session: Session, insert: Callable[[Session, Order], object]
) -> None:
    """An object whose validator refuses ``None`` for a relationship is stored."""
    create(Base.metadata)
    session.add(ada := Customer())
    session.flush()

    insert(session, Order(public_id="izkpm55j334u", customer=ada))

    assert [ada] == [order.customer for order in session.query(Order)]
