"""The events of a session: which generated ids its flush may replace, and which ids belong to no row any more."""

from __future__ import annotations

import weakref
from typing import Any, cast

from sqlalchemy import Column
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import instance_state

from sqlalchemy_public_id import guard
from sqlalchemy_public_id.guard import generated
from sqlalchemy_public_id.orm.inspection import id_attributes
from sqlalchemy_public_id.orm.marks import marks_of

_connections: weakref.WeakKeyDictionary[Session, weakref.WeakSet[Connection]] = weakref.WeakKeyDictionary()


def on_begin(session: Session, transaction: object, connection: Connection) -> None:
    """Guard the engine, and remember the connection for the end of the flush."""
    guard.install_for(connection)
    _connections.setdefault(session, weakref.WeakSet()).add(connection)


def on_flushed(session: Session, context: object) -> None:
    """Forget the generated ids of the flush: they are stored, and cannot be replaced any more."""
    for connection in _connections.get(session, ()):
        generated.drop(connection, session)


def on_rolled_back(session: Session, previous: object) -> None:
    """Forget the generated ids of a flush that failed."""
    on_flushed(session, previous)


def on_row_taken_back(session: Session, instance: object) -> None:
    """The row of *instance* is rolled back: an id that the library made for it may be replaced again."""
    state = instance_state(instance)
    for key in _attributes_of(state):
        if state.dict.get(key) is not None and key not in marks_of(state).given:
            marks_of(state, create=True).make(key)


def on_taken_back(session: Session, instance: object) -> None:
    """The INSERT of *instance* has failed, or it was expunged before: the same for what this flush has made."""
    state = instance_state(instance)
    for key, column in _attributes_of(state).items():
        drawn = column, cast("str", state.dict.get(key))
        flushes = map(generated.of, _connections.get(session, ()))
        if any(flush is not None and flush.get(drawn) is state for flush in flushes):
            marks_of(state, create=True).make(key)


def _attributes_of(state: InstanceState[Any]) -> dict[str, Column[Any]]:
    """Return the public ids of an object; of one that is not mapped, or not any more, there are none."""
    mapper: Mapper[Any] | None = state.manager.mapper if state.manager.is_mapped else None
    return {} if mapper is None else id_attributes(mapper)
