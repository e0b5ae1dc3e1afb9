"""Stories of an asynchronous session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession


def tell(
    engine: AsyncEngine, metadata: MetaData, story: Callable[[AsyncSession], Awaitable[object]], **options: Any
) -> None:
    """Run *story* with a session on the tables of *metadata*, which are gone afterwards."""

    async def run() -> None:
        try:
            async with engine.begin() as connection:
                await connection.run_sync(metadata.drop_all)
                await connection.run_sync(metadata.create_all)
            async with AsyncSession(engine, expire_on_commit=False, **options) as session:
                await story(session)
        finally:
            async with engine.begin() as connection:
                await connection.run_sync(metadata.drop_all)
            await engine.dispose()

    asyncio.run(run())
