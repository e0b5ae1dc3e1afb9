"""Litestar: the plugin, rows looked up by path, and advanced-alchemy's DTO."""
# Litestar evaluates the annotations of handlers, which use names of this module

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from advanced_alchemy.extensions.litestar import SQLAlchemyDTO, SQLAlchemyDTOConfig
from litestar import Litestar, Response, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.testing import TestClient
from neighbours.models import ADA, FIRST, MALFORMED, NOBODY, Base, Customer, CustomerId, Order, OrderId
from pydantic import BaseModel
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_public_id import PublicIdNotFound, idempotency, lookup
from sqlalchemy_public_id.ext.litestar import PublicIdPlugin, by_public_id


@dataclass
class DataclassIn:
    customer: CustomerId


class StructIn(msgspec.Struct):
    customer: CustomerId


class ModelIn(BaseModel):
    customer: CustomerId


class CustomerDTO(SQLAlchemyDTO[Customer]):
    config = SQLAlchemyDTOConfig(exclude={"id"})


@get("/customers/{customer_id:str}", dependencies={"customer": by_public_id(Customer)}, return_dto=CustomerDTO)
async def show_customer(customer: NamedDependency[Customer]) -> Customer:
    return customer


@get("/own/{order_id:str}", dependencies={"order": by_public_id(Order, scope="own")})
async def show_own(order: NamedDependency[Order]) -> OrderId:
    return order.public_id


@get("/path/{customer:str}")
async def in_path(customer: FromPath[CustomerId]) -> str:
    return type(customer).__name__


@get("/query")
async def in_query(customer: FromQuery[CustomerId]) -> str:
    return type(customer).__name__


@post("/dataclass")
async def in_dataclass(data: JSONBody[DataclassIn]) -> DataclassIn:
    return data


@post("/struct")
async def in_struct(data: JSONBody[StructIn]) -> StructIn:
    return data


@post("/model")
async def in_model(data: JSONBody[ModelIn]) -> ModelIn:
    return data


@post("/orders")
async def add_order(data: JSONBody[StructIn], db_session: NamedDependency[Any]) -> OrderId:
    order = Order(total=1, customer_public_id=data.customer)
    db_session.add(order)
    db_session.commit()
    return order.public_id


@get("/search/{text:str}")
async def search(text: FromPath[str], db_session: NamedDependency[Any]) -> str:
    return lookup.get_one(db_session, Customer, text).name


@get("/orders")
async def list_orders(db_session: NamedDependency[Any], after: FromQuery[str | None] = None) -> list[OrderId]:
    return [order.public_id for order in lookup.page(db_session, Order, limit=5, after=after)]


@post("/again")
async def again(db_session: NamedDependency[Any]) -> None:
    idempotency.insert_once(db_session, Order(public_id=FIRST, total=1, customer_public_id=ADA))


HANDLERS: list[Any] = [show_customer, show_own, in_path, in_query, in_dataclass, in_struct, in_model]
HANDLERS += [add_order, search, list_orders, again]


@pytest.fixture
def app(sessions: Callable[[], Session]) -> Litestar:
    async def provide_session() -> AsyncIterator[Session]:
        with sessions() as session:
            yield session

    async def own() -> Any:
        return Order.customer_public_id == NOBODY

    provided = {"db_session": Provide(provide_session), "own": Provide(own)}
    return Litestar(HANDLERS, plugins=[PublicIdPlugin()], dependencies=provided, logging_config=None)


@pytest.fixture
def client(app: Litestar) -> Iterator[TestClient[Litestar]]:
    with TestClient(app) as client:
        yield client


def test_row_of_a_path(client: TestClient[Litestar]) -> None:
    """The dependency is the row whose id is in the path; the DTO shows its typed id and no key."""
    assert client.get(f"/customers/{ADA}").json() == {"name": "Ada", "public_id": ADA}


@pytest.mark.parametrize("text", [NOBODY, MALFORMED, "1", "%00", "%F0%9F%92%A9"])
@pytest.mark.parametrize("path", ["/customers/", "/search/"])
def test_no_row(client: TestClient[Litestar], path: str, text: str) -> None:
    """An unknown or malformed id returns 404."""
    response = client.get(path + text)
    assert (response.status_code, response.json()["detail"]) == (404, "no such Customer")


def test_row_outside_of_the_scope(client: TestClient[Litestar]) -> None:
    """A row that does not meet the scope returns 404."""
    assert client.get(f"/own/{FIRST}").status_code == 404


@pytest.mark.parametrize("path", ["/dataclass", "/struct", "/model"])
def test_bodies(client: TestClient[Litestar], path: str) -> None:
    """A typed id in a body is decoded and encoded; a malformed one returns 400 with its field."""
    assert client.post(path, json={"customer": ADA}).json() == {"customer": ADA}
    responses = [client.post(path, json={"customer": wrong}) for wrong in (MALFORMED, 1, None, FIRST)]
    assert [response.status_code for response in responses] == [400] * 4
    assert [response.json()["extra"][0]["key"] for response in responses] == ["customer"] * 4


def test_parameters(client: TestClient[Litestar]) -> None:
    """A typed id in a path or query is an instance of its class; a malformed one returns 400."""
    assert client.get(f"/path/{ADA}").text == client.get("/query", params={"customer": ADA}).text == "CustomerId"
    assert client.get(f"/path/{MALFORMED}").status_code == client.get("/query?customer=1").status_code == 400


def test_errors_as_answers(client: TestClient[Litestar]) -> None:
    """An unknown id in a body and an invalid cursor return 400 with their places; a conflict returns 409."""
    assert client.post("/orders", json={"customer": ADA}).status_code == 201
    unknown = client.post("/orders", json={"customer": NOBODY})
    assert unknown.status_code == 400
    assert unknown.json()["extra"] == [{"message": "no such Customer", "key": "customer", "source": "body"}]
    cursor = client.get("/orders", params={"after": "nbord_000000nobody"})
    assert cursor.status_code == 400
    assert (cursor.json()["extra"][0]["key"], cursor.json()["extra"][0]["source"]) == ("after", "query")
    conflict = client.post("/again")
    assert (conflict.status_code, conflict.json()["extra"]) == (409, {"differing": ["total"]})


def test_document(app: Litestar) -> None:
    """The OpenAPI document has the pattern of typed ids, in parameters and bodies."""
    document = app.openapi_schema.to_schema()
    query = document["paths"]["/query"]["get"]["parameters"][0]["schema"]
    schemas = [query, *(document["components"]["schemas"][name]["properties"]["customer"] for name in SCHEMAS)]
    assert [schema["pattern"] for schema in schemas] == ["^nbcus_[0-9a-z]{12}$"] * 4
    row = document["paths"]["/customers/{customer_id}"]["get"]["parameters"][0]["schema"]
    assert (row["pattern"], row["format"], row["maxLength"]) == ("^nbcus_[0-9a-z]{12}$", "public-id", 18)
    assert CustomerId(row["examples"][0])


SCHEMAS = ["DataclassIn", "StructIn", "ModelIn"]


def test_settings_of_the_application_stay() -> None:
    """Encoders and exception handlers of the application take precedence."""

    @get("/id")
    async def show_id() -> dict[str, CustomerId]:
        return {"id": ADA}

    @get("/error")
    async def error() -> None:
        raise PublicIdNotFound(MALFORMED, model="Customer")

    def gone(request: object, error: Exception) -> Response[str]:
        return Response("gone", status_code=410)

    app = Litestar(
        [show_id, error],
        plugins=[PublicIdPlugin()],
        type_encoders={CustomerId: lambda value: value.upper()},
        exception_handlers={PublicIdNotFound: gone},
        logging_config=None,
    )
    with TestClient(app) as client:
        assert client.get("/id").json() == {"id": ADA.upper()}
        assert client.get("/error").status_code == 410


def test_async_session(tmp_path: Any) -> None:
    """With an AsyncSession, the dependency awaits the row."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/test.db")

    async def provide_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    async def create() -> None:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with AsyncSession(engine) as session:
            session.add(Customer(public_id=ADA, name="Ada"))
            await session.commit()

    handlers: list[Any] = [show_customer]
    app = Litestar(
        handlers,
        plugins=[PublicIdPlugin()],
        dependencies={"db_session": Provide(provide_session)},
        on_startup=[create],
        on_shutdown=[engine.dispose],
        logging_config=None,
    )
    with TestClient(app) as client:
        assert client.get(f"/customers/{ADA}").json()["name"] == "Ada"
        assert client.get(f"/customers/{NOBODY}").status_code == 404


def test_connection_instead_of_a_session(engine: Engine) -> None:
    """A connection in the place of a session is refused, because it would return the key."""

    async def provide() -> Any:
        return engine.connect()

    @get("/{customer_id:str}", dependencies={"customer": by_public_id(Customer)})
    async def show(customer: NamedDependency[Customer]) -> str:
        return customer.name

    app = Litestar([show], dependencies={"db_session": Provide(provide)}, logging_config=None)
    with TestClient(app) as client:
        assert client.get(f"/{ADA}").status_code == 500
