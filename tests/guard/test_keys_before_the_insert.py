"""Keys that SQLAlchemy reads from the database before the INSERT, which is what it does without RETURNING."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import BigInteger, MetaData, Sequence, String, Uuid, func, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on

from sqlalchemy_public_id import NanoId, PublicIdColumnMixin, PublicIdMixin

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


class Returned(PublicIdColumnMixin, Base):
    """A sequence as well, and RETURNING."""

    __tablename__ = "returned"
    id: Mapped[int] = mapped_column(BigInteger, Sequence("returned_key"), primary_key=True)
    name: Mapped[str] = mapped_column(String(9))


class ByHand(Base):
    """A control without the library."""

    __tablename__ = "by_hand"
    __table_args__ = WITHOUT_RETURNING
    id: Mapped[int] = mapped_column(BigInteger, Sequence("by_hand_key"), primary_key=True)
    public_id: Mapped[str] = mapped_column(String(12), unique=True, default=NanoId().generate)
    name: Mapped[str] = mapped_column(String(9))


def flush_one(session: Session, model: type[Any]) -> None:
    session.add(model(name="a"))
    session.flush()


def flush_three(session: Session, model: type[Any]) -> None:
    session.add_all([model(name=name) for name in "abc"])
    session.flush()


def execute(session: Session, model: type[Any]) -> None:
    session.execute(insert(model.__table__).values(name="a"))


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


@pytest.mark.parametrize("write", [flush_one, flush_three, execute])
@pytest.mark.parametrize("model", [Returned, ByHand, OfIdentity, OfSequence, OfFunction])
def test_without_returning(session: Session, model: type[Any], write: Callable[[Session, type[Any]], None]) -> None:
    """A table with ``implicit_returning=False`` takes rows, whatever makes its keys."""
    write(session, model)
    session.commit()

    assert session.scalar(select(func.min(model.name))) == "a"
