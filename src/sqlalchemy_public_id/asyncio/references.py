""":mod:`sqlalchemy_public_id.references` for an ``AsyncSession``."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy_public_id import references
from sqlalchemy_public_id.asyncio._sessions import AnyAsyncSession, async_session

__all__ = ["load"]


async def load(session: AnyAsyncSession, objects: Iterable[object]) -> None:
    """Async version of :func:`sqlalchemy_public_id.references.load`."""
    await async_session(session).run_sync(references.load, objects)
