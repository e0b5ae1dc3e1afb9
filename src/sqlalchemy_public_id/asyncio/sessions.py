"""Which session an awaited function works with."""

from __future__ import annotations

from typing import cast

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

__all__ = ["asynchronous"]


def asynchronous(session: object) -> AsyncSession:
    """*session*, or the one that a scoped session has; refuses what is no asynchronous session."""
    if isinstance(session, async_scoped_session):
        return cast("async_scoped_session[AsyncSession]", session)()
    if not isinstance(session, AsyncSession):
        is_sync = isinstance(session, (Session, scoped_session))
        hint = "import it from sqlalchemy_public_id" if is_sync else "pass an AsyncSession"
        raise TypeError(f"expected an AsyncSession, not {type(session).__name__}: {hint}")
    return session
