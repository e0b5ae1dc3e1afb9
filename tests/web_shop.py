"""The shop of ``examples/fastapi_shop`` on a database, with keys that can be told from every other number."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from sqlalchemy import Connection, event, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from examples.fastapi_shop.app import create_app
from examples.fastapi_shop.models import Base
from examples.fastapi_shop.sample import some_rows, tables

FIRST_KEY = 7_000_000_001
"""No key is smaller, and no other number of the shop has as many digits and begins like this."""


@dataclass(frozen=True)
class Shop:
    """A shop with six customers, four products and thirty orders, and what it sends to its database."""

    app: FastAPI
    engine: AsyncEngine
    client: AsyncClient
    statements: list[str]

    async def ids(self, model: Any) -> list[str]:
        """The public ids of all rows of *model*, the oldest first."""
        async with AsyncSession(self.engine) as session:
            found = await session.scalars(select(model.public_id).order_by(model.id))
            return [str.__str__(each) for each in found]

    async def keys(self) -> set[int]:
        """All keys in the database."""
        async with self.engine.connect() as connection:
            found = [await connection.scalars(select(table.c.id)) for table in Base.metadata.sorted_tables]
        return {key for keys in found for key in keys}


@asynccontextmanager
async def opened(engine: AsyncEngine) -> AsyncGenerator[Shop]:
    """The shop on the database of *engine*, until the end of the block."""
    app = create_app(engine)
    client = AsyncClient(transport=ASGITransport(app), base_url="http://shop")
    statements: list[str] = []
    async with tables(engine), client:
        async with AsyncSession(engine) as session:
            await (await session.connection()).run_sync(start_keys)
            session.add_all(with_first_keys(some_rows()))
            await session.commit()
        event.listen(engine.sync_engine, "before_cursor_execute", lambda *seen: statements.append(seen[2]))
        yield Shop(app, engine, client, statements)


def with_first_keys(rows: list[Base]) -> list[Base]:
    """Give the first row of each class its key; the database counts on from there."""
    for first in {type(row): row for row in reversed(rows)}.values():
        first.id = FIRST_KEY  # type: ignore[attr-defined]
    return rows


def start_keys(connection: Connection) -> None:
    """PostgreSQL does not notice a key that is given."""
    if connection.dialect.name == "postgresql":
        for table in Base.metadata.sorted_tables:
            connection.execute(text(f"ALTER TABLE {table.name} ALTER COLUMN id RESTART WITH {FIRST_KEY + 1}"))


def numbers_in(text_: str) -> set[int]:
    """Every number in *text_*, also those within words."""
    return {int(digits) for digits in re.findall(r"\d+", text_)}
