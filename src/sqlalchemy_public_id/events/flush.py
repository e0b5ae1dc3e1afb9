"""A flush: its session has guarded the engine, and the column default makes the ids while the INSERT is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from weakref import ref

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapper, Session

from sqlalchemy_public_id import guard
from sqlalchemy_public_id._compat import flush_listeners, insert_listeners
from sqlalchemy_public_id.guard import guarded_dialects

Values: TypeAlias = dict[str, Any]
"""The attributes of an object that are set, as in its ``__dict__``."""

before_bulk_insert: list[Callable[[Session, Iterable[object]], None]] = []
"""Hooks that a flush runs through ``before_flush``; ``bulk.insert()`` does not flush and calls them itself."""

_PACKAGE = f"{__name__.partition('.')[0]}."


def has_other_listeners(session: Session, mapper: Mapper[Any]) -> bool:
    """Return True if the application has its own flush or insert listeners."""
    # wrappers of SQLAlchemy count as others: listeners of this library must not need one
    modules = (getattr(one, "__module__", "") for one in flush_listeners(session) + insert_listeners(mapper))
    return not all(module.startswith(_PACKAGE) for module in modules)


def after_begin(session: Session, transaction: object, connection: Connection) -> None:
    """Guard the engine, when a session has begun a transaction on one of its connections."""
    if ref(connection.dialect) not in guarded_dialects:
        guard.install_for(connection)
        guard.warn_if_unguarded(connection.dialect)
