"""Ids for the rows of a flush: made for objects without one, reserved for objects that the application gave one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Column
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, Mapper, Session

from sqlalchemy_public_id import guard
from sqlalchemy_public_id.guard import generated
from sqlalchemy_public_id.guard.execution import exhausted
from sqlalchemy_public_id.orm.marks import marks_of, replace
from sqlalchemy_public_id.types import is_expression, max_retries, public_id_type

preparations: list[Callable[[Session, Iterable[object]], None]] = []
"""Hooks that a flush runs through ``before_flush``; ``bulk.insert()`` does not flush and calls them itself."""

_PACKAGE = f"{__name__.partition('.')[0]}."


def ensure_ids(
    states: Sequence[InstanceState[Any]], attributes: dict[str, Column[Any]], connection: Connection
) -> None:
    """Give the objects of *states* the ids they lack, and note for *connection* which ones may be replaced."""
    waiting = generated.of(connection)
    if waiting is None:
        guard.install_for(connection)
        waiting = generated.begin(connection, states[0].session)
    columns = [(key, column, public_id_type(column).next_id) for key, column in attributes.items()]
    for state in states:
        values, marks = state.dict, marks_of(state)
        for key, column, next_id in columns:
            value = values.get(key)
            if value is None or key in marks.settled:
                value = next_id()
                if key in marks.settled:
                    marks.forget(key)
            elif key in marks.made:
                marks.made -= {key}  # the row has it from now on; a rollback marks it again
                waiting.shown.add((column, value))
            else:
                marks = marks_of(state, create=True)
                marks.give(key)
                if not is_expression(value):
                    _reserve_given_id(waiting, column, value, connection)
                continue
            if waiting.setdefault((column, value), state) is not state:
                value = _another(waiting, column, connection)
                waiting[column, value] = state
                if values.get(key) is not None:
                    replace(state, key, value)
            values[key] = value


def _reserve_given_id(waiting: generated.Pending, column: Column[Any], given: str, connection: Connection) -> None:
    """Note the id *given* by the caller; an object of the same flush that drew it gets another one, if it still can."""
    other = waiting.get((column, given))
    if other is not None and (column, given) not in waiting.shown and _is_unwritten(other):
        generated.replace(waiting, column, given, _another(waiting, column, connection))
    waiting[column, given] = None


def _is_unwritten(state: InstanceState[Any]) -> bool:
    """Whether the row of *state* was surely not sent yet: then the database would have told its key."""
    mapper = state.mapper
    return all(state.dict.get(mapper.get_property_by_column(key).key) is None for key in mapper.primary_key)


def are_others_listening(session: Session, mapper: Mapper[Any]) -> bool:
    """Whether the program itself listens to flushes of *session* or to INSERTs of *mapper*."""
    flushes = session.dispatch.before_flush, session.dispatch.after_flush, session.dispatch.after_flush_postexec
    return (
        not all(map(_is_ours, chain(*flushes)))
        or len(list(mapper.dispatch.before_insert)) > 1  # one is ours, inside a function of SQLAlchemy's
        or len(list(mapper.dispatch.after_insert)) > 0
    )


def _is_ours(listener: Callable[..., Any]) -> bool:
    return getattr(listener, "__module__", "").startswith(_PACKAGE)


def _another(waiting: generated.Pending, column: Column[Any], connection: Connection) -> str:
    """An id that no other row of the flush has."""
    type_ = public_id_type(column)
    for _ in range(max_retries(column)):
        value = type_.next_id()
        if (column, value) not in waiting:
            return value
    raise exhausted(connection, column)
