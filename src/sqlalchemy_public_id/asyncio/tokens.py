""":mod:`sqlalchemy_public_id.tokens` for an ``AsyncSession``."""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncSession
from typing_extensions import Unpack

from sqlalchemy_public_id.asyncio.sessions import asynchronous
from sqlalchemy_public_id.lookup import How
from sqlalchemy_public_id.tokens.finding import check_options, digest_for, find

__all__ = ["get"]

M = TypeVar("M")


async def get(
    session: AsyncSession, model: type[M], text: object, *, attribute: str | None = None, **how: Unpack[How]
) -> M | None:
    """As :func:`sqlalchemy_public_id.tokens.get`."""
    session = asynchronous(session)
    check_options(how)
    key, digest = digest_for(model, text, attribute)
    del text  # what follows may fail, and reports of errors show the variables
    if digest is None:
        return None
    return await session.run_sync(lambda sync: find(sync, model, key, digest, **how))
