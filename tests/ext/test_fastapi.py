"""Rows for the paths of a FastAPI application, and errors as answers."""
# FastAPI reads the annotations of routes, which name what is local to a test: they must not be put off

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import Connection, Engine, ForeignKey, MetaData, String, true
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

from conftest import Statements
from sqlalchemy_public_id import (
    ConfigurationError,
    IdempotencyConflict,
    InvalidCursor,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    PublicIdNotFound,
    TypedId,
    bigint_key,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id.ext.fastapi import by_public_id, install
from sqlalchemy_public_id.ext.pydantic import PublicId, PublicModel


class Base(DeclarativeBase):
    metadata = MetaData()


class ClientId(TypedId, prefix="facli"): ...


class Client(PublicIdMixin[ClientId], Base):
    __tablename__ = "client"
    name: Mapped[str] = mapped_column(String(50))
    is_active: Mapped[bool] = mapped_column(default=True)
    parcels: Mapped[list["BigParcel"]] = relationship(order_by="BigParcel.id", back_populates="client")


class BigParcel(PublicIdMixin, Base):
    __tablename__ = "parcel"
    client_id: Mapped[int] = mapped_column(ForeignKey(Client.id))
    client: Mapped[Client] = relationship(back_populates="parcels")


class Coupon(Base):
    """Has two public ids."""

    __tablename__ = "coupon"
    id: Mapped[int] = bigint_key()
    code: Mapped[str] = public_id_column(NanoId(length=6, prefix="facode"))
    slug: Mapped[str] = public_id_column(NanoId(length=8))


class ClientOut(PublicModel, model=Client):
    public_id: ClientId
    name: str


class ParcelOut(PublicModel, model=BigParcel):
    public_id: Annotated[str, PublicId(BigParcel)]
    client: ClientOut


ADA, GRACE, UNKNOWN = (f"facli_{name:0>12}" for name in ("ada", "grace", "unknown"))
PARCELS = ["parcel000000", "parcel000001"]
MALFORMED = ["1", "0", "-1", "None", PARCELS[0], ADA.upper(), f"{ADA}%20", "%00", "%F0%9F%92%A9", "a" * 10_000, "'--"]


def fill(session: Session) -> None:
    ada = Client(public_id=ADA, name="Ada", parcels=[BigParcel(public_id=text) for text in PARCELS])
    session.add_all([ada, Client(public_id=GRACE, name="Grace"), Coupon(code="facode_abcdef", slug="12345678")])
    session.commit()


@pytest.fixture
def get_session(engine: Engine, create: Callable[[MetaData], None]) -> Callable[[], Iterator[Session]]:
    """The dependency of an application that gives a session, on a database with two clients."""
    create(Base.metadata)
    with Session(engine) as session:
        fill(session)

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    return get_session


def nowhere() -> Iterator[Session]:
    """The dependency of an application that has no database."""
    yield Session()


def asked(app: FastAPI, *paths: str, method: str = "GET", **request: Any) -> list[httpx.Response]:
    """What *app* answers at *paths*; errors that it does not handle are raised."""
    return asyncio.run(asking(app, *paths, method=method, **request))


async def asking(app: FastAPI, *paths: str, method: str = "GET", **request: Any) -> list[httpx.Response]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return [await client.request(method, path, **request) for path in paths]


def shop(get_session: Any, **options: Any) -> FastAPI:
    """An application that shows clients, by a dependency with these options."""
    app = FastAPI()

    @app.get("/clients/{client_id}")
    def show(client: Annotated[Client, Depends(by_public_id(Client, session=get_session, **options))]) -> ClientOut:
        return ClientOut.model_validate(client)

    return app


# --- the row


@pytest.mark.backend
def test_row(get_session: Any) -> None:
    """The row that the path names is given to the route."""
    (response,) = asked(shop(get_session), f"/clients/{ADA}")

    assert (response.status_code, response.json()) == (200, {"public_id": ADA, "name": "Ada"})


def test_no_row(get_session: Any, statements: Statements) -> None:
    """An unknown id and a malformed one are 404, with the same words; the malformed one is not sent to the database."""
    unknown, *malformed = asked(shop(get_session), f"/clients/{UNKNOWN}", *(f"/clients/{text}" for text in MALFORMED))

    assert (unknown.status_code, unknown.json()) == (404, {"detail": "no such Client"})
    assert {(response.status_code, response.text) for response in malformed} == {(404, unknown.text)}
    assert len([text for text in statements.starting("SELECT") if "client" in text]) == 1


def test_malformed_as_422(get_session: Any) -> None:
    """By option, a malformed id is 422 and says why; an unknown one stays 404."""
    unknown, malformed = asked(shop(get_session, malformed=422), f"/clients/{UNKNOWN}", "/clients/1")
    (error,) = malformed.json()["detail"]

    assert (unknown.status_code, malformed.status_code) == (404, 422)
    assert (error["type"], error["loc"]) == ("public_id", ["path", "client_id"])
    assert "expected facli_ and 12 of 0-9 a-z" in error["msg"]


def test_options(get_session: Any, statements: Statements) -> None:
    """Loader options are taken: what the route shows is loaded with the row."""
    app = FastAPI()
    found = by_public_id(Client, session=get_session, options=[selectinload(Client.parcels)])

    @app.get("/clients/{client_id}")
    def show(client: Annotated[Client, Depends(found)]) -> list[str]:
        sent = len(statements)
        ids = [parcel.public_id for parcel in client.parcels]
        assert len(statements) == sent
        return ids

    assert asked(app, f"/clients/{ADA}")[0].json() == PARCELS


def test_names(get_session: Any) -> None:
    """The parameter is called like the model, or as is said; the attribute is the one that is said."""
    app = FastAPI()

    @app.get("/parcels/{big_parcel_id}")
    def parcel(parcel: Annotated[BigParcel, Depends(by_public_id(BigParcel, session=get_session))]) -> str:
        return parcel.public_id

    @app.get("/coupons/{public_id}/{condition}")
    def coupon(
        one: Annotated[Coupon, Depends(by_public_id(Coupon, session=get_session, param="public_id", attribute="code"))],
        same: Annotated[
            Coupon, Depends(by_public_id(Coupon, session=get_session, param="condition", attribute="slug"))
        ],
    ) -> bool:
        return one is same

    assert asked(app, f"/parcels/{PARCELS[0]}")[0].json() == PARCELS[0]
    assert asked(app, "/coupons/facode_abcdef/12345678")[0].json() is True
    assert asked(app, "/coupons/12345678/facode_abcdef")[0].status_code == 404


def test_session_is_that_of_the_route(get_session: Any) -> None:
    """The row is in the session that the route gets from the same dependency."""
    app = FastAPI()

    @app.get("/clients/{client_id}")
    def show(
        client: Annotated[Client, Depends(by_public_id(Client, session=get_session))],
        session: Annotated[Session, Depends(get_session)],
    ) -> bool:
        return client in session

    assert asked(app, f"/clients/{ADA}")[0].json() is True


# --- scope


def current(x_client: Annotated[str | None, Header()] = None) -> str:
    """Who asks."""
    if x_client is None:
        raise HTTPException(401)
    return x_client


def own(name: Annotated[str, Depends(current)]) -> Any:
    return true() if name == "admin" else Client.name == name


def test_scope(get_session: Any) -> None:
    """A row outside of the scope is answered like one that does not exist; the scope may depend on who asks."""
    app = shop(get_session, scope=own)
    paths = [f"/clients/{text}" for text in (ADA, GRACE, UNKNOWN)]

    mine, other, unknown = asked(app, *paths, headers={"X-Client": "Ada"})

    assert (mine.status_code, other.status_code) == (200, 404)
    assert other.text == unknown.text
    assert [response.status_code for response in asked(app, *paths, headers={"X-Client": "admin"})] == [200, 200, 404]
    assert [response.status_code for response in asked(app, *paths)] == [401, 401, 401]


def test_scope_over_a_relationship(get_session: Any) -> None:
    """The scope is any condition on the row, of what it is related to as well."""
    app = FastAPI()

    def sent_by(name: Annotated[str, Depends(current)]) -> Any:
        return BigParcel.client.has(name=name)

    @app.get("/parcels/{big_parcel_id}")
    def parcel(it: Annotated[BigParcel, Depends(by_public_id(BigParcel, session=get_session, scope=sent_by))]) -> str:
        return it.public_id

    path = f"/parcels/{PARCELS[0]}"
    assert asked(app, path, headers={"X-Client": "Ada"})[0].status_code == 200
    assert asked(app, path, headers={"X-Client": "Grace"})[0].status_code == 404


def test_scope_that_is_an_attribute(get_session: Any) -> None:
    """An attribute that is true or false is a condition."""
    (active,) = asked(shop(get_session, scope=lambda: Client.is_active), f"/clients/{ADA}")
    (passive,) = asked(shop(get_session, scope=lambda: ~Client.is_active), f"/clients/{ADA}")

    assert (active.status_code, passive.status_code) == (200, 404)


@pytest.mark.parametrize("condition", [None, True, "x", 1, Client.parcels], ids=lambda scope: type(scope).__name__)
def test_scope_that_says_nothing(condition: object) -> None:
    """A scope that gives no condition shows nothing: it is an error, and no open door."""
    with pytest.raises(ConfigurationError, match=r"the scope of Client returned .+, expected a condition such as"):
        asked(shop(nowhere, scope=lambda: condition), f"/clients/{ADA}")


# --- what cannot work


def test_connection_instead_of_a_session(engine: Engine) -> None:
    """A connection is refused: it would answer with the key."""

    def get_connection() -> Iterator[Connection]:
        with engine.connect() as connection:
            yield connection

    with pytest.raises(TypeError, match="expected a Session, not Connection"):
        asked(shop(get_connection), f"/clients/{ADA}")


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (int, {}, "<class 'int'> is not a mapped class"),
        (Coupon, {}, "name one of code, slug with attribute=…"),
        (Client, {"malformed": 400}, "malformed is 400, expected 404 or 422"),
    ],
)
def test_declarations_that_cannot_work(model: Any, options: Any, message: str) -> None:
    """A mistake is found when the dependency is made."""
    with pytest.raises(ConfigurationError, match=message):
        by_public_id(model, session=nowhere, **options)


# --- asynchronous sessions


@pytest.mark.backend
def test_async_session(async_engine: AsyncEngine) -> None:
    """The same dependency waits for an ``AsyncSession``; responses with related objects are made by ``run_sync``."""

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(async_engine) as session:
            yield session

    async def story() -> tuple[list[httpx.Response], list[httpx.Response]]:
        try:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
                await connection.run_sync(Base.metadata.create_all)
            async with AsyncSession(async_engine) as session:
                await session.run_sync(fill)

            app = shop(get_session, scope=own)

            @app.get("/parcels/{big_parcel_id}")
            async def show(
                parcel: Annotated[BigParcel, Depends(by_public_id(BigParcel, session=get_session))],
                session: Annotated[AsyncSession, Depends(get_session)],
            ) -> list[ParcelOut]:
                return await session.run_sync(ParcelOut.many, [parcel])

            paths = [f"/clients/{text}" for text in (ADA, GRACE, UNKNOWN, "1")]
            return (
                await asking(app, *paths, headers={"X-Client": "Ada"}),
                await asking(app, f"/parcels/{PARCELS[0]}", "/parcels/unknown00000"),
            )
        finally:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
            await async_engine.dispose()

    clients, (parcel, unknown) = asyncio.run(story())

    assert [response.status_code for response in clients] == [200, 404, 404, 404]
    assert parcel.json() == [{"public_id": PARCELS[0], "client": {"public_id": ADA, "name": "Ada"}}]
    assert unknown.status_code == 404


# --- errors as answers


def raising(error: Exception, *, problem_details: bool = False) -> FastAPI:
    app = FastAPI()
    install(app, problem_details=problem_details)

    @app.get("/it")
    @app.post("/it")
    def it() -> None:
        raise error

    @app.get("/number/{number}")
    def number(number: int) -> None:
        raise HTTPException(403, "not yours", {"X-Why": "because"})

    return app


NOT_AN_ID = "not a public id: it is of type int (expected 12 of 0-9)"
CONFLICT = "the Client with this public id exists, with other contents"
UNKNOWN_REFERENCE = {"type": "public_id_unknown", "loc": ["body", "client_public_id"], "msg": "no such Client"}
ANSWERS: list[tuple[Exception, int, str, dict[str, Any]]] = [
    (PublicIdNotFound(4711, model="Client"), 404, "no such Client", {}),
    (
        PublicIdNotFound(4711, model="Client", field="Parcel.client_public_id"),
        422,
        "no such Client",
        {"errors": [UNKNOWN_REFERENCE]},
    ),
    (
        InvalidCursor(4711, model="Client", field="after"),
        422,
        "not a cursor: no Client has this public id; begin with the first page",
        {
            "errors": [
                {
                    "type": "cursor_invalid",
                    "loc": ["query", "after"],
                    "msg": "not a cursor: no Client has this public id; begin with the first page",
                }
            ]
        },
    ),
    (
        InvalidPublicId(4711, expected="12 of 0-9", reason="it is of type int", field="client"),
        422,
        NOT_AN_ID,
        {"errors": [{"type": "public_id_invalid", "loc": ["body", "client"], "msg": NOT_AN_ID}]},
    ),
    (
        IdempotencyConflict("4711", model="Client", differing=("name", "age")),
        409,
        CONFLICT,
        {"differing": ["name", "age"]},
    ),
]
UNREADABLE = b"\x81\xa6client\xa44711"
"""A body of MessagePack: where in it the id is cannot be told."""
TITLES = {404: "Not Found", 409: "Conflict", 422: "Unprocessable Content"}


@pytest.mark.parametrize(("error", "status", "detail", "more"), ANSWERS, ids=lambda value: type(value).__name__)
def test_errors_as_answers(error: Exception, status: int, detail: str, more: dict[str, Any]) -> None:
    """Errors have the shape of FastAPI's own, a 422 with the place; the value that they are about is not among them."""
    (response,) = asked(raising(error), "/it", method="POST", content=UNREADABLE)
    errors = more.get("errors")

    assert response.headers["content-type"] == "application/json"
    assert response.status_code == status
    assert response.json() == {"detail": errors or detail, **({} if errors else more)}
    assert "4711" not in response.text


@pytest.mark.parametrize(("error", "status", "detail", "more"), ANSWERS, ids=lambda value: type(value).__name__)
def test_errors_as_problem_details(error: Exception, status: int, detail: str, more: dict[str, Any]) -> None:
    """With ``problem_details=True``, they are problem details of RFC 9457."""
    (response,) = asked(raising(error, problem_details=True), "/it", method="POST", content=UNREADABLE)

    assert response.headers["content-type"] == "application/problem+json"
    assert response.status_code == status
    expected = {"type": "about:blank", "title": TITLES[status], "status": status, "detail": detail}
    assert response.json() == {**expected, **more}
    assert "4711" not in response.text


def test_errors_of_fastapi_stay() -> None:
    """With ``problem_details=True``, the 422 of FastAPI and an ``HTTPException`` are what they are without."""
    invalid, forbidden = asked(raising(ValueError(), problem_details=True), "/number/4711x", "/number/1")

    assert invalid.json()["detail"][0]["loc"] == ["path", "number"]
    assert (forbidden.status_code, forbidden.json()) == (403, {"detail": "not yours"})
    assert forbidden.headers["x-why"] == "because"


def test_documents_with_extensions() -> None:
    """A document may have extensions beside its operations, operations without responses, and its own 422."""
    app = FastAPI(responses={422: {"description": "mine", "content": {"text/plain": {}}}})
    original = app.openapi
    app.openapi = lambda: {  # type: ignore[method-assign]  # as FastAPI's documentation says
        **original(),
        "paths": {**original()["paths"], "/x": {"x-internal": {"get": 1}, "get": {}}},
    }
    app.get("/int/{number}")(int_number)
    install(app, problem_details=True)
    document = app.openapi()

    assert document["paths"]["/x"]["x-internal"] == {"get": 1}
    assert document["paths"]["/int/{number}"]["get"]["responses"]["422"]["description"] == "mine"


def test_query_without_a_body() -> None:
    """An unknown id in a request without a body is in the query."""
    (response,) = asked(
        raising(PublicIdNotFound("x", model="Client", field="Parcel.client_public_id")), "/it?client_public_id=x"
    )

    assert response.json()["detail"][0]["loc"] == ["query", "client_public_id"]


def test_handlers_of_the_application_stay() -> None:
    """An application that answers invalid requests in its own way keeps doing so."""
    app = FastAPI()

    @app.exception_handler(RequestValidationError)
    async def own(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"mine": True}, 418)

    install(app, problem_details=True)
    app.get("/number/{number}")(lambda number: None)
    app.get("/int/{number}")(int_number)

    assert asked(app, "/int/x")[0].json() == {"mine": True}


def int_number(number: int) -> None: ...


def test_error_inside_sqlalchemy(get_session: Any) -> None:
    """An id of the request that a column refuses is 422 as well."""
    app = FastAPI()
    install(app)

    @app.get("/it")
    def it(session: Annotated[Session, Depends(get_session)], client: int) -> None:
        session.query(Client).filter(Client.public_id == client).all()  # type: ignore[arg-type]

    (response,) = asked(app, "/it?client=1")

    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["query", "client"]


def test_digit_that_stands_in_a_header(get_session: Any) -> None:
    """A number of the application is not taken for part of the version of a browser."""
    app = FastAPI()
    install(app)

    @app.get("/it")
    def it(session: Annotated[Session, Depends(get_session)]) -> None:
        session.query(Client).filter(Client.public_id == 1).all()  # type: ignore[arg-type]

    with pytest.raises(ConfigurationError, match="no client has sent"):
        asked(app, "/it", headers={"user-agent": "browser/0.1 (release 1)"})


@pytest.mark.parametrize("body", ['{"client": "\\ud800"}', '{"client": NaN}', '{"client": 1e999}', '{"client": 1}'])
def test_input_that_json_cannot_hold(body: str) -> None:
    """A malformed id in a body is 422, also where FastAPI fails to repeat it."""
    app = FastAPI()
    install(app)

    class Wanted(BaseModel):
        client: Annotated[str, PublicId(NanoId())]

    def it(wanted: Wanted) -> None: ...

    it.__annotations__["wanted"] = Wanted  # a name of this function, which FastAPI could not find
    app.post("/it")(it)
    (response,) = asked(app, "/it", method="POST", content=body, headers={"content-type": "application/json"})

    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["body", "client"]


def test_other_errors_are_left_alone() -> None:
    """What is no error of this library is not made an answer, as it may hold SQL and keys."""
    with pytest.raises(IntegrityError):
        asked(raising(IntegrityError("INSERT", {"id": 4711}, Exception())), "/it")


def test_missing_row_as_a_problem(get_session: Any) -> None:
    """Once installed, the dependency answers as other errors are answered: as problem details."""
    app = shop(get_session)
    install(app, problem_details=True)

    (response,) = asked(app, f"/clients/{UNKNOWN}")

    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no such Client"}


def test_lookup_in_a_route(get_session: Any) -> None:
    """A route shrinks to ``lookup.get_one``."""
    app = FastAPI()
    install(app)

    @app.get("/it/{text}")
    def it(text: str, session: Annotated[Session, Depends(get_session)]) -> str:
        return lookup.get_one(session, Client, text).name

    assert [response.status_code for response in asked(app, f"/it/{ADA}", "/it/1")] == [200, 404]


# --- the OpenAPI document


@pytest.mark.parametrize("malformed", [404, 422])
def test_document(malformed: int) -> None:
    """The document shows pattern, lengths and an example of the parameter, and the answer 404."""
    app = shop(nowhere, malformed=malformed, scope=own)
    install(app)

    operation = app.openapi()["paths"]["/clients/{client_id}"]["get"]
    parameter, header = operation["parameters"]

    assert (parameter["name"], parameter["in"], parameter["required"]) == ("client_id", "path", True)
    assert parameter["description"] == "The public id of the Client."
    schema = parameter["schema"]
    assert (schema["pattern"], schema["minLength"], schema["maxLength"]) == ("^facli_[0-9a-z]{12}$", 18, 18)
    assert ClientId(schema["examples"][0])
    assert header["name"] == "x-client"
    assert list(operation["responses"]["404"]["content"]) == ["application/json"]
    assert app.openapi() == app.openapi()


def test_document_of_other_routes() -> None:
    """Routes without a public id in their path, and answers that a route describes itself, are left alone."""
    app = FastAPI()
    install(app)
    app.get("/clients")(lambda client_id: None)
    app.get("/{client_id}", responses={404: {"description": "mine"}})(typed)

    paths = app.openapi()["paths"]

    assert "404" not in paths["/clients"]["get"]["responses"]
    assert paths["/{client_id}"]["get"]["responses"]["404"] == {"description": "mine"}


def typed(client_id: ClientId) -> None: ...


def test_typed_id_as_a_parameter() -> None:
    """A typed id is a type of parameter by itself: 422 where malformed."""
    app = FastAPI()

    @app.get("/{client_id}")
    def it(client_id: ClientId) -> str:
        return type(client_id).__name__

    right, wrong = asked(app, f"/{ADA}", "/1")

    assert (right.json(), wrong.status_code) == ("ClientId", 422)
