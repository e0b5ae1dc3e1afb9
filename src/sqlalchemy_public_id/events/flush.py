"""Ids for the rows of a flush: generated for objects without one, and noted, so that a collision can replace them.

The events of a session begin and end the time in which they may be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from weakref import ref

from sqlalchemy import Column
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.interfaces import EXT_CONTINUE

from sqlalchemy_public_id import guard
from sqlalchemy_public_id._compat import flush_listeners, insert_listeners
from sqlalchemy_public_id.guard import generated, guarded_dialects
from sqlalchemy_public_id.guard.generated import GeneratedIds, exhausted
from sqlalchemy_public_id.orm.inspection import id_attributes
from sqlalchemy_public_id.orm.marks import marks_of, replace
from sqlalchemy_public_id.types import is_expression, max_retries, public_id_type

Values: TypeAlias = dict[str, Any]
"""The attributes of an object that are set, as in its ``__dict__``."""

# --- before the INSERT

before_bulk_insert: list[Callable[[Session, Iterable[object]], None]] = []
"""Hooks that a flush runs through ``before_flush``; ``bulk.insert()`` does not flush and calls them itself."""


def give_ids(attributes: dict[str, Column[Any]]) -> Callable[[object, Connection, InstanceState[Any]], Any]:
    """Return a listener to ``before_insert`` that gives an object the ids that it lacks.

    It notes which ids may be replaced. A flush calls it for each row, so the usual case is short: the object has no id,
    and nothing is marked.
    """
    columns = [(key, column, public_id_type(column).maker) for key, column in attributes.items()]
    last: GeneratedIds | None = None  # threads may replace it by theirs, which costs a look-up

    def before_insert(_: object, connection: Connection, state: InstanceState[Any]) -> Any:
        nonlocal last
        ids = last
        if ids is None or ids.is_over or ids.connection() is not connection:
            ids = last = _ids_of_flush(connection, state.session)
        values, is_marked = state.dict, "info" in state.__dict__  # which marks_of() would create
        for key, column, next_id in columns:
            if is_marked or values.get(key) is not None:
                _settle(ids, state, key, column, connection)
                continue
            value = next_id()
            # two objects of one flush must not have the same id, even if the table has neither
            if ids[column].setdefault(value, state) is not state:
                value = _draw_another(ids, column, connection)
                ids[column][value] = state
            values[key] = value
        return EXT_CONTINUE

    return before_insert


def give_many_ids(
    session: Session, connection: Connection, mapper: Mapper[Any], states: list[InstanceState[Any]], rows: list[Values]
) -> bool:
    """Give objects the ids that they lack, all together; *rows* are their attributes.

    Return True if none had an id: then all of them are well-formed.
    """
    attributes = id_attributes(mapper)
    ids = _ids_of_flush(connection, session)
    if any("info" in state.__dict__ for state in states) or any(
        row.get(key) is not None for key in attributes for row in rows
    ):
        settle = give_ids(attributes)
        for state in states:
            settle(mapper, connection, state)
        return False
    for key, column in attributes.items():
        taken = ids[column]
        for state, row, value in zip(states, rows, public_id_type(column).next_ids(len(rows)), strict=True):
            if taken.setdefault(value, state) is not state:
                value = _draw_another(ids, column, connection)
                taken[value] = state
            row[key] = value
    return True


def _ids_of_flush(connection: Connection, session: Session | None) -> GeneratedIds:
    ids = generated.of(connection)
    if ids is None:
        if ref(connection.dialect) not in guarded_dialects:
            guard.install_for(connection)
            guard.warn_if_unguarded(connection.dialect)
        ids = generated.begin(connection, session)
    return ids


def _settle(
    ids: GeneratedIds, state: InstanceState[Any], key: str, column: Column[Any], connection: Connection
) -> None:
    """Note the id of an object that has one, or a mark; give it one if it has none, or that of another row."""
    values, marks = state.dict, marks_of(state)
    value = values.get(key)
    if value is None or key in marks.borrowed:
        value = public_id_type(column).next_id()
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
        return
    if ids[column].setdefault(value, state) is not state:
        value = _draw_another(ids, column, connection)
        ids[column][value] = state
        if values.get(key) is not None:
            replace(state, key, value)
    values[key] = value


def _reserve_given_id(ids: GeneratedIds, column: Column[Any], given: str, connection: Connection) -> None:
    # An object of the same flush may have drawn the id before. It gets another one, unless its row was sent already or
    # the application has seen the id: then the database reports the duplicate.
    other = ids.state_of(column, given)
    if other is not None and (column, given) not in ids.shown and _is_unwritten(other):
        generated.replace(ids, column, given, _draw_another(ids, column, connection))
    ids[column][given] = None


def _is_unwritten(state: InstanceState[Any]) -> bool:
    # the database makes the key: without one, the row was not sent
    mapper = state.mapper
    return all(state.dict.get(mapper.get_property_by_column(key).key) is None for key in mapper.primary_key)


def _draw_another(ids: GeneratedIds, column: Column[Any], connection: Connection) -> str:
    type_ = public_id_type(column)
    for _ in range(max_retries(column)):
        value = type_.next_id()
        if value not in ids[column]:
            return value
    raise exhausted(connection, column)


_PACKAGE = f"{__name__.partition('.')[0]}."


def has_other_listeners(session: Session, mapper: Mapper[Any]) -> bool:
    """Return True if the application has its own flush or insert listeners."""
    # wrappers of SQLAlchemy count as others: listeners of this library must not need one (see events.mappers)
    modules = (getattr(one, "__module__", "") for one in flush_listeners(session) + insert_listeners(mapper))
    return not all(module.startswith(_PACKAGE) for module in modules)


# --- the events of a session


def after_begin(session: Session, transaction: object, connection: Connection) -> None:
    """Guard the engine: the session may execute an INSERT without a flush."""
    if ref(connection.dialect) not in guarded_dialects:
        guard.install_for(connection)


def end_flush(session: Session, context: object) -> None:
    """Forget the generated ids of a flush. They are stored, and cannot be replaced any more, or it has failed."""
    generated.end(session)


def after_soft_rollback(session: Session, transaction: object) -> None:
    """Mark the ids that a flush has generated for objects whose INSERT failed: they may be replaced again."""
    for ids in generated.of_session(session):
        for column, states in ids.items():
            for text, state in states.items():
                if state is not None and state.session_id is None and state.key is None:
                    key = state.mapper.get_property_by_column(column).key
                    if state.dict.get(key) == text:
                        marks_of(state, create=True).mark_generated(key)
    end_flush(session, transaction)


def persistent_to_transient(session: Session, state: InstanceState[Any]) -> None:
    """Mark the generated ids of an object whose row was rolled back: they may be replaced again."""
    for key in _attributes_of(state):
        if state.dict.get(key) is not None and key not in marks_of(state).given:
            marks_of(state, create=True).mark_generated(key)


def _attributes_of(state: InstanceState[Any]) -> dict[str, Column[Any]]:
    # clear_mappers() may have removed the mapper of an object that is still in a session
    mapper: Mapper[Any] | None = state.manager.mapper if state.manager.is_mapped else None
    return {} if mapper is None else id_attributes(mapper)
