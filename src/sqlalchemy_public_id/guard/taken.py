"""Which ids a table holds, the error for a row that finds none that is free, and the warning where none is tried."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Column, func, select
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import PublicIdCollision
from sqlalchemy_public_id.registry import model_of
from sqlalchemy_public_id.types import max_retries, public_id_type

logger: logging.Logger = logging.getLogger("sqlalchemy_public_id")

_COUNTABLE = 10_000_000
"""Spaces up to this size can be full; in a larger one, counting the rows would only cost time."""


_warned: weakref.WeakSet[Dialect] = weakref.WeakSet()


def warn_unguarded(dialect: Dialect, missing: str) -> None:
    """Log, once for each engine, that collisions are not retried, and what the database or the driver is *missing*."""
    if dialect not in _warned:
        _warned.add(dialect)
        logger.warning(
            "public ids on %s: a collision is raised and not retried, because %s; "
            "ids are made and checked as everywhere",
            dialect.name,
            missing,
        )


def stored_ids(connection: Any, column: Column[Any], texts: Iterable[str], options: Mapping[str, Any]) -> set[str]:
    """Return those of *texts* that the table holds now."""
    traits = traits_for(connection.dialect)
    stored: set[str] = set()
    for condition in traits.any_of(column, list(texts), public_id_type(column).as_parameter):
        query = select(column).where(condition)
        if traits.reads_old_snapshot:  # a plain SELECT would not see the row that the INSERT has run into
            query = query.with_for_update(read=True)
        stored.update(connection.execute(query, execution_options=options).scalars())
    return stored


def exhausted(
    connection: Any,
    column: Column[Any],
    taken: Iterable[tuple[Column[Any], str]],
    options: Mapping[str, Any],
) -> PublicIdCollision:
    """Log and build the error for a row of *column* that has used up its retries; *taken* ids are not free either."""
    format = public_id_type(column).id_format
    model = model_of(column.table, column.key)
    logger.error("%s: a row has got no free %s in %d tries", column.table.name, column.name, max_retries(column))
    rows = None
    if format.capacity <= _COUNTABLE:
        texts = {text for other, text in taken if other is column}
        rows = _count_taken(connection, column, texts, options)
    return PublicIdCollision(
        model=model.__name__ if model else column.table.name,
        column=column.name,
        format=format,
        attempts=max_retries(column),
        capacity=format.capacity,
        rows=rows,
    )


def _count_taken(connection: Any, column: Column[Any], taken: set[str], options: Mapping[str, Any]) -> int | None:
    # row-level security may hide rows: the ids that have collided count, too
    try:
        visible = stored_ids(connection, column, taken, options)
        query = select(func.count()).select_from(column.table)
        rows: int = connection.execute(query, execution_options=options).scalar_one()
    except DBAPIError as error:
        if not traits_for(connection.dialect).is_permission_error(error.orig):
            raise
        return None
    return rows + len(taken - visible)
