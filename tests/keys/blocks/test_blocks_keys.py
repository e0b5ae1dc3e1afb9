"""Integer keys from blocks, in every way to write a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, String, insert, select
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    column_property,
    configure_mappers,
    mapped_column,
    relationship,
)

from sqlalchemy_public_id import ConfigurationError, PublicIdColumnMixin, bigint_key, bulk
from sqlalchemy_public_id.keys import BlockAllocator, block_key

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


_engines: list[Engine] = []
NOTES = BlockAllocator(lambda: _engines[-1], "note", block=1000, start=0)


class Owner(Base):
    __tablename__ = "owner"
    id: Mapped[int] = block_key(NOTES)
    notes: Mapped[list[Note]] = relationship(back_populates="owner", order_by="Note.id")


class Note(Base):
    __tablename__ = "note"
    id: Mapped[int] = block_key(NOTES)
    number: Mapped[int | None]
    kind: Mapped[str | None] = mapped_column(String(20))
    owner_id: Mapped[int | None] = mapped_column(ForeignKey(Owner.id))
    owner: Mapped[Owner | None] = relationship(back_populates="notes")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "note"}  # noqa: RUF012  # SQLAlchemy reads it


class Urgent(Note):
    """A model with joined table inheritance."""

    __tablename__ = "urgent"
    id: Mapped[int] = mapped_column(ForeignKey(Note.id), primary_key=True)
    reason: Mapped[int]
    __mapper_args__ = {"polymorphic_identity": "urgent"}  # noqa: RUF012  # SQLAlchemy reads it


class Order(PublicIdColumnMixin, Base):
    __tablename__ = "order"
    id: Mapped[int] = block_key(NOTES)


@pytest.fixture(autouse=True)
def _tables(engine: Engine, create: Callable[[MetaData], None]) -> Iterator[None]:
    """Create the tables, and reserve 3,000 keys, so that no lease is among the recorded statements."""
    create(Base.metadata)
    with ExitStack() as stack:
        _engines.append(engine)
        NOTES._lessor._engine = None  # so that the function is called again
        stack.callback(NOTES.table.drop, engine, checkfirst=True)
        NOTES.table.drop(engine, checkfirst=True)
        NOTES.create_table()
        stack.callback(NOTES.close)
        NOTES.reserve(3000)
        yield


ROWS = [{"number": number} for number in range(100)]
WAYS: dict[str, Callable[[Session], object]] = {
    "add_all": lambda session: session.add_all(Note(**row) for row in ROWS),
    "bulk_save_objects": lambda session: session.bulk_save_objects([Note(**row) for row in ROWS]),
    "ORM insert": lambda session: session.execute(insert(Note), ROWS),
    "Core insert": lambda session: session.connection().execute(insert(Note.__table__), ROWS),
    "Core values": lambda session: session.connection().execute(insert(Note.__table__).values(ROWS)),
    "one by one": lambda session: [session.connection().execute(insert(Note.__table__), row) for row in ROWS],
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write(session: Session, way: str) -> None:
    """Each way to write rows takes their keys from the allocator, in order."""
    WAYS[way](session)

    assert session.execute(select(Note.number, Note.id).order_by(Note.id)).all() == [(n, n) for n in range(100)]


def test_a_flush_is_one_statement(session: Session, statements: Any) -> None:
    """A flush of many objects is one INSERT without RETURNING on every database, and sets their keys."""
    session.connection()
    statements.clear()
    notes = [Note(number=number) for number in range(500)]
    session.add_all(notes)
    session.flush()

    assert [note.id for note in notes] == list(range(500))
    assert len(statements.starting("INSERT")) == 1
    assert "RETURNING" not in statements.starting("INSERT")[0]


def test_given_keys_stay(session: Session) -> None:
    """A given key is kept, and takes no number from the allocator."""
    notes = [Note(id=10**6, number=1), Note(number=2)]
    session.add_all(notes)
    session.flush()

    assert [note.id for note in notes] == [10**6, 0]


def test_relationships_and_inheritance(session: Session) -> None:
    """Foreign keys and joined tables get the key of the row that they refer to."""
    owner = Owner(notes=[Urgent(number=1, reason=7), Note(number=2)])
    session.add(owner)
    session.commit()

    assert {owner.id, *(note.id for note in owner.notes)} == {0, 1, 2}
    assert session.scalars(select(Urgent.id)).one() == session.scalars(select(Note.id).where(Note.number == 1)).one()
    assert session.scalars(select(Note.owner_id).distinct()).all() == [owner.id]


def test_with_public_ids(session: Session) -> None:
    """A model may have a key from blocks and a public id, and ``bulk.insert`` sets both."""
    orders = [Order() for _ in range(50)]
    bulk.insert(session, orders)

    assert sorted(order.id for order in orders) == list(range(50))
    assert dict(session.execute(select(Order.id, Order.public_id)).all()) == {o.id: o.public_id for o in orders}


def test_types(engine: Engine) -> None:
    """The key has the type of ``bigint_key()``, but does not autoincrement."""
    column = Note.__table__.c.id
    type_ = column.type.dialect_impl(engine.dialect).compile(dialect=engine.dialect)

    assert type_ == {"sqlite": "INTEGER", "postgresql": "BIGINT"}.get(engine.name, "BIGINT UNSIGNED")
    assert (column.autoincrement, column.identity, column.primary_key) == (False, None, True)


def test_no_allocator() -> None:
    """Anything but an allocator is refused when the key is declared."""
    with pytest.raises(ConfigurationError, match="expected a BlockAllocator"):
        block_key("note")  # intentionally of the wrong type


@pytest.mark.parametrize("key", [lambda: block_key(NOTES), bigint_key], ids=["block", "bigint"])
def test_properties_that_are_expressions(key: Any) -> None:
    """Models with a ``column_property()`` can be configured with and without a key from blocks."""

    class Base(DeclarativeBase): ...

    class Size(Base):
        __tablename__ = "size"
        id: Mapped[int] = key()
        size: Mapped[int] = mapped_column()
        twice: Mapped[int] = column_property(size.column * 2)

    configure_mappers()

    assert set(Size.__mapper__.attrs.keys()) == {"id", "size", "twice"}
