"""Conflicts of SQLite that end the whole transaction: https://www.sqlite.org/lang_conflict.html."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import MetaData, String, UniqueConstraint, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on

from sqlalchemy_public_id import NanoId, PublicIdMixin, PublicIdType, bigint_key, testing

pytestmark = on("sqlite")


FORMAT = NanoId()


class Base(DeclarativeBase):
    metadata = MetaData()


class Order(PublicIdMixin, Base):
    __tablename__ = "order"
    name: Mapped[str] = mapped_column(String(9))


class Strict(Base):
    """An adopted table, whose own constraint ends the transaction."""

    __tablename__ = "strict"
    __table_args__ = (UniqueConstraint("public_id", sqlite_on_conflict="ROLLBACK"),)
    id: Mapped[int] = bigint_key()
    public_id: Mapped[str] = mapped_column(PublicIdType(FORMAT), default=FORMAT.generate)
    name: Mapped[str] = mapped_column(String(9))


class ByHand(Base):
    """A control without the library, whose id is always the same."""

    __tablename__ = "by_hand"
    id: Mapped[int] = mapped_column(primary_key=True)
    public_id: Mapped[str] = mapped_column(String(12), unique=True, default="aaaaaaaaaaaa")
    name: Mapped[str] = mapped_column(String(9))


def by_statement(session: Session, model: type[Order | ByHand]) -> None:
    session.execute(insert(model).prefix_with("OR ROLLBACK").values(name="second"))


def by_statement_of_many(session: Session, model: type[Order | ByHand]) -> None:
    session.execute(insert(model).prefix_with("OR ROLLBACK"), [{"name": "second"}, {"name": "third"}])


def by_flush(session: Session, model: type[Strict]) -> None:
    session.add(model(name="second"))
    session.flush()


@pytest.mark.parametrize(
    ("model", "write"),
    [
        (ByHand, by_statement),
        (Order, by_statement),
        (Order, by_statement_of_many),
        (Strict, by_flush),
    ],
)
def test_collision_that_ends_the_transaction(
    create: Callable[[MetaData], None],
    session: Session,
    model: type[Order | Strict | ByHand],
    write: Callable[[Session, type[Order | Strict | ByHand]], None],
) -> None:
    """A collision that has rolled back the transaction is not retried: the caller must know that its work is gone."""
    create(Base.metadata)
    session.add(model(name="first", public_id="a" * 12))
    session.commit()
    session.add(model(name="earlier", public_id="b" * 12))
    session.flush()
    format = Order if model is ByHand else model

    with testing.collisions(format, "a" * 12), pytest.raises(IntegrityError):
        write(session, model)
