"""The endpoints: they accept and return public ids; an order can be sent twice and is created once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from examples.fastapi_shop.formats import one_of_each
from examples.fastapi_shop.models import Customer, CustomerId, Line, Order, OrderId, Product, ProductId
from examples.fastapi_shop.schemas import (
    CustomerIn,
    CustomerOut,
    LineIn,
    LineOut,
    OrderIn,
    OrderOut,
    Page,
    ProductOut,
)
from sqlalchemy_public_id.asyncio import idempotency, lookup
from sqlalchemy_public_id.ext.fastapi import by_public_id, install
from sqlalchemy_public_id.lookup import Page as Rows

PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")

router = APIRouter()


def create_app(engine: AsyncEngine, **options: Any) -> FastAPI:
    """Build the shop on the database of *engine*; *options* are those of ``FastAPI()``."""
    app = FastAPI(title="The shop", version="1.0.0", **options)
    app.state.sessions = async_sessionmaker(engine, expire_on_commit=False)
    app.include_router(router)
    install(app)
    return app


async def get_session(request: Request) -> AsyncIterator[AsyncSession]:
    """Open a session for each request; work that the endpoint does not commit is rolled back."""
    async with request.app.state.sessions() as session:
        yield session


Session = Annotated[AsyncSession, Depends(get_session)]
CustomerRow = Annotated[Customer, Depends(by_public_id(Customer, session=get_session))]
OrderRow = Annotated[Order, Depends(by_public_id(Order, session=get_session))]
Limit = Annotated[int, Query(ge=1, le=100)]

Responses = dict[int | str, dict[str, Any]]

NO_JSON: Responses = {400: {"description": "The body is not JSON"}}


# --- customers and products


@router.get("/customers")
async def list_customers(session: Session, after: CustomerId | None = None, limit: Limit = 20) -> Page[CustomerOut]:
    """List the customers, oldest first."""
    page = await lookup.page(session, select(Customer), after=after, limit=limit)
    return await shown(session, CustomerOut, page)


@router.post("/customers", status_code=201, responses=NO_JSON)
async def add_customer(session: Session, new: CustomerIn) -> CustomerOut:
    customer = Customer(**new.model_dump())
    session.add(customer)
    await session.commit()
    return CustomerOut.model_validate(customer)


@router.get("/customers/{customer_id}")
async def show_customer(customer: CustomerRow) -> CustomerOut:
    return CustomerOut.model_validate(customer)


@router.get("/customers/{customer_id}/orders")
async def list_orders_of(
    session: Session, customer: CustomerRow, after: OrderId | None = None, limit: Limit = 20
) -> Page[OrderOut]:
    """List the orders of one customer, newest first."""
    query = select(Order).where(Order.customer == customer)
    page = await lookup.page(session, query, after=after, limit=limit, newest_first=True)
    return await shown(session, OrderOut, page)


@router.get("/products")
async def list_products(session: Session, after: ProductId | None = None, limit: Limit = 20) -> Page[ProductOut]:
    page = await lookup.page(session, select(Product), after=after, limit=limit)
    return await shown(session, ProductOut, page)


# --- orders


@router.get("/orders")
async def list_orders(session: Session, after: OrderId | None = None, limit: Limit = 20) -> Page[OrderOut]:
    """List the orders, newest first, with the public ids of their customers: two statements for any page size."""
    page = await lookup.page(session, select(Order), after=after, limit=limit, newest_first=True)
    return await shown(session, OrderOut, page)


@router.post("/orders", status_code=201, responses=NO_JSON)
async def add_orders(
    session: Session, new: Annotated[list[OrderIn], Body(min_length=1, max_length=100)]
) -> list[OrderOut]:
    """Create several orders with one SELECT for all their customers. A repeated request creates them again; use PUT."""
    orders = [Order(**order.model_dump()) for order in new]
    session.add_all(orders)
    await session.commit()
    return await OrderOut.many(session, orders)


@router.put("/orders/{order_id}", responses={201: {"model": OrderOut}, **NO_JSON})
async def put_order(session: Session, order_id: OrderId, new: OrderIn, response: Response) -> OrderOut:
    """Create an order with an id from the client. After a timeout, send it again: it is created once.

    The status is 201 if it was created now, 200 if it exists, and 409 if it exists with other contents.
    """
    order, created = await idempotency.insert_once(session, Order(public_id=order_id, **new.model_dump()))
    await session.commit()
    response.status_code = 201 if created else 200
    return await OrderOut.of(session, order)


@router.get("/orders/{order_id}")
async def show_order(session: Session, order: OrderRow) -> OrderOut:
    return await OrderOut.of(session, order)


@router.get("/orders/{order_id}/lines")
async def list_lines(session: Session, order: OrderRow) -> list[LineOut]:
    lines = await session.scalars(select(Line).where(Line.order == order).order_by(Line.id))
    return await LineOut.many(session, lines)


@router.post("/orders/{order_id}/lines", status_code=201, responses=NO_JSON)
async def add_line(session: Session, order: OrderRow, new: LineIn) -> LineOut:
    line = Line(order=order, **new.model_dump())
    session.add(line)
    await session.commit()
    return await LineOut.of(session, line)


async def shown(session: AsyncSession, model: Any, page: Rows[Any]) -> Page[Any]:
    """Build the response for a page of rows; the public ids behind foreign keys are loaded for all rows at once."""
    items = await model.many(session, page)
    return Page[model](items=items, next=page.next, previous=page.previous)


# --- the page


@router.get("/", response_class=HTMLResponse)
async def show_page() -> str:
    return PAGE


@router.get("/formats")
async def show_formats() -> dict[str, str]:
    """Return a new id of each format."""
    return one_of_each()
