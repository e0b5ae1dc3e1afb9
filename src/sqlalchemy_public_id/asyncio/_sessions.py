"""The session of the asynchronous functions."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

AnyAsyncSession: TypeAlias = AsyncSession | async_scoped_session[Any]


def async_session(session: object) -> AsyncSession:
    """Return *session*, or the current one of a scoped session; refuse synchronous sessions."""
    if isinstance(session, async_scoped_session):
        return cast("async_scoped_session[AsyncSession]", session)()
    if not isinstance(session, AsyncSession):
        is_sync = isinstance(session, (Session, scoped_session))
        hint = "use the function of this name in sqlalchemy_public_id" if is_sync else "pass an AsyncSession"
        raise TypeError(f"expected an AsyncSession, not {type(session).__name__}: {hint}")
    return session
