"""Listeners that insert rows, or assign ids, during a flush: object and row agree, and no given id changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData, String, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.two_sessions import inner_session
from support.ways import (
    Way,
    each_way,
    execute_returning,
    flush,
    insert_in_bulk,
    insert_mappings,
    save_in_bulk,
)

from sqlalchemy_public_id import NanoId, PublicIdMixin, testing

Listen = Callable[..., None]


class Base(DeclarativeBase):
    metadata = MetaData()


class Ticket(PublicIdMixin, Base):
    """Four ids in all: aa, ab, ba and bb."""

    __tablename__ = "ticket"
    __public_id__ = NanoId(length=2, alphabet="ab")
    name: Mapped[str] = mapped_column(String(9))


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def ids_of(objects: list[Any]) -> dict[str, str]:
    return {each.name: each.public_id for each in objects}


def stored(session: Session) -> dict[str, str]:
    """Name → public id of the rows, past the identity map."""
    table = Ticket.__table__
    return dict(session.connection().execute(select(table.c.name, table.c.public_id)).all())


# --- rows that a listener inserts by Core ----------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["after_insert", "after_flush"])
def test_core_insert_inside_a_flush(session: Session, listen: Listen, when: str) -> None:
    """A row that a listener adds by Core, and whose id collides with that of the object, gets another id."""

    def add_row(*_: object) -> None:
        session.connection().execute(insert(Ticket.__table__), {"name": "core"})

    listen(session if when == "after_flush" else Ticket, when, add_row)
    with testing.fixed_ids(Ticket, "bb", "bb", "ab"):
        [ticket] = flush(session, Ticket, [{"name": "ticket"}])

    assert ids_of([ticket]) | {"core": "ab"} == {"ticket": "bb", "core": "ab"} == stored(session)


def test_core_insert_of_a_taken_id(session: Session, listen: Listen) -> None:
    """A row that ``after_insert`` adds with the id of the object is an IntegrityError, as in plain SQLAlchemy."""

    def add_row(mapper: object, connection: Connection, target: Any) -> None:
        connection.execute(insert(Ticket.__table__), {"name": "core", "public_id": target.public_id})

    listen(Ticket, "after_insert", add_row)
    with pytest.raises(IntegrityError):
        flush(session, Ticket, [{"name": "ticket"}])


# --- ids that a listener assigns -------------------------------------------------------------------------------------


def give_bb(mapper: object, connection: object, target: Any) -> None:
    if target.name == "given":
        target.public_id = "bb"


@pytest.mark.parametrize("names", ["given made", "made given", "made given other"])
def test_assigned_before_the_row(session: Session, listen: Listen, names: str) -> None:
    """An id that ``before_insert`` assigns is kept, and a generated one that collides with it is replaced or refused.

    It is refused where the generated one is stored first: the given one is the duplicate then.
    """
    listen(Ticket, "before_insert", give_bb)
    drawn = {"made": "bb", "given": "aa", "other": "ab"}
    tickets = [Ticket(name=name) for name in names.split()]
    session.add_all(tickets)
    with testing.fixed_ids(Ticket, *[drawn[name] for name in names.split()], "ba"):
        if names.startswith("made"):
            with pytest.raises(IntegrityError):
                session.flush()
            return
        session.flush()

    assert ids_of(tickets) == stored(session)
    assert ids_of(tickets)["given"] == "bb"


def test_given_id_that_was_drawn_for_another_object(session: Session, listen: Listen) -> None:
    """An object with a given id does not disturb the one for which this id was drawn, and then assigned another."""
    listen(Ticket, "before_insert", give_bb)
    with testing.fixed_ids(Ticket, "aa", "ba"):
        tickets = flush(session, Ticket, [{"name": "given"}, {"name": "mine", "public_id": "aa"}])

    assert {"given": "bb", "mine": "aa"} == ids_of(tickets) == stored(session)


# --- a second session on the connection of the flush -----------------------------------------------------------------


@pytest.mark.parametrize("names", [["inner"], ["inner", "inner 2"]], ids=["one row", "two rows"])
@each_way(flush, insert_in_bulk, execute_returning, insert_mappings, save_in_bulk)
def test_two_sessions_on_one_connection(session: Session, write: Way, names: list[str]) -> None:
    """Rows that a second session inserts during a flush, and that collide with it, leave the objects of the flush."""
    inner: list[Ticket] = []

    def add_rows(second: Session) -> None:
        inner.extend(write(second, Ticket, [{"name": name} for name in names]))
        second.commit()

    with (
        inner_session(Ticket, add_rows, when="after_insert", expire_on_commit=False),
        testing.fixed_ids(Ticket, "bb", "bb", "ab", "ba"),
    ):
        [outer] = flush(session, Ticket, [{"name": "outer"}])

    assert outer.public_id == stored(session)["outer"] == "bb"
    assert ids_of(inner).items() <= stored(session).items()


def test_given_id_in_a_second_session(session: Session) -> None:
    """A given id that a second session inserts during a flush, and that is taken, is an IntegrityError."""

    def add_row(second: Session) -> None:
        flush(second, Ticket, [{"name": "inner", "public_id": "bb"}])

    with (
        inner_session(Ticket, add_row, when="after_insert"),
        testing.fixed_ids(Ticket, "bb", "ab", "ba"),
        pytest.raises(IntegrityError),
    ):
        flush(session, Ticket, [{"name": "outer"}])
