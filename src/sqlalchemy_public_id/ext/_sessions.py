"""The session that a dependency of FastAPI returns, and functions that use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session
from sqlalchemy.util import ThreadLocalRegistry

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.orm.inspection import unscoped

T = TypeVar("T")


async def run(session: Any, function: Callable[[Session], T]) -> T:
    """Return *function* of the session: awaited for an ``AsyncSession``, in a thread for a ``Session``."""
    if isinstance(getattr(session, "registry", None), ThreadLocalRegistry):
        raise ConfigurationError(
            "this scoped_session has a session for each thread, but a request runs in several threads, so sessions "
            "would stay open; give it a scopefunc that identifies the request, or let the dependency yield a Session"
        )
    # in the thread that runs the query, a scoped_session could return the session of another request
    session = unscoped(session)
    if hasattr(session, "run_sync"):
        result: T = await session.run_sync(function)
        return result
    return await run_in_threadpool(function, session)
