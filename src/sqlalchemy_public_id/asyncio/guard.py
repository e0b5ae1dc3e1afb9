""":mod:`sqlalchemy_public_id.guard` for an ``AsyncSession``. Installing the guard is the same for both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

from sqlalchemy_public_id.errors import safe_repr
from sqlalchemy_public_id.transactions import Tries, refuse_begun, refuse_factory, refuse_generator

__all__ = ["run_transaction"]

T = TypeVar("T")


async def run_transaction(
    session_factory: Callable[[], AsyncSession],
    fn: Callable[[AsyncSession], Awaitable[T]],
    *,
    attempts: int = 10,
    timeout: float = 30.0,
    idempotent: bool = False,
) -> T:
    """As :func:`sqlalchemy_public_id.guard.run_transaction`, with an ``async_sessionmaker`` and an ``async def``."""
    if isinstance(session_factory, async_scoped_session):
        raise TypeError("an async_scoped_session keeps its session; give run_transaction() its session_factory")
    refuse_factory(session_factory)
    refuse_generator(fn)
    tries = Tries(attempts, timeout, idempotent)
    while True:
        session = session_factory()
        if not isinstance(session, AsyncSession):
            raise TypeError(f"expected a function that makes an AsyncSession, but it made {safe_repr(session)}")
        refuse_begun(session.sync_session)
        try:
            async with session:
                with tries.watching(session.sync_session):
                    try:
                        result = await fn(session)
                        tries.may_commit = True
                        await session.commit()
                    except BaseException as error:
                        with tries.undoing(error):
                            await session.rollback()
                        raise
                    return result
        except SQLAlchemyError as error:
            pause = tries.pause_after(error)
            if pause is None:
                raise
        await asyncio.sleep(pause)
