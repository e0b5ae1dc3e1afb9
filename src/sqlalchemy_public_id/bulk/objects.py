"""Insert objects: choose the way for each group of them, have their rows sent, and make the objects persistent."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Literal, TypeAlias, cast

from sqlalchemy import Table
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import ClauseElement

from sqlalchemy_public_id._private import as_flush, can_persist, has_listeners, persist
from sqlalchemy_public_id.bulk.arrays import can_insert_arrays
from sqlalchemy_public_id.bulk.rows import Values, columns_of, send
from sqlalchemy_public_id.dialects import is_autocommit, traits_for
from sqlalchemy_public_id.errors import safe_repr
from sqlalchemy_public_id.orm.inspection import connection_to_write, id_attributes, is_sharded, session_of
from sqlalchemy_public_id.references import writing
from sqlalchemy_public_id.types import public_id_type

_FEW_ROWS = 20
"""Fewer rows are as fast without arrays."""

_PACKAGE = __name__.partition(".")[0]

_Way: TypeAlias = Literal["flush", "rows", "arrays"]


@dataclass
class _Group:
    """Objects of one model that follow each other."""

    mapper: Mapper[Any]
    states: list[InstanceState[Any]]
    rows: list[Values]
    """The attributes of each object."""
    objects: list[object]


def insert(session: Session, objects: Iterable[object]) -> None:
    """Insert *objects*; afterwards they are persistent in *session*, with key and public id.

    Flushes the session first. Collisions are retried as in a flush.
    """
    session = session_of(session)
    members: list[Any] = list(iterator_of(objects))  # keeps them alive: states are weak references
    states = _states(members)
    if len(states) < len(members):  # an object that is listed twice is one row
        members = [state.obj() for state in states]
    writing.resolve(session, members)  # as a flush does, which rows at once are not
    groups = _groups(states, members)
    ways = [_choose(session, group) for group in groups]
    for group, way in zip(groups, ways, strict=True):
        if way != "flush":
            session.flush()
            _insert_together(session, group, arrays=way == "arrays")
        else:
            session.add_all(group.objects)
            if set(ways) != {"flush"}:  # keep the order of the objects
                session.flush()
    session.flush()


def iterator_of(objects: object) -> Iterator[object]:
    """Return an iterator over *objects*; refuse what has no objects to insert."""
    hint, kind = "", type(objects)
    if issubclass(kind, AsyncIterable):
        hint = ": sqlalchemy_public_id.asyncio.bulk.insert_many() takes an asynchronous one"
    elif not issubclass(kind, (str, bytes, Mapping)):
        try:
            return iter(cast("Iterable[object]", objects))
        except TypeError:
            pass
    raise TypeError(f"expected an iterable of mapped objects, not {safe_repr(objects)}{hint}")


def _states(objects: list[object]) -> list[InstanceState[Any]]:
    try:
        return list(dict.fromkeys(map(instance_state, objects)))
    except AttributeError:
        wrong = next(each for each in objects if not hasattr(each, "_sa_instance_state"))
        raise TypeError(
            f"expected mapped objects, not {safe_repr(wrong)}: for dictionaries use session.execute(insert(Model), "
            "rows)"
        ) from None


def _groups(states: list[InstanceState[Any]], objects: list[object]) -> list[_Group]:
    rows = [state.dict for state in states]
    if len(set(map(attrgetter("class_"), states))) == 1:
        return [_Group(states[0].mapper, states, rows, objects)]
    groups: list[_Group] = []
    for _, members in groupby(zip(states, rows, objects, strict=True), key=lambda member: member[0].class_):
        alike = list(members)
        groups.append(_Group(alike[0][0].mapper, *map(list, zip(*alike, strict=True))))
    return groups


def _is_plain(session: Session, group: _Group) -> bool:
    """Return True if multi-row statements do all that the unit of work does, for less."""
    mapper, rows = group.mapper, group.rows
    if is_sharded(session):  # the rows may be for several databases
        return False
    if len(rows) < 2:
        return False
    table, keys = mapper.local_table, mapper.primary_key
    if mapper.inherits is not None or len(keys) != 1 or not isinstance(table, Table):
        return False
    ids = id_attributes(mapper)
    if keys[0] is not table.autoincrement_column or not ids:
        return False
    # all ids are to be made, or none: a collision may replace those of one statement, or it may not
    if len({row.get(name) is None for name in ids for row in rows}) > 1:
        return False
    if mapper.version_id_col is not None or has_listeners(session, mapper, besides=_PACKAGE):
        return False
    if not all(state.transient for state in group.states):
        return False
    key, relationships = mapper.get_property_by_column(keys[0]).key, mapper.relationships.keys()
    if any(row.get(key) is not None for row in rows) or any(row.get(name) for name in relationships for row in rows):
        return False
    # a few types stand for thousands of values
    types: set[type[Any]] = set(map(type, chain.from_iterable(map(dict[str, Any].values, rows))))
    return not any(issubclass(kind, ClauseElement) or hasattr(kind, "__clause_element__") for kind in types)


def _choose(session: Session, group: _Group) -> _Way:
    """Return the fastest way that stores the same values as the unit of work."""
    if not _is_plain(session, group):
        return "flush"
    mapper, rows = group.mapper, group.rows
    connection = connection_to_write(session, mapper)
    dialect = connection.dialect
    # under AUTOCOMMIT a collision among many rows could not be taken back
    if is_autocommit(connection) or not can_persist(session, group.states[0]):
        return "flush"
    if not (dialect.insert_executemany_returning and traits_for(dialect).aborts_transaction):
        return "rows"
    columns, ids = columns_of(mapper), id_attributes(mapper)
    made = [name for name, column in columns.items() if column.default is not None and name not in ids]
    # SQLAlchemy calls a default for each row of its own statements
    if len(rows) < _FEW_ROWS or any(row.get(name) is None for name in made for row in rows):
        return "flush"
    can = can_insert_arrays(connection, cast("Table", mapper.local_table), columns, rows)
    return "arrays" if can else "flush"


def _insert_together(session: Session, group: _Group, *, arrays: bool) -> None:
    mapper, states = group.mapper, group.states
    made = _make_ids(group)
    with session.no_autoflush, as_flush(session):
        try:
            connection = connection_to_write(session, mapper)
            send(connection, mapper, group.rows, arrays=arrays, made=made)
        except BaseException:
            for row in group.rows:
                for name in made:  # as after a flush that fails, another attempt makes other ids
                    row.pop(name, None)
            if session.is_active:
                session.add_all(group.objects)
            raise
        persist(session, mapper, states, group.rows, mapper.get_property_by_column(mapper.primary_key[0]).key)


def _make_ids(group: _Group) -> list[str]:
    """Set ids on objects that have none, all together. Return the names of the attributes."""
    attributes, rows = id_attributes(group.mapper), group.rows
    made = [name for name in attributes if rows[0].get(name) is None]
    for name in made:
        for row, public_id in zip(rows, public_id_type(attributes[name]).next_ids(len(rows)), strict=True):
            row[name] = public_id
    return made
