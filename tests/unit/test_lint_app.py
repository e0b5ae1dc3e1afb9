"""Finding the integer keys that a FastAPI application shows or takes."""

from __future__ import annotations

import dataclasses
import sys
import typing
from decimal import Decimal
from enum import IntEnum
from inspect import Parameter, Signature
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypeVar

import pytest
from fastapi import APIRouter, Body, Depends, FastAPI, Header, Response, WebSocket
from pydantic import AliasPath, BaseModel, ConfigDict, Field, JsonValue, RootModel, computed_field
from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlmodel import Field as SQLModelField
from sqlmodel import SQLModel
from starlette.applications import Starlette
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Route
from typing_extensions import TypeAliasType, TypedDict

from sqlalchemy_public_id import ConfigurationError, PublicIdColumnMixin, PublicIdMixin, TypedId
from sqlalchemy_public_id.ext._integers import integers
from sqlalchemy_public_id.ext.fastapi import Finding, by_public_id, install, lint_app
from sqlalchemy_public_id.ext.pydantic import PublicModel
from sqlalchemy_public_id.ext.sqlmodel import PublicIdSQLModel


class Base(DeclarativeBase): ...


class BuyerId(TypedId, prefix="lintbuy"): ...


class PurchaseId(TypedId, prefix="lintpur"): ...


class Buyer(PublicIdMixin[BuyerId], Base):
    __tablename__ = "buyer"
    name: Mapped[str]


class Purchase(PublicIdMixin[PurchaseId], Base):
    __tablename__ = "purchase"
    buyer_id: Mapped[int] = mapped_column(ForeignKey("buyer.id"))
    total: Mapped[Decimal]
    buyer: Mapped[Buyer] = relationship()


class Seat(PublicIdColumnMixin, Base):
    __tablename__ = "seat"
    line: Mapped[int] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)


class Robot(SQLModel, table=True):
    serial: int | None = SQLModelField(default=None, primary_key=True)
    name: str


T = TypeVar("T")
Serial = NewType("Serial", int)


class WithId(BaseModel):
    id: int


class WithReference(BaseModel):
    buyer_id: int | None


class Inner(BaseModel):
    purchase: WithId


class Page(BaseModel, Generic[T]):
    items: list[T]


class Renamed(BaseModel):
    number: int = Field(validation_alias="id")


class Flattened(BaseModel):
    number: int = Field(validation_alias=AliasPath("buyer", "id"))


class Camel(BaseModel):
    buyerId: int  # noqa: N815


class Computed(BaseModel):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def id(self) -> int:
        return 1


class ByNewType(BaseModel):
    id: Serial


class ByRelationship(BaseModel):
    buyer: int


class AsDecimal(BaseModel):
    buyer_id: Decimal


class AsFloat(BaseModel):
    buyer_id: float | None


PlainAlias = getattr(typing, "TypeAliasType", TypeAliasType)


class ByAlias(BaseModel):
    id: TypeAliasType("Alias", int)  # type: ignore[valid-type]


class ByPlainAlias(BaseModel):
    id: PlainAlias("Alias", int)


class Several(BaseModel):
    buyer_ids: list[int]


class Tree(BaseModel):
    id: int
    children: list[Tree]


@dataclasses.dataclass
class DataClass:
    id: int


class Dictionary(TypedDict):
    buyer_id: int


class Tuple(NamedTuple):
    id: int


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


class Rooted(RootModel[list[WithId]]): ...


def app_that_answers(model: Any, **options: Any) -> FastAPI:
    app = FastAPI()

    @app.get("/it", response_model=model, **options)
    def show() -> Any: ...

    return app


def app_that_takes(**parameters: Any) -> FastAPI:
    """An application whose one route, at a path with ``{buyer_id}``, has these parameters."""
    app = FastAPI()

    def take(**given: Any) -> None: ...

    take.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(name, Parameter.KEYWORD_ONLY, annotation=type_) for name, type_ in parameters.items()]
    )
    app.post("/it/{buyer_id}", status_code=204, response_model=None)(take)
    return app


def leaks(app: FastAPI) -> list[tuple[str, str, str | None]]:
    return [(one.where, one.field, one.column) for one in lint_app(app, bases=[Base]) if one.is_leak]


def notes(app: FastAPI) -> list[tuple[str, str]]:
    return [(one.where, one.field) for one in lint_app(app, bases=[Base]) if not one.is_leak]


@pytest.mark.parametrize(
    ("model", "field", "column"),
    [
        (WithId, "id", "buyer.id"),
        (WithReference, "buyer_id", "purchase.buyer_id"),
        (list[WithId], "[].id", "buyer.id"),
        (dict[str, WithId], "[].id", "buyer.id"),
        (tuple[WithId, ...], "[].id", "buyer.id"),
        (WithId | None, "id", "buyer.id"),
        (Annotated[WithId, Field(title="it")], "id", "buyer.id"),
        (Inner, "purchase.id", "buyer.id"),
        (Page[Inner], "items[].purchase.id", "buyer.id"),
        (Rooted, "[].id", "buyer.id"),
        (Renamed, "number", "buyer.id"),
        (Flattened, "number", "buyer.id"),
        (Camel, "buyerId", "purchase.buyer_id"),
        (Computed, "id", "buyer.id"),
        (ByNewType, "id", "buyer.id"),
        (Several, "buyer_ids[]", "purchase.buyer_id"),
        (Tree, "id", "buyer.id"),
        (DataClass, "id", "buyer.id"),
        (Box[WithReference], "content.buyer_id", "purchase.buyer_id"),
        (Dictionary, "buyer_id", "purchase.buyer_id"),
        (Tuple, "id", "buyer.id"),
        (Robot, "serial", "robot.serial"),
        (list[Robot], "[].serial", "robot.serial"),
        (ByRelationship, "buyer", "purchase.buyer_id"),
        (AsDecimal, "buyer_id", "purchase.buyer_id"),
        (AsFloat, "buyer_id", "purchase.buyer_id"),
        (ByAlias, "id", "buyer.id"),
        (ByPlainAlias, "id", "buyer.id"),
    ],
    ids=str,
)
def test_response_that_leaks(model: Any, field: str, column: str) -> None:
    """An integer key is found in a response model of any kind, however deep, under whatever name it is read by."""
    assert [("response 200", field, column)] == leaks(app_that_answers(model))


if sys.version_info >= (3, 12):  # which has the statement ``type``

    def test_name_for_a_type_that_holds_itself() -> None:
        """The integers of a type that is defined by itself are found, and looking for them ends."""
        names: dict[str, Any] = {"WithId": WithId}
        exec("type Recursive = dict[str, Recursive] | list[WithId] | WithId\ntype Loop = Loop", names)

        assert [found.path for found in integers(names["Recursive"])] == ["[].id", "id"]
        assert [found.path for found in integers(names["Loop"])] == []


def test_type_that_is_not_known() -> None:
    """A name that stands for nothing yet cannot be checked."""
    assert [found.advice for found in integers(list["Unknown"])] == ["declare its type"]  # type: ignore[name-defined]  # noqa: F821


def test_class_with_the_name_of_a_model() -> None:
    """Of several keys with one name, the one is told whose model the response is named after."""

    class PurchaseOut(BaseModel):
        id: int

    assert leaks(app_that_answers(PurchaseOut)) == [("response 200", "id", "purchase.id")]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"buyer_id": int}, ("path", "buyer_id")),
        ({"buyer_id": int | None}, ("path", "buyer_id")),
        ({"buyer_id": str, "purchase_id": int}, ("query", "purchase_id")),
        ({"buyer_id": str, "purchase_id": Annotated[int, Header()]}, ("header", "purchase-id")),
        ({"buyer_id": str, "body": WithReference}, ("body", "body.buyer_id")),
        ({"buyer_id": str, "purchase_id": Annotated[int, Body()]}, ("body", "purchase_id")),
    ],
    ids=str,
)
def test_parameter_that_is_a_key(parameters: dict[str, Any], expected: tuple[str, str]) -> None:
    """An integer key is found in what a route takes: path, query, header and body."""
    assert [expected] == [found[:2] for found in leaks(app_that_takes(**parameters))]


def test_parameter_of_a_dependency() -> None:
    """The parameters of a dependency are those of the route."""

    def buyer(buyer_id: int) -> None: ...

    assert [found[:2] for found in leaks(app_that_takes(it=Annotated[None, Depends(buyer)]))] == [("path", "buyer_id")]


class Level(IntEnum):
    LOW = 1


class Harmless(BaseModel):
    """None of these is a key, or none is shown."""

    public_id: PurchaseId
    buyer_public_id: BuyerId
    total: Decimal
    count: int
    position: int
    is_paid: bool
    level: Level
    id: str
    purchase_id: Annotated[int, Field(exclude=True)]


class PurchaseOut(PublicModel, model=Purchase):
    public_id: PurchaseId
    total: Decimal


@pytest.mark.parametrize(
    "model", [Harmless, PurchaseOut, list[PurchaseOut], Page[PurchaseOut], str, bool, None, list[BuyerId]], ids=str
)
def test_response_that_leaks_nothing(model: Any) -> None:
    """Public ids, other integers, and fields that are not shown, are left alone."""
    assert lint_app(app_that_answers(model, status_code=200 if model else 204), bases=[Base]) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"response_model_exclude": {"id"}}, []),
        ({"response_model_exclude": {"id": True}}, []),
        ({"response_model_include": {"children"}}, []),
        ({"response_model_include": {"id"}}, ["id"]),
        ({"response_model_exclude": {"children": {"__all__": {"id"}}}}, ["id"]),
        ({"response_model_include": {"children": {"__all__": {"id"}}}}, []),
    ],
    ids=str,
)
def test_fields_left_out_by_the_route(options: Any, expected: list[str]) -> None:
    """A field that the route itself does not show is no leak."""
    assert expected == [field for _, field, _ in leaks(app_that_answers(Tree, **options))]


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        (Inner, {"response_model_exclude": {"purchase": {"id"}}}, []),
        (Inner, {"response_model_exclude": {"purchase": {"id": True}}}, []),
        (Inner, {"response_model_exclude": {"purchase": {"other"}}}, ["purchase.id"]),
        (Inner, {"response_model_include": {"purchase": {"other"}}}, []),
        (Inner, {"response_model_include": {"purchase": {"id"}}}, ["purchase.id"]),
        (Page[Inner], {"response_model_exclude": {"items": {"__all__": {"purchase": {"id"}}}}}, []),
        (Page[Inner], {"response_model_exclude": {"items": {0: {"purchase"}}}}, ["items[].purchase.id"]),
        (list[WithId], {"response_model_exclude": {"__all__": {"id"}}}, []),
    ],
    ids=str,
)
def test_inner_fields_left_out_by_the_route(model: Any, options: Any, expected: list[str]) -> None:
    """A field further inside may be left out, in all elements of a list, and is no leak."""
    assert expected == [field for _, field, _ in leaks(app_that_answers(model, **options))]


def test_included_field_holds_a_leak() -> None:
    """What is inside of an included field is looked at."""
    app = app_that_answers(Inner, response_model_include={"purchase"})

    assert leaks(app) == [("response 200", "purchase.id", "buyer.id")]


def test_other_responses() -> None:
    """The models of further answers of a route are looked at."""
    app = app_that_answers(PurchaseOut, responses={409: {"model": WithId}, 404: {"description": "none"}})

    assert leaks(app) == [("response 409", "id", "buyer.id")]


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")


class Vague(BaseModel):
    contents: dict[str, Any]


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (None, ""),
        (Any, ""),
        (dict, ""),
        (list, ""),
        (dict[str, Any], "[]"),
        (Vague, "contents[]"),
        (Loose, "*"),
        (int, ""),
        (list[int], "[]"),
        (dict[int, str], ""),
        (JsonValue, ""),
        (dict[str, JsonValue], "[]"),
    ],
    ids=str,
)
def test_response_that_cannot_be_checked(model: Any, field: str) -> None:
    """What says nothing of its contents is noted, and is no leak."""
    app = app_that_answers(model)

    assert [("response 200", field)] == notes(app)
    assert leaks(app) == []


def test_response_made_by_hand() -> None:
    """A route that returns a ``Response``, or one of JSON, cannot be checked."""
    app = FastAPI()
    for type_ in (Response, JSONResponse):
        app.get("/it")(returning(type_))

    assert notes(app) == [("response 200", "")] * 2


def returning(type_: Any) -> Any:
    """An endpoint whose signature says that it returns this."""

    def show() -> Any: ...

    show.__annotations__["return"] = type_
    return show


@pytest.mark.parametrize("type_", [None, HTMLResponse, FileResponse, RedirectResponse, PlainTextResponse], ids=str)
def test_response_without_json(type_: Any) -> None:
    """A route that returns nothing, or what is no JSON, has nothing to check."""
    app = FastAPI()
    app.get("/it")(returning(type_))
    if type_ is not None:
        app.get("/other", response_class=type_, response_model=None)(lambda: None)

    assert notes(app) == []


class Taken(BaseModel):
    id: int = Field(0, exclude=True)


class Keyed(PublicIdSQLModel, table=True):
    name: str


@pytest.mark.parametrize("body", [Taken, Keyed])
def test_body_with_a_key_that_is_not_shown(body: Any) -> None:
    """A field that is left out of what is shown is taken all the same."""
    assert [found[:2] for found in leaks(app_that_takes(body=body))] == [("body", "body.id")]
    assert leaks(app_that_answers(body)) == []


def test_body_with_a_computed_field() -> None:
    """A field that is computed is shown, and not taken."""
    assert leaks(app_that_takes(body=Computed)) == []


def test_included_routers_and_mounted_applications() -> None:
    """Routes are found in routers, in routers of these, and in applications that are mounted; with their whole path."""
    inner, outer, app, mounted = APIRouter(prefix="/inner"), APIRouter(prefix="/outer"), FastAPI(), FastAPI()
    for routes in (inner, outer, app, mounted):
        routes.get("/it", response_model=WithId)(lambda: None)
    outer.include_router(inner)
    app.include_router(outer, prefix="/v1")
    app.mount("/mounted", mounted)

    assert {"/it", "/v1/outer/it", "/v1/outer/inner/it", "/mounted/it"} == {
        finding.route for finding in lint_app(app, bases=[Base])
    }


def test_other_applications_and_sockets() -> None:
    """A route of another framework is a note; web sockets, and FastAPI's own documentation, are not looked at."""
    app = FastAPI()
    app.mount("/other", Starlette(routes=[Route("/it", lambda request: PlainTextResponse("1"))]))

    @app.websocket("/socket/{buyer_id}")
    async def socket(websocket: WebSocket, buyer_id: int) -> None: ...

    assert [(one.route, one.is_leak) for one in lint_app(app, bases=[Base])] == [("/other/it", False)]


def test_methods() -> None:
    """Each method of a route has its own finding."""
    app = FastAPI()
    app.api_route("/it", methods=["POST", "PUT"], response_model=WithId)(lambda: None)

    assert [finding.method for finding in lint_app(app, bases=[Base])] == ["POST", "PUT"]


def test_finding() -> None:
    """A finding reads as a sentence, and says what to write instead."""
    app = app_that_answers(WithReference)

    (finding,) = lint_app(app, bases=[Base])

    advice = 'show buyer_public_id, which is public_ref("buyer") on Purchase'
    assert finding == Finding("GET", "/it", "response 200", "buyer_id", "purchase.buyer_id", advice)
    assert str(finding) == f"GET /it: response 200 buyer_id is purchase.buyer_id; {advice}"


@pytest.mark.parametrize("base", [Base, Base.registry, Buyer])
def test_bases(base: Any) -> None:
    """A base, its registry and any of its classes stand for all classes of the registry."""
    assert lint_app(app_that_answers(WithReference), bases=[base])


def test_all_bases() -> None:
    """Where no base is named, all of SQLAlchemy's declarative kind are looked at."""
    assert lint_app(app_that_answers(WithReference))
    assert not lint_app(app_that_answers(WithReference), bases=[])


def test_what_is_no_base() -> None:
    """What has no mapped classes is refused as a base."""
    with pytest.raises(ConfigurationError, match="bases has <class 'int'>, expected a declarative base"):
        lint_app(FastAPI(), bases=[int])


def test_application_with_dependencies_of_this_library() -> None:
    """A route that takes and shows public ids only is clean."""
    app = FastAPI()
    install(app)

    @app.get("/purchases/{purchase_id}")
    def show(
        purchase: Annotated[Purchase, Depends(by_public_id(Purchase, session=lambda: None))],
    ) -> PurchaseOut: ...  # type: ignore[empty-body]

    assert lint_app(app, bases=[Base]) == []
