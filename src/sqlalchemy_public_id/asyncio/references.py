""":mod:`sqlalchemy_public_id.references` for an ``AsyncSession``."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncSession

from sqlalchemy_public_id import references
from sqlalchemy_public_id.asyncio.sessions import asynchronous

__all__ = ["load"]


async def load(session: AsyncSession, objects: Iterable[object]) -> None:
    """As :func:`sqlalchemy_public_id.references.load`."""
    await asynchronous(session).run_sync(references.load, objects)
