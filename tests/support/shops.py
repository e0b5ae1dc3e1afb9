"""A shop before it has public ids, and after."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, MetaData, String
from sqlalchemy.orm import DeclarativeBase, mapped_column

from sqlalchemy_public_id import NanoId, ObjectId, PublicIdMixin, Snowflake, Uuid7, bigint_key, public_id_column
from sqlalchemy_public_id.tokens import Token, token_column


def old_shop() -> MetaData:
    """Return the tables of customers and orders, which have only integer keys."""

    class Base(DeclarativeBase): ...

    class Customer(Base):
        __tablename__ = "customer"
        id = bigint_key()
        name = mapped_column(String(50))

    class Order(Base):
        __tablename__ = "order"
        id = bigint_key()
        customer_id = mapped_column(ForeignKey("customer.id"))

    return Base.metadata


def shop(format: Any = None, **options: Any) -> MetaData:
    """Return these tables with public ids for the customers."""
    metadata = old_shop()
    column = public_id_column(format, **options).column
    column.name = column.key = column.name or "public_id"
    metadata.tables["customer"].append_column(column)
    return metadata


def new_shop() -> MetaData:
    """Return the tables of a shop that has public ids on all tables from the beginning."""

    class Base(DeclarativeBase): ...

    class Customer(PublicIdMixin, Base):
        __tablename__ = "customer"
        __public_id__ = NanoId(prefix="cus")
        name = mapped_column(String(50))

    class Invoice(PublicIdMixin, Base):
        __tablename__ = "invoice"
        __public_id__ = Uuid7(prefix="inv")
        reference = public_id_column(Snowflake(machine_id=1))
        document = public_id_column(ObjectId())

    class Invitation(PublicIdMixin, Base):
        __tablename__ = "invitation"
        token = token_column(Token("invite"))

    class Order(PublicIdMixin, Base):
        __tablename__ = "order"
        customer_id = mapped_column(ForeignKey("customer.id"))

    return Base.metadata
