"""The models of the service. Both versions of the application read and write the same tables."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, TypedId, public_ref


class OrganizationId(TypedId, prefix="ivorg"): ...


class CustomerId(TypedId, prefix="ivcus"): ...


class ProductId(TypedId, prefix="ivpro"): ...


class InvoiceId(TypedId, prefix="ivinv"): ...


class PaymentId(TypedId, prefix="ivpay"): ...


class Base(DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {str: String(100)}


class Organization(PublicIdMixin[OrganizationId], Base):
    __tablename__ = "iv_organization"
    name: Mapped[str]


class OfAnOrganization:
    """A mixin for rows that belong to an organization."""

    organization_id: Mapped[int] = mapped_column(ForeignKey(Organization.id), index=True)


class Customer(PublicIdMixin[CustomerId], OfAnOrganization, Base):
    __tablename__ = "iv_customer"
    name: Mapped[str]


class Product(PublicIdMixin[ProductId], OfAnOrganization, Base):
    __tablename__ = "iv_product"
    name: Mapped[str]
    cents: Mapped[int] = mapped_column(BigInteger)


class Invoice(PublicIdMixin[InvoiceId], OfAnOrganization, Base):
    __tablename__ = "iv_invoice"
    note: Mapped[str] = mapped_column(default="")
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id), index=True)
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[CustomerId] = public_ref("customer", scope="organization_id")
    lines: Mapped[list[Line]] = relationship(order_by="Line.id", cascade="all, delete-orphan")


class Line(PublicIdMixin, OfAnOrganization, Base):
    __tablename__ = "iv_line"
    __public_id__ = NanoId(length=16)
    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id), index=True)
    product_id: Mapped[int] = mapped_column(ForeignKey(Product.id), index=True)
    product: Mapped[Product] = relationship()
    product_public_id: Mapped[ProductId] = public_ref("product", scope="organization_id")
    quantity: Mapped[int]


class Payment(PublicIdMixin[PaymentId], OfAnOrganization, Base):
    __tablename__ = "iv_payment"
    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id), index=True)
    invoice: Mapped[Invoice] = relationship()
    invoice_public_id: Mapped[InvoiceId] = public_ref("invoice", scope="organization_id")
    cents: Mapped[int] = mapped_column(BigInteger)
