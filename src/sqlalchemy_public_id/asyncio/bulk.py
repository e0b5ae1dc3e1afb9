""":mod:`sqlalchemy_public_id.bulk` for an ``AsyncSession``."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from inspect import isawaitable

from sqlalchemy_public_id import bulk
from sqlalchemy_public_id.asyncio._sessions import AnyAsyncSession, async_session
from sqlalchemy_public_id.bulk.batches import BATCH, Batches
from sqlalchemy_public_id.bulk.objects import iterator_of

__all__ = ["insert", "insert_many"]


async def insert(session: AnyAsyncSession, objects: Iterable[object]) -> None:
    """As :func:`sqlalchemy_public_id.bulk.insert`."""
    await async_session(session).run_sync(bulk.insert, objects)


async def insert_many(
    session: AnyAsyncSession,
    objects: Iterable[object] | AsyncIterable[object],
    *,
    batch: int = BATCH,
    progress: Callable[[int], Awaitable[object] | object] | None = None,
) -> int:
    """As :func:`sqlalchemy_public_id.bulk.insert_many`, with an iterable of either kind.

    *progress* may be an ``async def``, which is awaited.
    """
    session = async_session(session)
    batches = Batches(batch, progress)
    if isinstance(objects, AsyncIterable):
        asynchronous = aiter(objects)
        while taken := await _take(batches, asynchronous):
            await session.run_sync(batches.insert, taken)
            taken.clear()  # while the next ones are taken
            await _report(batches)
    else:
        iterator = iterator_of(objects)
        while await session.run_sync(batches.insert_next, iterator):  # a generator may load attributes
            await _report(batches)
    return batches.inserted


async def _take(batches: Batches, objects: AsyncIterator[object]) -> list[object]:
    taken: list[object] = []
    with batches.noting():
        async for each in objects:
            taken.append(each)
            if len(taken) == batches.size:
                break
    return taken


async def _report(batches: Batches) -> None:
    reported = batches.report()
    if isawaitable(reported):
        await reported
