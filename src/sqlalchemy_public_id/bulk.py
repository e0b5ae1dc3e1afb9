"""Insert many objects and have all of them filled in: key, public id and defaults, on every database.

>>> from sqlalchemy_public_id import bulk
>>> users = [User(name=name) for name in ("Ada", "Grace", "Edsger")]
>>> bulk.insert(session, users)
>>> all(user.id and user.public_id for user in users)
True

Where the database returns the keys of many rows at once and in order (PostgreSQL, MariaDB), this is ``add_all()`` and
``flush()``. MySQL and SQLite cannot, so the unit of work sends one INSERT per row there; :func:`insert` sends the rows
together instead and reads their keys back by public id: those of the first and the last row, where nothing but the rows
between them fits in between, and all of them otherwise. Objects that need the unit of work (with relationships set, SQL
expressions as values, joined-table inheritance, listeners to their INSERTs) are left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, cast

from sqlalchemy import Column, Connection, Integer, Select, Table, select
from sqlalchemy import insert as insert_into
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import ClauseElement

from sqlalchemy_public_id._compat import register_pending, register_persistent
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import shown
from sqlalchemy_public_id.events import flush
from sqlalchemy_public_id.guard import generated
from sqlalchemy_public_id.orm import inspection
from sqlalchemy_public_id.orm.sessions import is_sharded, session_of
from sqlalchemy_public_id.types import public_id_type

__all__ = ["insert"]

_AT_ONCE = 10_000
"""How many rows are sent and read back at a time: enough for speed, and far from any limit to a packet."""


def insert(session: Session, objects: Iterable[object]) -> None:
    """Insert *objects*; afterwards they are persistent in *session*, with key and public id.

    What else is pending in *session* is flushed first. Collisions are retried as everywhere.
    """
    session = session_of(session)
    objects = list(objects)  # which holds them: an iterator does not, nor do states
    states = dict.fromkeys(map(_state, objects))  # an object that is named twice is one row
    for prepare in flush.preparations:
        prepare(session, [state.obj() for state in states])
    groups = [(mapper, list(group)) for mapper, group in groupby(states, key=attrgetter("mapper"))]
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
    try:
        return instance_state(instance)
    except AttributeError:
        raise TypeError(
            f"expected mapped objects, not {shown(instance)}: for dictionaries use session.execute(insert(Model), rows)"
        ) from None


def _goes_in_statements(session: Session, mapper: Mapper[Any], states: Sequence[InstanceState[Any]]) -> bool:
    """Whether multi-row statements do for *states* all that the unit of work would."""
    if is_sharded(session):  # which sends each object to its own database
        return False
    dialect = session.get_bind(mapper).dialect
    if len(states) < 2 or (dialect.insert_executemany_returning and traits_for(dialect).returns_in_order):
        return False
    table, keys = mapper.local_table, mapper.primary_key
    if mapper.inherits is not None or len(keys) != 1 or not isinstance(table, Table):
        return False
    if keys[0] is not table.autoincrement_column or not inspection.id_attributes(mapper):
        return False
    if mapper.version_id_col is not None or flush.are_others_listening(session, mapper):
        return False
    if not all(state.transient for state in states):
        return False
    key, relationships = mapper.get_property_by_column(keys[0]).key, mapper.relationships.keys()
    values = [state.dict for state in states]
    kinds: set[Any] = set(map(type, chain.from_iterable(row.values() for row in values)))
    return not (
        any(row.get(key) is not None for row in values)
        or any(row.get(name) for name in relationships for row in values)
        or any(map(_is_expression, kinds))
    )


def _is_expression(kind: type[Any]) -> bool:
    return issubclass(kind, ClauseElement) or hasattr(kind, "__clause_element__")


def _insert_statements(session: Session, mapper: Mapper[Any], states: list[InstanceState[Any]]) -> None:
    register_pending(session, states)
    transaction = session.get_nested_transaction() or session.get_transaction()
    assert transaction is not None  # has begun just now, if not before
    with session.no_autoflush:
        try:
            connection = session.connection(bind_arguments={"mapper": mapper})
            _send(connection, mapper, states)
        except BaseException:
            transaction.rollback()  # as a flush does: nothing stays half-done
            raise
    generated.drop(connection, session)
    register_persistent(session, states)


def _send(connection: Connection, mapper: Mapper[Any], states: list[InstanceState[Any]]) -> None:
    table = cast("Table", mapper.local_table)
    ids = inspection.id_attributes(mapper)
    columns = {
        prop.key: prop.columns[0]
        for prop in mapper.column_attrs
        if isinstance(prop.columns[0], Column) and prop.columns[0].table is table
    }
    constant: dict[str, Any] = {}
    if isinstance(mapper.polymorphic_on, Column):
        constant[mapper.polymorphic_on.key] = mapper.polymorphic_identity
    flush.ensure_ids(states, ids, connection)
    for names, rows in _alike([state.dict for state in states], columns):
        sent = [(name, columns[name].key) for name in names]
        unset = [name for name in columns if name not in names]
        for at in range(0, len(rows), _AT_ONCE):
            some = rows[at : at + _AT_ONCE]
            parameters: list[dict[str, Any]] = [{key: row.get(name) for name, key in sent} for row in some]
            if constant:
                parameters = [constant | row for row in parameters]
            connection.execute(insert_into(table), parameters)
            _read_back(connection, mapper, some, unset)


def _alike(
    rows: list[dict[str, Any]], columns: dict[str, Column[Any]]
) -> Iterator[tuple[frozenset[str], list[dict[str, Any]]]]:
    """Neighbouring *rows* with the same attributes to send, as in a flush: those that no default is to fill."""
    always = {name for name, column in columns.items() if not (column.primary_key or _may_be_left_out(column))}
    by_value = [name for name in columns if name not in always]
    if_there = {name for name in by_value if columns[name].type.should_evaluate_none}

    def left_out(row: dict[str, Any]) -> list[str]:
        missing = [name for name in by_value if row.get(name) is None]
        return [name for name in missing if name not in row or name not in if_there] if if_there else missing

    for names, some in groupby(rows, key=left_out):
        yield frozenset(columns).difference(names), list(some)


def _may_be_left_out(column: Column[Any]) -> bool:
    return column.default is not None or column.server_default is not None or column.type.should_evaluate_none


def _read_back(connection: Connection, mapper: Mapper[Any], rows: list[dict[str, Any]], unset: list[str]) -> None:
    """Fill in what the database and the column defaults made, found by public id."""
    (name, column), *_ = inspection.id_attributes(mapper).items()
    key = mapper.primary_key[0]
    low, high = (
        select(key).where(column == row[name]).correlate(None).scalar_subquery() for row in (rows[0], rows[-1])
    )
    attributes = [mapper.attrs[attribute].class_attribute.expression for attribute in unset]
    if len(unset) == 1 and isinstance(key.type, Integer):  # the key alone
        first, last = connection.execute(select(low, high)).one()
        if _are_in_a_run(first, last, len(rows)):
            for number, row in enumerate(rows, first):
                row[unset[0]] = number
            return
    query: Select[Any] = select(column, *attributes)
    missing = {row[name]: row for row in rows}

    def fill_in(found: Iterable[Any]) -> None:
        for public_id, *values in found:
            if public_id in missing:
                missing.pop(public_id).update(zip(unset, values, strict=True))

    # Keys that were given out together lie together: reading the run costs a third of looking up each id.
    # What else lies there is passed over, and what does not lie there is looked up.
    fill_in(connection.execute(query.where(key.between(low, high)).order_by(key).limit(2 * len(rows))))
    traits, type_ = traits_for(connection.dialect), public_id_type(column)
    for condition in traits.any_of(column, list(missing), type_.as_parameter):
        fill_in(connection.execute(query.where(condition)))


def _are_in_a_run(first: int | None, last: int | None, count: int) -> bool:
    """Whether *count* rows have the keys from *first* to *last*, in their order: no other row fits in between, because
    keys that the database gives out only grow.
    """
    return first is not None and last is not None and last - first == count - 1
