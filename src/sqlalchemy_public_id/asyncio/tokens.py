""":mod:`sqlalchemy_public_id.tokens` for an ``AsyncSession``."""

from __future__ import annotations

from typing import TypeVar

from typing_extensions import Unpack

from sqlalchemy_public_id.asyncio._sessions import AnyAsyncSession, async_session
from sqlalchemy_public_id.lookup import LoadOptions, check_options
from sqlalchemy_public_id.tokens import column_and_digest, find

__all__ = ["get"]

M = TypeVar("M")


async def get(
    session: AnyAsyncSession,
    model: type[M],
    text: object,
    *,
    attribute: str | None = None,
    **load: Unpack[LoadOptions],
) -> M | None:
    """Async version of :func:`sqlalchemy_public_id.tokens.get`."""
    session = async_session(session)
    check_options("get", load)
    key, digest = column_and_digest(text, model, attribute)
    del text  # error reports show local variables, and what follows may fail
    if digest is None:
        return None
    return await session.run_sync(lambda sync_session: find(sync_session, model, key, digest, **load))
