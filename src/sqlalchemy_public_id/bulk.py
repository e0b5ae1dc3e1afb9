"""Insert many objects and have all of them filled in: key, public id and defaults, on every database.

>>> from sqlalchemy_public_id import bulk
>>> users = [User(name=name) for name in ("Ada", "Grace", "Edsger")]
>>> bulk.insert(session, users)
>>> all(user.id and user.public_id for user in users)
True

Where the database returns the keys of many rows at once and in order (PostgreSQL, MariaDB), this is ``add_all()`` and
``flush()``. MySQL and SQLite cannot, so the unit of work sends one INSERT per row there; :func:`insert` sends the rows
together instead and reads their keys back by public id. Objects that need the unit of work (with relationships set, SQL
expressions as values, joined-table inheritance, listeners to their INSERTs) are left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, cast

from sqlalchemy import Column, String, Table, inspect, select
from sqlalchemy import insert as insert_into
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.sql import ClauseElement

from sqlalchemy_public_id import listeners
from sqlalchemy_public_id._compat import register_persistent
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import shown
from sqlalchemy_public_id.guard import pending

__all__ = ["insert"]


def insert(session: Session, objects: Iterable[object]) -> None:
    """Insert *objects*; afterwards they are persistent in *session*, with key and public id.

    What else is pending in *session* is flushed first. Collisions are retried as everywhere.
    """
    listeners.require_session(session)
    states = dict.fromkeys(map(_state, objects))  # an object that is named twice is one row
    groups = [(mapper, list(group)) for mapper, group in groupby(states, key=lambda state: state.mapper)]
    together = [_goes_in_statements(session, mapper, states) for mapper, states in groups]
    for (mapper, members), statements in zip(groups, together, strict=True):
        if statements:
            session.flush()
            _insert_statements(session, mapper, members)
        else:
            session.add_all([state.obj() for state in members])
            if any(together):  # keep the order of the objects
                session.flush()
    session.flush()


def _state(instance: object) -> InstanceState[Any]:
    state = cast("InstanceState[Any] | None", inspect(instance, raiseerr=False))
    if not isinstance(state, InstanceState):
        raise TypeError(
            f"expected mapped objects, not {shown(instance)}: for dictionaries use session.execute(insert(Model), rows)"
        )
    return state


def _goes_in_statements(session: Session, mapper: Mapper[Any], states: Sequence[InstanceState[Any]]) -> bool:
    """Whether multi-row statements do for *states* all that the unit of work would."""
    dialect = session.get_bind(mapper).dialect
    if len(states) < 2 or (dialect.insert_executemany_returning and traits_for(dialect).returns_in_order):
        return False
    table, keys = mapper.local_table, mapper.primary_key
    if mapper.inherits is not None or len(keys) != 1 or not isinstance(table, Table):
        return False
    if keys[0] is not table.autoincrement_column or not listeners.id_attributes(mapper):
        return False
    if mapper.version_id_col is not None or listeners.are_others_listening(session, mapper):
        return False
    key = mapper.get_property_by_column(keys[0]).key
    relationships = set(mapper.relationships.keys())
    return all(
        state.transient
        and state.dict.get(key) is None
        and not any(state.dict.get(name) for name in relationships & state.dict.keys())
        and not any(
            isinstance(value, ClauseElement) or hasattr(value, "__clause_element__") for value in state.dict.values()
        )
        for state in states
    )


def _insert_statements(session: Session, mapper: Mapper[Any], states: list[InstanceState[Any]]) -> None:
    session.add_all([state.obj() for state in states])
    transaction = session.get_nested_transaction() or session.get_transaction()
    assert transaction is not None  # add_all() has begun one
    with session.no_autoflush:
        try:
            _send(session, mapper, states)
        except BaseException:
            transaction.rollback()  # as a flush does: nothing stays half-done
            raise
    register_persistent(session, states)


def _send(session: Session, mapper: Mapper[Any], states: list[InstanceState[Any]]) -> None:
    connection = session.connection(bind_arguments={"mapper": mapper})
    ids = listeners.id_attributes(mapper)
    columns = {
        prop.key: prop.columns[0]
        for prop in mapper.column_attrs
        if isinstance(prop.columns[0], Column) and prop.columns[0].table is mapper.local_table
    }
    constant: dict[str, Any] = {}
    if isinstance(mapper.polymorphic_on, Column):
        constant[mapper.polymorphic_on.key] = mapper.polymorphic_identity
    try:
        for state in states:
            listeners.ensure_ids(state, ids, connection)
        for names, group in groupby(states, key=lambda state: _sent(state, columns)):
            members = list(group)
            rows = [constant | {columns[name].key: state.dict.get(name) for name in names} for state in members]
            connection.execute(insert_into(cast("Table", mapper.local_table)), rows)
            _read_back(session, mapper, members, [name for name in columns if name not in names])
    finally:
        pending.drop(connection, session)


def _sent(state: InstanceState[Any], columns: dict[str, Column[Any]]) -> tuple[str, ...]:
    """The attributes to send, as in a flush: all but the key and those that a default is to fill."""
    return tuple(
        name
        for name, column in columns.items()
        if (name in state.dict if column.type.should_evaluate_none else state.dict.get(name) is not None)
        or not (column.primary_key or column.type.should_evaluate_none or _has_default(column))
    )


def _has_default(column: Column[Any]) -> bool:
    return column.default is not None or column.server_default is not None


def _read_back(session: Session, mapper: Mapper[Any], states: list[InstanceState[Any]], unset: list[str]) -> None:
    """Fill in what the database and the column defaults made, found by public id."""
    name, column = next(iter(listeners.id_attributes(mapper).items()))
    attributes = [mapper.attrs[key].class_attribute for key in unset]
    by_id = {state.dict[name]: state.obj() for state in states}
    connection = session.connection(bind_arguments={"mapper": mapper})
    for condition in traits_for(connection.dialect).any_of(column, list(by_id), String()):
        query = select(column, *(attribute.expression for attribute in attributes)).where(condition)
        for public_id, *values in connection.execute(query):
            for key, value in zip(unset, values, strict=True):
                set_committed_value(by_id[public_id], key, value)
