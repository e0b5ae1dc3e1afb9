""":mod:`sqlalchemy_public_id.bulk` for an ``AsyncSession``."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from inspect import isawaitable

from sqlalchemy.util import await_only

from sqlalchemy_public_id import bulk
from sqlalchemy_public_id.asyncio._sessions import AnyAsyncSession, async_session

__all__ = ["insert", "insert_many"]


async def insert(session: AnyAsyncSession, objects: Iterable[object]) -> None:
    """Async version of :func:`sqlalchemy_public_id.bulk.insert`."""
    await async_session(session).run_sync(bulk.insert, objects)


async def insert_many(
    session: AnyAsyncSession,
    objects: Iterable[object] | AsyncIterable[object],
    *,
    batch: int = bulk.BATCH,
    progress: Callable[[int], Awaitable[object] | object] | None = None,
) -> int:
    """Async version of :func:`sqlalchemy_public_id.bulk.insert_many`, for iterables and async iterables.

    *progress* may be a coroutine function, which is awaited.
    """

    def report(count: int) -> None:
        reported = progress(count) if progress is not None else None
        if isawaitable(reported):
            await_only(reported)

    given = _awaited(objects, batch) if isinstance(objects, AsyncIterable) else objects
    reporting = report if callable(progress) else progress
    return await async_session(session).run_sync(bulk.insert_many, given, batch=batch, progress=reporting)


def _awaited(objects: AsyncIterable[object], batch: int) -> Iterator[object]:
    """Yield *objects* inside a greenlet of SQLAlchemy, and wait for a *batch* of them at a time."""
    iterator = aiter(objects)
    while taken := await_only(_take(iterator, batch)):
        while taken:  # hold no object while waiting for the next batch
            yield taken.popleft()


async def _take(objects: AsyncIterator[object], count: int) -> deque[object]:
    taken: deque[object] = deque()
    async for each in objects:
        taken.append(each)
        if len(taken) == count:
            break
    return taken
