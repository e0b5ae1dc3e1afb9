"""Insert objects: choose the way for each group of them, send their rows, and make them persistent."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Literal, TypeAlias, cast

from sqlalchemy import Column, Connection, Integer, Select, Table, select
from sqlalchemy import insert as insert_into
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import ClauseElement

from sqlalchemy_public_id._compat import register_pending, register_persistent
from sqlalchemy_public_id.bulk.arrays import ArrayInsert, can_insert_arrays
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import safe_repr
from sqlalchemy_public_id.events import flush
from sqlalchemy_public_id.guard import generated, on_conflict
from sqlalchemy_public_id.orm.inspection import id_attributes, is_sharded, session_of
from sqlalchemy_public_id.types import public_id_type

_AT_ONCE = 10_000
"""Rows that are sent and read back at a time: enough for speed, and far below the packet sizes of databases."""
_FEW = 20
"""The number of rows for which it is worth to build a statement of arrays."""
_Way: TypeAlias = Literal["flush", "rows", "arrays"]
_ROUNDS = 5
"""The number of times that rows that collide are sent together, before each of them is retried by itself."""


def insert(session: Session, objects: Iterable[object]) -> None:
    """Insert *objects*; afterwards they are persistent in *session*, with key and public id.

    Flushes the session first. Collisions are retried as in a flush.
    """
    session = session_of(session)
    objects = list(iterator_of(objects))  # keeps them alive: states are weak references
    states = dict.fromkeys(map(_state, objects))  # an object that is listed twice is one row
    for prepare in flush.before_bulk_insert:
        prepare(session, [state.obj() for state in states])
    groups = [(mapper, list(group)) for mapper, group in groupby(states, key=attrgetter("mapper"))]
    ways = [_choose(session, mapper, states) for mapper, states in groups]
    for (mapper, members), way in zip(groups, ways, strict=True):
        if way != "flush":
            session.flush()
            _insert_together(session, mapper, members, arrays=way == "arrays")
        else:
            session.add_all([state.obj() for state in members])
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


def _state(instance: object) -> InstanceState[Any]:
    try:
        return instance_state(instance)
    except AttributeError:
        raise TypeError(
            f"expected mapped objects, not {safe_repr(instance)}: for dictionaries use session.execute(insert(Model), "
            "rows)"
        ) from None


def _is_plain(session: Session, mapper: Mapper[Any], states: Sequence[InstanceState[Any]]) -> bool:
    """Return True if multi-row statements do all that the unit of work does, for less."""
    if is_sharded(session):  # the rows may be for several databases
        return False
    if len(states) < 2:
        return False
    table, keys = mapper.local_table, mapper.primary_key
    if mapper.inherits is not None or len(keys) != 1 or not isinstance(table, Table):
        return False
    if keys[0] is not table.autoincrement_column or not id_attributes(mapper):
        return False
    if mapper.version_id_col is not None or flush.has_other_listeners(session, mapper):
        return False
    if not all(state.transient for state in states):
        return False
    key, relationships = mapper.get_property_by_column(keys[0]).key, mapper.relationships.keys()
    values = [state.dict for state in states]
    # a few types stand for thousands of values
    types: set[type[Any]] = set(map(type, chain.from_iterable(row.values() for row in values)))
    return not (
        any(row.get(key) is not None for row in values)
        or any(row.get(name) for name in relationships for row in values)
        or any(issubclass(kind, ClauseElement) or hasattr(kind, "__clause_element__") for kind in types)
    )


def _choose(session: Session, mapper: Mapper[Any], states: Sequence[InstanceState[Any]]) -> _Way:
    """Return the fastest way that stores the same values as the unit of work."""
    if not _is_plain(session, mapper, states):
        return "flush"
    dialect = session.get_bind(mapper).dialect
    if not (dialect.insert_executemany_returning and traits_for(dialect).aborts_transaction):
        return "rows"
    columns, ids, rows = _columns_of(mapper), id_attributes(mapper), [state.dict for state in states]
    made = [name for name, column in columns.items() if column.default is not None and name not in ids]
    # SQLAlchemy calls a default for each row of its own statements
    if len(rows) < _FEW or any(row.get(name) is None for name in made for row in rows):
        return "flush"
    connection = session.connection(bind_arguments={"mapper": mapper})
    can = can_insert_arrays(connection, cast("Table", mapper.local_table), columns, rows)
    return "arrays" if can else "flush"


def _insert_together(session: Session, mapper: Mapper[Any], states: list[InstanceState[Any]], *, arrays: bool) -> None:
    register_pending(session, states)
    transaction = session.get_nested_transaction() or session.get_transaction()
    assert transaction is not None  # the session autobegins in register_pending()
    with session.no_autoflush:
        try:
            connection = session.connection(bind_arguments={"mapper": mapper})
            _send(connection, mapper, states, arrays=arrays)
        except BaseException:
            transaction.rollback()  # as a failed flush does
            raise
    generated.drop(connection, session)
    register_persistent(session, states)


def _columns_of(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    """Return attribute → column of the table."""
    return {
        prop.key: prop.columns[0]
        for prop in mapper.column_attrs
        if isinstance(prop.columns[0], Column) and prop.columns[0].table is mapper.local_table
    }


def _send(connection: Connection, mapper: Mapper[Any], states: list[InstanceState[Any]], *, arrays: bool) -> None:
    table = cast("Table", mapper.local_table)
    ids = id_attributes(mapper)
    columns = _columns_of(mapper)
    constant: dict[str, Any] = {}
    if isinstance(mapper.polymorphic_on, Column):
        constant[mapper.polymorphic_on.key] = mapper.polymorphic_identity
    give_ids = flush.give_ids(ids)
    for state in states:
        give_ids(mapper, connection, state)
    for names, rows in _group_by_columns([state.dict for state in states], columns):
        keys = [(name, columns[name].key) for name in names]
        unset = [name for name in columns if name not in names]
        array_insert: ArrayInsert | None = None
        if arrays:
            sent = {name: columns[name] for name in names}
            returned = {name: mapper.attrs[name].class_attribute.expression for name in unset}
            array_insert = ArrayInsert(connection, table, sent, next(iter(ids)), returned, constant)
        for at in range(0, len(rows), _AT_ONCE):
            batch = rows[at : at + _AT_ONCE]
            if array_insert is not None:
                _insert_until_none_collides(array_insert, batch, ids)
                continue
            parameters: list[dict[str, Any]] = [{key: row.get(name) for name, key in keys} for row in batch]
            if constant:
                parameters = [constant | row for row in parameters]
            connection.execute(insert_into(table), parameters)
            _read_back(connection, mapper, batch, unset)


def _insert_until_none_collides(arrays: ArrayInsert, rows: list[dict[str, Any]], ids: dict[str, Column[Any]]) -> None:
    missing = arrays.insert(rows)
    for _ in range(_ROUNDS):
        if not missing or not flush.replace_stored_ids(arrays.connection, ids, missing):
            break
        connection = arrays.connection
        on_conflict.warn_of_triggers(
            connection, on_conflict.names_of(connection, arrays.table), connection.begin_nested
        )
        missing = arrays.insert(missing)
    for row in missing:
        arrays.insert_alone(row)


def _group_by_columns(
    rows: list[dict[str, Any]], columns: dict[str, Column[Any]]
) -> Iterator[tuple[frozenset[str], list[dict[str, Any]]]]:
    """Yield groups of neighbouring rows with the same attributes to send; as in a flush, a default replaces None."""
    with_null = {name for name, column in columns.items() if column.type.should_evaluate_none}  # JSON: None is a value
    optional = [
        name
        for name, column in columns.items()
        if column.primary_key or column.default is not None or column.server_default is not None or name in with_null
    ]

    def left_out(row: dict[str, Any]) -> list[str]:
        missing = [name for name in optional if row.get(name) is None]
        return [name for name in missing if name not in row or name not in with_null] if with_null else missing

    for names, group in groupby(rows, key=left_out):
        yield frozenset(columns).difference(names), list(group)


def _read_back(connection: Connection, mapper: Mapper[Any], rows: list[dict[str, Any]], unset: list[str]) -> None:
    """Set the values of the database and of the column defaults on the objects, found by public id."""
    (name, column), *_ = id_attributes(mapper).items()
    key = mapper.primary_key[0]
    low, high = (
        select(key).where(column == row[name]).correlate(None).scalar_subquery() for row in (rows[0], rows[-1])
    )
    attributes = [mapper.attrs[attribute].class_attribute.expression for attribute in unset]
    if len(unset) == 1 and isinstance(key.type, Integer):  # the key alone
        first, last = connection.execute(select(low, high)).one()
        # The database gives out growing keys: if the last one is that far from the first one, no other row is between.
        if first is not None and last is not None and last - first == len(rows) - 1:
            for number, row in enumerate(rows, first):
                row[unset[0]] = number
            return
    query: Select[Any] = select(column, *attributes)
    missing = {row[name]: row for row in rows}

    def fill_in(stored: Iterable[Any]) -> None:
        for public_id, *values in stored:
            if public_id in missing:
                missing.pop(public_id).update(zip(unset, values, strict=True))

    # Keys that were given out together lie together: reading the range costs a third of looking up each id.
    # Other rows in the range are passed over, and rows outside of it are looked up.
    fill_in(connection.execute(query.where(key.between(low, high)).order_by(key).limit(2 * len(rows))))
    traits, type_ = traits_for(connection.dialect), public_id_type(column)
    for condition in traits.any_of(column, list(missing), type_.as_parameter):
        fill_in(connection.execute(query.where(condition)))
