"""One shop as a service of FastAPI, Flask, Starlette, Litestar, and of SQLModel with FastAPI, to compare their answers.

Each service is written as its guide says. ``ask(method, path, json, headers)`` returns status, content and text.
"""
# annotations are not postponed: the frameworks evaluate those of handlers

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import httpx
from fastapi import Depends, FastAPI, Header
from flask import Flask, request
from neighbours.models import Base, Customer, CustomerId, Order, OrderId
from pydantic import BaseModel
from sqlalchemy import create_engine, select
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, registry
from sqlalchemy.pool import StaticPool
from sqlalchemy.types import NullType
from sqlmodel import Field, Relationship, SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sqlalchemy_public_id import TypedId, idempotency, lookup, public_ref, references
from sqlalchemy_public_id.asyncio import idempotency as async_idempotency
from sqlalchemy_public_id.asyncio import lookup as async_lookup
from sqlalchemy_public_id.ext import fastapi as for_fastapi
from sqlalchemy_public_id.ext import flask as for_flask
from sqlalchemy_public_id.ext import starlette as for_starlette
from sqlalchemy_public_id.ext.fastapi import by_public_id, install, page_of
from sqlalchemy_public_id.ext.pydantic import PublicModel
from sqlalchemy_public_id.ext.sqlmodel import PublicIdSQLModel


class Answer(NamedTuple):
    status: int
    content: Any
    text: str


@dataclass
class Service:
    ask: Callable[..., Answer]
    document: Callable[[], dict[str, Any]]
    """Returns the OpenAPI document."""
    prefix: str = "nb"
    """The beginning of the prefixes of its ids: a typed id belongs to one model."""


LOST = "cus_0000000house"
"""The end of an id in the settings of the program, whose row was deleted."""


def rows(customer: Any, order: Any, prefix: str) -> list[Any]:
    """Return a customer and three orders."""
    ada = customer(public_id=f"{prefix}cus_000000000ada", name="Ada")
    return [order(public_id=f"{prefix}ord_00000000000{n}", total=n, customer=ada) for n in (1, 2, 3)]


def filled() -> Any:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(rows(Customer, Order, "nb"))
        session.commit()
    return engine


def through_asgi(app: Any) -> Callable[..., Answer]:
    def ask(method: str, path: str, json: Any = None, headers: Any = None) -> Answer:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, json=json, headers=headers)

        answer = asyncio.run(send())
        is_json = bool(answer.content) and "json" in answer.headers.get("content-type", "")
        return Answer(answer.status_code, answer.json() if is_json else None, answer.text)

    return ask


def shown(order: Order) -> dict[str, Any]:
    return {name: getattr(order, name) for name in ("public_id", "total", "customer_public_id")}


def add_places(app: FastAPI, customer_id: Any) -> None:
    """Add endpoints that take an id in the path, in the query and in a header, and return its type."""

    @app.get("/path/{customer}")
    async def in_path(customer: customer_id) -> list[str]:
        return [type(customer).__name__]

    @app.get("/query")
    async def in_query(customer: customer_id) -> list[str]:
        return [type(customer).__name__]

    @app.get("/header")
    async def in_header(x_customer: Annotated[customer_id, Header()]) -> list[str]:
        return [type(x_customer).__name__]


# --- FastAPI


class OrderOut(PublicModel, model=Order):
    public_id: OrderId
    total: int
    customer_public_id: CustomerId


class OrderIn(BaseModel):
    customer_public_id: CustomerId
    total: int = 1


class OrderFilter(BaseModel):
    customer_public_id: CustomerId | None = None


class Change(BaseModel):
    customer_public_id: CustomerId


class Gift(BaseModel):
    receivers: list[CustomerId]


class Gifts(BaseModel):
    gifts: list[Gift]


class Quantities(BaseModel):
    quantities: dict[CustomerId, int]


def with_fastapi() -> Service:
    engine = filled()

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    Database = Annotated[Session, Depends(get_session)]
    Row = Annotated[Order, Depends(by_public_id(Order, session=get_session))]
    page = page_of(Order, session=get_session, filter=OrderFilter)
    app = FastAPI()
    install(app)

    @app.get("/orders", response_model=for_fastapi.Page[OrderOut])
    def list_orders(page: Annotated[Any, Depends(page)]) -> Any:
        return page

    @app.get("/orders/{order_id}")
    def show(order: Row, session: Database) -> OrderOut:
        return OrderOut.of(session, order)

    @app.get("/found/{order_id}")
    def found(order_id: str, session: Database) -> OrderOut:
        return OrderOut.of(session, lookup.get_one(session, Order, order_id))

    @app.post("/orders", status_code=201)
    def add(new: OrderIn, session: Database) -> OrderOut:
        order = Order(**new.model_dump())
        session.add(order)
        session.commit()
        return OrderOut.of(session, order)

    @app.put("/orders/{order_id}")
    def put(order_id: OrderId, new: OrderIn, session: Database) -> OrderOut:
        order, _ = idempotency.insert_once(session, Order(public_id=order_id, **new.model_dump()))
        session.commit()
        return OrderOut.of(session, order)

    @app.patch("/orders/{order_id}")
    def patch(order: Row, change: Change, session: Database) -> OrderOut:
        order.customer_public_id = change.customer_public_id
        session.commit()
        return OrderOut.of(session, order)

    @app.delete("/orders/{order_id}", status_code=204)
    def delete(order: Row, session: Database) -> None:
        session.delete(order)
        session.commit()

    @app.post("/gifts", status_code=201)
    def gifts(sent: Gifts, session: Database) -> dict[str, str]:
        ids = [each for gift in sent.gifts for each in gift.receivers]
        session.add_all([Order(total=0, customer_public_id=each) for each in ids])
        session.commit()
        return {}

    @app.post("/quantities", status_code=201)
    def quantities(sent: Quantities) -> dict[str, str]:
        return {key: type(key).__name__ for key in sent.quantities}

    add_places(app, CustomerId)

    @app.get("/settings")
    def settings(session: Database) -> list[str]:
        return [lookup.get_one(session, Customer, f"nb{LOST}").name]

    return Service(through_asgi(app), app.openapi)


# --- Flask


def with_flask() -> Service:
    engine = filled()
    app = Flask("shop")
    for_flask.install(app)
    for_flask.register(app, Order, name="order_id")
    for_flask.register(app, Customer, name="customer_id")

    @app.get("/orders")
    def list_orders() -> Any:
        query = select(Order)
        if "customer_public_id" in request.args:
            query = query.where(Order.customer_public_id == request.args["customer_public_id"])
        limit = min(request.args.get("limit", 20, type=int), 100)
        given = {name: request.args.get(name) for name in ("after", "before")}
        with Session(engine) as session:
            page = lookup.page(session, query, limit=limit, **given, references=[Order.customer_public_id])
            return {"items": [shown(each) for each in page], "next": page.next, "previous": page.previous}

    @app.get("/orders/<order_id:public_id>")
    def show(public_id: OrderId) -> Any:
        with Session(engine) as session:
            return shown(for_flask.get_or_404(session, Order, public_id))

    @app.get("/found/<public_id>")
    def found(public_id: str) -> Any:
        with Session(engine) as session:
            return shown(lookup.get_one(session, Order, public_id))

    @app.post("/orders")
    def add() -> Any:
        with Session(engine) as session:
            order = Order(**{"total": 1, **(request.json or {})})
            session.add(order)
            session.commit()
            return shown(order), 201

    @app.put("/orders/<order_id:public_id>")
    def put(public_id: OrderId) -> Any:
        with Session(engine) as session:
            new = Order(public_id=public_id, **{"total": 1, **(request.json or {})})
            order, _ = idempotency.insert_once(session, new)
            session.commit()
            return shown(order)

    @app.patch("/orders/<order_id:public_id>")
    def patch(public_id: OrderId) -> Any:
        with Session(engine) as session:
            order = for_flask.get_or_404(session, Order, public_id)
            order.customer_public_id = (request.json or {})["customer_public_id"]
            session.commit()
            return shown(order)

    @app.delete("/orders/<order_id:public_id>")
    def delete(public_id: OrderId) -> Any:
        with Session(engine) as session:
            session.delete(for_flask.get_or_404(session, Order, public_id))
            session.commit()
            return "", 204

    @app.post("/gifts")
    def gifts() -> Any:
        ids = [each for gift in (request.json or {})["gifts"] for each in gift["receivers"]]
        with Session(engine) as session:
            session.add_all([Order(total=0, customer_public_id=each) for each in ids])
            session.commit()
            return {}, 201

    @app.post("/quantities")
    def quantities() -> Any:
        ids = [CustomerId(key) for key in (request.json or {})["quantities"]]
        return {key: type(key).__name__ for key in ids}, 201

    @app.get("/path/<customer_id:customer>")
    def in_path(customer: CustomerId) -> Any:
        return [type(customer).__name__]

    @app.get("/query")
    def in_query() -> Any:
        return [type(CustomerId(request.args["customer"])).__name__]

    @app.get("/header")
    def in_header() -> Any:
        return [type(CustomerId(request.headers["X-Customer"])).__name__]

    @app.get("/settings")
    def settings() -> Any:
        with Session(engine) as session:
            return [lookup.get_one(session, Customer, f"nb{LOST}").name]

    client = app.test_client()

    def ask(method: str, path: str, json: Any = None, headers: Any = None) -> Answer:
        answer = client.open(path, method=method, json=json, headers=headers)
        return Answer(answer.status_code, answer.json if answer.is_json else None, answer.text)

    return Service(ask, dict)


# --- Starlette


def with_starlette() -> Service:
    engine = filled()
    find_order = for_starlette.by_public_id(Order)

    def shown(order: Order, status: int = 200) -> JSONResponse:
        names = ("public_id", "total", "customer_public_id")
        return JSONResponse({name: getattr(order, name) for name in names}, status)

    def list_orders(request: Request) -> JSONResponse:
        given = request.query_params
        query = select(Order)
        if "customer_public_id" in given:
            query = query.where(Order.customer_public_id == given["customer_public_id"])
        try:
            limit = min(int(given.get("limit", 20)), 100)
        except ValueError:
            raise HTTPException(422, "limit is no number") from None
        references = [Order.customer_public_id]
        with Session(engine) as session:
            page = lookup.page(
                session, query, limit=limit, after=given.get("after"), before=given.get("before"), references=references
            )
            items = [{"public_id": each.public_id, "customer_public_id": each.customer_public_id} for each in page]
            return JSONResponse({"items": items, "next": page.next, "previous": page.previous})

    async def show(request: Request) -> JSONResponse:
        with Session(engine) as session:
            return shown(await find_order(request, session))

    def found(request: Request) -> JSONResponse:
        with Session(engine) as session:
            return shown(lookup.get_one(session, Order, request.path_params["order_id"]))

    async def add(request: Request) -> JSONResponse:
        with Session(engine) as session:
            order = Order(**{"total": 1, **await request.json()})
            session.add(order)
            session.commit()
            return shown(order, 201)

    async def put(request: Request) -> JSONResponse:
        public_id = OrderId(request.path_params["order_id"])
        with Session(engine) as session:
            new = Order(public_id=public_id, **{"total": 1, **await request.json()})
            order, _ = idempotency.insert_once(session, new)
            session.commit()
            return shown(order)

    async def patch(request: Request) -> JSONResponse:
        with Session(engine) as session:
            order = await find_order(request, session)
            order.customer_public_id = (await request.json())["customer_public_id"]
            session.commit()
            return shown(order)

    async def delete(request: Request) -> Response:
        with Session(engine) as session:
            session.delete(await find_order(request, session))
            session.commit()
            return Response(status_code=204)

    async def gifts(request: Request) -> JSONResponse:
        ids = [each for gift in (await request.json())["gifts"] for each in gift["receivers"]]
        with Session(engine) as session:
            session.add_all([Order(total=0, customer_public_id=each) for each in ids])
            session.commit()
            return JSONResponse({}, 201)

    async def quantities(request: Request) -> JSONResponse:
        ids = [CustomerId(key) for key in (await request.json())["quantities"]]
        return JSONResponse({key: type(key).__name__ for key in ids}, 201)

    def in_path(request: Request) -> JSONResponse:
        return JSONResponse([type(CustomerId(request.path_params["customer"])).__name__])

    def in_query(request: Request) -> JSONResponse:
        return JSONResponse([type(CustomerId(request.query_params["customer"])).__name__])

    def in_header(request: Request) -> JSONResponse:
        return JSONResponse([type(CustomerId(request.headers["X-Customer"])).__name__])

    def settings(request: Request) -> JSONResponse:
        with Session(engine) as session:
            return JSONResponse([lookup.get_one(session, Customer, f"al{LOST}").name])

    app = Starlette(
        routes=[
            Route("/orders", list_orders),
            Route("/orders", add, methods=["POST"]),
            Route("/orders/{order_id}", show),
            Route("/orders/{order_id}", put, methods=["PUT"]),
            Route("/orders/{order_id}", patch, methods=["PATCH"]),
            Route("/orders/{order_id}", delete, methods=["DELETE"]),
            Route("/found/{order_id}", found),
            Route("/gifts", gifts, methods=["POST"]),
            Route("/quantities", quantities, methods=["POST"]),
            Route("/path/{customer}", in_path),
            Route("/query", in_query),
            Route("/header", in_header),
            Route("/settings", settings),
        ]
    )
    for_starlette.install(app)
    return Service(through_asgi(app), dict)


# --- Litestar


@dataclass
class DataIn:
    customer_public_id: CustomerId
    total: int = 1


@dataclass
class DataGift:
    receivers: list[CustomerId]


@dataclass
class DataGifts:
    gifts: list[DataGift]


@dataclass
class DataChange:
    customer_public_id: CustomerId


def with_litestar() -> Service:
    import litestar
    from litestar.di import NamedDependency, Provide
    from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter

    from sqlalchemy_public_id.ext import litestar as for_litestar

    engine = filled()
    Database = NamedDependency[Session]
    row = {"order": for_litestar.by_public_id(Order)}

    async def provide_session() -> AsyncIterator[Session]:
        with Session(engine) as session:
            yield session

    @litestar.get("/orders")
    async def list_orders(
        db_session: Database,
        limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20,
        after: FromQuery[str | None] = None,
        before: FromQuery[str | None] = None,
        customer_public_id: FromQuery[CustomerId | None] = None,
    ) -> dict[str, Any]:
        query = select(Order)
        if customer_public_id is not None:
            query = query.where(Order.customer_public_id == customer_public_id)
        references = [Order.customer_public_id]
        page = lookup.page(db_session, query, limit=limit, after=after, before=before, references=references)
        return {"items": [shown(each) for each in page], "next": page.next, "previous": page.previous}

    @litestar.get("/orders/{order_id:str}", dependencies=row)
    async def show(order: NamedDependency[Order]) -> dict[str, Any]:
        return shown(order)

    @litestar.get("/found/{order_id:str}")
    async def found(order_id: FromPath[str], db_session: Database) -> dict[str, Any]:
        return shown(lookup.get_one(db_session, Order, order_id))

    @litestar.post("/orders")
    async def add(data: JSONBody[DataIn], db_session: Database) -> dict[str, Any]:
        order = Order(customer_public_id=data.customer_public_id, total=data.total)
        db_session.add(order)
        db_session.commit()
        return shown(order)

    @litestar.put("/orders/{order_id:str}")
    async def put(order_id: FromPath[OrderId], data: JSONBody[DataIn], db_session: Database) -> dict[str, Any]:
        new = Order(public_id=order_id, customer_public_id=data.customer_public_id, total=data.total)
        order, _ = idempotency.insert_once(db_session, new)
        db_session.commit()
        return shown(order)

    @litestar.patch("/orders/{order_id:str}", dependencies=row)
    async def patch(order: NamedDependency[Order], data: JSONBody[DataChange], db_session: Database) -> dict[str, Any]:
        order.customer_public_id = data.customer_public_id
        db_session.commit()
        return shown(order)

    @litestar.delete("/orders/{order_id:str}", dependencies=row)
    async def delete(order: NamedDependency[Order], db_session: Database) -> None:
        db_session.delete(order)
        db_session.commit()

    @litestar.post("/gifts")
    async def gifts(data: JSONBody[DataGifts], db_session: Database) -> dict[str, Any]:
        ids = [each for gift in data.gifts for each in gift.receivers]
        db_session.add_all([Order(total=0, customer_public_id=each) for each in ids])
        db_session.commit()
        return {}

    @litestar.post("/quantities")
    async def quantities(data: JSONBody[Quantities]) -> dict[str, str]:
        return {key: type(key).__name__ for key in data.quantities}

    @litestar.get("/path/{customer:str}")
    async def in_path(customer: FromPath[CustomerId]) -> list[str]:
        return [type(customer).__name__]

    @litestar.get("/query")
    async def in_query(customer: FromQuery[CustomerId]) -> list[str]:
        return [type(customer).__name__]

    @litestar.get("/header")
    async def in_header(x_customer: Annotated[CustomerId, HeaderParameter(name="X-Customer")]) -> list[str]:
        return [type(x_customer).__name__]

    @litestar.get("/settings")
    async def settings(db_session: Database) -> list[str]:
        return [lookup.get_one(db_session, Customer, f"nb{LOST}").name]

    handlers: list[Any] = [list_orders, show, found, add, put, patch, delete, gifts, quantities]
    app = litestar.Litestar(
        [*handlers, in_path, in_query, in_header, settings],
        plugins=[for_litestar.PublicIdPlugin()],
        dependencies={"db_session": Provide(provide_session)},
        logging_config=None,
    )
    return Service(through_asgi(app), lambda: app.openapi_schema.to_schema())


# --- SQLModel and FastAPI, asynchronous


class Own(SQLModel, registry=registry()): ...


class BuyerId(TypedId, prefix="smcus"): ...


class SaleId(TypedId, prefix="smord"): ...


class Buyer(PublicIdSQLModel, Own, table=True):
    """A model of SQLModel with typed ids and a name."""

    public_id: BuyerId = Field(default=None)
    name: str


class Sale(PublicIdSQLModel, Own, table=True):
    """A model of SQLModel with typed ids, a total, and a reference to its buyer."""

    public_id: SaleId = Field(default=None)
    total: int
    customer_id: int | None = Field(
        default=None, foreign_key="buyer.id", sa_type=NullType, nullable=False, exclude=True
    )
    customer: Buyer = Relationship()
    customer_public_id = public_ref("customer")


class SaleOut(PublicModel, model=Sale):
    public_id: SaleId
    total: int
    customer_public_id: BuyerId


class SaleIn(SQLModel):
    customer_public_id: BuyerId
    total: int = 1


class SaleShown(SQLModel):
    """A response model that is no ``PublicModel``."""

    public_id: SaleId
    customer_public_id: BuyerId


class SaleFilter(SQLModel):
    customer_public_id: BuyerId | None = None


class SaleChange(SQLModel):
    customer_public_id: BuyerId


class SaleGift(SQLModel):
    receivers: list[BuyerId]


class SaleGifts(SQLModel):
    gifts: list[SaleGift]


class SaleQuantities(SQLModel):
    quantities: dict[BuyerId, int]


def with_sqlmodel() -> Service:
    engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)

    async def fill() -> None:
        async with engine.begin() as connection:
            await connection.run_sync(Own.metadata.create_all)
        async with AsyncSession(engine) as session:
            session.add_all(rows(Buyer, Sale, "sm"))
            await session.commit()

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine, expire_on_commit=False) as session:
            yield session

    Database = Annotated[AsyncSession, Depends(get_session)]
    Row = Annotated[Sale, Depends(by_public_id(Sale, session=get_session, param="order_id"))]
    page = page_of(Sale, session=get_session, filter=SaleFilter)
    app = FastAPI()
    install(app)

    eager = [references.eager(Sale.customer_public_id)]
    loaded = by_public_id(Sale, session=get_session, param="order_id", options=eager)

    @app.get("/shown/{order_id}", response_model=SaleShown)
    async def shown(order: Annotated[Sale, Depends(loaded)]) -> Any:
        return order

    @app.get("/table/{order_id}", response_model=Sale)
    async def table(order: Row) -> Any:
        return order

    @app.get("/orders", response_model=for_fastapi.Page[SaleOut])
    async def list_orders(page: Annotated[Any, Depends(page)]) -> Any:
        return page

    @app.get("/orders/{order_id}")
    async def show(order: Row, session: Database) -> SaleOut:
        return await SaleOut.of(session, order)

    @app.get("/found/{order_id}")
    async def found(order_id: str, session: Database) -> SaleOut:
        return await SaleOut.of(session, await async_lookup.get_one(session, Sale, order_id))

    @app.post("/orders", status_code=201)
    async def add(new: SaleIn, session: Database) -> SaleOut:
        order = Sale.model_validate(new)
        session.add(order)
        await session.commit()
        return await SaleOut.of(session, order)

    @app.put("/orders/{order_id}")
    async def put(order_id: SaleId, new: SaleIn, session: Database) -> SaleOut:
        sale = Sale.model_validate(new.model_dump(), update={"public_id": order_id})
        order, _ = await async_idempotency.insert_once(session, sale)
        await session.commit()
        return await SaleOut.of(session, order)

    @app.patch("/orders/{order_id}")
    async def patch(order: Row, change: SaleChange, session: Database) -> SaleOut:
        order.sqlmodel_update(change)
        await session.commit()
        return await SaleOut.of(session, order)

    @app.delete("/orders/{order_id}", status_code=204)
    async def delete(order: Row, session: Database) -> None:
        await session.delete(order)
        await session.commit()

    @app.post("/gifts", status_code=201)
    async def gifts(sent: SaleGifts, session: Database) -> dict[str, str]:
        ids = [each for gift in sent.gifts for each in gift.receivers]
        session.add_all([Sale(total=0, customer_public_id=each) for each in ids])
        await session.commit()
        return {}

    @app.post("/quantities", status_code=201)
    async def quantities(sent: SaleQuantities) -> dict[str, str]:
        return {key: type(key).__name__ for key in sent.quantities}

    add_places(app, BuyerId)

    @app.get("/settings")
    async def settings(session: Database) -> list[str]:
        return [(await async_lookup.get_one(session, Buyer, f"sm{LOST}")).name]

    asyncio.run(fill())
    return Service(through_asgi(app), app.openapi, "sm")


SERVICES = {
    "fastapi": with_fastapi,
    "flask": with_flask,
    "litestar": with_litestar,
    "sqlmodel": with_sqlmodel,
    "starlette": with_starlette,
}
