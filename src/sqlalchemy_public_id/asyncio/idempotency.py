""":mod:`sqlalchemy_public_id.idempotency` for an ``AsyncSession``."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from sqlalchemy_public_id import idempotency
from sqlalchemy_public_id.asyncio._sessions import AnyAsyncSession, async_session
from sqlalchemy_public_id.lookup import Where

__all__ = ["insert_once"]

M = TypeVar("M")  # a model


async def insert_once(
    session: AnyAsyncSession,
    obj: M,
    *,
    attribute: str | None = None,
    compare: Collection[str] | None = None,
    where: Where | None = None,
) -> tuple[M, bool]:
    """Async version of :func:`sqlalchemy_public_id.idempotency.insert_once`."""
    return await async_session(session).run_sync(
        idempotency.insert_once, obj, attribute=attribute, compare=compare, where=where
    )
