"""Keys that SQLAlchemy reads from the database before the INSERT, which is what it does without RETURNING."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import BigInteger, MetaData, Sequence, String, Uuid, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on
from support.members import A
from support.ways import Way, each_way, execute_core, flush

from sqlalchemy_public_id import PublicIdColumnMixin, PublicIdMixin, testing

pytestmark = [pytest.mark.backend, on("postgresql")]

WITHOUT_RETURNING = {"implicit_returning": False}


class Base(DeclarativeBase):
    metadata = MetaData()


class OfIdentity(PublicIdMixin, Base):
    __tablename__ = "of_identity"
    __table_args__ = WITHOUT_RETURNING
    name: Mapped[str] = mapped_column(String(9))


class OfSequence(PublicIdColumnMixin, Base):
    __tablename__ = "of_sequence"
    __table_args__ = WITHOUT_RETURNING
    id: Mapped[int] = mapped_column(BigInteger, Sequence("of_sequence_key"), primary_key=True)
    name: Mapped[str] = mapped_column(String(9))


class OfFunction(PublicIdColumnMixin, Base):
    __tablename__ = "of_function"
    __table_args__ = WITHOUT_RETURNING
    id: Mapped[uuid.UUID] = mapped_column(Uuid, default=func.gen_random_uuid(), primary_key=True)
    name: Mapped[str] = mapped_column(String(9))


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


@each_way(flush, execute_core)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("model", [OfIdentity, OfSequence, OfFunction])
def test_without_returning(session: Session, model: type[Any], write: Way, rows: int) -> None:
    """A table with ``implicit_returning=False`` takes rows, whatever makes its keys, and retries a collision."""
    write(session, model, [{"public_id": A, "name": "first"}])
    with testing.collisions(model, A):
        write(session, model, [{"name": str(number)} for number in range(rows)])
    session.commit()

    assert session.scalar(select(func.count(model.public_id.distinct()))) == 1 + rows
