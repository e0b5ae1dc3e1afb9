"""Sample rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from decimal import Decimal

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from .models import Base, Customer, Line, Order, Product

CUSTOMERS = ["Ada Lovelace", "Grace Hopper", "Mary Jackson", "Radia Perlman", "Katherine Johnson", "Barbara Liskov"]
PRODUCTS = {"Pencil": "0.80", "Notebook": "4.50", "Slide rule": "39.00", "Punched cards, 1000": "12.25"}


@asynccontextmanager
async def tables(engine: AsyncEngine, rows: Iterable[Base] = ()) -> AsyncGenerator[None]:
    """Create the tables of the shop with *rows*; drop them and dispose of *engine* at the end."""
    try:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
            await connection.run_sync(Base.metadata.create_all)
        async with AsyncSession(engine) as session:
            session.add_all(rows)
            await session.commit()
        yield
    finally:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
        await engine.dispose()


def some_rows() -> list[Base]:
    """Return six customers, four products and thirty orders of one line each."""
    customers = [Customer(name=name) for name in CUSTOMERS]
    products = [Product(name=name, price=Decimal(price)) for name, price in PRODUCTS.items()]
    orders = [Order(customer=customers[number % 6], note=f"order number {number}") for number in range(1, 31)]
    lines = [Line(order=order, product=products[number % 4], quantity=number) for number, order in enumerate(orders, 1)]
    return [*customers, *products, *orders, *lines]
