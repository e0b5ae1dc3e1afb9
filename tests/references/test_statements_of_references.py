"""What the check of a reference with ``scope=`` costs."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import ForeignKey, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from conftest import Statements
from sqlalchemy_public_id import PublicIdMixin, public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class Customer(PublicIdMixin, Base):
    __tablename__ = "customer"
    tenant: Mapped[int]


class Product(PublicIdMixin, Base):
    __tablename__ = "product"
    tenant: Mapped[int]


class Invoice(PublicIdMixin, Base):
    __tablename__ = "invoice"
    tenant: Mapped[int]
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[str] = public_ref("customer", scope="tenant")
    lines: Mapped[list[Line]] = relationship()


class Line(PublicIdMixin, Base):
    __tablename__ = "line"
    tenant: Mapped[int]
    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id))
    product_id: Mapped[int] = mapped_column(ForeignKey(Product.id))
    product: Mapped[Product] = relationship()
    product_public_id: Mapped[str] = public_ref("product", scope="tenant")


def test_invoice_with_lines(create: Callable[[MetaData], None], session: Session, statements: Statements) -> None:
    """A flush of an invoice and its lines sends one SELECT for each model that they refer to, as code by hand would."""
    create(Base.metadata)
    session.add_all([customer := Customer(tenant=1), product := Product(tenant=1)])
    session.commit()
    customer_id, product_id = customer.public_id, product.public_id

    statements.clear()
    lines = [Line(tenant=1, product_public_id=product_id) for _ in range(5)]
    session.add(Invoice(tenant=1, customer_public_id=customer_id, lines=lines))
    session.flush()

    assert len(statements.starting("SELECT")) == 2
