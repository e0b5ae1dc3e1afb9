""":mod:`sqlalchemy_public_id.bulk` for an ``AsyncSession``."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncSession

from sqlalchemy_public_id import bulk
from sqlalchemy_public_id.asyncio.sessions import asynchronous

__all__ = ["insert"]


async def insert(session: AsyncSession, objects: Iterable[object]) -> None:
    """As :func:`sqlalchemy_public_id.bulk.insert`."""
    await asynchronous(session).run_sync(bulk.insert, objects)
