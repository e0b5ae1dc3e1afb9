"""The objects of a flush: the row with this id in this column is that object's, and its id may be replaced.

They are kept for each connection, because that is what an event of the engine and one of the mapper have in common.
"""

from __future__ import annotations

import weakref
from typing import Any

from sqlalchemy import Column
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, Session

from sqlalchemy_public_id.orm import marks

__all__ = ["Pending", "begin", "drop", "is_ours", "of", "replace"]


class Pending(dict[tuple[Column[Any], str], "InstanceState[Any] | None"]):
    """(column, id) → state of the object; ``None`` where the caller gave the id."""

    __slots__ = ("session", "shown")

    def __init__(self, session: Session | None) -> None:
        super().__init__()
        self.shown = set[tuple[Column[Any], str]]()
        """Ids that the program has seen before the flush."""
        self.session = weakref.ref(session) if session is not None else None


_pending: weakref.WeakKeyDictionary[Connection, Pending] = weakref.WeakKeyDictionary()


def of(connection: Connection) -> Pending | None:
    """The entries of *connection*, if a flush has begun there."""
    return _pending.get(connection)


def begin(connection: Connection, session: Session | None) -> Pending:
    """The entries of *connection*, made now, for a flush of *session*."""
    return _pending.setdefault(connection, Pending(session))


def drop(connection: Connection, session: Session) -> None:
    """Forget the entries: the flush of *session* is over. Those of another session's flush, around it, are kept."""
    found = _pending.get(connection)
    if found is not None and (found.session is None or found.session() in (session, None)):
        _pending.pop(connection, None)


def is_ours(waiting: Pending | None, column: Column[Any], text: str) -> bool:
    """Whether the library made the id *text* of a row in *column*, for an object of the flush."""
    return waiting is not None and waiting.get((column, text)) is not None


def replace(waiting: Pending | None, column: Column[Any], old: str, new: str) -> None:
    """The row with the id *old*, and its object if a flush writes one, have the id *new* now."""
    state = None if waiting is None else waiting.pop((column, old), None)
    if waiting is not None and state is not None:
        waiting[column, new] = state
        marks.replace(state, state.mapper.get_property_by_column(column).key, new)
