"""Statements that compare public ids survive ``pickle`` and ``sqlalchemy.ext.serializer``."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, insert, literal, select, update
from sqlalchemy.ext import serializer
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, TypedId, Uuid7, public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class PersonId(TypedId, prefix="pickled_person"): ...


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId()


class Event(PublicIdMixin, Base):
    __tablename__ = "event"
    __public_id__ = Uuid7()
    user_id: Mapped[int] = mapped_column(ForeignKey("user.id"))
    user: Mapped[User] = relationship()
    user_public_id: Mapped[str] = public_ref("user")


class Person(PublicIdMixin[PersonId], Base):
    __tablename__ = "person"


A = "a" * 12
UUID = Uuid7().generate()
PERSON = PersonId()
STATEMENTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "==": lambda user, event, person: select(user.id).where(user.public_id == A),
    "in_": lambda user, event, person: select(user.id).where(user.public_id.in_([A, "nonsense"])),
    "<": lambda user, event, person: select(user.id).where(user.public_id < A),
    "like": lambda user, event, person: select(user.id).where(user.public_id.like("a%")),
    "literal": lambda user, event, person: select(user.id).where(user.public_id == literal(A)),
    "of a number": lambda user, event, person: select(event.id).where(event.public_id == UUID),
    "malformed": lambda user, event, person: select(event.id).where(event.public_id == literal("nonsense")),
    "several numbers": lambda user, event, person: select(event.id).where(event.public_id.in_([UUID])),
    "typed": lambda user, event, person: select(person.id).where(person.public_id == PERSON),
}
MODELS = [User, Event, Person]
COLUMNS = [model.__table__.c for model in MODELS]


def check(made: Any, again: Any) -> None:
    """Assert that both statements compile to the same SQL with the same parameters."""
    before, after = made.compile(), again.compile()
    assert (str(before), before.params) == (str(after), after.params)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_comparison(statement: str) -> None:
    """A comparison of ids survives ``pickle`` for table columns, and ``sqlalchemy.ext.serializer`` for models."""
    of_columns, of_models = (STATEMENTS[statement](*each) for each in (COLUMNS, MODELS))

    check(of_columns, pickle.loads(pickle.dumps(of_columns)))
    check(of_models, serializer.loads(serializer.dumps(of_models), Base.metadata))


def test_other_statements() -> None:
    """INSERT, UPDATE, SELECT of a model and comparisons of a reference survive serialization, too."""
    _, events, _ = COLUMNS
    for made in (
        insert(User.__table__).values(public_id=A),
        update(Event.__table__).where(events.public_id == UUID).values(user_id=1),
    ):
        check(made, pickle.loads(pickle.dumps(made)))
    for query in (select(Event.id).where(Event.user_public_id == A), select(Event).where(Event.public_id == UUID)):
        check(query, serializer.loads(serializer.dumps(query), Base.metadata))
