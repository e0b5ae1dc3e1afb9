"""Which objects of the running flush the library has made ids for.

Kept for each connection, because that is what an event of the engine and one of the mapper have in common. An entry
says: the row with this id in this column belongs to that object, and the id may be replaced.
"""

from __future__ import annotations

import weakref
from typing import Any

from sqlalchemy import Column
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState
from sqlalchemy.orm.attributes import set_committed_value

__all__ = ["Pending", "begin", "drop", "of"]


class Pending(dict[tuple[Column[Any], str], tuple[InstanceState[Any], str]]):
    """(column, id) → (state of the object, attribute name)."""

    __slots__ = ("__weakref__",)

    def replace(self, column: Column[Any], old: str, new: str) -> None:
        """The row with the id *old*, and its object, have the id *new* now."""
        found = self.pop((column, old), None)
        if found is not None:
            self[column, new] = found
            state, key = found
            instance = state.obj()
            if instance is not None:
                set_committed_value(instance, key, new)


_pending: weakref.WeakKeyDictionary[Connection, Pending] = weakref.WeakKeyDictionary()


def of(connection: Connection) -> Pending | None:
    """The entries of *connection*, if a flush has begun there."""
    return _pending.get(connection)


def begin(connection: Connection) -> Pending:
    """The entries of *connection*, made now."""
    return _pending.setdefault(connection, Pending())


def drop(connection: Connection) -> None:
    """Forget the entries: the flush is over."""
    _pending.pop(connection, None)
