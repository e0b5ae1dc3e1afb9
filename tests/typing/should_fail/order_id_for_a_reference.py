# expect mypy assignment, pyright reportAttributeAccessIssue
from __future__ import annotations

from models import Base, Customer, CustomerId, OrderId
from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sqlalchemy_public_id import PublicIdMixin
from sqlalchemy_public_id.references import public_ref


class Receipt(PublicIdMixin, Base):
    __tablename__ = "receipt"
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[CustomerId] = public_ref("customer")


receipt = Receipt()
receipt.customer_public_id = OrderId()  # wrong
