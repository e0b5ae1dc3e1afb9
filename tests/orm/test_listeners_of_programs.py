"""What the program's validators, attribute histories and events see of given and generated ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, String, inspect, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, validates
from support.marks import on
from support.members import A
from support.ways import flush

from sqlalchemy_public_id import NanoId, PublicIdMixin, testing

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("tables")]


class Base(DeclarativeBase):
    metadata = MetaData()


class Ticket(PublicIdMixin, Base):
    """A table with only four possible ids: aa, ab, ba and bb."""

    __tablename__ = "ticket"
    __public_id__ = NanoId(length=2, alphabet="ab")
    name: Mapped[str] = mapped_column(String(9))


class Watched(PublicIdMixin, Base):
    """Records the values that its validator sees."""

    __tablename__ = "watched"
    name: Mapped[str | None] = mapped_column(String(9))
    validated: list[str | None] = []  # noqa: RUF012  not a column

    @validates("public_id")
    def look(self, key: str, value: str | None) -> str | None:
        self.validated.append(value)
        return value


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)
    Watched.validated.clear()


@on("sqlite")
def test_given_ids_are_seen_and_made_ones_are_not(session: Session, listen: Callable[..., None]) -> None:
    """``@validates`` and the event ``set`` see ids that the caller assigns, and none that are generated.

    In ``after_flush`` a given id is in ``added``, and a generated one in ``unchanged``, like any default.
    """
    assigned: list[Any] = []
    histories: dict[str, Any] = {}

    def remember(session: Session, context: object) -> None:
        for each in session.new:
            histories[each.name] = inspect(each).attrs.public_id.history

    listen(Watched.public_id, "set", lambda target, value, old, initiator: assigned.append(value))
    listen(session, "after_flush", remember)
    _, made = flush(session, Watched, [{"name": "given", "public_id": A}, {"name": "made"}])

    assert Watched.validated == assigned == [A]
    assert (list(histories["given"].added), list(histories["made"].added)) == ([A], [])
    assert list(histories["made"].unchanged) == [made.public_id]


@on("sqlite")
@pytest.mark.parametrize("name", ["before_insert", "after_insert", "before_flush"])
def test_events_read_the_id(session: Session, listen: Callable[..., None], name: str) -> None:
    """Listeners to ``before_insert``, ``after_insert`` and ``before_flush`` read the id that is stored."""
    read: list[str] = []
    if name == "before_flush":
        listen(session, name, lambda session, *rest: read.extend(each.public_id for each in session.new))
    else:
        listen(Watched, name, lambda mapper, connection, target: read.append(target.public_id))
    [row] = flush(session, Watched, [{}])

    assert read == [row.public_id]


def give_bb(mapper: object, connection: object, target: Any) -> None:
    if target.name == "given":
        target.public_id = "bb"


@pytest.mark.parametrize("names", ["given made", "made given", "made given other"])
def test_assigned_before_the_row(session: Session, listen: Callable[..., None], names: str) -> None:
    """An id assigned in ``before_insert`` is kept, and a generated id that collides with it is replaced.

    If the generated id is stored first, the given id is the duplicate, and the flush raises.
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

    table = Ticket.__table__
    shown = {ticket.name: ticket.public_id for ticket in tickets}
    assert shown == dict(session.connection().execute(select(table.c.name, table.c.public_id)).all())
    assert shown["given"] == "bb"


# --- a second session on the connection of the flush -----------------------------------------------------------------
