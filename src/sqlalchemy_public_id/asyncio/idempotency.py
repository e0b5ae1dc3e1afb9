""":mod:`sqlalchemy_public_id.idempotency` for an ``AsyncSession``."""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from sqlalchemy_public_id import idempotency
from sqlalchemy_public_id.asyncio.sessions import asynchronous

__all__ = ["insert_once"]

M = TypeVar("M")


async def insert_once(session: AsyncSession, obj: M, *, attribute: str | None = None) -> tuple[M, bool]:
    """As :func:`sqlalchemy_public_id.idempotency.insert_once`."""
    return await asynchronous(session).run_sync(lambda sync: idempotency.insert_once(sync, obj, attribute=attribute))
