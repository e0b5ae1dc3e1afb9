""":mod:`sqlalchemy_public_id.lookup` for an ``AsyncSession``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, overload

from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncSession
from typing_extensions import Unpack

from sqlalchemy_public_id import lookup
from sqlalchemy_public_id.asyncio.sessions import asynchronous
from sqlalchemy_public_id.lookup import How, Page, Place

__all__ = ["get", "get_many", "get_one", "keys_of", "page", "public_ids_of", "resolve"]

M = TypeVar("M")


async def get(
    session: AsyncSession, model: type[M], public_id: object, *, attribute: str | None = None, **how: Unpack[How]
) -> M | None:
    """As :func:`sqlalchemy_public_id.lookup.get`."""
    return await asynchronous(session).run_sync(
        lambda sync: lookup.get(sync, model, public_id, attribute=attribute, **how)
    )


async def get_one(
    session: AsyncSession, model: type[M], public_id: object, *, attribute: str | None = None, **how: Unpack[How]
) -> M:
    """As :func:`sqlalchemy_public_id.lookup.get_one`."""
    return await asynchronous(session).run_sync(
        lambda sync: lookup.get_one(sync, model, public_id, attribute=attribute, **how)
    )


async def resolve(session: AsyncSession, public_id: object, *, base: Any = None, **how: Unpack[How]) -> Any | None:
    """As :func:`sqlalchemy_public_id.lookup.resolve`."""
    return await asynchronous(session).run_sync(lambda sync: lookup.resolve(sync, public_id, base=base, **how))


async def get_many(
    session: AsyncSession,
    model: type[M],
    public_ids: Iterable[object],
    *,
    attribute: str | None = None,
    **how: Unpack[How],
) -> dict[str, M]:
    """As :func:`sqlalchemy_public_id.lookup.get_many`."""
    return await asynchronous(session).run_sync(
        lambda sync: lookup.get_many(sync, model, public_ids, attribute=attribute, **how)
    )


async def keys_of(
    session: AsyncSession,
    model: type[Any],
    public_ids: Iterable[object],
    *,
    attribute: str | None = None,
    execution_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """As :func:`sqlalchemy_public_id.lookup.keys_of`."""
    return await asynchronous(session).run_sync(
        lookup.keys_of, model, public_ids, attribute=attribute, execution_options=execution_options
    )


async def public_ids_of(
    session: AsyncSession,
    model: type[Any],
    keys: Iterable[Any],
    *,
    attribute: str | None = None,
    execution_options: Mapping[str, Any] | None = None,
) -> dict[Any, str]:
    """As :func:`sqlalchemy_public_id.lookup.public_ids_of`."""
    return await asynchronous(session).run_sync(
        lookup.public_ids_of, model, keys, attribute=attribute, execution_options=execution_options
    )


@overload
async def page(session: AsyncSession, rows: type[M], **place: Unpack[Place]) -> Page[M]: ...
@overload
async def page(session: AsyncSession, rows: Select[tuple[M]], **place: Unpack[Place]) -> Page[M]: ...
@overload
async def page(session: AsyncSession, rows: Select[M], **place: Unpack[Place]) -> Page[M]: ...
async def page(
    session: AsyncSession,
    rows: Any,
    *,
    limit: int,
    after: object = None,
    before: object = None,
    newest_first: bool = False,
    attribute: str | None = None,
) -> Page[Any]:
    """As :func:`sqlalchemy_public_id.lookup.page`."""
    place: Place = {
        "limit": limit,
        "after": after,
        "before": before,
        "newest_first": newest_first,
        "attribute": attribute,
    }
    found: Page[Any] = await asynchronous(session).run_sync(lambda sync: lookup.page(sync, rows, **place))
    return found
