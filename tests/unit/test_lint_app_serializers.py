"""Finding the integer keys that serializers, mappings and webhooks show, and bases that have none."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, NamedTuple

import pytest
from fastapi import APIRouter, FastAPI
from pydantic import (
    BaseModel,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    RootModel,
    WrapSerializer,
    computed_field,
    field_serializer,
    model_serializer,
)
from pydantic.dataclasses import dataclass
from pydantic_core import core_schema
from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, registry, relationship
from typing_extensions import NotRequired, TypedDict

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin
from sqlalchemy_public_id.ext._integers import integers
from sqlalchemy_public_id.ext.fastapi import lint_app


class Base(DeclarativeBase): ...


class Grower(PublicIdMixin, Base):
    __tablename__ = "grower"


class Harvest(PublicIdMixin, Base):
    __tablename__ = "harvest"
    grower_id: Mapped[int] = mapped_column(ForeignKey("grower.id"))
    grower: Mapped[Grower] = relationship()


def app_that_answers(model: Any) -> FastAPI:
    app = FastAPI()
    app.get("/it", response_model=model)(lambda: None)
    return app


def leaks(app: FastAPI) -> list[tuple[str, str, str | None]]:
    return [(one.where, one.field, one.column) for one in lint_app(app, bases=[Base]) if one.is_leak]


def notes(app: FastAPI) -> list[tuple[str, str, str]]:
    return [(one.where, one.field, one.advice) for one in lint_app(app, bases=[Base]) if not one.is_leak]


def number_of(value: Any) -> int:
    return int(value)


def text_of(value: Any) -> str:
    return str(value)


def number_around(value: Any, handler: Any) -> int:
    return int(handler(value))


def unsaid(value: Any):  # type: ignore[no-untyped-def]
    return value


def unknown(value: Any) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return value


# --- serializers


class ByReturnType(BaseModel):
    grower_id: Annotated[str, PlainSerializer(lambda value: int(value), return_type=int)]


class ByAnnotation(BaseModel):
    grower_id: Annotated[str, PlainSerializer(number_of)]


class ByWrapper(BaseModel):
    grower_id: Annotated[str, WrapSerializer(number_around)]


class ByLast(BaseModel):
    grower_id: Annotated[str, PlainSerializer(text_of), PlainSerializer(number_of)]


class ByDecorator(BaseModel):
    number: str = Field(validation_alias="grower_id")

    @field_serializer("number")
    def as_number(self, value: str) -> int:
        return int(value)


class ByDecoratorOfAll(BaseModel):
    grower_id: str

    @field_serializer("*")
    def as_number(self, value: str) -> int:
        return int(value)


class Inherited(ByDecorator): ...


class OfElements(BaseModel):
    grower_ids: list[Annotated[str, PlainSerializer(number_of)]]


class OfComputed(BaseModel):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def grower_id(self) -> Annotated[str, PlainSerializer(number_of)]:
        return "1"


class Typed(TypedDict):
    grower_id: NotRequired[Annotated[str, PlainSerializer(number_of)]]


class Shown(TypedDict):
    id: int


class OfTheModel(BaseModel):
    name: str

    @model_serializer
    def shown(self) -> Shown:
        return {"id": 1}


class OfTheModelAround(BaseModel):
    grower_id: int

    @model_serializer(mode="wrap")
    def shown(self, handler: Any) -> dict[str, str]:
        return dict(handler(self))


@dataclass
class DataClass:
    grower_id: str

    @field_serializer("grower_id")
    def as_number(self, value: str) -> int:
        return int(value)


class Number:
    """A type of its own, which Pydantic writes as an integer."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(int, return_schema=core_schema.int_schema())
        return core_schema.no_info_plain_validator_function(lambda value: value, serialization=written)


class Opaque(Number):
    """Another one, which has no JSON schema."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> dict[str, Any]:
        raise NotImplementedError


class OfItsOwnType(BaseModel):
    grower_id: Number | None


class OfOpaqueType(BaseModel):
    grower_id: Opaque


@pytest.mark.parametrize(
    ("model", "field", "column"),
    [
        (ByReturnType, "grower_id", "harvest.grower_id"),
        (ByAnnotation, "grower_id", "harvest.grower_id"),
        (ByWrapper, "grower_id", "harvest.grower_id"),
        (ByLast, "grower_id", "harvest.grower_id"),
        (ByDecorator, "number", "harvest.grower_id"),
        (ByDecoratorOfAll, "grower_id", "harvest.grower_id"),
        (Inherited, "number", "harvest.grower_id"),
        (OfElements, "grower_ids[]", "harvest.grower_id"),
        (OfComputed, "grower_id", "harvest.grower_id"),
        (Typed, "grower_id", "harvest.grower_id"),
        (OfTheModel, "id", "grower.id"),
        (OfTheModelAround, "grower_id", "harvest.grower_id"),
        (DataClass, "grower_id", "harvest.grower_id"),
        (OfItsOwnType, "grower_id", "harvest.grower_id"),
        (list[ByDecorator], "[].number", "harvest.grower_id"),
    ],
    ids=str,
)
def test_serializer_that_makes_a_key(model: Any, field: str, column: str) -> None:
    """What a serializer returns is what is shown, in whatever way the serializer is declared."""
    assert [("response 200", field, column)] == leaks(app_that_answers(model))


class Encoded(BaseModel):
    """The keys become texts, by serializers that say so."""

    id: Annotated[int, PlainSerializer(text_of)]
    grower_id: int

    @field_serializer("grower_id")
    def as_text(self, value: int) -> str:
        return f"grower {value}"


class WrittenInFull(BaseModel):
    id: int

    @model_serializer
    def shown(self) -> dict[str, str]:
        return {}


@pytest.mark.parametrize("model", [Encoded, WrittenInFull])
def test_serializer_that_hides_a_key(model: Any) -> None:
    """An integer that a serializer makes a text of is not shown; it is taken all the same."""
    app = FastAPI()

    def take(body: Any) -> None: ...

    take.__annotations__["body"] = model
    app.post("/it", status_code=204, response_model=None)(take)

    assert lint_app(app_that_answers(model), bases=[Base]) == []
    assert ("body", "body.id", "grower.id") in leaks(app)


def silent(serializer: Any) -> Any:
    return type("Silent", (BaseModel,), {"__annotations__": {"code": Annotated[str, serializer]}})


class SilentField(BaseModel):
    code: str

    @field_serializer("code")
    def shown(self, value: str):  # type: ignore[no-untyped-def]
        return value


class SilentModel(BaseModel):
    code: str

    @model_serializer
    def shown(self):  # type: ignore[no-untyped-def]
        return {"grower_id": 1}


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (silent(PlainSerializer(lambda value: value)), "code"),
        (silent(PlainSerializer(unsaid)), "code"),
        (silent(PlainSerializer(partial(unsaid))), "code"),
        (SilentField, "code"),
        (SilentModel, ""),
    ],
    ids=str,
)
def test_serializer_that_does_not_say_what_it_returns(model: Any, field: str) -> None:
    """A serializer without a return type may return anything, which is a note."""
    assert notes(app_that_answers(model)) == [("response 200", field, "give its serializer a return type")]


def test_serializer_whose_return_type_is_not_known() -> None:
    """So is one whose return type is the name of nothing, where Pydantic has not refused it."""
    found = list(integers(Annotated[str, PlainSerializer(unknown)]))

    assert [each.advice for each in found] == ["give its serializer a return type"]


def test_serializer_that_is_a_class() -> None:
    """A class makes what it is."""
    assert [found.advice for found in integers(Annotated[str, PlainSerializer(int)])] == [""]
    assert list(integers(Annotated[int, PlainSerializer(str)])) == []


def test_type_without_a_json_schema() -> None:
    """A type that cannot be described is passed over; FastAPI could not make a document of it either."""
    assert lint_app(app_that_answers(OfOpaqueType), bases=[Base]) == []


# --- numbers without a name of their own


class Facts(BaseModel):
    facts: dict[str, int]


class Pair(BaseModel):
    pair: tuple[int, str]


class Deep(BaseModel):
    facts: dict[str, list[int | None]] | None


class OfModel(BaseModel):
    name: str

    @model_serializer
    def shown(self) -> dict[str, int]:
        return {"id": 1, "grower_id": 2}


class RootOfFacts(RootModel[dict[str, int]]): ...


class Position(NamedTuple):
    pair: tuple[str, int]


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (Facts, "facts[]"),
        (Pair, "pair[]"),
        (Deep, "facts[][]"),
        (Position, "pair[]"),
        (OfModel, "[]"),
        (RootOfFacts, "[]"),
        (tuple[int, str], "[]"),
    ],
    ids=str,
)
def test_numbers_without_names(model: Any, field: str) -> None:
    """A number that is known by the key of a mapping, or by its place, is a note, inside of a model as outside."""
    assert notes(app_that_answers(model)) == [("response 200", field, "show a model, whose fields have names")]
    assert leaks(app_that_answers(model)) == []


class Named(BaseModel):
    """The names of the fields say what the numbers are, or there are none."""

    scores: list[int]
    more: tuple[int, ...]
    prices: dict[str, Decimal]
    texts: dict[str, str]
    both: tuple[str, bool]


def test_numbers_with_names() -> None:
    """Numbers in a list are what the list is called, and no note."""
    assert lint_app(app_that_answers(Named), bases=[Base]) == []


class KeysByName(BaseModel):
    grower_ids: dict[str, int]


def test_mapping_with_the_name_of_a_key() -> None:
    """A mapping that is called like a key holds keys."""
    assert leaks(app_that_answers(KeysByName)) == [("response 200", "grower_ids[]", "harvest.grower_id")]


# --- webhooks and callbacks


class HarvestOut(BaseModel):
    grower_id: int
    secret: int = Field(0, exclude=True, alias="id")
    rest: dict[str, Any]


class Received(BaseModel):
    harvest_id: int


def hook(body: HarvestOut) -> Received: ...  # type: ignore[empty-body]


def quiet(body: Received): ...  # type: ignore[no-untyped-def]


def test_webhooks() -> None:
    """What a webhook sends goes out, and what is answered to it comes in."""
    app, mounted = FastAPI(), FastAPI()
    app.webhooks.post("new-harvest")(hook)
    mounted.webhooks.post("other")(quiet)
    app.mount("/mounted", mounted)

    found = lint_app(app, bases=[Base])

    assert [(one.method, one.route, one.where, one.field, one.column) for one in found] == [
        ("POST", "/mounted other", "webhook body", "body.harvest_id", "harvest.id"),
        ("POST", "new-harvest", "webhook body", "body.grower_id", "harvest.grower_id"),
        ("POST", "new-harvest", "webhook body", "body.rest[]", None),
        ("POST", "new-harvest", "webhook response 200", "harvest_id", "harvest.id"),
    ]
    assert found[1].advice.startswith("show grower_public_id")
    assert found[-1].advice == "take the public id"


def test_callbacks() -> None:
    """So it is with the callbacks of a route, which are named after it."""
    callbacks, app = APIRouter(), FastAPI()
    callbacks.post("{$callback_url}/done")(quiet)
    app.post("/harvests", status_code=204, callbacks=callbacks.routes)(lambda: None)

    assert [str(one) for one in lint_app(app, bases=[Base])] == [
        "POST /harvests {$callback_url}/done: callback body body.harvest_id is harvest.id; show public_id"
    ]


# --- bases


PROGRAM = """
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy.orm import declarative_base, registry
from sqlalchemy_public_id import PublicIdMixin
from sqlalchemy_public_id.ext.fastapi import lint_app
Base = {base}
class User(PublicIdMixin, Base): __tablename__ = "user"
class Out(BaseModel): id: int
app = FastAPI()
app.get("/user", response_model=Out)(lambda: None)
print([finding.column for finding in lint_app(app, bases=[Base])])
lint_app(app)
"""


@pytest.mark.slow
@pytest.mark.parametrize("base", ["declarative_base()", "registry().generate_base()"])
def test_bases_that_are_not_found(base: str) -> None:
    """Where no mapped class is found, nothing could be found in the application either, which is an error."""
    program = PROGRAM.format(base=base)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "['user.id']"
    assert "ConfigurationError: lint_app() found no mapped classes; name their base: lint_app(app, bases=[Base])" in (
        done.stderr
    )


@pytest.mark.parametrize("base", [type("Empty", (DeclarativeBase,), {}), registry()], ids=["base", "registry"])
def test_base_without_classes(base: Any) -> None:
    """A base that is named has mapped classes: those of a module that nobody has imported are none."""
    with pytest.raises(ConfigurationError, match=r"bases has .+, which has no mapped classes; import the modules"):
        lint_app(FastAPI(), bases=[Base, base])
