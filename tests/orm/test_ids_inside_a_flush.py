"""Listeners that insert rows, or assign ids, during a flush: object and row agree, and no given id changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, String, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.ways import (
    flush,
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


# --- a second session on the connection of the flush -----------------------------------------------------------------
