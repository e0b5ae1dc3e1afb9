"""Mistakes of a first user: each is told at once, with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import String, create_engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdMixin,
    TypedId,
    bulk,
    guard,
    lookup,
    public_id_column,
)


class Base(DeclarativeBase): ...


class User(PublicIdMixin, Base):
    __tablename__ = "user"


class Plain(Base):
    __tablename__ = "plain"
    id: Mapped[int] = mapped_column(primary_key=True)


def fresh() -> type[DeclarativeBase]:
    return type("Fresh", (DeclarativeBase,), {})


def own_key() -> None:
    class Model(PublicIdMixin, fresh()):  # type: ignore[misc]
        __tablename__ = "model"
        key: Mapped[int] = mapped_column(primary_key=True)

    configure_mappers()


def own_column() -> None:
    class Model(PublicIdMixin, fresh()):  # type: ignore[misc]
        __tablename__ = "model"
        public_id: Mapped[str] = mapped_column(String(20))

    configure_mappers()


def format_in_brackets() -> None:
    class Model(PublicIdMixin[NanoId], fresh()):  # type: ignore[misc, type-var]
        __tablename__ = "model"


def name_in_brackets() -> None:
    class Model(PublicIdMixin["ModelId"], fresh()):  # type: ignore[misc, name-defined]
        __tablename__ = "model"


def format_of_a_subclass() -> None:
    class Animal(PublicIdMixin, fresh()):  # type: ignore[misc]
        __tablename__ = "animal"

    class Cat(Animal):
        __public_id__ = NanoId(prefix="cat")

    configure_mappers()


def length_of_a_typed_id() -> None:
    class ModelId(TypedId, prefix="mdl", length=8): ...  # type: ignore[call-arg]


DECLARATIONS = {
    own_key: "use PublicIdColumnMixin",
    own_column: "declares public_id itself",
    format_in_brackets: "a format is given as __public_id__",
    name_in_brackets: "without quotes",
    format_of_a_subclass: "cannot have another format",
    length_of_a_typed_id: r"format=NanoId\(length=8\)",
    lambda: public_id_column(NanoId(), max_retry=5): "no option max_retry",
    lambda: public_id_column(NanoId(), length=9): "belong to the format",
    lambda: public_id_column(NanoId(), nullable=True): "sets nullable itself",
    lambda: public_id_column(NanoId(), primary_key=True): "sets primary_key itself",
    lambda: public_id_column(12): "is not a format",  # type: ignore[call-overload]
}


@pytest.mark.parametrize("declare", DECLARATIONS, ids=list(DECLARATIONS.values()))
def test_declaration(declare: Callable[[], Any]) -> None:
    """A declaration that cannot work is refused, and not bent into another one."""
    with pytest.raises(ConfigurationError, match=DECLARATIONS[declare]):
        declare()


CALLS: dict[str, Callable[[Session], Any]] = {
    "pass User": lambda session: lookup.get(session, User(), "izkpm55j334u"),  # type: ignore[arg-type]
    "Plain has no public id": lambda session: lookup.get(session, Plain, "izkpm55j334u"),
    "name one of public_id": lambda session: lookup.get(session, User, "izkpm55j334u", attribute="slug"),
}


@pytest.mark.parametrize("message", CALLS)
def test_model_that_cannot_be_searched(message: str) -> None:
    """What is no model, or has no such public id, is told apart."""
    with Session() as session, pytest.raises(ConfigurationError, match=message):
        CALLS[message](session)


def test_what_is_no_session() -> None:
    """A connection is refused: it would answer with the first column, the key."""
    with create_engine("sqlite://", poolclass=NullPool).connect() as connection:
        for ask in (
            lambda: lookup.get(connection, User, "izkpm55j334u"),  # type: ignore[arg-type]
            lambda: lookup.resolve(connection, "izkpm55j334u"),  # type: ignore[arg-type]
            lambda: bulk.insert(connection, []),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError, match="expected a Session, not Connection"):
                ask()


def test_session_of_the_other_kind() -> None:
    """An asynchronous session belongs to the functions of the same name that are awaited."""
    with pytest.raises(TypeError, match=r"import it from sqlalchemy_public_id\.asyncio"):
        lookup.get(AsyncSession(), User, "izkpm55j334u")


@pytest.mark.parametrize("text", ["izkpm55j334u", b"izkpm55j334u"])
def test_one_id_where_several_are_expected(text: Any) -> None:
    """A text is not taken for a list of characters."""
    with (
        Session(create_engine("sqlite://", poolclass=NullPool)) as session,
        pytest.raises(TypeError, match=r"write \[public_id\]"),
    ):
        lookup.get_many(session, User, text)


def test_dictionaries_for_bulk_insert() -> None:
    """What is no object is told, with the way to insert dictionaries."""
    with Session() as session, pytest.raises(TypeError, match=r"session\.execute\(insert\(Model\), rows\)"):
        bulk.insert(session, [{"name": "Ada"}])


@pytest.mark.parametrize("target", ["sqlite://", None, Session()], ids=["text", "None", "session"])
def test_guard_for_what_is_no_engine(target: Any) -> None:
    """The guard is for engines."""
    with pytest.raises(TypeError, match="expected an Engine or an AsyncEngine"):
        guard.install(target)
