"""Which objects the library has made ids for: the row with this id in this column is that object's, and may change.

The objects of a flush are kept for each connection, because that is what an event of the engine and one of the mapper
have in common. Ids that were made on first access are kept apart, until a flush takes their objects over: whoever gives
such an id to a statement means this very id.
"""

from __future__ import annotations

import weakref
from typing import Any

from sqlalchemy import Column
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, Session
from sqlalchemy.orm.attributes import set_committed_value

__all__ = ["Pending", "begin", "drop", "early", "is_ours", "of", "replace"]


class Pending(dict[tuple[Column[Any], str], "InstanceState[Any] | None"]):
    """(column, id) → state of the object; ``None`` where the caller gave the id."""

    __slots__ = ("session",)

    def __init__(self, session: Session | None) -> None:
        super().__init__()
        self.session = weakref.ref(session) if session is not None else None


_pending: weakref.WeakKeyDictionary[Connection, Pending] = weakref.WeakKeyDictionary()

early: weakref.WeakValueDictionary[tuple[Column[Any], str], InstanceState[Any]] = weakref.WeakValueDictionary()
"""(column, id) → state of the living object that got the id on first access, until a flush takes the object over."""


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
        instance = state.obj()
        if instance is not None:
            set_committed_value(instance, state.mapper.get_property_by_column(column).key, new)
