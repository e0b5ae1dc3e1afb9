"""Customers, products, orders and their lines. Keys are integers and never leave the service."""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy import ForeignKey, Numeric, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, TypedId
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    """The tables of this example."""


class CustomerId(TypedId, prefix="customer"):
    """``customer_…``"""


class ProductId(TypedId, prefix="product", format=NanoId(length=8)):
    """``product_…``: short, to be read out on the telephone."""


class OrderId(TypedId, prefix="order"):
    """``order_…``: clients generate it too, so that an order can be sent twice."""


class LineId(TypedId, prefix="orderline"):
    """``orderline_…``"""


class Customer(PublicIdMixin[CustomerId], Base):
    __tablename__ = "shop_customer"
    name: Mapped[str] = mapped_column(String(100))


class Product(PublicIdMixin[ProductId], Base):
    __tablename__ = "shop_product"
    name: Mapped[str] = mapped_column(String(100))
    price: Mapped[Decimal] = mapped_column(Numeric(10, 2))


class Order(PublicIdMixin[OrderId], Base):
    __tablename__ = "shop_order"
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[CustomerId] = public_ref("customer")
    note: Mapped[str] = mapped_column(String(200))


class Line(PublicIdMixin[LineId], Base):
    __tablename__ = "shop_line"
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id))
    order: Mapped[Order] = relationship()
    order_public_id: Mapped[OrderId] = public_ref("order")
    product_id: Mapped[int] = mapped_column(ForeignKey(Product.id))
    product: Mapped[Product] = relationship()
    product_public_id: Mapped[ProductId] = public_ref("product")
    quantity: Mapped[int]
