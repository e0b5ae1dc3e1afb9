"""What the plugin for Litestar checks and describes when a route is added, and the field that a wrong id is in."""
# annotations are not postponed: Litestar evaluates those of handlers

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from neighbours.models import NOBODY, Base, CustomerId, Order, OrderId
from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool
from support.web_requests import asked

from sqlalchemy_public_id import ConfigurationError, TypedId, lookup

pytest.importorskip("litestar")
import msgspec
from litestar import Controller, Litestar, Router, get, post
from litestar.di import NamedDependency, Provide
from litestar.dto import DataclassDTO
from litestar.exceptions import HTTPException, NotFoundException
from litestar.params import FromPath, FromQuery, JSONBody

from sqlalchemy_public_id.ext.litestar import PublicIdPlugin, by_public_id


async def provide_session() -> AsyncIterator[Session]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session


def app_of(*handlers: Any, **options: Any) -> Litestar:
    dependencies = {"db_session": Provide(provide_session), **options.pop("dependencies", {})}
    return Litestar([*handlers], plugins=[PublicIdPlugin()], dependencies=dependencies, logging_config=None, **options)


# --- the path


async def show(order: NamedDependency[Order]) -> dict[str, str]:
    return {"id": order.public_id}


async def name_of(order: NamedDependency[Order]) -> str:
    return order.public_id


async def show_name(name: NamedDependency[str]) -> str:
    return name


@pytest.mark.parametrize("path", ["/orders/{id:str}", "/orders", "/orders/{orderid:str}/lines"])
def test_path_without_the_parameter(path: str) -> None:
    """A route whose path lacks the parameter of ``by_public_id()`` is refused, with both remedies."""
    message = r"has no parameter order_id.*write \{order_id:str\} in the path, or name its parameter with param="
    with pytest.raises(ConfigurationError, match=message):
        app_of(get(path, dependencies={"order": by_public_id(Order)})(show))


def test_path_of_an_inner_dependency() -> None:
    """The row may be a dependency of the application, a router or a controller, and of another dependency."""

    class Orders(Controller):
        path = "/in"

        @get("/{id:str}")
        async def show(self, name: NamedDependency[str]) -> str:
            return name

    dependencies = {"order": by_public_id(Order), "name": Provide(name_of)}
    for handler in (get("/{id:str}")(show_name), Router("/r", route_handlers=[get("/{id:str}")(show_name)]), Orders):
        with pytest.raises(ConfigurationError, match="no parameter order_id"):
            app_of(handler, dependencies=dependencies)
        assert app_of(handler, dependencies={**dependencies, "order": by_public_id(Order, param="id")})


def test_row_that_a_route_does_not_use() -> None:
    """A row among the dependencies of the application is not missed in routes that do not ask for it."""

    @get("/health")
    async def health() -> str:
        return "ok"

    assert app_of(health, dependencies={"order": by_public_id(Order)})


# --- the body


@dataclass
class DataclassIn:
    quantities: dict[CustomerId, int]


class StructIn(msgspec.Struct):
    quantities: dict[CustomerId, int]


class DictIn(TypedDict):
    quantities: dict[CustomerId, int]


@pydantic_dataclass
class PydanticDataclassIn:
    quantities: dict[CustomerId, int]


class ModelIn(BaseModel):
    quantities: dict[CustomerId, int]


@dataclass
class NestedIn:
    parts: list[DataclassIn | None]


@dataclass
class ValuesIn:
    customers: dict[str, CustomerId]


@dataclass
class TreeIn:
    customer: CustomerId
    children: "list[TreeIn]"


def handler_of(body: Any, **options: Any) -> Any:
    async def add(data: Any) -> None: ...

    add.__annotations__["data"] = JSONBody[body]
    return post("/", **options)(add)


@pytest.mark.parametrize(
    "body", [dict[CustomerId, int], DataclassIn, StructIn, DictIn, PydanticDataclassIn, NestedIn], ids=str
)
def test_ids_as_keys(body: Any) -> None:
    """Typed ids as keys of a mapping are refused when the application starts: msgspec would accept any text."""
    with pytest.raises(ConfigurationError, match=r"dict\[.*CustomerId, int\], whose keys would not be checked"):
        app_of(handler_of(body))


@pytest.mark.parametrize("body", [ModelIn, ValuesIn, TreeIn, list[ModelIn], dict[str, int]], ids=str)
def test_ids_that_are_checked(body: Any) -> None:
    """Pydantic checks the keys of its models, and ids in values are decoded."""
    assert app_of(handler_of(body))


def test_keys_of_a_dto() -> None:
    """A DTO decodes JSON with the keys, so a body with a DTO is accepted."""

    async def add(data: JSONBody[DataclassIn]) -> dict[str, str]:
        return {key: type(key).__name__ for key in data.quantities}

    app = app_of(post("/", dto=DataclassDTO[DataclassIn], return_dto=None)(add))
    wrong, right = (asked(app, "/", method="POST", json={"quantities": {key: 1}})[0] for key in ("nonsense", NOBODY))

    assert wrong.status_code == 400
    assert right.json() == {NOBODY: "CustomerId"}


# --- wrong ids


class Renamed(msgspec.Struct, rename="camel"):
    first_receiver: CustomerId


class Aliased(BaseModel):
    receiver: CustomerId = Field(alias="theReceiver")


@dataclass
class TwoIn:
    sender: CustomerId
    receiver: CustomerId


@pytest.mark.parametrize(
    ("body", "sent", "key"),
    [
        (Renamed, {"firstReceiver": NOBODY}, "firstReceiver"),
        (TwoIn, {"sender": NOBODY, "receiver": NOBODY}, "customer_public_id"),
        (list[CustomerId], [NOBODY], "customer_public_id"),
        (ValuesIn, {"customers": {"a": NOBODY}}, "customers"),
        (TreeIn, {"customer": NOBODY, "children": []}, "customer"),
        (dict[str, CustomerId], {"any": NOBODY}, "customer_public_id"),
    ],
)
def test_field_of_an_unknown_id(body: Any, sent: Any, key: str) -> None:
    """An unknown id is said to be in the only field that has its type, by the name that clients send."""

    def ids(data: Any) -> list[CustomerId]:
        if isinstance(data, CustomerId):
            return [data]
        parts = data.values() if isinstance(data, dict) else data
        if not isinstance(data, (dict, list)):
            parts = [getattr(data, name) for name in type(data).__annotations__]
        return [each for part in parts for each in ids(part)]

    async def add(data: Any, db_session: NamedDependency[Session]) -> None:
        db_session.add_all([Order(total=1, customer_public_id=each) for each in ids(data)])
        db_session.flush()

    add.__annotations__["data"] = JSONBody[body]
    (answer,) = asked(app_of(post("/")(add)), "/", method="POST", json=sent)

    assert answer.json()["extra"] == [{"message": "no such Customer", "key": key, "source": "body"}]


@pytest.mark.parametrize(("query", "key"), [("limit=0", "limit"), ("after=a&before=b", "before")])
def test_page_by_hand(query: str, key: str) -> None:
    """Arguments of a page that the handler has not checked get a 400 that names them."""

    @get("/")
    async def orders(
        db_session: NamedDependency[Session],
        limit: FromQuery[int] = 20,
        after: FromQuery[str | None] = None,
        before: FromQuery[str | None] = None,
    ) -> int:
        return len(lookup.page(db_session, Order, limit=limit, after=after, before=before))

    (answer,) = asked(app_of(orders), f"/?{query}")

    assert answer.status_code == 400
    assert (answer.json()["extra"][0]["key"], answer.json()["extra"][0]["source"]) == (key, "query")


# --- the document


class Gone(HTTPException):
    status_code = 404


@pytest.mark.parametrize("raises", [None, [NotFoundException], [Gone]])
def test_answers_of_the_application_stay(raises: Any) -> None:
    """A 404 that the handler describes itself is not described again, and handlers are shared by applications."""

    async def show(order_id: FromPath[OrderId]) -> None: ...

    handler = get("/{order_id:str}", raises=raises)(show)
    for _ in range(2):
        app = app_of(handler)
        operation: Any = app.openapi_schema.to_schema()["paths"]["/{order_id}"]["get"]
        schema = operation["responses"]["404"]["content"]["application/json"]["schema"]
        assert "oneOf" not in schema
    assert handler.raises == raises


def test_settings_of_the_application() -> None:
    """The application's own encoder of all typed ids, and its own ``before_send``, stay."""
    sent: list[str] = []

    async def note(message: Any, scope: Any) -> None:
        sent.append(message["type"])

    @get("/nobody")
    async def nobody() -> dict[str, CustomerId]:
        return {"id": NOBODY}

    app = app_of(nobody, type_encoders={TypedId: str.upper}, before_send=[note], openapi_config=None)

    (answer,) = asked(app, "/nobody")
    assert answer.json() == {"id": NOBODY.upper()}
    assert sent[0] == "http.response.start"


def test_routes_without_ids() -> None:
    """A route without public ids gets no answers."""

    @post("/{number:int}")
    async def add(number: FromPath[int], data: JSONBody[dict[str, int]]) -> None: ...

    operation: Any = app_of(add).openapi_schema.to_schema()["paths"]["/{number}"]["post"]

    assert set(operation["responses"]) == {"201", "400"}
