"""The session that a dependency of FastAPI returns, and functions that use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util import ThreadLocalRegistry

from sqlalchemy_public_id.errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

T = TypeVar("T")


async def run(session: Any, function: Callable[[Session], T]) -> T:
    """Return *function* of the session: awaited for an ``AsyncSession``, in a thread for a ``Session``."""
    session = _unscoped(session)
    if hasattr(session, "run_sync"):
        result: T = await session.run_sync(function)
        return result
    return await run_in_threadpool(function, session)


def _unscoped(session: AsyncSession | Session | scoped_session[Session]) -> Any:
    # in the thread that runs the query, a scoped_session could return the session of another request
    if not isinstance(session, scoped_session):
        return session
    if isinstance(session.registry, ThreadLocalRegistry):
        raise ConfigurationError(
            "this scoped_session has a session for each thread, but a request runs in several threads, so sessions "
            "would stay open; give it a scopefunc that identifies the request, or let the dependency yield a Session"
        )
    return session()
