""":mod:`sqlalchemy_public_id.lookup` for an ``AsyncSession``.

Functions that return rows of a model have their signatures written out: type checkers lose the model otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from typing_extensions import Unpack

from sqlalchemy_public_id import lookup
from sqlalchemy_public_id.asyncio._awaited import AnyAsyncSession, async_session, awaited
from sqlalchemy_public_id.lookup import LoadOptions, Page
from sqlalchemy_public_id.lookup.selecting import Rows, Where

__all__ = ["get", "get_many", "get_one", "keys_of", "page", "public_ids_of", "resolve"]

M = TypeVar("M")  # a model


async def get(
    session: AnyAsyncSession,
    model: Rows[M],
    public_id: object,
    *,
    attribute: str | None = None,
    **load: Unpack[LoadOptions],
) -> M | None:
    """As :func:`sqlalchemy_public_id.lookup.get`."""
    row: M | None = await _run(session, lookup.get, model, public_id, attribute=attribute, **load)
    return row


async def get_one(
    session: AnyAsyncSession,
    model: Rows[M],
    public_id: object,
    *,
    attribute: str | None = None,
    field: str | None = None,
    **load: Unpack[LoadOptions],
) -> M:
    """As :func:`sqlalchemy_public_id.lookup.get_one`."""
    row: M = await _run(session, lookup.get_one, model, public_id, attribute=attribute, field=field, **load)
    return row


async def get_many(
    session: AnyAsyncSession,
    model: Rows[M],
    public_ids: Iterable[object],
    *,
    attribute: str | None = None,
    field: str | None = None,
    **load: Unpack[LoadOptions],
) -> dict[str, M]:
    """As :func:`sqlalchemy_public_id.lookup.get_many`."""
    rows: dict[str, M] = await _run(
        session, lookup.get_many, model, public_ids, attribute=attribute, field=field, **load
    )
    return rows


async def page(
    session: AnyAsyncSession,
    rows: Rows[M],
    *,
    limit: int,
    after: object = None,
    before: object = None,
    newest_first: bool = False,
    order_by: Any = None,
    attribute: str | None = None,
    where: Where | None = None,
    count: bool = False,
) -> Page[M]:
    """As :func:`sqlalchemy_public_id.lookup.page`."""
    found: Page[M] = await _run(
        session,
        lookup.page,
        rows,
        limit=limit,
        after=after,
        before=before,
        newest_first=newest_first,
        order_by=order_by,
        attribute=attribute,
        where=where,
        count=count,
    )
    return found


resolve = awaited(lookup.resolve)
keys_of = awaited(lookup.keys_of)
public_ids_of = awaited(lookup.public_ids_of)


async def _run(session: AnyAsyncSession, function: Any, *args: Any, **kwargs: Any) -> Any:
    # Any: mypy passes no TypedDict on to a ParamSpec
    return await async_session(session).run_sync(function, *args, **kwargs)
