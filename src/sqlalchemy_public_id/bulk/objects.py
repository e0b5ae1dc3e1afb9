"""Insert objects: choose a method, send the rows, read back generated values, and make the objects persistent."""

from __future__ import annotations

from collections.abc import AsyncIterable, Collection, Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias, cast

from sqlalchemy import Column, ColumnElement, Connection, Integer, Table, and_, select
from sqlalchemy import insert as insert_into
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import ClauseElement
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id import guard
from sqlalchemy_public_id._private import as_flush, can_persist, has_listeners, persist, sent_parameters
from sqlalchemy_public_id.bulk.arrays import insert_arrays, item_types
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.dialects import is_autocommit, traits_for
from sqlalchemy_public_id.guard.drawing import NewIds
from sqlalchemy_public_id.guard.statement import MADE_IDS
from sqlalchemy_public_id.lookup.beside import attribute_of, columns_beside
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import (
    connection_to_write,
    id_attributes,
    is_sharded,
    reading_where_it_writes,
    session_of,
)
from sqlalchemy_public_id.references import writing

_AT_ONCE = 10_000
"""Rows that are sent and read back at a time: enough for speed, and far below the packet sizes of databases."""

_PACKAGE = __name__.partition(".")[0]

_Values: TypeAlias = dict[str, Any]
"""The attributes that are set on an object: its ``__dict__``."""


def insert(session: Session, objects: Iterable[object]) -> None:
    """Insert *objects*, and make them persistent in *session*, with key and public id.

    Flushes the session first. Collisions are retried as in a flush.
    """
    session = session_of(session)
    members: list[Any] = list(iterator_of(objects))  # keeps them alive: states are weak references
    states = _states(members)
    session.flush()  # references may have the ids of its new objects, whose rows meet a condition or not
    with reading_where_it_writes(session):  # a flush does this, too, but multi-row statements bypass it
        writing.resolve_foreign_keys(session, members)
    rows = [state.dict for state in states]
    types = _array_types(session, states, rows) if _is_plain(session, states, rows) else None
    if types is None:
        session.add_all(members)
        session.flush()
    else:
        _insert_together(session, states, rows, types)


def iterator_of(objects: object) -> Iterator[object]:
    """Return an iterator over *objects*; raise TypeError if they are not an iterable of objects."""
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
        return list(dict.fromkeys(map(instance_state, objects)))  # an object that is listed twice is one row
    except AttributeError:
        wrong = next(each for each in objects if not hasattr(each, "_sa_instance_state"))
        raise TypeError(
            f"expected mapped objects, not {safe_repr(wrong)}: for dictionaries use session.execute(insert(Model), "
            "rows)"
        ) from None


# --- the method: a flush, or multi-row statements


def _is_plain(session: Session, states: list[InstanceState[Any]], rows: list[_Values]) -> bool:
    """Return True if multi-row statements have the effect of the unit of work, at a lower cost."""
    # the unit of work sorts models by their relationships; each row of a sharded session may be for another database
    if len(rows) < 2 or len({*map(attrgetter("class_"), states)}) > 1 or is_sharded(session):
        return False
    mapper = states[0].mapper
    table, keys, columns, ids = mapper.local_table, mapper.primary_key, _columns_of(mapper), id_attributes(mapper)
    # inheritance has rows in several tables, the unit of work counts versions, and rows are read back by a public id
    if not isinstance(table, Table) or mapper.inherits is not None or mapper.version_id_col is not None or not ids:
        return False
    # only the database makes keys in the order of the rows: see _read_back()
    if len(keys) != 1 or keys[0] is not table.autoincrement_column:
        return False
    if len(columns) < len(mapper.column_attrs):  # the others are SQL expressions, which are read after a flush
        return False
    if has_listeners(session, mapper, besides=_PACKAGE) or not all(state.transient for state in states):
        return False
    # all ids are to be made, or none: after a collision, either all ids of a statement may be replaced, or none
    if len({row.get(name) is None for name in ids for row in rows}) > 1:
        return False
    # rows are read back by the columns with which their ids are unique, too
    if any(row.get(each) is None for name in ids for each, _ in _beside(mapper, name) for row in rows):
        return False
    key = mapper.get_property_by_column(keys[0]).key
    # the keys of all rows come from the database
    if any(row.get(key) is not None for row in rows) or _has_relationships(mapper, columns, rows):
        return False
    # thousands of values have only a few types
    types: set[type[Any]] = set(map(type, chain.from_iterable(map(dict[str, Any].values, rows))))
    return not any(issubclass(kind, ClauseElement) or hasattr(kind, "__clause_element__") for kind in types)


def _columns_of(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    """Return attribute → column, for the columns of the mapped table."""
    return {
        prop.key: prop.columns[0]
        for prop in mapper.column_attrs
        if isinstance(prop.columns[0], Column) and prop.columns[0].table is mapper.local_table
    }


def _has_relationships(mapper: Mapper[Any], columns: dict[str, Column[Any]], rows: list[_Values]) -> bool:
    """Return True if a relationship is set. An empty one counts if a flush would set its foreign key to NULL."""
    for relationship in mapper.relationships:
        name = relationship.key
        given = [row for row in rows if name in row]
        keys = [key for key, column in columns.items() if column in relationship.local_columns] if given else []
        for row in given:
            is_empty = not row[name] if relationship.uselist else row[name] is None  # the class may define __len__
            if not is_empty or any(row.get(key) is not None for key in keys):
                return True
    return False


def _beside(mapper: Mapper[Any], name: str) -> Iterator[tuple[str, Column[Any]]]:
    """Yield the attributes, and their columns, with which the public id *name* is unique."""
    for column in columns_beside(mapper, name):
        yield attribute_of(mapper, column), column


def _array_types(
    session: Session, states: list[InstanceState[Any]], rows: list[_Values]
) -> dict[str, TypeEngine[Any]] | None:
    """Return attribute → the type of its items in an array; an empty dictionary if no arrays are sent.

    Return None if the unit of work has to insert the objects.
    """
    mapper = states[0].mapper
    connection = connection_to_write(session, mapper)
    guard.guard_connection(connection)
    # under AUTOCOMMIT, the rows before a collision could not be rolled back
    if is_autocommit(connection) or not can_persist(session, states[0]):
        return None
    if not traits_for(connection.dialect).aborts_transaction:
        return {}
    return item_types(connection, cast("Table", mapper.local_table), _columns_of(mapper), id_attributes(mapper), rows)


# --- the rows


def _insert_together(
    session: Session, states: list[InstanceState[Any]], rows: list[_Values], types: dict[str, TypeEngine[Any]]
) -> None:
    mapper = states[0].mapper
    ids = id_attributes(mapper)
    made = [name for name in ids if rows[0].get(name) is None]
    # no query in between may flush the objects a second time, and a failure ends the transaction as a failed flush does
    with session.no_autoflush, as_flush(session):
        try:
            # made before the statements, because the rows are read back by their ids: keys come in no certain order
            for name in made:
                drawn = NewIds(public_id_type(ids[name]), ids[name]).draw_many(len(rows))
                for row, public_id in zip(rows, drawn, strict=True):
                    row[name] = public_id
            _send(connection_to_write(session, mapper), mapper, rows, made, types)
        except BaseException:
            for row in rows:
                for name in made:  # as after a failed flush, another attempt makes other ids
                    row.pop(name, None)
            if session.is_active:
                session.add_all(state.obj() for state in states)
            raise
        persist(session, states, rows)


def _send(
    connection: Connection,
    mapper: Mapper[Any],
    rows: list[_Values],
    made: Collection[str],
    types: dict[str, TypeEngine[Any]],
) -> None:
    """Insert *rows*, which already have their ids, and set their keys and defaults.

    :param made: attributes whose ids the caller has just made: a collision may replace them.
    :param types: attribute → the type of its items, if arrays are sent.
    """
    table, ids, columns = cast("Table", mapper.local_table), id_attributes(mapper), _columns_of(mapper)
    options = {MADE_IDS: frozenset(ids[name].key for name in made)}
    # a column that is not sent has its default in all rows of a statement, so each group has statements of its own
    for unset, alike in _group_by_unset(rows, columns, ids):
        sent = {name: column for name, column in columns.items() if name not in unset}
        returned = {name: mapper.attrs[name].class_attribute.expression for name in (next(iter(ids)), *unset)}
        for at in range(0, len(alike), _AT_ONCE):
            batch = alike[at : at + _AT_ONCE]
            if types:  # a skipped row gets other ids, or raises the error of the constraint that it violates
                alone = returned | ids
                for row in insert_arrays(connection, batch, sent, types, returned):
                    query = insert_into(table).returning(*alone.values())
                    result = connection.execute(query, _parameters(sent, [row]), execution_options=options)
                    row.update(zip(alone, result.one(), strict=True))
            else:
                result = connection.execute(insert_into(table), _parameters(sent, batch), execution_options=options)
                for row, parameters in zip(batch, sent_parameters(result) or (), strict=False):
                    for name in made:  # the guard may have replaced some
                        row[name] = parameters[ids[name].key]
                _read_back(connection, mapper, batch, returned)


def _parameters(sent: dict[str, Column[Any]], rows: list[_Values]) -> list[_Values]:
    keys = [column.key for column in sent.values()]
    values = [[row.get(name) for row in rows] for name in sent]
    return [dict(zip(keys, row)) for row in zip(*values)]  # noqa: B905  # strict=True costs a third of the time


def _group_by_unset(
    rows: list[_Values], columns: dict[str, Column[Any]], ids: Collection[str]
) -> Iterator[tuple[list[str], list[_Values]]]:
    """Yield groups of adjacent rows, each after the attributes that the database or a default sets.

    As in a flush, these attributes are None or missing. All rows have their *ids*, and none has its key.
    """
    keys = [name for name, column in columns.items() if column.primary_key]
    # True for JSON and similar types, which store None as a value
    optional = {
        name: column.type.should_evaluate_none
        for name, column in columns.items()
        if name not in (*keys, *ids)
        and (column.default is not None or column.server_default is not None or column.type.should_evaluate_none)
    }

    def unset(row: _Values) -> list[str]:
        return [name for name, has_null in optional.items() if row.get(name) is None and not (has_null and name in row)]

    for names, group in groupby(rows, unset) if optional else [((), rows)]:
        yield [*keys, *names], list(group)


def _read_back(connection: Connection, mapper: Mapper[Any], rows: list[_Values], wanted: dict[str, Any]) -> None:
    """Set the values that the database and the column defaults have made on the objects, found by public id.

    :param wanted: attribute → its expression, for the public id, the key, and all other attributes that were not sent.
    """
    name, attribute, *others = wanted
    column, key = id_attributes(mapper)[name], mapper.primary_key[0]
    beside = dict(_beside(mapper, name))

    def is_row(row: _Values) -> ColumnElement[bool]:
        return and_(column == row[name], *(other == row[each] for each, other in beside.items()))

    low, high = (select(key).where(is_row(row)).correlate(None).scalar_subquery() for row in (rows[0], rows[-1]))
    if not others and isinstance(key.type, Integer):
        first, last = connection.execute(select(low, high)).one()
        # Generated keys increase: at exactly this distance between the first and the last key, no other row is between.
        if first is not None and last is not None and last - first == len(rows) - 1:
            for number, row in enumerate(rows, first):
                row[attribute] = number
            return
    query = select(*wanted.values(), *beside.values())
    given, stored = itemgetter(name, *beside), itemgetter(0, *range(len(wanted), len(wanted) + len(beside)))
    missing = {given(row): row for row in rows}
    traits, type_ = traits_for(connection.dialect), public_id_type(column)

    def queries() -> Iterator[Any]:
        # Keys that were generated together are close together: reading the range costs a third of looking up each id.
        # Other rows in the range are ignored, and rows outside of it are looked up by id.
        yield query.where(key.between(low, high)).order_by(key).limit(2 * len(rows))
        texts = list(dict.fromkeys(row[name] for row in missing.values()))
        yield from map(query.where, traits.any_of(column, texts, type_.as_parameter))

    for each in queries():
        for values in connection.execute(each):
            missing.pop(stored(values), {}).update(zip(wanted, values, strict=not beside))
    for row in missing.values() if beside else ():  # the database compares values that it has changed
        row.update(zip(wanted, connection.execute(query.where(is_row(row))).one(), strict=False))
