"""Mistakes of a first user: each is told at once, with what to write instead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import FetchedValue, String, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    mapped_column,
    scoped_session,
)
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    PublicIdMixinDataclass,
    TypedId,
    bigint_key,
    bulk,
    guard,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id import asyncio as asynchronous


class Base(DeclarativeBase): ...


class BadgeId(TypedId, prefix="mistakenbadge"): ...


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

    Model.registry.configure()


def own_column() -> None:
    class Model(PublicIdMixin, fresh()):  # type: ignore[misc]
        __tablename__ = "model"
        public_id: Mapped[str] = mapped_column(String(20))

    Model.registry.configure()


def format_in_brackets() -> None:
    class Model(PublicIdMixin[NanoId], fresh()):  # type: ignore[misc, type-var]
        __tablename__ = "model"


def name_in_brackets() -> None:
    class Model(PublicIdMixin["ModelId"], fresh()):  # type: ignore[misc, name-defined]
        __tablename__ = "model"


def annotated_with_a_typed_id() -> None:
    class Badge(PublicIdMixin, fresh()):  # type: ignore[misc]
        __tablename__ = "badge"
        public_id: Mapped[BadgeId]


def annotated_in_a_mixin() -> None:
    class Badges:
        public_id: Mapped[BadgeId]

    class Badge(Badges, PublicIdColumnMixin, fresh()):  # type: ignore[misc]
        __tablename__ = "badge"
        id: Mapped[int] = bigint_key()


def annotated_in_a_dataclass() -> None:
    class Badges(MappedAsDataclass, DeclarativeBase): ...

    class Badge(PublicIdMixinDataclass, Badges):
        __tablename__ = "badge"
        public_id: Mapped[BadgeId]


def format_of_a_subclass() -> None:
    class Animal(PublicIdMixin, fresh()):  # type: ignore[misc]
        __tablename__ = "animal"

    class Cat(Animal):
        __public_id__ = NanoId(prefix="cat")

    Cat.registry.configure()


def length_of_a_typed_id() -> None:
    class ModelId(TypedId, prefix="mdl", length=8): ...  # type: ignore[call-arg]


DECLARATIONS = {
    own_key: "use PublicIdColumnMixin",
    own_column: "declares public_id itself",
    format_in_brackets: "a format is given as __public_id__",
    name_in_brackets: "without quotes",
    annotated_with_a_typed_id: r"Badge: .* write PublicIdMixin\[BadgeId\] and leave the annotation out",
    annotated_in_a_mixin: r"Badge: .* write PublicIdColumnMixin\[BadgeId\]",
    annotated_in_a_dataclass: r"Badge: .* write PublicIdMixinDataclass\[BadgeId\]",
    format_of_a_subclass: "cannot have another format",
    length_of_a_typed_id: r"format=NanoId\(length=8\)",
    lambda: public_id_column(NanoId(), max_retry=5): "no option max_retry",
    lambda: public_id_column(NanoId(), length=9): "belong to the format",
    lambda: public_id_column(NanoId(), length=8): "or one of active_history, autoincrement, comment, ",
    lambda: public_id_column(NanoId(), args=8): "no option args",
    lambda: public_id_column(NanoId(), insert_default="x"): "sets insert_default itself",
    lambda: public_id_column(NanoId(), onupdate=lambda: "x"): "takes no onupdate: the public id of a row never changes",
    lambda: public_id_column(NanoId(), server_onupdate=FetchedValue()): "takes no server_onupdate",
    lambda: public_id_column(NanoId(), nullable=True): "sets nullable itself",
    lambda: public_id_column(NanoId(), primary_key=True): "sets primary_key itself",
    lambda: public_id_column(12): "is not a format",  # type: ignore[call-overload]
}


@pytest.mark.parametrize("declare", DECLARATIONS, ids=list(DECLARATIONS.values()))
def test_declaration(declare: Callable[[], Any]) -> None:
    """A declaration that cannot work is refused, and not bent into another one."""
    with pytest.raises(ConfigurationError, match=DECLARATIONS[declare]):
        declare()


class Typed(PublicIdMixin[BadgeId], fresh()):  # type: ignore[misc]
    __tablename__ = "typed"
    public_id: Mapped[BadgeId]


class Declared(PublicIdMixin, fresh()):  # type: ignore[misc]
    __tablename__ = "declared"
    public_id: Mapped[BadgeId] = public_id_column(BadgeId)


class Untyped(PublicIdMixin[BadgeId], fresh()):  # type: ignore[misc]
    __tablename__ = "untyped"
    public_id: Mapped[str]


@pytest.mark.parametrize("model", [Typed, Declared, Untyped])
def test_annotation_that_is_right(model: type[Any]) -> None:
    """An annotation may repeat what the mixin says, and may stand with a column of the model's own."""
    assert type(model().public_id) is BadgeId


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


AWAITED: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "get": lambda session: asynchronous.lookup.get(session, User, "izkpm55j334u"),
    "get_one": lambda session: asynchronous.lookup.get_one(session, User, "izkpm55j334u"),
    "resolve": lambda session: asynchronous.lookup.resolve(session, "izkpm55j334u"),
    "get_many": lambda session: asynchronous.lookup.get_many(session, User, ["izkpm55j334u"]),
    "keys_of": lambda session: asynchronous.lookup.keys_of(session, User, ["izkpm55j334u"]),
    "public_ids_of": lambda session: asynchronous.lookup.public_ids_of(session, User, [1]),
    "page": lambda session: asynchronous.lookup.page(session, User, limit=1),
    "insert": lambda session: asynchronous.bulk.insert(session, [User()]),
    "insert_once": lambda session: asynchronous.idempotency.insert_once(session, User(public_id="izkpm55j334u")),
    "load": lambda session: asynchronous.references.load(session, []),
    "tokens.get": lambda session: asynchronous.tokens.get(session, User, "text"),
}


@pytest.mark.parametrize("name", AWAITED)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "not NoneType: pass an AsyncSession"),
        (Session(), "not Session: import it from sqlalchemy_public_id$"),
        (scoped_session(Session), "not scoped_session: import it from sqlalchemy_public_id$"),
        (AsyncConnection(create_async_engine("sqlite+aiosqlite://")), "not AsyncConnection: pass an AsyncSession"),
    ],
    ids=["None", "Session", "scoped_session", "AsyncConnection"],
)
def test_what_is_no_asynchronous_session(name: str, wrong: Any, message: str) -> None:
    """What is awaited takes asynchronous sessions, and says so of everything else."""
    with pytest.raises(TypeError, match=f"expected an AsyncSession, {message}"):
        asyncio.run(_awaited(AWAITED[name](wrong)))


async def _awaited(call: Awaitable[Any]) -> None:
    await call


@pytest.mark.parametrize("text", ["izkpm55j334u", b"izkpm55j334u"])
@pytest.mark.parametrize("ask", [lookup.get_many, lookup.keys_of], ids=["get_many", "keys_of"])
def test_one_id_where_several_are_expected(ask: Callable[..., Any], text: Any) -> None:
    """A text is not taken for a list of characters."""
    with (
        Session(create_engine("sqlite://", poolclass=NullPool)) as session,
        pytest.raises(TypeError, match=r"write \[public_id\]"),
    ):
        ask(session, User, text)


@pytest.mark.parametrize("text", ["12", b"12"])
def test_one_key_where_several_are_expected(text: Any) -> None:
    """A text is not taken for a list of keys either."""
    with (
        Session(create_engine("sqlite://", poolclass=NullPool)) as session,
        pytest.raises(TypeError, match=r"expected several keys, not one text, b?'12': write \[key\]"),
    ):
        lookup.public_ids_of(session, User, text)


def test_dictionaries_for_bulk_insert() -> None:
    """What is no object is told, with the way to insert dictionaries."""
    with Session() as session, pytest.raises(TypeError, match=r"session\.execute\(insert\(Model\), rows\)"):
        bulk.insert(session, [{"name": "Ada"}])


@pytest.mark.parametrize("target", ["sqlite://", None, Session()], ids=["text", "None", "session"])
def test_guard_for_what_is_no_engine(target: Any) -> None:
    """The guard is for engines."""
    with pytest.raises(TypeError, match="expected an Engine or an AsyncEngine"):
        guard.install(target)
