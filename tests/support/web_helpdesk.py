"""The helpdesk of ``examples/helpdesk`` on a database, with keys that differ from all other numbers."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from sqlalchemy import Connection, event, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from examples.helpdesk.app import create_app
from examples.helpdesk.models import Base, Organization
from examples.helpdesk.sample import some_rows, tables

FIRST_KEY = 7_000_000_001
"""The smallest key. No other number in the helpdesk has as many digits and begins like this."""


@dataclass(frozen=True)
class Desk:
    """A helpdesk with two organizations, and the statements that it sends to its database."""

    app: FastAPI
    engine: AsyncEngine
    ada: AsyncClient
    eve: AsyncClient
    anyone: AsyncClient
    statements: list[str]

    async def ids(self, model: Any, organization: str = "Analytical Engines") -> list[str]:
        """Return the public ids of *model* in an organization, the oldest first."""
        query = select(model.public_id).join(model.organization).where(Organization.name == organization)
        async with AsyncSession(self.engine) as session:
            return [str.__str__(each) for each in await session.scalars(query.order_by(model.id))]

    async def keys(self) -> set[int]:
        """Return all keys in the database."""
        tables = [table for table in Base.metadata.sorted_tables if "id" in table.c]
        async with self.engine.connect() as connection:
            rows = [await connection.scalars(select(table.c.id)) for table in tables]
        return {key for keys in rows for key in keys}


@asynccontextmanager
async def opened(engine: AsyncEngine) -> AsyncGenerator[Desk]:
    """Open the helpdesk on the database of *engine*, until the end of the block."""
    app = create_app(engine)
    statements: list[str] = []
    logins: dict[str, str] = {}
    async with tables(engine):
        async with AsyncSession(engine) as session:
            await (await session.connection()).run_sync(start_keys)
            session.add_all(with_first_keys(some_rows(logins)))
            await session.commit()
        event.listen(engine.sync_engine, "before_cursor_execute", lambda *seen: statements.append(seen[2]))
        async with client(app, logins["Ada"]) as ada, client(app, logins["Eve"]) as eve, client(app) as anyone:
            yield Desk(app, engine, ada, eve, anyone, statements)


def story(tell: Callable[[Desk], Awaitable[None]]) -> Callable[[AsyncEngine], None]:
    """Make a test that runs *tell* with a helpdesk on an asynchronous driver."""

    def test(async_engine: AsyncEngine) -> None:
        async def told() -> None:
            async with opened(async_engine) as desk:
                await tell(desk)

        asyncio.run(told())

    test.__name__, test.__doc__ = tell.__name__, tell.__doc__
    return test


def client(app: FastAPI, token: str | None = None) -> AsyncClient:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return AsyncClient(transport=ASGITransport(app), base_url="http://desk", headers=headers)


def with_first_keys(rows: list[Base]) -> list[Base]:
    """Give the first row of each class its key; the database continues from there."""
    for first in {type(row): row for row in reversed(rows)}.values():
        first.id = FIRST_KEY
    return rows


def start_keys(connection: Connection) -> None:
    """Advance the sequences of PostgreSQL, which do not notice explicit keys."""
    if connection.dialect.name == "postgresql":
        for table in Base.metadata.sorted_tables:
            if "id" in table.c:
                connection.execute(text(f"ALTER TABLE {table.name} ALTER COLUMN id RESTART WITH {FIRST_KEY + 1}"))


def numbers_in(text_: str) -> set[int]:
    """Return all numbers in *text_*, including those within words."""
    return {int(digits) for digits in re.findall(r"\d+", text_)}


@dataclass(frozen=True)
class Program:
    """The helpdesk as a separate process, and the links that it prints, by user name."""

    process: subprocess.Popen[str]
    links: dict[str, str]

    def end(self) -> None:
        """Interrupt the program with Ctrl+C, as a user would."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(30) == 0
