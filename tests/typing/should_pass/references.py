"""A reference has the type of the public ids that it shows, in objects and in queries."""

from __future__ import annotations

from models import Base, Customer, CustomerId, User
from sqlalchemy import ForeignKey, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, Session, mapped_column, relationship
from typing_extensions import assert_type

from sqlalchemy_public_id import PublicIdMixin, lookup
from sqlalchemy_public_id.asyncio import references as awaited
from sqlalchemy_public_id.references import PublicRef, eager, load, public_ref, public_refs


class Invoice(PublicIdMixin, Base):
    __tablename__ = "invoice"
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[CustomerId] = public_ref("customer")
    clerk_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    clerk: Mapped[User | None] = relationship()
    clerk_public_id: Mapped[str | None] = public_ref("clerk", attribute="public_id")


def read(session: Session, invoice: Invoice, customer_id: CustomerId) -> list[CustomerId]:
    assert_type(invoice.customer_public_id, CustomerId)
    assert_type(invoice.clerk_public_id, str | None)
    assert_type(public_refs(Invoice), dict[str, PublicRef])
    invoice.customer_public_id = customer_id
    invoice.clerk_public_id = None
    query = select(Invoice).options(eager(Invoice.customer_public_id), eager(Invoice.clerk_public_id))
    load(session, session.scalars(query.where(Invoice.customer_public_id == customer_id)))
    page = lookup.page(session, Invoice, limit=9, references=[Invoice.customer_public_id, Invoice.clerk_public_id])
    assert_type(page[0].customer_public_id, CustomerId)
    ordered = select(Invoice.customer_public_id).order_by(Invoice.clerk_public_id.desc())
    return list(session.scalars(ordered.where(Invoice.clerk_public_id.in_(["izkpm55j334u"]))))


async def read_awaited(session: AsyncSession, invoices: list[Invoice]) -> None:
    await awaited.load(session, invoices)
