""":mod:`sqlalchemy_public_id.lookup` for an ``AsyncSession``.

The signatures are written out, so that type checkers see the model and the names of arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from sqlalchemy import Select
from sqlalchemy.orm import QueryableAttribute
from sqlalchemy.orm.interfaces import ORMOption
from typing_extensions import Unpack

from sqlalchemy_public_id import lookup
from sqlalchemy_public_id.asyncio._sessions import AnyAsyncSession, async_session
from sqlalchemy_public_id.lookup import LoadOptions, Page, Where
from sqlalchemy_public_id.lookup.collection import CollectionOf
from sqlalchemy_public_id.lookup.selecting import Rows

__all__ = [
    "LoadOptions",
    "Page",
    "Where",
    "get",
    "get_many",
    "get_one",
    "keys_of",
    "page",
    "pages",
    "public_ids_of",
    "resolve",
    "resolve_many",
]

M = TypeVar("M")  # a model
P = TypeVar("P")  # the model of the parents of rows


async def get(
    session: AnyAsyncSession,
    model: Rows[M],
    public_id: object,
    *,
    attribute: str | None = None,
    **load: Unpack[LoadOptions],
) -> M | None:
    """Async version of :func:`sqlalchemy_public_id.lookup.get`."""
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
    """Async version of :func:`sqlalchemy_public_id.lookup.get_one`."""
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
    """Async version of :func:`sqlalchemy_public_id.lookup.get_many`."""
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
    cursor_execution_options: Mapping[str, Any] | None = None,
    references: Iterable[QueryableAttribute[Any]] = (),
    count: bool | int = False,
) -> Page[M]:
    """Async version of :func:`sqlalchemy_public_id.lookup.page`."""
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
        cursor_execution_options=cursor_execution_options,
        references=references,
        count=count,
    )
    return found


async def pages(
    session: AnyAsyncSession,
    relationship: CollectionOf[M],
    *,
    of: Iterable[P],
    limit: int,
    after: Mapping[P, object] | None = None,
    newest_first: bool = False,
    order_by: Any = None,
    attribute: str | None = None,
    where: Where | None = None,
    options: Iterable[ORMOption] = (),
    references: Iterable[QueryableAttribute[Any]] = (),
) -> dict[P, Page[M]]:
    """Async version of :func:`sqlalchemy_public_id.lookup.pages`."""
    found: dict[P, Page[M]] = await _run(
        session,
        lookup.pages,
        relationship,
        of=of,
        limit=limit,
        after=after,
        newest_first=newest_first,
        order_by=order_by,
        attribute=attribute,
        where=where,
        options=options,
        references=references,
    )
    return found


async def resolve(
    session: AnyAsyncSession,
    public_id: object,
    *,
    base: Any = None,
    models: Iterable[type[Any]] | None = None,
    **load: Unpack[LoadOptions],
) -> Any | None:
    """Async version of :func:`sqlalchemy_public_id.lookup.resolve`."""
    return await _run(session, lookup.resolve, public_id, base=base, models=models, **load)


async def resolve_many(
    session: AnyAsyncSession,
    public_ids: Iterable[object],
    *,
    base: Any = None,
    models: Iterable[type[Any]] | None = None,
    **load: Unpack[LoadOptions],
) -> dict[str, Any]:
    """Async version of :func:`sqlalchemy_public_id.lookup.resolve_many`."""
    rows: dict[str, Any] = await _run(session, lookup.resolve_many, public_ids, base=base, models=models, **load)
    return rows


async def keys_of(
    session: AnyAsyncSession,
    model: type[Any] | Select[Any],
    public_ids: Iterable[object],
    *,
    attribute: str | None = None,
    where: Where | None = None,
    execution_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Async version of :func:`sqlalchemy_public_id.lookup.keys_of`."""
    keys: dict[str, Any] = await _run(
        session,
        lookup.keys_of,
        model,
        public_ids,
        attribute=attribute,
        where=where,
        execution_options=execution_options,
    )
    return keys


async def public_ids_of(
    session: AnyAsyncSession,
    model: type[Any] | Select[Any],
    keys: Iterable[Any],
    *,
    attribute: str | None = None,
    where: Where | None = None,
    execution_options: Mapping[str, Any] | None = None,
) -> dict[Any, str]:
    """Async version of :func:`sqlalchemy_public_id.lookup.public_ids_of`."""
    public_ids: dict[Any, str] = await _run(
        session,
        lookup.public_ids_of,
        model,
        keys,
        attribute=attribute,
        where=where,
        execution_options=execution_options,
    )
    return public_ids


async def _run(session: AnyAsyncSession, function: Any, *args: Any, **kwargs: Any) -> Any:
    # Any, because mypy cannot pass a TypedDict to a ParamSpec
    return await async_session(session).run_sync(function, *args, **kwargs)
