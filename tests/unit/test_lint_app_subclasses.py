"""Notes on what may hold any subclass, and leaks in fields whose values are written down: literals and enumerations."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterable
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import pytest
from fastapi import FastAPI
from fastapi.exceptions import FastAPIError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, SerializeAsAny, SkipValidation
from sqlalchemy import ForeignKey, func, select
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, mapped_column, relationship, synonym
from typing_extensions import TypedDict

from sqlalchemy_public_id import NanoId, PublicIdMixin
from sqlalchemy_public_id.ext.fastapi import lint_app
from sqlalchemy_public_id.ext.pydantic import PublicId, PublicModel


class Base(DeclarativeBase): ...


class Shelf(PublicIdMixin, Base):
    __tablename__ = "shelf"
    level: Mapped[int]
    total: Mapped[int]


class Book(PublicIdMixin, Base):
    __tablename__ = "book"
    shelf_id: Mapped[int] = mapped_column(ForeignKey("shelf.id"))
    shelf: Mapped[Shelf] = relationship()
    number: Mapped[int] = synonym("id")
    pages: Mapped[int]

    @hybrid_property
    def place(self) -> int:
        return self.shelf_id * 1

    @hybrid_property
    def level(self) -> int:
        return self.shelf_id


Shelf.newest = column_property(select(func.max(Book.id)).where(Book.shelf_id == Shelf.id).scalar_subquery())


class Level(IntEnum):
    LOW = 1


class Mixed(Enum):
    LOW = 1
    HIGH = "high"


class Color(Enum):
    RED = "red"


class Event(BaseModel):
    name: str


E = TypeVar("E", bound=Event)
T = TypeVar("T")


class Envelope(BaseModel, Generic[E]):
    content: E


@runtime_checkable
class Named(Protocol):
    name: str


class Thing:
    """A class that Pydantic does not know."""


@dataclasses.dataclass
class Loose:
    name: str
    __pydantic_config__ = ConfigDict(extra="allow")


class LooseDict(TypedDict):
    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    name: str


class BookOut(PublicModel, model=Book):
    pages: int


def app_that_answers(model: Any) -> FastAPI:
    app = FastAPI()
    app.get("/it", response_model=model)(lambda: None)
    return app


def model_of(**fields: Any) -> type[BaseModel]:
    body = {"__annotations__": fields, "model_config": ConfigDict(arbitrary_types_allowed=True)}
    return type(BaseModel)("Out", (BaseModel,), body)


def leaks(app: FastAPI) -> list[tuple[str, str | None]]:
    return [(one.field, one.column) for one in lint_app(app, bases=[Base]) if one.is_leak]


def notes(app: FastAPI) -> list[str]:
    return [one.field for one in lint_app(app, bases=[Base]) if not one.is_leak]


@pytest.mark.parametrize(
    "type_",
    [
        BaseModel,
        SerializeAsAny[BaseModel],
        SerializeAsAny[Event],
        SerializeAsAny[Event | None],
        SerializeAsAny[Event] | None,
        list[SerializeAsAny[Event]],
        dict[str, SerializeAsAny[Event]],
        Annotated[Event, Field(title="it"), SerializeAsAny()],
        SkipValidation[Event],
        InstanceOf[Thing],
        Thing,
        Named,
        Envelope,
        Iterable,
        AsyncIterator,
        type,
    ],
    ids=str,
)
def test_field_that_may_hold_any_subclass(type_: Any) -> None:
    """What is written out by the class that it has, and not by the one that is declared, is a note."""
    if type_ in (Envelope, AsyncIterator, type, Iterable):
        app = FastAPI()
        app.get("/it", response_model=model_of(it=type_))(lambda: None)
    else:
        app = app_that_answers(model_of(it=type_))

    assert [field.partition("[")[0].partition(".")[0] for field in notes(app)] == ["it"]
    assert leaks(app) == []


def test_model_that_is_written_by_its_subclass() -> None:
    """So is a model whose configuration says so, where Pydantic has it."""
    if "polymorphic_serialization" in ConfigDict.__annotations__:
        body = {"__annotations__": {"name": str}, "model_config": ConfigDict(polymorphic_serialization=True)}
        assert notes(app_that_answers(type(BaseModel)("Out", (BaseModel,), body))) == [""]


def test_declared_fields_of_what_may_hold_more() -> None:
    """The fields of the declared class are looked at all the same."""

    class WithKey(BaseModel):
        shelf_id: int

    app = app_that_answers(model_of(it=SerializeAsAny[WithKey]))

    assert leaks(app) == [("it.shelf_id", "book.shelf_id")]
    assert notes(app) == ["it"]


@pytest.mark.parametrize("type_", [Loose, LooseDict])
def test_records_with_more_fields(type_: Any) -> None:
    """A dataclass or typed dict that takes other fields may show keys."""
    assert notes(app_that_answers(type_)) == ["*"]


@pytest.mark.parametrize(
    "type_", [Literal[1, 2], Literal["a", 2], Literal[1] | None, Level, Mixed, Literal[Level.LOW]], ids=str
)
def test_key_of_few_values(type_: Any) -> None:
    """A literal or an enumeration of integers is a leak, if it is called like a key."""
    assert leaks(app_that_answers(model_of(shelf_id=type_))) == [("shelf_id", "book.shelf_id")]
    assert lint_app(app_that_answers(model_of(status=type_)), bases=[Base]) == []


@pytest.mark.parametrize("type_", [Literal["a", "b"], Color, Literal[True], Literal[None], Literal[Color.RED]], ids=str)
def test_literals_and_enumerations_of_texts(type_: Any) -> None:
    """Texts are no keys, whatever they are called; they are known types."""
    assert lint_app(app_that_answers(model_of(shelf_id=type_, other=type_)), bases=[Base]) == []


def test_text_that_is_made_of_a_number() -> None:
    """A text that Pydantic makes of an integer is a leak, if it is called like a key."""
    by_config = type(BaseModel)(
        "Out", (BaseModel,), {"__annotations__": {"id": str}, "model_config": ConfigDict(coerce_numbers_to_str=True)}
    )

    assert [field for field, _ in leaks(app_that_answers(by_config))] == ["id"]
    for type_ in (Annotated[str, Field(coerce_numbers_to_str=True)], Annotated[str, BeforeValidator(str)]):
        assert [field for field, _ in leaks(app_that_answers(model_of(id=type_)))] == ["id"]
    assert leaks(app_that_answers(model_of(id=Annotated[str, BeforeValidator(str), PublicId(NanoId())]))) == []


@pytest.mark.parametrize(
    ("name", "column"),
    [("number", "book.id"), ("place", "book.shelf_id"), ("newest", "book.id")],
)
def test_names_of_attributes_that_show_keys(name: str, column: str) -> None:
    """A synonym, hybrid or column property of a key is a name of that key."""
    assert leaks(app_that_answers(model_of(**{name: int}))) == [(name, column)]


def test_name_that_is_harmless_elsewhere() -> None:
    """A name that is a key in one model and a plain column in another is a leak in a response called like the first."""
    book = type(BaseModel)("BookRow", (BaseModel,), {"__annotations__": {"level": int}})

    assert leaks(app_that_answers(book)) == [("level", "book.shelf_id")]
    assert leaks(app_that_answers(model_of(level=int))) == []


def test_fields_of_a_public_model() -> None:
    """The fields of a ``PublicModel`` are judged by what they read, and not by their names."""

    class ShelfOut(PublicModel, model=Shelf):
        place: int = Field(validation_alias="total")

    assert lint_app(app_that_answers(ShelfOut), bases=[Base]) == []


def test_items_of_a_stream() -> None:
    """The type of the items that a route yields is looked at."""
    app = FastAPI()

    class Row(BaseModel):
        shelf_id: int

    async def rows() -> AsyncIterator[Row]:
        yield Row(shelf_id=1)

    rows.__annotations__["return"] = AsyncIterator[Row]
    try:
        app.get("/rows")(rows)
    except FastAPIError:
        pytest.skip("this release of FastAPI takes no iterator for the type of an answer")

    assert leaks(app) in ([("shelf_id", "book.shelf_id")], [("[].shelf_id", "book.shelf_id")])


def test_disposed_registry() -> None:
    """A registry that was disposed of, with an object of it still alive, has no keys any more."""

    class Former(DeclarativeBase): ...

    class Old(PublicIdMixin, Former):
        __tablename__ = "old"

    alive = Old()
    Former.registry.dispose()

    assert [one.column for one in lint_app(app_that_answers(model_of(id=int)))] != []
    assert alive is not None
