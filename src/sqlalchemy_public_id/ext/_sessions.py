"""The session of a request in Starlette or FastAPI: check the dependency that returns it, and run functions with it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, TypeVar

from sqlalchemy.orm import Session
from sqlalchemy.util import ThreadLocalRegistry
from starlette.concurrency import run_in_threadpool

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import unscoped

T = TypeVar("T")


def require_dependency(name: str, given: object) -> None:
    """Refuse an object that FastAPI cannot call, or would call with query parameters that no client sends.

    FastAPI takes ``**keywords`` for such a parameter; ``sessionmaker``, ``scoped_session`` and ``Annotated[…]`` have
    them.
    """
    parameters = signature(given).parameters.values() if callable(given) else ()
    takes_any = any(each.kind in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL) for each in parameters)
    if not callable(given) or takes_any:
        raise ConfigurationError(
            f"{name} is {safe_repr(given)}, expected a dependency: a function, without parentheses, such as get_{name}"
        )


async def run(session: Any, function: Callable[[Session], T]) -> T:
    """Call *function* with the session, in a thread if it is a ``Session``, and return the result."""
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
