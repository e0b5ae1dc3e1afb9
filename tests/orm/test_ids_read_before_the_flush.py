"""The id of a new object is read, and stored elsewhere, before the object is flushed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import MetaData, String
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_public_id import PublicIdMixin, testing

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Customer(PublicIdMixin, Base):
    __tablename__ = "customer"


class AuditEntry(PublicIdMixin, Base):
    __tablename__ = "audit_entry"
    customer_public_id: Mapped[str] = mapped_column(String(40))


def test_id_in_an_audit_entry(create: Callable[[MetaData], None], session: Session) -> None:
    """A collision of an id that an audit entry names is an IntegrityError, so the entry cannot name another row."""
    create(Base.metadata)
    session.add(ada := Customer())
    session.commit()

    with testing.collisions(Customer, ada.public_id):
        grace = Customer()
        session.add_all([grace, AuditEntry(customer_public_id=grace.public_id)])

        with pytest.raises(IntegrityError):
            session.commit()
