"""Asynchronous sessions, and the tables that they need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession


@asynccontextmanager
async def session_on(engine: AsyncEngine, metadata: MetaData, **options: Any) -> AsyncIterator[AsyncSession]:
    """Create the tables of *metadata*, and yield a session; afterwards, drop the tables and dispose *engine*."""
    try:
        async with engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)
            await connection.run_sync(metadata.create_all)
        async with AsyncSession(engine, **options) as session:
            yield session
    finally:
        async with engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)
        await engine.dispose()


def tell(
    engine: AsyncEngine, metadata: MetaData, story: Callable[[AsyncSession], Awaitable[object]], **options: Any
) -> None:
    """Run *story* with a session on the tables of *metadata*, which are dropped afterwards."""

    async def run() -> None:
        async with session_on(engine, metadata, expire_on_commit=False, **options) as session:
            await story(session)

    asyncio.run(run())
