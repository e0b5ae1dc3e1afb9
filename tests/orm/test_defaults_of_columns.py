"""Ids from a column default inside an INSERT, in all kinds of models: object and row agree, collisions are retried."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import MetaData, String, func, insert, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support import members
from support.marks import before_sqlalchemy, fast_ways, on
from support.rows import agree
from support.ways import Way, each_way, execute, flush, insert_in_bulk

from conftest import Statements
from sqlalchemy_public_id import (
    ImmutablePublicId,
    NanoId,
    PublicIdType,
    TypedId,
    Uuid7,
    bigint_key,
    lookup,
    public_id_column,
    testing,
)


class Base(DeclarativeBase):
    metadata = MetaData()


NANO, UUID = NanoId(), Uuid7()


class Page(Base):
    """The public id is the primary key; as the database also fills a column, returned rows are matched by it."""

    __tablename__ = "page"
    public_id: Mapped[str] = mapped_column(PublicIdType(NANO), default=NANO.generate, primary_key=True)
    name: Mapped[str] = mapped_column(String(9))
    views: Mapped[int] = mapped_column(server_default="7")


class Device(Base):
    """Like :class:`Page`, with ids that are stored as numbers."""

    __tablename__ = "device"
    public_id: Mapped[str] = mapped_column(PublicIdType(UUID), default=UUID.generate, primary_key=True)
    name: Mapped[str] = mapped_column(String(9))
    views: Mapped[int] = mapped_column(server_default="7")


EVERYWHERE = on("sqlite", "postgresql", "mysql", "mariadb")


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


BINARY_KEY = pytest.mark.skipif(
    before_sqlalchemy(2, 0, 29), reason="SQLAlchemy cannot match rows by a key that is sent as memory"
)


@EVERYWHERE
@pytest.mark.usefixtures("tables")
@each_way(flush, insert_in_bulk)
@pytest.mark.parametrize("model", [Page, pytest.param(Device, marks=BINARY_KEY)])
def test_public_id_as_the_key(session: Session, model: Any, write: Way) -> None:
    """A collision is retried if the public id is the primary key, and each object belongs to its own row."""
    [first] = flush(session, model, [{"name": "first"}])
    with testing.collisions(model, first.public_id):
        objects = write(session, model, [{"name": str(number)} for number in range(5)])

    stored = dict(session.connection().execute(select(model.name, model.public_id)).all())
    assert {each.name: each.public_id for each in [first, *objects]} == stored
    assert {each.views for each in objects} == {7}


@EVERYWHERE
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("model", [Page, Device])
def test_equal_ids_as_the_key(session: Session, model: Any) -> None:
    """A flush raises if a column default of the program generates the same primary key twice for one INSERT.

    SQLAlchemy matches rows by key before the INSERT. Without RETURNING, rows are stored one by one.
    """
    is_matched = session.get_bind().dialect.insert_executemany_returning
    twice = [model.public_id.type.id_format.generate()] * 2
    with testing.fixed_ids(model, *twice), pytest.raises(IntegrityError) if is_matched else nullcontext():
        flush(session, model, [{"name": "0"}, {"name": "1"}])


@EVERYWHERE
@pytest.mark.parametrize("rows", [1, 3])
def test_joined_subclass_by_a_statement(create: Callable[[MetaData], None], session: Session, rows: int) -> None:
    """``insert(Subclass)`` also writes to the base table, and a collision there is retried."""
    create(members.Base.metadata)
    [first] = flush(session, members.Animal, [{"name": "first"}])
    with testing.collisions(members.Animal, first.public_id, times=2):
        execute(session, members.Dog, [{"name": str(number), "tricks": 1} for number in range(rows)])

    dogs = session.scalars(select(members.Dog)).all()
    assert sorted(dog.name for dog in dogs) == [str(number) for number in range(rows)]
    assert first.public_id not in {dog.public_id for dog in dogs}


class CustomerId(TypedId, prefix="defcus"): ...


DEFAULTS = {
    "text": (NANO, text("lower(hex(randomblob(6)))"), str),
    "function": (NANO, func.lower(func.hex(func.randomblob(6))), str),
    "typed id": (CustomerId, CustomerId, CustomerId),
}


@on("sqlite")
@pytest.mark.parametrize("name", DEFAULTS)
def test_default_of_the_program(session: Session, name: str) -> None:
    """A default that is an SQL expression or a typed id class generates ids, and each object shows its row's id."""
    format, default, kind = DEFAULTS[name]

    class Own(DeclarativeBase): ...

    class Ticket(Own):
        __tablename__ = "ticket"
        id: Mapped[int] = bigint_key()
        public_id: Mapped[str] = mapped_column(PublicIdType(format), default=default, unique=True)

    Own.metadata.create_all(session.connection())
    tickets = flush(session, Ticket, [{}, {}, {}])

    assert {type(ticket.public_id) for ticket in tickets} == {kind}
    agree(session, tickets)
    session.rollback()


@on("sqlite")
def test_default_that_is_called_elsewhere(session: Session) -> None:
    """The column default can be executed by SQLAlchemy, called by a form library, and pickled with the table."""
    members.Base.metadata.create_all(session.connection())
    default = members.User.__table__.c.public_id.default
    made = session.scalar(default), default.arg(None), default.arg(session)
    assert [id for id in made if not NanoId().is_valid(id)] == []
    copy = pickle.loads(pickle.dumps(members.Base.metadata)).tables["user"]
    session.connection().execute(insert(copy), [{"name": "x"}, {"name": "y"}])

    assert len(set(session.scalars(select(members.User.public_id)))) == 2
    session.rollback()


@fast_ways
@on("sqlite")
def test_public_id_that_is_added_late(session: Session, statements: Statements) -> None:
    """A public id added to a configured model is protected, inserted and looked up like any other."""

    class Own(DeclarativeBase): ...

    class Note(Own):
        __tablename__ = "note"
        id: Mapped[int] = bigint_key()
        name: Mapped[str] = mapped_column()

    session.execute(text("CREATE TABLE note (id INTEGER PRIMARY KEY, name TEXT, public_id TEXT UNIQUE)"))
    [before] = flush(session, Note, [{"name": "before"}])
    Note.public_id = public_id_column(NanoId(prefix="late_note"))
    assert before.public_id is None  # no id is generated for a stored row
    statements.clear()
    notes = flush(session, Note, [{"name": str(number)} for number in range(3)])
    assert len(statements) == 1
    agree(session, notes)
    assert lookup.resolve(session, notes[0].public_id) is notes[0]

    session.expire(notes[0])
    notes[0].public_id = notes[1].public_id
    with pytest.raises(ImmutablePublicId):
        session.flush()
    session.rollback()
