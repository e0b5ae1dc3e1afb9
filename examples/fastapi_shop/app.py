"""The endpoints: they accept and return public ids; an order can be sent twice and is created once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from sqlalchemy_public_id.asyncio import idempotency
from sqlalchemy_public_id.ext.fastapi import Page, by_public_id, install, page_of
from sqlalchemy_public_id.lookup import Page as Rows

from .formats import one_of_each
from .models import Customer, Line, Order, OrderId, Product
from .schemas import CustomerIn, CustomerOut, LineIn, LineOut, OrderChange, OrderFilter, OrderIn, OrderOut, ProductOut

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
CustomerPage = Annotated[Rows[Customer], Depends(page_of(Customer, session=get_session, sort=["name"]))]
ProductPage = Annotated[Rows[Product], Depends(page_of(Product, session=get_session, sort=["name", "price"]))]
OrderPage = Annotated[Rows[Order], Depends(page_of(Order, session=get_session, filter=OrderFilter, newest_first=True))]

Responses = dict[int | str, dict[str, Any]]

NO_JSON: Responses = {400: {"description": "The body is not JSON"}}


# --- customers and products


@router.get("/customers", response_model=Page[CustomerOut])
async def list_customers(page: CustomerPage) -> Any:
    """List the customers, oldest first, or by name."""
    return page


@router.post("/customers", status_code=201, responses=NO_JSON)
async def add_customer(session: Session, new: CustomerIn) -> CustomerOut:
    customer = Customer(**new.model_dump())
    session.add(customer)
    await session.commit()
    return CustomerOut.model_validate(customer)


@router.get("/customers/{customer_id}")
async def show_customer(customer: CustomerRow) -> CustomerOut:
    return CustomerOut.model_validate(customer)


@router.get("/products", response_model=Page[ProductOut])
async def list_products(page: ProductPage) -> Any:
    return page


# --- orders


@router.get("/orders", response_model=Page[OrderOut])
async def list_orders(page: OrderPage) -> Any:
    """List the orders, newest first, with the public ids of their customers: two statements for any page size."""
    return page


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


@router.patch("/orders/{order_id}", responses=NO_JSON)
async def change_order(session: Session, order: OrderRow, change: OrderChange) -> OrderOut:
    """Change what the body names, and nothing else."""
    for name, value in change.model_dump(exclude_unset=True).items():
        setattr(order, name, value)
    await session.commit()
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


# --- the page


@router.get("/", response_class=HTMLResponse)
async def show_page() -> str:
    return PAGE


@router.get("/formats")
async def show_formats() -> dict[str, str]:
    """Return a new id of each format."""
    return one_of_each()
