"""Ids for the rows of a flush: generated for objects without one, and noted, so that a collision can replace them.

The events of a session begin and end the time in which they may be replaced.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from sqlalchemy import Column
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import instance_state

from sqlalchemy_public_id import guard
from sqlalchemy_public_id._compat import flush_listeners, insert_listeners
from sqlalchemy_public_id.guard import generated
from sqlalchemy_public_id.guard.generated import GeneratedIds, exhausted
from sqlalchemy_public_id.orm.inspection import id_attributes
from sqlalchemy_public_id.orm.marks import marks_of, replace
from sqlalchemy_public_id.types import is_expression, max_retries, public_id_type

# --- before the INSERT

before_bulk_insert: list[Callable[[Session, Iterable[object]], None]] = []
"""Hooks that a flush runs through ``before_flush``; ``bulk.insert()`` does not flush and calls them itself."""


def ensure_ids(
    states: Sequence[InstanceState[Any]], attributes: dict[str, Column[Any]], connection: Connection
) -> None:
    """Give the objects of *states* the ids they lack, and note for *connection* which ones may be replaced."""
    ids = generated.of(connection)
    if ids is None:
        guard.install_for(connection)
        ids = generated.begin(connection, states[0].session)
    columns = [(key, column, public_id_type(column).next_id) for key, column in attributes.items()]
    for state in states:
        values, marks = state.dict, marks_of(state)
        for key, column, next_id in columns:
            value = values.get(key)
            if value is None or key in marks.borrowed:  # a borrowed id is that of another object's row
                value = next_id()
                if key in marks.borrowed:
                    marks.forget(key)
            elif key in marks.generated:
                marks.generated -= {key}  # the row has it from now on; a rollback marks it again
                ids.shown.add((column, value))
            else:
                marks = marks_of(state, create=True)
                marks.mark_given(key)
                if not is_expression(value):
                    _reserve_given_id(ids, column, value, connection)
                continue
            # two objects of one flush must not have the same id, even if the table has neither
            if ids.setdefault((column, value), state) is not state:
                value = _draw_another(ids, column, connection)
                ids[column, value] = state
                if values.get(key) is not None:
                    replace(state, key, value)
            values[key] = value


def _reserve_given_id(ids: GeneratedIds, column: Column[Any], given: str, connection: Connection) -> None:
    # An object of the same flush may have drawn the id before. It gets another one, unless its row was sent already or
    # the application has seen the id: then the database reports the duplicate.
    other = ids.get((column, given))
    if other is not None and (column, given) not in ids.shown and _is_unwritten(other):
        generated.replace(ids, column, given, _draw_another(ids, column, connection))
    ids[column, given] = None


def _is_unwritten(state: InstanceState[Any]) -> bool:
    # the database makes the key: without one, the row was not sent
    mapper = state.mapper
    return all(state.dict.get(mapper.get_property_by_column(key).key) is None for key in mapper.primary_key)


def _draw_another(ids: GeneratedIds, column: Column[Any], connection: Connection) -> str:
    type_ = public_id_type(column)
    for _ in range(max_retries(column)):
        value = type_.next_id()
        if (column, value) not in ids:
            return value
    raise exhausted(connection, column)


_PACKAGE = f"{__name__.partition('.')[0]}."


def has_other_listeners(session: Session, mapper: Mapper[Any]) -> bool:
    """Return True if the application has its own flush or insert listeners."""
    # wrappers of SQLAlchemy count as others: listeners of this library must not need one (see events.mappers)
    modules = (getattr(one, "__module__", "") for one in flush_listeners(session) + insert_listeners(mapper))
    return not all(module.startswith(_PACKAGE) for module in modules)


# --- the events of a session

_connections: weakref.WeakKeyDictionary[Session, weakref.WeakSet[Connection]] = weakref.WeakKeyDictionary()


def after_begin(session: Session, transaction: object, connection: Connection) -> None:
    """Guard the engine, and remember the connection for the end of the flush."""
    guard.install_for(connection)
    _connections.setdefault(session, weakref.WeakSet()).add(connection)


def end_flush(session: Session, context: object) -> None:
    """Forget the generated ids of a flush. They are stored, and cannot be replaced any more, or it has failed."""
    for connection in _connections.get(session, ()):
        generated.drop(connection, session)


def persistent_to_transient(session: Session, instance: object) -> None:
    """Mark the generated ids of an object whose row was rolled back: they may be replaced again."""
    state = instance_state(instance)
    for key in _attributes_of(state):
        if state.dict.get(key) is not None and key not in marks_of(state).given:
            marks_of(state, create=True).mark_generated(key)


def pending_to_transient(session: Session, instance: object) -> None:
    """Mark the ids that this flush has generated for an object whose INSERT failed, or that was expunged before it."""
    state = instance_state(instance)
    for key, column in _attributes_of(state).items():
        entry = column, cast("str", state.dict.get(key))
        flushes = map(generated.of, _connections.get(session, ()))
        if any(ids is not None and ids.get(entry) is state for ids in flushes):
            marks_of(state, create=True).mark_generated(key)


def _attributes_of(state: InstanceState[Any]) -> dict[str, Column[Any]]:
    # clear_mappers() may have removed the mapper of an object that is still in a session
    mapper: Mapper[Any] | None = state.manager.mapper if state.manager.is_mapped else None
    return {} if mapper is None else id_attributes(mapper)
