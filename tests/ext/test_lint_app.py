"""``lint_app()`` finds the integer keys that a FastAPI application returns or accepts."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from enum import IntEnum
from inspect import Parameter, Signature
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar

import pytest
from fastapi import APIRouter, Body, Depends, FastAPI, Header, Response, WebSocket
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    RootModel,
    SerializeAsAny,
    computed_field,
)
from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, registry, relationship
from sqlmodel import Field as SQLModelField
from sqlmodel import SQLModel
from starlette.applications import Starlette
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse
from starlette.routing import Route

from sqlalchemy_public_id import ConfigurationError, PublicIdColumnMixin, PublicIdMixin, TypedId
from sqlalchemy_public_id.ext.fastapi import Finding, by_public_id, lint_app
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
    rows: Mapped[int]


class Stamp(PublicIdColumnMixin, Base):
    __tablename__ = "stamp"
    purchase_key: Mapped[int] = mapped_column(ForeignKey("purchase.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)


class Robot(SQLModel, table=True):
    serial: int | None = SQLModelField(default=None, primary_key=True)
    name: str


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

T = TypeVar("T")
Serial = NewType("Serial", int)


def model_of(**fields: Any) -> type[BaseModel]:
    """Return a plain model with these fields."""
    return type(BaseModel)("Out", (BaseModel,), {"__annotations__": fields})


class WithId(BaseModel):
    id: int


WithReference = model_of(buyer_id=int | None)


class Page(BaseModel, Generic[T]):
    items: list[T]


class Computed(BaseModel):
    @computed_field
    @property
    def id(self) -> int:
        return 1


class Tree(BaseModel):
    id: int
    children: list[Tree]


class Level(IntEnum):
    LOW = 1


class Tuple(NamedTuple):
    id: int


class Rooted(RootModel[list[WithId]]): ...


def app_that_answers(model: Any, **options: Any) -> FastAPI:
    app = FastAPI()

    @app.get("/it", response_model=model, **options)
    def show() -> Any: ...

    return app


def app_that_takes(**parameters: Any) -> FastAPI:
    """Return an application with one route, whose path has ``{buyer_id}``, with these parameters."""
    app = FastAPI()

    def take(**given: Any) -> None: ...

    take.__signature__ = Signature(
        [Parameter(name, Parameter.KEYWORD_ONLY, annotation=type_) for name, type_ in parameters.items()]
    )
    app.post("/it/{buyer_id}", status_code=204, response_model=None)(take)
    return app


def buyer_of(buyer_id: int) -> None: ...


def leaks(app: FastAPI) -> list[tuple[str, str, str | None]]:
    return [(one.where, one.field, one.column) for one in lint_app(app, bases=[Base]) if one.is_leak]


def notes(app: FastAPI) -> list[tuple[str, str]]:
    return [(one.where, one.field) for one in lint_app(app, bases=[Base]) if not one.is_leak]


@pytest.mark.parametrize(
    ("model", "field", "column"),
    [
        (WithId, "id", "buyer.id"),
        (WithReference, "buyer_id", "purchase.buyer_id"),
        (dict[str, WithId], "[].id", "buyer.id"),
        (tuple[WithId, ...], "[].id", "buyer.id"),
        (dict[Annotated[str, Field(pattern="^a")], WithId], "[].id", "buyer.id"),
        (model_of(purchase_key=int), "purchase_key", "stamp.purchase_key"),
        (WithId | None, "id", "buyer.id"),
        (Page[model_of(purchase=WithId)], "items[].purchase.id", "buyer.id"),
        (Rooted, "[].id", "buyer.id"),
        (model_of(buyerId=int), "buyerId", "purchase.buyer_id"),
        (Computed, "id", "buyer.id"),
        (model_of(buyer_ids=list[int]), "buyer_ids[]", "purchase.buyer_id"),
        (Tree, "id", "buyer.id"),
        (model_of(buyer=int), "buyer", "purchase.buyer_id"),
        (model_of(buyer_id=float | None), "buyer_id", "purchase.buyer_id"),
        (model_of(id=Annotated[str, PlainSerializer(int, return_type=int)]), "id", "buyer.id"),
        (model_of(buyer_id=Literal["a", 2]), "buyer_id", "purchase.buyer_id"),
        (model_of(buyer_id=Level | None), "buyer_id", "purchase.buyer_id"),
        (type("PurchaseRow", (WithId,), {}), "id", "purchase.id"),  # among keys of the same name, the one of the model
    ],
    ids=str,
)
def test_response_that_leaks(model: Any, field: str, column: str) -> None:
    """An integer key is found in any kind of response model, at any depth, and in the return type of a serializer."""
    assert [("response 200", field, column)] == leaks(app_that_answers(model))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"buyer_id": int}, ("path", "buyer_id")),
        ({"buyer_id": str, "purchase_id": int}, ("query", "purchase_id")),
        ({"buyer_id": str, "purchase_id": Annotated[int, Header()]}, ("header", "purchase-id")),
        ({"buyer_id": str, "body": WithReference}, ("body", "buyer_id")),
        ({"buyer_id": str, "purchase_id": Annotated[int, Body(embed=True)]}, ("body", "purchase_id")),
        ({"it": Annotated[None, Depends(buyer_of)]}, ("path", "buyer_id")),
    ],
    ids=["path", "query", "header", "body", "embedded", "dependency"],
)
def test_parameter_that_is_a_key(parameters: dict[str, Any], expected: tuple[str, str]) -> None:
    """An integer key is found in the path, query, headers or body of a route or its dependency."""
    assert [expected] == [found[:2] for found in leaks(app_that_takes(**parameters))]


class Harmless(BaseModel):
    """Has no field that would show a key."""

    public_id: PurchaseId
    buyer_public_id: BuyerId
    total: Decimal
    count: int
    position: int
    is_paid: bool
    level: Level
    id: str
    purchase_id: Annotated[int, Field(exclude=True)]
    buyer_id: Annotated[int, PlainSerializer(str)]


class PurchaseOut(PublicModel, model=Purchase):
    public_id: PurchaseId
    total: Decimal


@pytest.mark.parametrize(
    "model",
    [
        Harmless,
        Page[PurchaseOut],
        bool,
        None,
        list[BuyerId],
        model_of(buyer_id=Literal["a", True, None], scores=list[int], prices=dict[str, str], both=tuple[str, bool]),
    ],
    ids=str,
)
def test_response_that_leaks_nothing(model: Any) -> None:
    """Public ids, other integers, and excluded fields are not reported."""
    assert lint_app(app_that_answers(model, status_code=200 if model else 204), bases=[Base]) == []


def test_other_responses() -> None:
    """The models of additional responses of a route are checked."""
    app = app_that_answers(PurchaseOut, responses={409: {"model": WithId}, 404: {"description": "none"}})

    assert leaks(app) == [("response 409", "id", "buyer.id")]


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (None, ""),
        (dict, "[]"),
        (list, "[]"),
        (model_of(contents=dict[str, Any]), "contents[]"),
        (Loose, "[]"),
        (int, ""),
        (list[int], "[]"),
        (dict[str, int], "[]"),
        (model_of(pair=tuple[int, str]), "pair[]"),
        (Tuple, "[]"),
        (model_of(facts=dict[str, list[int | None]] | None), "facts[][]"),
        (dict[str, JsonValue], "[]"),
        (model_of(it=SerializeAsAny[BaseModel]), "it[]"),
        (Page, "items[]"),
    ],
    ids=str,
)
def test_response_that_cannot_be_checked(model: Any, field: str) -> None:
    """A response with undeclared contents or unnamed numbers gets a note, and is not a leak."""
    app = app_that_answers(model)

    assert [("response 200", field)] == notes(app)
    assert leaks(app) == []


class AsText(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)
    id: str


@pytest.mark.parametrize(
    "model",
    [
        AsText,
        dict[int, PurchaseOut],
        model_of(id=Decimal),
        model_of(id=Annotated[str, BeforeValidator(str)]),
        model_of(it=SerializeAsAny[PurchaseOut]),
    ],
    ids=str,
)
def test_what_openapi_does_not_tell(model: Any) -> None:
    """Keys that become text, that are keys of a dictionary, or that a subclass adds are not found."""
    assert lint_app(app_that_answers(model), bases=[Base]) == []


@pytest.mark.parametrize("type_", [Response, FileResponse], ids=str)
def test_response_made_by_hand(type_: Any) -> None:
    """A route that returns a ``Response`` cannot be checked, unless its ``response_class`` is not JSON."""
    app = FastAPI()
    app.get("/it")(returning(type_))
    app.get("/page", response_class=HTMLResponse)(lambda: None)
    app.get("/file", response_class=FileResponse)(lambda: None)

    assert [str(one) for one in lint_app(app, bases=[Base])] == [
        "GET /it: response 200 as a whole cannot be checked; declare a response model, or response_class="
    ]


def returning(type_: Any) -> Any:
    """Return an endpoint with this return annotation."""

    def show() -> Any: ...

    show.__annotations__["return"] = type_
    return show


@pytest.mark.parametrize("allow", [["GET /it"], ["/it", "POST /it"]], ids=str)
def test_routes_that_are_allowed(allow: list[str]) -> None:
    """``allow`` skips a route, by its path alone or with the method."""
    app = app_that_answers(None)
    app.post("/it", response_model=PurchaseOut)(lambda: None)

    assert notes(app) == [("response 200", "")]
    assert lint_app(app, bases=[Base], allow=allow) == []


def test_allowed_route_that_is_not_there() -> None:
    """A route in ``allow`` that does not exist raises an error, so that the list cannot become outdated."""
    with pytest.raises(
        ConfigurationError, match="allow contains '/gone', 'PUT /it', but the application has no such route"
    ):
        lint_app(app_that_answers(None), bases=[Base], allow=["/it", "PUT /it", "/gone"])


class Taken(BaseModel):
    id: int = Field(0, exclude=True)


class Keyed(PublicIdSQLModel, table=True):
    name: str


@pytest.mark.parametrize("body", [Taken, Keyed])
def test_body_with_a_key_that_is_not_shown(body: Any) -> None:
    """A field that is excluded from responses is still checked in a request body."""
    assert [found[:2] for found in leaks(app_that_takes(body=body))] == [("body", "id")]
    assert leaks(app_that_answers(body)) == []
    assert leaks(app_that_takes(body=Computed)) == []  # a computed field is returned, and not accepted


def test_included_routers_and_mounted_applications() -> None:
    """Routes in routers, nested routers and mounted applications are found, with their full path."""
    inner, outer, app, mounted, deep = (APIRouter(prefix="/in"), APIRouter(prefix="/out"), *(FastAPI() for _ in "123"))
    for routes in (inner, outer, app, mounted, deep):
        routes.get("/it", response_model=WithId)(lambda: None)
    outer.include_router(inner)
    app.include_router(outer, prefix="/v1")
    app.mount("/mounted", mounted)
    mounted.mount("/deep", deep)

    assert {"/it", "/v1/out/it", "/v1/out/in/it", "/mounted/it", "/mounted/deep/it"} == {
        finding.route for finding in lint_app(app, bases=[Base])
    }


def test_what_no_document_has() -> None:
    """Routes of other frameworks, WebSockets, and routes that are not in the document are not checked."""
    app = FastAPI()
    app.mount("/other", Starlette(routes=[Route("/it", lambda request: PlainTextResponse("1"))]))
    app.get("/hidden", include_in_schema=False, response_model=WithId)(lambda: None)

    @app.websocket("/socket/{buyer_id}")
    async def socket(websocket: WebSocket, buyer_id: int) -> None: ...

    assert lint_app(app, bases=[Base]) == []
    assert lint_app(app_that_takes(buyer_id=BuyerId), bases=[Base]) == []  # with FastAPI's own 422


class Sent(BaseModel):
    buyer_id: int
    rest: dict[str, Any]


class Received(BaseModel):
    purchase_id: int


# FastAPI reads only their signatures
def hook(body: Sent) -> Received: ...


def quiet(body: Received): ...


def test_webhooks() -> None:
    """The body of a webhook is checked as output, and the response to it as input."""
    app, mounted = FastAPI(), FastAPI()
    app.webhooks.post("new-purchase")(hook)
    mounted.webhooks.post("other")(quiet)
    app.mount("/mounted", mounted)

    found = lint_app(app, bases=[Base])

    assert [(one.method, one.route, one.where, one.field, one.column) for one in found] == [
        ("POST", "new-purchase", "webhook body", "buyer_id", "purchase.buyer_id"),
        ("POST", "new-purchase", "webhook body", "rest[]", None),
        ("POST", "new-purchase", "webhook response 200", "purchase_id", "purchase.id"),
        ("POST", "/mounted other", "webhook body", "purchase_id", "purchase.id"),
    ]
    assert found[0].advice.startswith("show buyer_public_id")
    assert found[2].advice == "take the public id"


def test_callbacks() -> None:
    """The callbacks of a route are checked like webhooks, and named after the route."""
    callbacks, app = APIRouter(), FastAPI()
    callbacks.post("{$callback_url}/done")(quiet)
    app.post("/purchases", status_code=204, callbacks=callbacks.routes)(lambda: None)

    assert [str(one) for one in lint_app(app, bases=[Base])] == [
        "POST /purchases {$callback_url}/done: callback body purchase_id is purchase.id; show public_id"
    ]


def test_fields_of_a_public_model() -> None:
    """A ``PublicModel`` is checked by what its fields read in a response, and by their names in a request body."""

    class SeatOut(PublicModel, model=Seat):
        buyer_id: int = Field(validation_alias=AliasChoices("buyer_id", "rows"))

    document = app_that_answers(SeatOut).openapi()

    assert lint_app(app_that_answers(Page[SeatOut]), bases=[Base]) == []
    assert [found[:2] for found in leaks(app_that_takes(body=SeatOut))] == [("body", "buyer_id")]
    assert "checked" not in str(document)


def test_document_of_the_application() -> None:
    """The routes are checked as they are, even if the application's document was replaced, or generated before."""
    app = app_that_answers(PurchaseOut)
    app.openapi()
    app.api_route("/later", methods=["POST", "PUT"], response_model=WithId)(lambda: None)
    app.openapi = lambda: {"paths": {}}

    assert [(one.method, one.route) for one in lint_app(app, bases=[Base])] == [("POST", "/later"), ("PUT", "/later")]


def test_finding() -> None:
    """A finding reads as a sentence, and says what to write instead."""
    app = app_that_answers(WithReference)

    (finding,) = lint_app(app, bases=[Base])

    advice = 'show buyer_public_id, which is public_ref("buyer") on Purchase'
    assert finding == Finding("GET", "/it", "response 200", "buyer_id", "purchase.buyer_id", advice)
    assert str(finding) == f"GET /it: response 200 buyer_id is purchase.buyer_id; {advice}"


@pytest.mark.parametrize(
    ("base", "column"),
    [(Base, "purchase.buyer_id"), (Base.registry, "purchase.buyer_id"), (Buyer, "purchase.buyer_id"), (Robot, None)],
)
def test_bases(base: Any, column: str | None) -> None:
    """A base, its registry, or any of its classes selects all classes of the registry, with SQLModel, too."""
    app = app_that_answers(model_of(buyer_id=int, serial=int))

    assert [each.column for each in lint_app(app, bases=[base])] == [column or "robot.serial"]


def test_all_bases() -> None:
    """Without ``bases``, all declarative classes are used; with an empty list, none are."""
    assert lint_app(app_that_answers(WithReference))
    assert not lint_app(app_that_answers(WithReference), bases=[])


def test_disposed_registry() -> None:
    """A disposed registry has no keys, even if one of its objects is alive."""

    class Former(DeclarativeBase): ...

    class Old(PublicIdMixin, Former):
        __tablename__ = "old"
        former_number: Mapped[int] = mapped_column(ForeignKey("old.id"))

    alive = Old()
    Former.registry.dispose()

    assert [one.column for one in lint_app(app_that_answers(model_of(former_number=int)))] == []
    assert alive is not None


@pytest.mark.slow
@pytest.mark.parametrize("base", ["declarative_base()", "registry().generate_base()"])
def test_bases_that_are_not_found(base: str) -> None:
    """``lint_app()`` raises an error if there is no mapped class, because it could not find a key."""
    program = PROGRAM.format(base=base)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "['user.id']"
    assert "ConfigurationError: lint_app() found no mapped classes; name their base: lint_app(app, bases=[Base])" in (
        done.stderr
    )


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (type("Empty", (DeclarativeBase,), {}), r"bases has .+, which has no mapped classes; import the modules"),
        (registry(), r"bases has .+, which has no mapped classes; import the modules"),
        (int, "bases has <class 'int'>, expected a declarative base"),
    ],
)
def test_what_is_no_base(base: Any, message: str) -> None:
    """A base without mapped classes, because their modules are not imported, and other values are rejected."""
    with pytest.raises(ConfigurationError, match=message):
        lint_app(FastAPI(), bases=[Base, base])


# --- names


class Out(BaseModel):
    id: int


def app_with_row(path: str, answers: Any) -> FastAPI:
    """Return an application whose endpoint at *path* gets a purchase, and returns *answers*."""

    def show(purchase: Any) -> Any: ...

    row = Annotated[Any, Depends(by_public_id(Purchase, session=lambda: None))]
    show.__annotations__ = {"purchase": row, "return": answers}  # postponed annotations are names that FastAPI misses
    app = FastAPI()
    app.get(path)(show)
    return app


def test_key_of_the_class_that_the_endpoint_names() -> None:
    """An ``id`` under a neutral name is that of the class whose row the endpoint gets."""
    app = app_with_row("/purchases/{purchase_id}", Out)

    assert [finding.column for finding in lint_app(app, bases=[Base])] == ["purchase.id"]
