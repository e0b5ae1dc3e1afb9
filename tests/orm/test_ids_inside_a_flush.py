"""Listeners that insert rows, or assign ids, during a flush: object and row agree, and no given id changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, ForeignKey, MetaData, String, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, bulk, testing

Listen = Callable[..., None]


class Base(DeclarativeBase):
    metadata = MetaData()


class Ticket(PublicIdMixin, Base):
    """Four ids in all: aa, ab, ba and bb."""

    __tablename__ = "ticket"
    __public_id__ = NanoId(length=2, alphabet="ab")
    name: Mapped[str] = mapped_column(String(9))


class Note(PublicIdMixin, Base):
    __tablename__ = "note"
    ticket_id: Mapped[int] = mapped_column(ForeignKey("ticket.id"))
    ticket: Mapped[Ticket] = relationship()


class Plain(Base):
    """A public id by hand, as a control: ``default`` is all that makes it."""

    __tablename__ = "plain"
    id: Mapped[int] = mapped_column(primary_key=True)
    public_id: Mapped[str] = mapped_column(String(2), unique=True, default="bb")
    name: Mapped[str] = mapped_column(String(9))


class Audit(PublicIdMixin, Base):
    __tablename__ = "audit"
    name: Mapped[str] = mapped_column(String(9))


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def ids_of(objects: list[Any]) -> dict[str, str]:
    return {each.name: each.public_id for each in objects}


def stored(session: Session, model: type[Any] = Ticket) -> dict[str, str]:
    """Name → public id of the rows, past the identity map."""
    table = model.__table__
    return dict(session.connection().execute(select(table.c.name, table.c.public_id)).all())


# --- rows that a listener inserts by Core ----------------------------------------------------------------------------


def test_core_insert_after_the_row(session: Session, listen: Listen) -> None:
    """A row that ``after_insert`` adds by Core, and whose id collides with that of the object, gets another id."""

    def add_row(mapper: object, connection: Connection, target: Ticket) -> None:
        connection.execute(insert(Ticket.__table__), {"name": "core"})

    listen(Ticket, "after_insert", add_row)
    ticket = Ticket(name="ticket")
    session.add(ticket)
    with testing.fixed_ids(Ticket, "bb", "bb", "ab"):
        session.flush()

    assert ids_of([ticket]) | {"core": "ab"} == {"ticket": "bb", "core": "ab"} == stored(session)


def test_core_insert_before_the_row_of_another_model(session: Session, listen: Listen) -> None:
    """A row that ``before_insert`` of a second model adds by Core does not change an object that was flushed before."""

    def add_row(mapper: object, connection: Connection, target: Note) -> None:
        connection.execute(insert(Ticket.__table__), {"name": "core"})

    listen(Note, "before_insert", add_row)
    ticket = Ticket(name="ticket")
    session.add(Note(ticket=ticket))
    with testing.fixed_ids(Ticket, "bb", "bb", "ab"):
        session.flush()

    assert ids_of([ticket]) | {"core": "ab"} == {"ticket": "bb", "core": "ab"} == stored(session)


def test_core_insert_after_the_flush(session: Session, listen: Listen) -> None:
    """A row that ``after_flush`` adds by Core gets another id if its first one collides."""

    def add_row(session: Session, context: object) -> None:
        session.connection().execute(insert(Ticket.__table__), {"name": "core"})

    listen(session, "after_flush", add_row)
    ticket = Ticket(name="ticket")
    session.add(ticket)
    with testing.fixed_ids(Ticket, "bb", "bb", "ab"):
        session.flush()

    assert ids_of([ticket]) | {"core": "ab"} == stored(session)


@pytest.mark.parametrize("model", [Plain, Ticket])
def test_core_insert_of_a_taken_id(session: Session, listen: Listen, model: type[Any]) -> None:
    """A row that ``after_insert`` adds with the id of the object is an IntegrityError, as in plain SQLAlchemy."""

    def add_row(mapper: object, connection: Connection, target: Any) -> None:
        connection.execute(insert(model.__table__), {"name": "core", "public_id": target.public_id})

    listen(model, "after_insert", add_row)
    session.add(model(name="ticket"))

    with pytest.raises(IntegrityError):
        session.flush()


# --- ids that a listener assigns -------------------------------------------------------------------------------------


def give_bb(mapper: object, connection: object, target: Any) -> None:
    if target.name == "given":
        target.public_id = "bb"


@pytest.mark.parametrize("names", ["given made", "made given", "made given other"])
def test_assigned_before_the_row(session: Session, listen: Listen, names: str) -> None:
    """An id that ``before_insert`` assigns is kept, or its collision with a generated id is an IntegrityError."""
    listen(Ticket, "before_insert", give_bb)
    drawn = {"made": "bb", "given": "aa", "other": "ab"}
    tickets = [Ticket(name=name) for name in names.split()]
    session.add_all(tickets)
    with testing.fixed_ids(Ticket, *[drawn[name] for name in names.split()], "ba"):
        try:
            session.flush()
        except IntegrityError:
            return

    assert ids_of(tickets) == stored(session)
    assert ids_of(tickets)["given"] == "bb"


def test_assigned_before_the_row_by_hand(session: Session, listen: Listen) -> None:
    """Without the library, an id that ``before_insert`` assigns and that is taken is an IntegrityError."""
    listen(Plain, "before_insert", give_bb)
    session.add_all([Plain(name="made"), Plain(name="given")])

    with pytest.raises(IntegrityError):
        session.flush()


def test_given_id_that_was_drawn_for_another_object(session: Session, listen: Listen) -> None:
    """An object with a given id does not disturb the one for which this id was drawn, and then assigned another."""
    listen(Ticket, "before_insert", give_bb)
    tickets = [Ticket(name="given"), Ticket(name="mine", public_id="aa")]
    session.add_all(tickets)
    with testing.fixed_ids(Ticket, "aa", "ba"):
        session.flush()

    assert {"given": "bb", "mine": "aa"} == ids_of(tickets) == stored(session)


# --- a second session on the connection of the flush -----------------------------------------------------------------


def one_object(session: Session) -> list[Ticket]:
    session.add(ticket := Ticket(name="inner"))
    session.flush()
    return [ticket]


def one_returned(session: Session) -> list[Ticket]:
    return [session.scalars(insert(Ticket).returning(Ticket), [{"name": "inner"}]).one()]


def many_objects(session: Session) -> list[Ticket]:
    bulk.insert(session, tickets := [Ticket(name="inner"), Ticket(name="inner 2")])
    return tickets


def one_mapping(session: Session) -> list[Ticket]:
    session.bulk_insert_mappings(Ticket, [{"name": "inner"}])
    return []


def saved_objects(session: Session) -> list[Ticket]:
    session.bulk_save_objects([Ticket(name="inner"), Ticket(name="inner 2")])
    return []  # SQLAlchemy does not fill in what the database has made: neither keys nor ids


@pytest.mark.parametrize("write", [one_object, many_objects, one_returned, one_mapping, saved_objects])
def test_two_sessions_on_one_connection(session: Session, listen: Listen, write: Callable[..., list[Ticket]]) -> None:
    """Rows that a second session inserts during a flush, and that collide with it, leave the objects of the flush."""
    inner: list[Ticket] = []

    def add_rows(mapper: object, connection: Connection, target: Ticket) -> None:
        if target.name == "outer":
            with Session(connection, join_transaction_mode="create_savepoint", expire_on_commit=False) as second:
                inner.extend(write(second))
                second.commit()

    listen(Ticket, "after_insert", add_rows)
    outer = Ticket(name="outer")
    session.add(outer)
    with testing.fixed_ids(Ticket, "bb", "bb", "ab", "ba"):
        session.flush()

    assert "bb" == ids_of([outer])["outer"] == stored(session)["outer"]
    assert ids_of(inner).items() <= stored(session).items()


def test_given_id_in_a_second_session(session: Session, listen: Listen) -> None:
    """A given id that a second session inserts during a flush, and that is taken, is an IntegrityError."""

    def add_row(mapper: object, connection: Connection, target: Ticket) -> None:
        if target.name == "outer":
            with Session(connection, join_transaction_mode="create_savepoint") as second:
                second.add(Ticket(name="inner", public_id="bb"))
                second.commit()

    listen(Ticket, "after_insert", add_row)
    session.add(Ticket(name="outer"))
    with testing.fixed_ids(Ticket, "bb", "ab", "ba"), pytest.raises(IntegrityError):
        session.flush()


# --- ids that were read before the flush -----------------------------------------------------------------------------


def insert_in_bulk(session: Session, ticket: Ticket) -> None:
    bulk.insert(session, [ticket])


def save_in_bulk(session: Session, ticket: Ticket) -> None:
    session.bulk_save_objects([ticket])


@pytest.mark.parametrize("write", [save_in_bulk, insert_in_bulk])
def test_read_id_that_is_taken(session: Session, write: Callable[[Session, Ticket], None]) -> None:
    """An id that was read before the INSERT is kept: if it is taken, a bulk insert raises an IntegrityError."""
    session.add(Ticket(name="first", public_id="aa"))
    session.flush()
    with testing.fixed_ids(Ticket, "aa", "bb"):
        second = Ticket(name="second")
        assert second.public_id == "aa"
        with pytest.raises(IntegrityError):
            write(session, second)
