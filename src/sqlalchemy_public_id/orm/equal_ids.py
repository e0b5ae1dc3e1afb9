"""Rows of one flush or statement to which a program gives equal ids, which are unique only with other columns.

SQLAlchemy tells the rows of an INSERT apart by their ids. So such rows are inserted by separate statements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import ref

from sqlalchemy import Column, event, literal
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, Mapper, ORMExecuteState, Session
from sqlalchemy.orm.interfaces import EXT_CONTINUE

from sqlalchemy_public_id._private import session_token
from sqlalchemy_public_id.guard.drawing import begin, flush_ids, show_again
from sqlalchemy_public_id.listeners import Listener, Listeners
from sqlalchemy_public_id.orm import listen_unwrapped
from sqlalchemy_public_id.weak import RefDict

_columns: RefDict[Mapper[Any], dict[str, Column[Any]]] = RefDict()
"""Mapper → attribute → column, for ids that are unique only with other columns."""


def separate_rows(mapper: Mapper[Any], key: str, column: Column[Any]) -> None:
    """Let rows of *mapper* with equal ids in the attribute *key* be inserted by separate statements."""
    columns = _columns.get(ref(mapper))
    if columns is None:
        columns = _columns.keep(mapper, {})
        listen_unwrapped(mapper, "before_insert", _separating_listener(columns))
        event.listen(mapper, "after_insert", _after_insert, raw=True)
        _LISTENERS.install()
    columns[key] = column


def _separating_listener(
    columns: Mapping[str, Column[Any]],
) -> Callable[[Mapper[Any], Connection, InstanceState[Any]], object]:
    """Return the listener to ``before_insert`` that separates an object whose id another one of the flush has.

    If an attribute is an SQL expression, a flush sends the row in an INSERT of its own; here, it is the id as a
    parameter.
    """

    def before_insert(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> object:
        values: dict[str, Any] = state.obj().__dict__
        for key, column in columns.items():
            given = values.get(key)
            if not isinstance(given, str):
                continue
            by_column = flush_ids.get(ref(connection))
            ids = by_column.get(column) if by_column else None
            if ids is None or ids.session != session_token(state):
                ids = begin(state, connection, column)
            if ids is not None and given in ids.used:
                ids.alone[state, key] = given
                values[key] = literal(given, column.type)
            elif ids is not None:
                ids.used.add(given)
        return EXT_CONTINUE

    return before_insert


def _after_insert(mapper: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
    """Let an object show its id again. Runs after the INSERT of each object of the mapper."""
    for ids in (flush_ids.get(ref(connection)) or {}).values():
        if ids.alone:
            show_again(ids, [each for each in ids.alone if each[0] is state])


def _send_rows_alone(state: ORMExecuteState) -> None:
    """Send each row of ``session.execute(insert(Model), rows)`` alone if two rows have equal ids.

    Runs before each statement of the ORM, in programs with ids that are unique only with other columns.
    """
    if state.is_insert and state.is_executemany and state.bind_mapper is not None:
        rows: Any = state.parameters
        for name in _columns.get(ref(state.bind_mapper)) or ():
            given = [row[name] for row in rows if row.get(name) is not None]
            if len(set(given)) < len(given):
                state.update_execution_options(insertmanyvalues_page_size=1)


_LISTENERS = Listeners(Listener(Session, "do_orm_execute", _send_rows_alone))
