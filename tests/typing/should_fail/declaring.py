"""Mistakes with ids, formats and models, each with the rules that mypy and Pyright report."""

from __future__ import annotations

from models import Base, CardId, Customer, CustomerId, Order, OrderId, Ticket, TicketId
from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, bigint_key, public_id_column
from sqlalchemy_public_id.references import public_ref

format = NanoId()
format.length = 16  # wrong: misc, reportAttributeAccessIssue
format.generate(5)  # wrong: call-arg, reportCallIssue
NanoId(length="12")  # wrong: arg-type, reportArgumentType
CustomerId(b"cus_izkpm55j334u")  # wrong: arg-type, reportArgumentType


def charge(customer: CustomerId) -> None: ...


charge("cus_izkpm55j334u")  # wrong: arg-type, reportArgumentType
charge(Order().public_id)  # wrong: arg-type, reportArgumentType

customer = Customer()
customer.public_id = "cus_izkpm55j334u"  # wrong: assignment, reportAttributeAccessIssue
customer.public_id = OrderId()  # wrong: assignment, reportAttributeAccessIssue

Ticket(title="Broken lamp", id=1)  # wrong: call-arg, reportCallIssue
Ticket(title="Broken lamp", public_id=TicketId())  # wrong: call-arg, reportCallIssue


class Wallet(PublicIdMixin[int], Base):  # wrong: type-var, reportInvalidTypeArguments
    __tablename__ = "wallet"


class Purse(Base):
    __tablename__ = "purse"
    id: Mapped[int] = bigint_key()
    number: Mapped[CardId] = public_id_column(OrderId)  # wrong: arg-type, reportAssignmentType
    text: Mapped[CardId] = public_id_column(NanoId(prefix="card"))  # wrong: assignment, reportAssignmentType


class Receipt(PublicIdMixin, Base):
    __tablename__ = "receipt"
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[CustomerId] = public_ref("customer")


Receipt().customer_public_id = OrderId()  # wrong: assignment, reportAttributeAccessIssue
