"""Turn a function of a ``Session`` into one of an ``AsyncSession``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

AnyAsyncSession: TypeAlias = AsyncSession | async_scoped_session[Any]

P = ParamSpec("P")
R = TypeVar("R")


def awaited(
    function: Callable[Concatenate[Session, P], R],
) -> Callable[Concatenate[AnyAsyncSession, P], Coroutine[Any, Any, R]]:
    """Return the asynchronous twin of *function*, with the same name and arguments."""

    async def twin(session: AnyAsyncSession, *args: P.args, **kwargs: P.kwargs) -> R:
        return await async_session(session).run_sync(function, *args, **kwargs)

    # the documentation shows these, and help()
    package = ".".join(function.__module__.split(".")[:2])
    first, *others = inspect.signature(function).parameters.values()
    signature = inspect.signature(function).replace(parameters=[first.replace(annotation="AsyncSession"), *others])
    twin.__name__ = twin.__qualname__ = function.__name__
    twin.__doc__ = f"As :func:`{package}.{function.__name__}`."
    vars(twin)["__signature__"] = signature
    # mypy: the session of a Concatenate has no name
    return cast("Callable[Concatenate[AnyAsyncSession, P], Coroutine[Any, Any, R]]", twin)


def async_session(session: object) -> AsyncSession:
    """Return *session*, or the one of a scoped session; refuse synchronous ones."""
    if isinstance(session, async_scoped_session):
        return cast("async_scoped_session[AsyncSession]", session)()
    if not isinstance(session, AsyncSession):
        is_sync = isinstance(session, (Session, scoped_session))
        hint = "import it from sqlalchemy_public_id" if is_sync else "pass an AsyncSession"
        raise TypeError(f"expected an AsyncSession, not {type(session).__name__}: {hint}")
    return session
