"""Ids that a column default makes inside an INSERT, in models of every kind: object and row agree, collisions end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, String, func, insert, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column
from support.marks import before_sqlalchemy, fast_ways, on
from support.rows import agree

from conftest import Statements
from sqlalchemy_public_id import (
    ImmutablePublicId,
    NanoId,
    PublicIdMixin,
    PublicIdType,
    TypedId,
    Uuid7,
    bigint_key,
    bulk,
    public_id_column,
    testing,
)


class Base(DeclarativeBase):
    metadata = MetaData()


NANO, UUID = NanoId(), Uuid7()


class Page(Base):
    """Its key is its public id, and the database makes a value besides: the rows that come back are matched by it."""

    __tablename__ = "page"
    public_id: Mapped[str] = mapped_column(PublicIdType(NANO), default=NANO.generate, primary_key=True)
    name: Mapped[str] = mapped_column(String(9))
    views: Mapped[int] = mapped_column(server_default="7")


class Device(Base):
    """The same, with ids that are stored as numbers."""

    __tablename__ = "device"
    public_id: Mapped[str] = mapped_column(PublicIdType(UUID), default=UUID.generate, primary_key=True)
    name: Mapped[str] = mapped_column(String(9))
    views: Mapped[int] = mapped_column(server_default="7")


class Person(PublicIdMixin, Base):
    __tablename__ = "person"
    __public_id__ = NanoId()
    name: Mapped[str] = mapped_column(String(9))
    kind: Mapped[str] = mapped_column(String(9))
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "person"}  # noqa: RUF012  # as SQLAlchemy has it


class Clerk(Person):
    __tablename__ = "clerk"
    id: Mapped[int] = mapped_column(ForeignKey("person.id"), primary_key=True)
    desk: Mapped[str | None] = mapped_column(String(9))
    __mapper_args__ = {"polymorphic_identity": "clerk"}  # noqa: RUF012  # as SQLAlchemy has it


EVERYWHERE = on("sqlite", "postgresql", "mysql", "mariadb")


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


BINARY_KEY = pytest.mark.skipif(
    before_sqlalchemy(2, 0, 29), reason="SQLAlchemy cannot match rows by a key that is sent as memory"
)


def in_a_flush(session: Session, objects: list[Any]) -> None:
    session.add_all(objects)
    session.flush()


@EVERYWHERE
@pytest.mark.parametrize("write", [in_a_flush, bulk.insert])
@pytest.mark.parametrize("model", [Page, pytest.param(Device, marks=BINARY_KEY)])
def test_public_id_as_the_key(session: Session, model: Any, write: Callable[[Session, list[Any]], None]) -> None:
    """A collision among rows whose key is their public id is retried, and each object has its row."""
    session.add(first := model(name="first"))
    session.flush()
    objects = [model(name=str(number)) for number in range(5)]
    with testing.collisions(model, first.public_id):
        write(session, objects)

    stored = dict(session.connection().execute(select(model.name, model.public_id)).all())
    assert {each.name: each.public_id for each in [first, *objects]} == stored
    assert {each.views for each in objects} == {7}


@EVERYWHERE
@pytest.mark.parametrize("model", [Page, Device])
def test_equal_ids_as_the_key(session: Session, model: Any) -> None:
    """Rows of one INSERT whose key is their public id, and that a default of one's own has made twice, are refused.

    SQLAlchemy has noted the two as the same row before the INSERT. A database without RETURNING stores them one by one.
    """
    is_matched = session.get_bind().dialect.insert_executemany_returning
    with testing.fixed_ids(model, A := model.public_id.type.id_format.generate(), A):
        session.add_all([model(name="0"), model(name="1")])
        with pytest.raises(IntegrityError) if is_matched else nullcontext():
            session.flush()


@EVERYWHERE
@pytest.mark.parametrize("rows", [1, 3])
def test_joined_subclass_by_a_statement(session: Session, rows: int) -> None:
    """``insert(Subclass)`` writes the table of the base by itself: a collision there is retried."""
    session.add(first := Person(name="first"))
    session.flush()
    with testing.collisions(Person, first.public_id, times=2):
        session.execute(insert(Clerk), [{"name": str(number), "desk": "d"} for number in range(rows)])

    clerks = session.scalars(select(Clerk)).all()
    assert sorted(clerk.name for clerk in clerks) == [str(number) for number in range(rows)]
    assert first.public_id not in {clerk.public_id for clerk in clerks}


@on("sqlite")
@pytest.mark.parametrize("default", [text("lower(hex(randomblob(6)))"), func.lower(func.hex(func.randomblob(6)))])
def test_default_in_sql(session: Session, default: Any) -> None:
    """A default that the database evaluates makes the ids of many objects; each shows that of its row."""

    class Own(DeclarativeBase): ...

    class Ticket(Own):
        __tablename__ = "ticket"
        id: Mapped[int] = bigint_key()
        public_id: Mapped[str] = mapped_column(PublicIdType(NANO), default=default, unique=True)
        name: Mapped[str] = mapped_column()

    Own.metadata.create_all(session.connection())
    tickets = [Ticket(name=str(number)) for number in range(3)]
    in_a_flush(session, tickets)

    agree(session, tickets)
    session.rollback()


class CustomerId(TypedId, prefix="defcus"): ...


@on("sqlite")
def test_typed_id_as_a_default(session: Session) -> None:
    """The class of typed ids is a column default, whose values the object shows as they are."""

    class Own(DeclarativeBase): ...

    class Customer(Own):
        __tablename__ = "customer"
        id: Mapped[int] = bigint_key()
        public_id: Mapped[str] = mapped_column(PublicIdType(CustomerId), default=CustomerId, unique=True)

    Own.metadata.create_all(session.connection())
    customers = [Customer(), Customer()]
    in_a_flush(session, customers)

    assert {type(customer.public_id) for customer in customers} == {CustomerId}
    agree(session, customers)
    session.rollback()


@on("sqlite")
def test_default_without_an_insert(engine: Engine) -> None:
    """SQLAlchemy can execute the default of a column by itself."""
    with engine.connect() as connection:
        assert NanoId().is_valid(connection.scalar(Person.__table__.c.public_id.default))


@fast_ways
@on("sqlite")
def test_public_id_that_is_added_late(session: Session, statements: Statements) -> None:
    """A public id that a configured model is given is protected, and inserted, like any other."""

    class Own(DeclarativeBase): ...

    class Note(Own):
        __tablename__ = "note"
        id: Mapped[int] = bigint_key()
        name: Mapped[str] = mapped_column()

    configure_mappers()
    Note.public_id = public_id_column(NanoId())  # type: ignore[attr-defined]  # no annotation declares it
    Own.metadata.create_all(session.connection())
    notes: Any = [Note(name=str(number)) for number in range(3)]
    session.connection()
    statements.clear()
    in_a_flush(session, notes)
    assert len(statements) == 1
    agree(session, notes)

    session.expire(notes[0])
    notes[0].public_id = notes[1].public_id
    with pytest.raises(ImmutablePublicId):
        session.flush()
    session.rollback()
