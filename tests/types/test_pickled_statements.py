"""Statements that compare public ids survive ``pickle`` and ``sqlalchemy.ext.serializer``."""

from __future__ import annotations

import copy
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
    "!=": lambda user, event, person: select(user.id).where(user.public_id != A),
    "in_": lambda user, event, person: select(user.id).where(user.public_id.in_([A, "nonsense"])),
    "<": lambda user, event, person: select(user.id).where(user.public_id < A),
    "like": lambda user, event, person: select(user.id).where(user.public_id.like("a%")),
    "literal": lambda user, event, person: select(user.id).where(user.public_id == literal(A)),
    "of a number": lambda user, event, person: select(event.id).where(event.public_id == UUID),
    "malformed": lambda user, event, person: select(event.id).where(event.public_id == literal("nonsense")),
    "several numbers": lambda user, event, person: select(event.id).where(event.public_id.in_([UUID])),
    "typed": lambda user, event, person: select(person.id).where(person.public_id == PERSON),
}
OF_MODELS: dict[str, Callable[[], Any]] = {
    **{name: lambda make=make: make(User, Event, Person) for name, make in STATEMENTS.items()},
    "reference": lambda: select(Event.id).where(Event.user_public_id == A),
    "whole model": lambda: select(Event).where(Event.public_id == UUID),
}
OF_TABLES: dict[str, Callable[[], Any]] = {
    **{
        name: lambda make=make: make(*(each.__table__.c for each in (User, Event, Person)))
        for name, make in STATEMENTS.items()
    },
    "insert": lambda: insert(User.__table__).values(public_id=A),
    "update": lambda: update(Event.__table__).where(Event.__table__.c.public_id == UUID).values(user_id=1),
}


def same(made: Any, again: Any) -> bool:
    """Whether two statements compile to the same SQL with the same parameters."""
    before, after = made.compile(), again.compile()
    return (str(before), before.params) == (str(after), after.params)


@pytest.mark.parametrize("statement", OF_TABLES)
def test_pickled_statement(statement: str) -> None:
    """A statement that compares public ids of a table survives ``pickle``."""
    made = OF_TABLES[statement]()

    assert same(made, pickle.loads(pickle.dumps(made)))


@pytest.mark.parametrize("statement", OF_MODELS)
def test_serialized_statement(statement: str) -> None:
    """A statement that compares public ids of a model survives ``sqlalchemy.ext.serializer``."""
    made = OF_MODELS[statement]()

    assert same(made, serializer.loads(serializer.dumps(made), Base.metadata))


@pytest.mark.parametrize("model", [User, Event, Person])
def test_type_survives_pickle(model: Any) -> None:
    """The type of the column is equal after ``pickle`` and ``copy``, before and after it was used."""
    type_ = model.__table__.c.public_id.type
    for again in (pickle.loads(pickle.dumps(type_)), copy.copy(type_), copy.deepcopy(type_)):
        assert repr(again) == repr(type_)
        assert again.id_format == type_.id_format
        assert again.compile() == type_.compile()
