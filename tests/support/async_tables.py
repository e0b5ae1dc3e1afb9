"""Tables for the asynchronous story of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession


@asynccontextmanager
async def session_on(engine: AsyncEngine, metadata: MetaData) -> AsyncIterator[AsyncSession]:
    """Have the tables of *metadata*, new ones, and a session; in the end, drop them and dispose of *engine*."""
    try:
        async with engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)
            await connection.run_sync(metadata.create_all)
        async with AsyncSession(engine) as session:
            yield session
    finally:
        async with engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)
        await engine.dispose()
