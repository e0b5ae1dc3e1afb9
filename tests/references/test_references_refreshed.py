"""A model with two references: a refresh of either foreign key, or of both, asks again for what is shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import ForeignKey, MetaData, String, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import PublicIdMixin, public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class Person(PublicIdMixin, Base):
    __tablename__ = "person"


class Ticket(PublicIdMixin, Base):
    __tablename__ = "ticket"
    author_id: Mapped[int] = mapped_column(ForeignKey(Person.id))
    author: Mapped[Person] = relationship(foreign_keys=author_id)
    author_public_id: Mapped[str] = public_ref("author")
    reader_id: Mapped[int] = mapped_column(ForeignKey(Person.id))
    reader: Mapped[Person] = relationship(foreign_keys=reader_id)
    reader_public_id: Mapped[str] = public_ref("reader")
    title: Mapped[str] = mapped_column(String(20), default="")


pytestmark = pytest.mark.backend
NEW = "z" * 12


@pytest.fixture
def ticket(session: Session, create: Callable[[MetaData], None]) -> Ticket:
    """A ticket of one person, whose reference was read before another program has changed the id."""
    create(Base.metadata)
    person = Person()
    session.add(person)
    session.flush()
    session.add(Ticket(author_id=person.id, reader_id=person.id))
    session.commit()
    session.expunge_all()
    ticket = session.scalars(select(Ticket)).one()
    assert ticket.author_public_id == ticket.reader_public_id != NEW
    session.connection().execute(update(Person.__table__).values(public_id=NEW))
    return ticket


@pytest.mark.parametrize("way", ["refresh", "expire"])
@pytest.mark.parametrize("keys", [["author_id"], ["reader_id"], ["author_id", "reader_id"], None], ids=str)
def test_foreign_keys(session: Session, ticket: Ticket, keys: list[str] | None, way: str) -> None:
    """After a refresh of a foreign key, its reference shows the id that is stored now."""
    (session.refresh if way == "refresh" else session.expire)(ticket, keys)

    for name in keys or ["author_id", "reader_id"]:
        assert getattr(ticket, name.replace("_id", "_public_id")) == NEW


def test_other_attribute(session: Session, ticket: Ticket, statements: list[str]) -> None:
    """After a refresh of another attribute, what was read is shown without a statement."""
    shown = ticket.author_public_id
    session.refresh(ticket, ["title"])
    statements.clear()

    assert (ticket.author_public_id, statements) == (shown, [])
