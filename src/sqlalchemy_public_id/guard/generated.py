"""Generated ids of the running flush, by connection. Only these may be replaced after a collision.

The events of the engine and of the mapper have nothing but the connection in common.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import ref

from sqlalchemy import Column, func, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import InstanceState, Session

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import PublicIdCollision
from sqlalchemy_public_id.orm import marks
from sqlalchemy_public_id.registry import model_of
from sqlalchemy_public_id.types import max_retries, public_id_type
from sqlalchemy_public_id.weak import RefDict

logger: logging.Logger = logging.getLogger("sqlalchemy_public_id")

_COUNTABLE = 10_000_000
"""Spaces up to this size can be full; in a larger one, counting the rows would only cost time."""


class GeneratedIds(dict[Column[Any], "dict[str, InstanceState[Any] | None]"]):
    """Column → id → state of the object; None if the application gave the id."""

    __slots__ = ("connection", "is_over", "shown")

    def __init__(self, connection: ref[Connection]) -> None:
        self.shown: set[tuple[Column[Any], str]] = set()
        """Ids that the application has seen before the flush."""
        self.connection: ref[Connection] = connection
        self.is_over: bool = False
        """True after the end of the flush."""

    def __missing__(self, column: Column[Any]) -> dict[str, InstanceState[Any] | None]:
        self[column] = {}
        return self[column]

    def state_of(self, column: Column[Any], text: str) -> InstanceState[Any] | None:
        """Return the state of the object that has the generated id *text*."""
        return self[column].get(text)


running: RefDict[Connection, GeneratedIds] = RefDict()
"""Connection → the ids of the flush that runs on it. Empty while no flush runs."""
_flushed: RefDict[Session, list[GeneratedIds]] = RefDict()
"""Session → the ids of its flush, by connection."""


def of(connection: Connection) -> GeneratedIds | None:
    """Return the ids of the flush that runs on *connection*, if one does."""
    return running.get(ref(connection))


def begin(connection: Connection, session: Session | None) -> GeneratedIds:
    """Return the ids of a flush of *session* that begins on *connection*: none yet."""
    # a flush of one object passes here and through end(), so that each call counts
    key = running.key(connection)
    ids = running[key] = GeneratedIds(key)
    if session is not None:
        flushed = _flushed.get(ref(session))
        if flushed is None:
            _flushed.keep(session, [ids])
        else:
            flushed.append(ids)
    return ids


def of_session(session: Session) -> list[GeneratedIds]:
    """Return the ids of the flush of *session*, of each of its connections."""
    return _flushed.get(ref(session), [])


def end(session: Session) -> None:
    """Forget the ids at the end of a flush of *session*. Those of another session's flush around it are kept."""
    for ids in _flushed.pop(ref(session), ()):
        ids.is_over = True
        ids.clear()
        if running.get(ids.connection) is ids:
            running.pop(ids.connection, None)


def replace(ids: GeneratedIds | None, column: Column[Any], old: str, new: str) -> None:
    """Note that the row with the id *old* has the id *new* now, and set it on the object of the row."""
    state = None if ids is None else ids[column].pop(old, None)
    if ids is not None and state is not None:
        ids[column][new] = state
        marks.replace(state, state.mapper.get_property_by_column(column).key, new)


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
    taken: Iterable[tuple[Column[Any], str]] = (),
    options: Mapping[str, Any] | None = None,
) -> PublicIdCollision:
    """Log and build the error for a row of *column* that has used up its retries; *taken* ids are not free either."""
    format = public_id_type(column).id_format
    model = model_of(column.table, column.key)
    logger.error("%s: a row has got no free %s in %d tries", column.table.name, column.name, max_retries(column))
    rows = None
    if format.capacity <= _COUNTABLE:
        texts = {text for other, text in taken if other is column}
        ids = of(connection)
        if ids is not None:
            texts.update(ids[column])
        rows = _count_taken(connection, column, texts, options or {})
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
