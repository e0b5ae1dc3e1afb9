"""Common mistakes in arguments: each error says what to pass instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, inspect, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, bulk, lookup, references


class Base(DeclarativeBase):
    metadata = MetaData()


class Tag(PublicIdMixin, Base):
    __tablename__ = "tag"
    name: Mapped[str] = mapped_column(default="x")


class Plain(Base):
    __tablename__ = "plain"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "name": (lambda: "Tag", "'Tag' is not a mapped class: pass the class, not its name"),
    "object": (lambda: Tag(), "but an object of one: pass Tag"),
    "attribute": (lambda: Tag.public_id, "but an attribute of one: pass Tag"),
    "mapper": (lambda: inspect(Tag), "but the mapper of one: pass the class"),
    "table": (lambda: Tag.__table__, "but a table: pass the model that is mapped to it"),
    "nothing": (lambda: None, "None is not a mapped class; expected a model"),
    "class": (lambda: int, "<class 'int'> is not a mapped class; expected a model"),
    "column": (lambda: select(Tag.name), "is not a mapped class|expects a statement of one model"),
    "without a public id": (lambda: Plain, "Plain has no public id"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("function", ["get", "get_one", "get_many", "keys_of", "public_ids_of", "page"])
def test_not_a_model(session: Session, name: str, function: str) -> None:
    """Each lookup says what to pass instead of a value that is not a model."""
    build, message = MODELS[name]
    arguments: Any = {"limit": 3} if function == "page" else {}
    ids: tuple[Any, ...] = () if function == "page" else (["x"],) if function.endswith(("many", "of")) else ("x",)
    with pytest.raises(ConfigurationError, match=message):
        getattr(lookup, function)(session, build(), *ids, **arguments)


def test_not_an_attribute(session: Session) -> None:
    """An attribute that is not a public id raises an error that lists the public ids."""
    with pytest.raises(ConfigurationError, match="name one of public_id"):
        lookup.get(session, Tag, "x", attribute="slug")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda session: session.connection(), "expected a Session, not Connection"),
        (lambda session: AsyncSession(), r"use the function of this name in sqlalchemy_public_id\.asyncio"),
        (lambda session: sessionmaker(), "not sessionmaker: pass a Session first"),
        (lambda session: Tag, "not the class Tag: pass a Session first"),
    ],
    ids=["connection", "AsyncSession", "sessionmaker", "model"],
)
def test_not_a_session(session: Session, build: Callable[[Session], Any], message: str) -> None:
    """Anything but a Session is rejected, even a connection, which would return the first column: the key."""
    wrong = build(session)
    for ask in (
        lambda: lookup.get(wrong, Tag, "izkpm55j334u"),
        lambda: lookup.resolve(wrong, "izkpm55j334u"),
        lambda: bulk.insert(wrong, []),
    ):
        with pytest.raises(TypeError, match=message):
            ask()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda session: lookup.get_many(session, Tag, "izkpm55j334u"), r"write \[public_id\]"),
        (lambda session: lookup.keys_of(session, Tag, b"izkpm55j334u"), r"write \[public_id\]"),
        (lambda session: lookup.public_ids_of(session, Tag, "12"), r"a list of keys, not the string '12': write"),
        (
            lambda session: lookup.public_ids_of(session, Tag, b"12"),
            r"a list of keys, not the string b'12': write \[key\]",
        ),
        (lambda session: references.load(session, Tag()), r"expected mapped objects, not one: write \[tag\]"),
        (lambda session: bulk.insert(session, [{"name": "Ada"}]), r"session\.execute\(insert\(Model\), rows\)"),
    ],
)
def test_not_several(session: Session, call: Callable[[Any], object], message: str) -> None:
    """A single text or object instead of several, or a dictionary instead of an object, is rejected."""
    with pytest.raises(TypeError, match=message):
        call(session)
