"""Common mistakes in arguments: each error says what to pass instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, inspect, literal, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from sqlalchemy_public_id import (
    ConfigurationError,
    InvalidCursor,
    PublicIdError,
    PublicIdMixin,
    PublicIdNotFound,
    bulk,
    lookup,
    references,
)
from sqlalchemy_public_id.errors import PublicIdWarning


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
    "without a base": (lambda: type("Loose", (PublicIdMixin,), {}), r"write class Loose\(PublicIdMixin, Base\)"),
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


# --- an integer, which is a key, in place of a public id

WARNING: dict[str, Callable[[Session], Any]] = {
    "get": lambda session: lookup.get(session, Tag, 1),
    "get with an option": lambda session: lookup.get(session, Tag, 1, populate_existing=True),
    "get of a statement": lambda session: lookup.get(session, select(Tag), 1),
    "get_many": lambda session: lookup.get_many(session, Tag, ["0123456789ab", 1]),
    "keys_of": lambda session: lookup.keys_of(session, Tag, [1, 2]),
    "resolve": lambda session: lookup.resolve(session, 1),
    "resolve_many": lambda session: lookup.resolve_many(session, [1, "x"]),
}


@pytest.mark.parametrize("name", WARNING)
def test_warning_about_a_key(session: Session, name: str) -> None:
    """A lookup of an integer finds nothing, and warns once at the line of the program that called it."""
    with pytest.warns(PublicIdWarning, match=r"write session\.get\(Model, key\)") as warned:
        assert not WARNING[name](session)

    assert [each.filename for each in warned] == [__file__]


WARNING_OF_A_ROW: dict[str, Callable[[Session, Any], Any]] = {
    "get": lambda session, row: lookup.get(session, Tag, row),
    "get of a statement": lambda session, row: lookup.get(session, select(Tag), row),
    "get_many": lambda session, row: lookup.get_many(session, Tag, ["0123456789ab", row, row]),
    "keys_of": lambda session, row: lookup.keys_of(session, Tag, [row]),
    "resolve": lambda session, row: lookup.resolve(session, row),
    "resolve_many": lambda session, row: lookup.resolve_many(session, [row]),
}


@pytest.mark.parametrize("name", WARNING_OF_A_ROW)
def test_warning_about_bytes(session: Session, name: str) -> None:
    """Bytes, such as the client of a cache returns, find nothing, and the warning says to decode them."""
    with pytest.warns(PublicIdWarning, match=r"decode them, as in value\.decode\(\)") as warned:
        assert not WARNING_OF_A_ROW[name](session, b"0123456789ab")

    assert [each.filename for each in warned] == [__file__]


@pytest.mark.parametrize("name", WARNING_OF_A_ROW)
def test_warning_about_a_row(session: Session, name: str) -> None:
    """A lookup of an object, or of a row with the id, finds nothing, and warns once at the line that called it."""
    for row, kind in ((Tag(), "Tag"), (session.execute(select(literal("x").label("public_id"))).one(), "Row")):
        with pytest.warns(PublicIdWarning, match=f"of class {kind} was looked up .* pass its public_id") as warned:
            assert not WARNING_OF_A_ROW[name](session, row)

        assert [each.filename for each in warned] == [__file__]


def test_error_about_a_row(session: Session) -> None:
    """What raises an error for an object shows the object, and does not warn."""
    with pytest.raises(PublicIdNotFound, match=r"no Tag has the public id <.*Tag object at"):
        lookup.get_one(session, Tag, Tag())


ERROR: dict[str, Callable[[Session], Any]] = {
    "get_one": lambda session: lookup.get_one(session, Tag, 1),
    "get_many with a field": lambda session: lookup.get_many(session, Tag, [1], field="tags"),
    "==": lambda session: session.scalars(select(Tag).where(Tag.public_id == 1)).all(),
    "in_": lambda session: session.scalars(select(Tag).where(Tag.public_id.in_([1]))).all(),
    "assigned": lambda session: Tag(public_id=1),
}


@pytest.mark.parametrize("name", ERROR)
def test_error_about_a_key(session: Session, name: str) -> None:
    """What raises an error for an integer says in it that the integer is a key, and does not warn."""
    with pytest.raises(PublicIdError, match=r"an integer is a key: session\.get\(Model, key\) finds its row"):
        ERROR[name](session)


def test_number_as_a_cursor(session: Session) -> None:
    """An integer is neither a key nor the number of a page here: the error says what a cursor is."""
    for page in ({"after": 2}, {"before": 2}, {"after": 2, "order_by": Tag.id}):
        with pytest.raises(InvalidCursor, match="it is an integer; pass the next or previous of a page"):
            lookup.page(session, Tag, limit=1, **page)


LISTS: dict[str, Callable[[Session], Any]] = {
    "get": lambda session: lookup.get(session, Tag, ["0123456789ab"]),
    "get of a tuple": lambda session: lookup.get(session, Tag, ("0123456789ab", "0123456789ab")),
    "get of a set": lambda session: lookup.get(session, Tag, {"x"}),
    "get_many": lambda session: lookup.get_many(session, Tag, [["0123456789ab"]]),
    "resolve": lambda session: lookup.resolve(session, ["0123456789ab"]),
}


@pytest.mark.parametrize("name", LISTS)
def test_warning_about_a_list(session: Session, name: str) -> None:
    """A list of texts in the place of one id finds nothing, and warns once at the line of the program."""
    with pytest.warns(PublicIdWarning, match=r"write lookup\.get_many\(session, Model, public_ids\)") as warned:
        assert not LISTS[name](session)

    assert [each.filename for each in warned] == [__file__]


def test_other_values_are_no_keys(session: Session) -> None:
    """Malformed text, None, booleans and other objects are looked up without a warning, and nobody speaks of keys."""
    for given in ("x", "1", None, True, 1.5, object(), [1]):
        assert lookup.get(session, Tag, given) is None
        with pytest.raises(PublicIdNotFound) as error:
            lookup.get_one(session, Tag, given)
        assert "key" not in str(error.value)
    assert lookup.get_many(session, Tag, ["x", None, 1.5]) == {}
