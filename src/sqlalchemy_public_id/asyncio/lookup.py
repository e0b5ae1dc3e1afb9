""":mod:`sqlalchemy_public_id.lookup` for an ``AsyncSession``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm.interfaces import ORMOption

from sqlalchemy_public_id import lookup

__all__ = ["get", "get_many", "get_one", "keys_of", "public_ids_of", "resolve"]

M = TypeVar("M")


async def get(
    session: AsyncSession,
    model: type[M],
    public_id: object,
    *,
    attribute: str | None = None,
    options: Sequence[ORMOption] = (),
    with_for_update: bool | Mapping[str, Any] = False,
    populate_existing: bool = False,
    execution_options: Mapping[str, Any] | None = None,
) -> M | None:
    """As :func:`sqlalchemy_public_id.lookup.get`."""
    return await session.run_sync(
        lookup.get,
        model,
        public_id,
        attribute=attribute,
        options=options,
        with_for_update=with_for_update,
        populate_existing=populate_existing,
        execution_options=execution_options,
    )


async def get_one(session: AsyncSession, model: type[M], public_id: object, **how: Any) -> M:
    """As :func:`sqlalchemy_public_id.lookup.get_one`."""
    return await session.run_sync(lambda sync: lookup.get_one(sync, model, public_id, **how))


async def resolve(session: AsyncSession, public_id: object, *, base: Any = None, **how: Any) -> Any | None:
    """As :func:`sqlalchemy_public_id.lookup.resolve`."""
    return await session.run_sync(lambda sync: lookup.resolve(sync, public_id, base=base, **how))


async def get_many(
    session: AsyncSession,
    model: type[M],
    public_ids: Iterable[object],
    *,
    attribute: str | None = None,
    options: Sequence[ORMOption] = (),
    execution_options: Mapping[str, Any] | None = None,
) -> dict[str, M]:
    """As :func:`sqlalchemy_public_id.lookup.get_many`."""
    return await session.run_sync(
        lookup.get_many, model, public_ids, attribute=attribute, options=options, execution_options=execution_options
    )


async def keys_of(
    session: AsyncSession, model: type[Any], public_ids: Iterable[object], *, attribute: str | None = None
) -> dict[str, Any]:
    """As :func:`sqlalchemy_public_id.lookup.keys_of`."""
    return await session.run_sync(lookup.keys_of, model, public_ids, attribute=attribute)


async def public_ids_of(
    session: AsyncSession, model: type[Any], keys: Iterable[Any], *, attribute: str | None = None
) -> dict[Any, str]:
    """As :func:`sqlalchemy_public_id.lookup.public_ids_of`."""
    return await session.run_sync(lookup.public_ids_of, model, keys, attribute=attribute)
