"""Validators, histories and events of the program: what they see of ids, given and made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import MetaData, event, inspect
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, validates
from support.marks import on

from sqlalchemy_public_id import PublicIdMixin

A = "a" * 12
pytestmark = [on("sqlite"), pytest.mark.usefixtures("tables")]


class Base(DeclarativeBase):
    metadata = MetaData()


class Watched(PublicIdMixin, Base):
    """Counts what its validator sees."""

    __tablename__ = "watched"
    name: Mapped[str | None] = mapped_column()
    validated: list[str | None] = []  # noqa: RUF012  no column

    @validates("public_id")
    def look(self, key: str, value: str | None) -> str | None:
        self.validated.append(value)
        return value


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)
    Watched.validated.clear()


@pytest.fixture
def listen() -> Iterator[Callable[[Any, str, Callable[..., Any]], None]]:
    """Listen to an event until the end of the test."""
    listening: list[tuple[Any, str, Callable[..., Any]]] = []

    def listen(target: Any, name: str, fn: Callable[..., Any]) -> None:
        event.listen(target, name, fn)
        listening.append((target, name, fn))

    yield listen
    for each in listening:
        event.remove(*each)


def test_validators_see_given_ids(session: Session) -> None:
    """``@validates`` sees an id that the caller assigns, and none that the library makes."""
    session.add_all([Watched(), Watched(public_id=A)])
    session.commit()

    assert Watched.validated == [A]


def test_set_events_see_given_ids(session: Session, listen: Callable[..., None]) -> None:
    """An event of the attribute fires for an assignment, and for nothing else."""
    assigned: list[Any] = []
    listen(Watched.public_id, "set", lambda target, value, old, initiator: assigned.append(value))
    session.add_all([Watched(), Watched(public_id=A)])
    session.flush()

    assert assigned == [A]


def test_history_of_given_and_made_ids(session: Session, listen: Callable[..., None]) -> None:
    """In ``after_flush`` a given id is in ``added``, and a made one in ``unchanged``, as defaults are."""
    histories: dict[str, Any] = {}

    def remember(session: Session, context: object) -> None:
        for each in session.new:
            histories[each.name] = inspect(each).attrs.public_id.history

    listen(session, "after_flush", remember)
    given, made = Watched(name="given", public_id=A), Watched(name="made")
    session.add_all([given, made])
    session.flush()

    assert (list(histories["given"].added), list(histories["made"].added)) == ([A], [])
    assert list(histories["made"].unchanged) == [made.public_id]


@pytest.mark.parametrize("name", ["before_insert", "after_insert"])
def test_mapper_events_read_the_id(session: Session, listen: Callable[..., None], name: str) -> None:
    """A listener to INSERTs reads the id that the row gets."""
    read: list[str] = []
    listen(Watched, name, lambda mapper, connection, target: read.append(target.public_id))
    row = Watched()
    session.add(row)
    session.flush()

    assert read == [row.public_id]


def test_before_flush_reads_the_id(session: Session, listen: Callable[..., None]) -> None:
    """A listener to flushes that reads the attribute makes the id that the row gets."""
    read: list[str] = []
    listen(session, "before_flush", lambda session, *rest: read.extend(each.public_id for each in session.new))
    row = Watched()
    session.add(row)
    session.flush()

    assert read == [row.public_id]
