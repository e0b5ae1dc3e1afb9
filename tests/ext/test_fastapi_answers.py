"""``install(app)``: error responses, the location in the request that they name, and the OpenAPI document."""
# annotations are not postponed: FastAPI evaluates those of routes, which use names that are local to a function

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, WebSocket, WebSocketException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from packaging.version import Version
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from sqlalchemy import Engine, ForeignKey, MetaData, create_engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.pool import StaticPool
from support.web_requests import asked
from typing_extensions import TypedDict

from sqlalchemy_public_id import (
    ConfigurationError,
    IdempotencyConflict,
    InvalidCursor,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    PublicIdNotFound,
    TypedId,
    lookup,
    public_ref,
)
from sqlalchemy_public_id.ext.fastapi import by_public_id, install
from sqlalchemy_public_id.ext.pydantic import PublicId
from sqlalchemy_public_id.formats import Snowflake, Uuid7

STARLETTE = Version(version("starlette"))
UNKNOWN = "nbprod_000000000000"
STORED = "nbprod_000000stored"
MALFORMED = "nbprod_x"


class Base(DeclarativeBase):
    metadata = MetaData()


class ProductId(TypedId, prefix="nbprod"): ...


class ClientId(TypedId, prefix="nbcli"): ...


class Product(PublicIdMixin[ProductId], Base):
    __tablename__ = "product"


class Invoice(PublicIdMixin, Base):
    __tablename__ = "invoice"
    lines: Mapped[list["Line"]] = relationship(back_populates="invoice")


class Line(PublicIdMixin, Base):
    __tablename__ = "line"
    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id))
    invoice: Mapped[Invoice] = relationship(back_populates="lines")
    product_id: Mapped[int] = mapped_column(ForeignKey(Product.id))
    product: Mapped[Product] = relationship()
    product_public_id: Mapped[ProductId] = public_ref("product")


class LineIn(BaseModel):
    product_public_id: ProductId


class InvoiceIn(BaseModel):
    lines: list[LineIn]


def typed(product_id: ProductId) -> None: ...


def untyped(product_id: int) -> None: ...


def raising(error: Exception, **options: Any) -> FastAPI:
    app = FastAPI()
    install(app, **options)

    @app.get("/it")
    @app.post("/it")
    def it() -> None:
        raise error

    return app


# --- errors

NOT_AN_ID = "not a public id: it is of type int (expected 12 of 0-9)"
NO_CURSOR = "not a cursor: no Client has this public id; begin with the first page"
TITLES = {404: "Not Found", 409: "Conflict", 422: "Unprocessable Content"}


def wrong(kind: str, place: list[str], message: str) -> dict[str, Any]:
    return {"errors": [{"type": kind, "loc": place, "msg": message}]}


@pytest.mark.parametrize(
    ("error", "status", "detail", "more"),
    [
        (PublicIdNotFound(4711, model="Client"), 404, "no such Client", {}),
        (
            PublicIdNotFound(4711, model="Client", field="Parcel.client_public_id"),
            422,
            "no such Client",
            wrong("public_id_unknown", ["body", "client_public_id"], "no such Client"),
        ),
        (
            InvalidCursor(4711, model="Client", field="after"),
            422,
            NO_CURSOR,
            wrong("cursor_invalid", ["query", "after"], NO_CURSOR),
        ),
        (
            InvalidPublicId(4711, expected="12 of 0-9", reason="it is of type int", field="client"),
            422,
            NOT_AN_ID,
            wrong("public_id_invalid", ["body", "client"], NOT_AN_ID),
        ),
        (
            IdempotencyConflict("4711", model="Client", differing=("name", "age")),
            409,
            "the Client with this public id exists, with other contents",
            {"differing": ["name", "age"]},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_as_answers(error: Exception, status: int, detail: str, more: dict[str, Any]) -> None:
    """Errors have FastAPI's format, or are RFC 9457 problem details; neither contains the rejected value."""
    (plain,) = asked(raising(error), "/it", method="POST")
    (problem,) = asked(raising(error, problem_details=True), "/it", method="POST")
    errors = more.get("errors")

    assert plain.headers["content-type"] == "application/json"
    assert problem.headers["content-type"] == "application/problem+json"
    assert (plain.status_code, problem.status_code) == (status, status)
    assert plain.json() == {"detail": errors or detail, **({} if errors else more)}
    expected = {"type": "about:blank", "title": TITLES[status], "status": status, "detail": detail}
    assert problem.json() == {**expected, **more}
    assert "4711" not in plain.text + problem.text


SECRET = "s3cr3tT0kenBody"
PREFIXED = NanoId(prefix="fapi")


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        *((each.validate, each.expected) for each in (NanoId(), PREFIXED, Uuid7(prefix="fape"), Snowflake(1))),
        (NanoId(prefix="fapc").accepting(NanoId(prefix="fapd", length=8)).validate, ""),
        (ProductId, ProductId.id_format.expected),
        (ProductId.parse, ""),
    ],
)
@pytest.mark.parametrize("template", ["{0}", "sess_{0}_x", "{0}_x", "'{0}'_x", "{0}\n_x"])
def test_value_is_not_repeated(check: Callable[[str], object], expected: str, template: str) -> None:
    """The response contains no part of the rejected text, which may be a secret such as a token."""
    text = template.format(SECRET)
    with pytest.raises(InvalidPublicId) as caught:
        check(text)
    (response,) = asked(raising(caught.value, problem_details=True), "/it", method="POST", json=text)

    assert response.status_code == 422
    assert SECRET not in response.text
    assert response.json()["detail"].startswith("not a public id: ")
    assert f"(expected {expected}" in response.json()["detail"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{SECRET}_x", "it has another prefix (expected fapi_ and 12 of 0-9 a-z)"),
        ("x", "it does not begin with 'fapi_'"),
        ("fapi_x", "it has 6 characters"),
    ],
)
def test_what_is_wrong_is_told(text: str, reason: str) -> None:
    """The response states why the id is invalid."""
    with pytest.raises(InvalidPublicId) as caught:
        PREFIXED.validate(text)
    (response,) = asked(raising(caught.value, problem_details=True), "/it", method="POST", json=text)

    assert response.json()["detail"].startswith(f"not a public id: {reason}")


def test_other_errors_are_left_alone() -> None:
    """Other errors are not turned into responses, because they may contain SQL and keys."""
    with pytest.raises(IntegrityError):
        asked(raising(IntegrityError("INSERT", {"id": 4711}, Exception())), "/it")


def test_errors_of_fastapi_stay() -> None:
    """``problem_details=True`` does not change FastAPI's own 422 and ``HTTPException`` responses."""
    app = raising(HTTPException(403, "not yours", {"X-Why": "because"}), problem_details=True)
    app.get("/int/{product_id}")(untyped)

    invalid, forbidden = asked(app, "/int/x", "/it")

    assert invalid.json()["detail"][0]["loc"] == ["path", "product_id"]
    assert (forbidden.status_code, forbidden.json()) == (403, {"detail": "not yours"})
    assert forbidden.headers["x-why"] == "because"


def test_handlers_of_the_application_stay() -> None:
    """The application's own handler for invalid requests stays in place."""
    app = FastAPI()

    @app.exception_handler(RequestValidationError)
    async def own(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"mine": True}, 418)

    install(app, problem_details=True)
    app.get("/int/{product_id}")(untyped)

    assert asked(app, "/int/x")[0].json() == {"mine": True}


@pytest.mark.parametrize("body", ['{"client": "\\ud800"}', '{"client": NaN}'])
def test_input_that_json_cannot_hold(body: str) -> None:
    """A malformed id in a body is a 422, even if FastAPI cannot serialize the input into the response."""
    app = FastAPI()
    install(app)

    class Wanted(BaseModel):
        client: Annotated[str, PublicId(NanoId())]

    def it(wanted: Wanted) -> None: ...

    it.__annotations__["wanted"] = Wanted  # FastAPI could not resolve the name, which is local to this function
    app.post("/it")(it)
    (response,) = asked(app, "/it", method="POST", content=body, headers={"content-type": "application/json"})

    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["body", "client"]


# --- the location in the request


@pytest.fixture
def app(engine: Engine, create: Callable[[MetaData], None]) -> FastAPI:
    """Return an application that accepts invoices, and has two routes that use an id from its own settings."""
    create(Base.metadata)
    app = FastAPI()
    install(app)

    @app.post("/invoices")
    def add_invoice(new: InvoiceIn) -> None:
        with Session(engine) as session:
            session.add(Invoice(lines=[Line(**line.model_dump()) for line in new.lines]))
            session.commit()

    # not in the document: FastAPI gives the operations of several methods one id, and warns of it
    @app.api_route("/assigns", methods=["GET", "DELETE", "POST", "PUT", "PATCH"], include_in_schema=False)
    def assign_configured_id() -> None:
        with Session(engine) as session:
            session.add(Invoice(lines=[Line(product_public_id=UNKNOWN)]))
            session.commit()

    @app.get("/looks-up")
    def look_up_configured_id() -> None:
        with Session(engine) as session:
            lookup.get_one(session, Product, UNKNOWN)

    @app.get("/products/{product_id}")
    def show(it: Annotated[Product, Depends(by_public_id(Product, session=lambda: Session(engine)))]) -> None: ...

    return app


@pytest.mark.parametrize(
    ("wrong", "place"),
    [(MALFORMED, ["body", "lines", 1, "product_public_id"]), (UNKNOWN, ["body", "product_public_id"])],
)
def test_place_in_a_nested_body(engine: Engine, app: FastAPI, wrong: str, place: list[Any]) -> None:
    """FastAPI's own response to a malformed id has the whole place; that to an unknown id names the field."""
    with Session(engine) as session:
        session.add(product := Product())
        session.commit()
        right = product.public_id

    body = {"lines": [{"product_public_id": right}, {"product_public_id": wrong}]}
    (response,) = asked(app, "/invoices", method="POST", json=body)

    assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, place)


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST", "PUT", "PATCH"])
def test_place_by_method(app: FastAPI, method: str) -> None:
    """An unknown id is said to be in the body of a request with one, and in the query of any other."""
    (response,) = asked(app, "/assigns", method=method)

    place = "query" if method in {"GET", "DELETE"} else "body"
    assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, [place, "product_public_id"])


def test_wrong_ids_of_the_application(app: FastAPI) -> None:
    """A wrong id of the application's own is answered like a client's, because nothing tells where it came from."""
    assigned, looked_up = asked(app, "/assigns", "/looks-up")

    assert (assigned.status_code, assigned.json()["detail"][0]["loc"]) == (422, ["query", "product_public_id"])
    assert (looked_up.status_code, looked_up.json()) == (404, {"detail": "no such Product"})


def test_missing_row_as_a_problem(app: FastAPI) -> None:
    """With ``problem_details=True``, ``by_public_id()`` also responds with problem details."""
    install(app, problem_details=True)

    (response,) = asked(app, f"/products/{UNKNOWN}")

    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no such Product"}


class Named(BaseModel):
    sold: ProductId


class Aliased(BaseModel):
    sold: ProductId = Field(alias="soldProduct")


class Camels(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    sold_product: ProductId


class Chosen(BaseModel):
    sold: ProductId = Field(validation_alias=AliasChoices("product", "sold"))


class Nested(BaseModel):
    parts: dict[str, list[Aliased | None]]


class TwoAliases(Aliased):
    part: Chosen


class Single(BaseModel):
    sold: Annotated[str, PublicId(Product)]


class Several(BaseModel):
    wanted: list[ProductId] | ClientId


class Either(BaseModel):
    subject: ClientId | ProductId | None


class AnyKind(BaseModel):
    subject: TypedId


class PlainText(BaseModel):
    sold: str


class PlainFormat(BaseModel):
    sold: Annotated[str, PublicId(ProductId.id_format)]


@dataclass
class OfData:
    sold: ProductId


class OfTypes(TypedDict):
    sold: ProductId


@pytest.mark.parametrize(
    ("body", "sent", "name"),
    [
        (Named, {"sold": UNKNOWN}, "sold"),
        (Aliased, {"soldProduct": UNKNOWN}, "soldProduct"),
        (Camels, {"soldProduct": UNKNOWN}, "soldProduct"),
        (Chosen, {"sold": UNKNOWN}, "product"),
        (Nested, {"parts": {"left": [None, {"soldProduct": UNKNOWN}]}}, "soldProduct"),
        (TwoAliases, {"soldProduct": UNKNOWN, "part": {"product": UNKNOWN}}, "sold"),
        (Single, {"sold": UNKNOWN}, "sold"),
        (Several, {"wanted": [UNKNOWN]}, "wanted"),
        (Either, {"subject": UNKNOWN}, "subject"),
        (AnyKind, {"subject": UNKNOWN}, "subject"),
        (OfData, {"sold": UNKNOWN}, "sold"),
        (OfTypes, {"sold": UNKNOWN}, "sold"),
        (list[Named], [{"sold": UNKNOWN}], "sold"),
        (list[ProductId], [UNKNOWN], "product_public_id"),
        (PlainText, {"sold": UNKNOWN}, "product_public_id"),
        (PlainFormat, {"sold": UNKNOWN}, "product_public_id"),
    ],
    ids=str,
)
def test_field_that_has_parsed_an_id(engine: Engine, app: FastAPI, body: Any, sent: Any, name: str) -> None:
    """The response names the field that has parsed a typed id, as clients send it; else the attribute of the model."""

    def sell(new: body) -> None:
        with Session(engine) as session:
            session.add(Line(invoice=Invoice(), product_public_id=first_text(new)))
            session.commit()

    app.post("/sales")(sell)
    (response,) = asked(app, "/sales", method="POST", json=sent)

    assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, ["body", name])
    assert response.json()["detail"][0]["type"] == "public_id_unknown"
    assert UNKNOWN not in response.text


def first_text(value: Any) -> str:
    """Return the first string in a body, which may be a model."""
    if isinstance(value, str):
        return value
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else vars(value).values()
    return next(first_text(member) for member in members if member is not None)


@pytest.mark.parametrize("path", ["/orders", f"/orders?product_public_id={UNKNOWN}"])
def test_request_is_not_read_for_an_answer(path: str) -> None:
    """An unknown id is answered without the body of the request, and without a look at it."""
    app = FastAPI()
    install(app)

    @app.post("/orders")
    async def order(request: Request) -> None:
        raise PublicIdNotFound(ProductId(UNKNOWN), model="Product", field="Line.product_public_id")

    async def receive() -> Any:
        raise AssertionError("the body was read")

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    query = path.partition("?")[2].encode()
    scope = {"type": "http", "method": "POST", "path": "/orders", "query_string": query, "headers": []}
    asyncio.run(app(scope, receive, send))

    assert sent[0]["status"] == 422
    assert json.loads(sent[1]["body"])["detail"][0]["loc"] == ["body", "product_public_id"]


def test_nested_list_in_place_of_an_id(app: FastAPI) -> None:
    """A list of any depth in place of an id is a 422, or a 400 if it cannot be read, although FastAPI echoes it."""

    def answer(depth: int) -> int:
        content = f'{{"lines": [{{"product_public_id": {"[" * depth + "]" * depth}}}]}}'
        headers = {"content-type": "application/json"}
        (response,) = asked(app, "/invoices", method="POST", content=content, headers=headers)
        return response.status_code

    most = sys.getrecursionlimit()
    statuses = {answer(depth) for depth in [100, *range(most - 150, most)]}

    assert 422 in statuses
    assert statuses <= {400, 422}


def test_place_in_a_union(app: FastAPI) -> None:
    """The places of an id that no type of a union accepts have the names of the types."""

    def it(new: Either) -> None: ...

    app.post("/it")(it)
    (response,) = asked(app, "/it", method="POST", json={"subject": "x"})
    places = [detail["loc"] for detail in response.json()["detail"]]

    assert places == [["body", "subject", f"function-plain[{name}()]"] for name in ("ClientId", "ProductId")]


@pytest.mark.skipif(Version("0.37") > STARLETTE, reason="before 0.37 it denies a web socket without a response")
def test_web_socket() -> None:
    """A WebSocket is denied with a place in its query string, because it has no body."""
    app = FastAPI()
    install(app)

    @app.websocket("/orders")
    async def orders(socket: WebSocket) -> None:
        raise PublicIdNotFound(UNKNOWN, model="Product", field="Line.product_public_id")

    socket = {"type": "websocket", "path": "/orders", "query_string": b"", "headers": [], "subprotocols": []}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app({**socket, "extensions": {"websocket.http.response": {}}}, receive, send))

    assert json.loads(sent[-1]["body"])["detail"][0]["loc"] == ["query", "product_public_id"]


@pytest.mark.skipif(Version("0.37") > STARLETTE, reason="before 0.37 it denies a web socket without a response")
@pytest.mark.parametrize(("path_id", "sent"), [(STORED, ["accept", "close 1008"]), (UNKNOWN, ["404"]), ("1", ["404"])])
def test_row_of_a_web_socket(path_id: str, sent: list[str]) -> None:
    """An unknown id in the path is denied before the web socket is accepted; afterwards, the endpoint closes it."""
    app = FastAPI()
    install(app)
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Product(public_id=ProductId(STORED)))
        session.commit()

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    @app.websocket("/products/{product_id}")
    async def feed(
        socket: WebSocket,
        product: Annotated[Product, Depends(by_public_id(Product, session=get_session))],
        session: Annotated[Session, Depends(get_session)],
    ) -> None:
        await socket.accept()
        if lookup.get(session, Product, await socket.receive_text()) is None:
            raise WebSocketException(1008, "no such product")

    received = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": UNKNOWN}]
    answers: list[str] = []

    async def receive() -> Any:
        return received.pop(0)

    async def send(message: Any) -> None:
        kind = message["type"].rpartition(".")[2]
        if kind in {"accept", "close", "start"}:
            answers.append(" ".join(map(str, filter(None, (kind, message.get("code"), message.get("status"))))))

    socket = {"type": "websocket", "query_string": b"", "headers": [], "subprotocols": []}
    socket["extensions"] = {"websocket.http.response": {}}
    asyncio.run(app({**socket, "path": f"/products/{path_id}"}, receive, send))

    assert [answer.removeprefix("start ") for answer in answers] == sent


def test_number_inside_sqlalchemy() -> None:
    """A number that a column rejects is a 422, without a name if neither a field nor an attribute is known."""
    app = FastAPI()
    install(app)

    @app.get("/it")
    def it(client: int = 1) -> None:
        with Session(create_engine("sqlite://")) as session:
            session.query(Product).filter(Product.public_id == client).all()

    (response,) = asked(app, "/it?client=1")

    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["query"]


def test_null(app: FastAPI) -> None:
    """A null for a reference that is not nullable names the attribute, and not the key column."""

    class LinePatch(BaseModel):
        product: ProductId | None

    @app.patch("/lines")
    def change_line(new: LinePatch) -> None:
        Line().product_public_id = new.product

    (response,) = asked(app, "/lines", method="PATCH", json={"product": None})
    [detail] = response.json()["detail"]

    assert (response.status_code, detail["loc"]) == (422, ["body", "product_public_id"])
    assert detail["msg"].startswith("not a public id: it is never null")
    assert "product_id" not in response.text


# --- the OpenAPI document


def test_document(app: FastAPI) -> None:
    """The document has the pattern, lengths and an example of the parameter, and the 404 response."""
    operation = app.openapi()["paths"]["/products/{product_id}"]["get"]
    (parameter,) = operation["parameters"]
    schema = parameter["schema"]

    assert (parameter["name"], parameter["in"], parameter["required"]) == ("product_id", "path", True)
    assert parameter["description"] == "The public id of the Product."
    assert (schema["pattern"], schema["minLength"], schema["maxLength"]) == ("^nbprod_[0-9a-z]{12}$", 19, 19)
    assert ProductId(schema["examples"][0])
    assert list(operation["responses"]["404"]["content"]) == ["application/json"]
    assert app.openapi() == app.openapi()


class Note(BaseModel):
    text: str
    after: "Note | None" = None


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", "/notes", Note, False),
        ("POST", "/notes", LineIn, True),
        ("POST", "/notes", InvoiceIn, True),
        ("POST", "/notes/{product_id}", Note, False),
        ("PUT", "/notes/{product_id}", Note, True),
        ("PATCH", "/notes/{product_id}", LineIn, False),
    ],
)
def test_operations_that_insert(method: str, path: str, body: type[BaseModel], expected: bool) -> None:
    """A 409 is documented where a client can send the id of a new row: in the body of a POST, or the path of a PUT."""
    app = FastAPI()
    install(app)

    def without_id(new: body) -> None: ...

    def with_id(product_id: ProductId, new: body) -> None: ...

    route: Any = with_id if "{" in path else without_id
    app.api_route(path, methods=[method])(route)
    responses = app.openapi()["paths"][path][method.lower()]["responses"]

    assert ("404" in responses, "409" in responses) == ("{" in path, expected)


def test_operations_without_public_ids() -> None:
    """An operation without public ids keeps the responses that FastAPI documents."""
    plain, installed = FastAPI(), FastAPI()
    install(installed)
    for app in (plain, installed):
        app.post("/numbers/{product_id}")(untyped)

    assert installed.openapi()["paths"] == plain.openapi()["paths"]


def test_answers_that_are_described_already() -> None:
    """Responses that a route documents itself are kept, as are extensions, and operations without responses."""
    app = FastAPI(responses={422: {"description": "mine", "content": {"text/plain": {}}}})
    original = app.openapi
    app.openapi = lambda: {
        **original(),
        "paths": {**original()["paths"], "/x": {"x-internal": {"get": 1}, "get": {}}},
    }
    app.get("/{product_id}", responses={404: {"description": "mine"}})(typed)
    install(app, problem_details=True)
    paths = app.openapi()["paths"]

    assert paths["/x"]["x-internal"] == {"get": 1}
    assert paths["/{product_id}"]["get"]["responses"]["404"] == {"description": "mine"}
    assert paths["/{product_id}"]["get"]["responses"]["422"]["description"] == "mine"


# --- paths without the parameter


def test_path_without_the_parameter() -> None:
    """A path without the parameter of ``by_public_id()`` is an error of the program, which says what to write."""
    app = FastAPI()
    install(app)

    @app.get("/products/{id}")
    def show(product: Annotated[Any, Depends(by_public_id(Product, session=lambda: None))]) -> None: ...

    message = r"path /products/\{id\} has no parameter product_id.*write \{product_id\} in the path, or .* param="
    with pytest.raises(ConfigurationError, match=message):
        asked(app, f"/products/{UNKNOWN}")


def test_web_socket_without_the_parameter() -> None:
    """So it is for a web socket; one that is malformed otherwise is closed as without this library."""
    app = FastAPI()
    install(app)

    @app.websocket("/products/{id}")
    async def show(
        websocket: WebSocket, product: Annotated[Any, Depends(by_public_id(Product, session=lambda: None))]
    ) -> None: ...

    @app.websocket("/pages")
    async def pages(websocket: WebSocket, limit: int) -> None: ...

    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    socket = {"type": "websocket", "query_string": b"", "headers": [], "subprotocols": []}
    asyncio.run(app({**socket, "path": "/pages"}, receive, send))
    assert (sent[0]["type"], sent[0]["code"]) == ("websocket.close", 1008)
    message = r"path /products/\{id\} has no parameter product_id.*write \{product_id\} in the path, or .* param="
    with pytest.raises(ConfigurationError, match=message):
        asyncio.run(app({**socket, "path": f"/products/{UNKNOWN}"}, receive, send))


@pytest.mark.parametrize("place", [(), ("path",), ("path", "id"), ("query", "id")])
def test_errors_of_the_application_about_a_path(place: tuple[str, ...]) -> None:
    """Other errors about a path, also those that an application raises itself, are answered with 422."""
    app = FastAPI()
    install(app)

    @app.get("/products/{id}")
    def show(id: str) -> None:
        raise RequestValidationError([{"type": "missing", "loc": place, "msg": "wrong"}])

    (answer,) = asked(app, "/products/1")
    assert answer.status_code == 422


def test_page_by_hand(engine: Engine) -> None:
    """A limit that the endpoint has not checked is a 422."""
    app = FastAPI()
    install(app)

    @app.get("/products")
    def products(limit: int) -> int:
        with Session(engine) as session:
            return len(lookup.page(session, Product, limit=limit))

    (answer,) = asked(app, "/products?limit=-1")
    expected = "expected a whole number from 1 to 2147483646"
    assert (answer.status_code, answer.json()) == (
        422,
        {"detail": [{"type": "page_invalid", "loc": ["query", "limit"], "msg": expected}]},
    )
