"""Rows as the tables hold them, past the conditions that a program adds to the queries of its sessions.

``with_loader_criteria()`` and listeners to ``do_orm_execute`` hide objects. A foreign key is no object, and neither is
the public id that stands for it. So these statements are sent on the session's connection, and name tables.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, cast

from sqlalchemy import Column, ColumnElement, FromClause, Integer, and_, inspect, or_, select
from sqlalchemy.orm import InstanceState, Mapper, Session

from sqlalchemy_public_id.dialects import Traits, traits_for
from sqlalchemy_public_id.orm.inspection import is_sharded
from sqlalchemy_public_id.references.reference import Source

__all__ = ["AT_ONCE", "at_shard", "key_and_public_id", "public_ids_by_key", "values_of"]

AT_ONCE = 10_000
"""How many keys the access to one attribute asks for at most. Far more than a page, and one statement everywhere."""

_COMPOSITE_AT_ONCE = 512
"""How many rows are asked for at most by a primary key of several columns: SQLite nests no deeper than 1 000."""

_AMBIGUOUS: Any = object()


def key_and_public_id(source: Source) -> tuple[FromClause, Column[Any], Column[str]]:
    """Return the columns of *source*, and what to select them from: one table, where both stand in one."""
    mapper: Mapper[Any] = inspect(source.model)
    columns = [cast("list[Column[Any]]", mapper.column_attrs[name].columns) for name in (source.key, source.public_id)]
    keys, public_ids = columns
    for key, public_id in product(keys, public_ids):  # a key that is inherited stands in several tables
        if key.table is public_id.table:
            return key.table, key, public_id
    return mapper.persist_selectable, keys[0], public_ids[0]


def public_ids_by_key(session: Session, source: Source, shard: Any, keys: Sequence[Any]) -> dict[Any, str | None]:
    """Key → public id, of the rows that can be read. Several rows with one key, in several shards, are none."""
    table, key, public_id = key_and_public_id(source)
    query: Any = select(key, public_id).select_from(table)
    mapper: Mapper[Any] = inspect(source.model)
    found: dict[Any, Any] = {}
    for condition in _traits(session, mapper, shard).any_of(key, keys):
        for each, text in _execute(session, mapper, shard, query.where(condition)):
            if found.setdefault(each, text) != text:
                found[each] = _AMBIGUOUS
    if not isinstance(key.type, Integer):  # the same text may be spelled in another way there, 'eur' for 'EUR'
        for each in keys:
            if each not in found:
                row = _execute(session, mapper, shard, query.where(key == each)).first()
                found[each] = None if row is None else row[1]
    return {each: None if text is _AMBIGUOUS else text for each, text in found.items()}


def values_of(
    session: Session, mapper: Mapper[Any], shard: Any, states: Sequence[InstanceState[Any]], names: Sequence[str]
) -> Iterator[tuple[InstanceState[Any], dict[str, Any]]]:
    """Yield what the columns *names* hold for each of *states*, persistent objects of one mapper and shard."""
    own: list[Any] = list(mapper.primary_key)
    columns: list[Any] = [mapper.column_attrs[name].columns[0] for name in names]
    query: Any = select(*own, *columns).select_from(mapper.persist_selectable)
    by_identity = {_identity(state): state for state in states}
    for condition in _any_of(_traits(session, mapper, shard), own, list(by_identity)):
        for row in _execute(session, mapper, shard, query.where(condition)):
            state = by_identity.get(tuple(row[: len(own)]))  # None: PostgreSQL fills up CHAR with blanks
            if state is not None:
                yield state, dict(zip(names, row[len(own) :], strict=True))


def at_shard(session: Session, shard: Any) -> dict[str, Any]:
    """Asks one database of a sharded session; a key means another row in each of them."""
    return {"shard_id": shard} if shard is not None and is_sharded(session) else {}


def _execute(session: Session, mapper: Mapper[Any], shard: Any, query: Any) -> Any:
    """Send *query* to the database where rows of *mapper* are, in the transaction of *session*, without a flush."""
    where: dict[str, Any] = {"mapper": mapper, **at_shard(session, shard)}
    if is_sharded(session) and shard is None:  # only the session can send a statement to several databases
        with session.no_autoflush:
            return session.execute(query, bind_arguments=where)
    return session.connection(bind_arguments={**where, "clause": query}).execute(query)


def _traits(session: Session, mapper: Mapper[Any], shard: Any) -> Traits:
    return traits_for(session.get_bind(mapper, **at_shard(session, shard)).dialect)


def _identity(state: InstanceState[Any]) -> tuple[Any, ...]:
    return tuple(state.identity or ())


def _any_of(
    traits: Traits, columns: Sequence[ColumnElement[Any]], keys: Sequence[tuple[Any, ...]]
) -> Iterator[ColumnElement[bool]]:
    """Conditions that together select the rows with one of *keys*, as few as the database allows.

    For several columns it is ``a = 1 AND b = 2 OR a = 3 AND …``, for which every database uses its index; of tuples,
    ``(a, b) IN …``, SQLite reads the whole table, and others know nothing.
    """
    if len(columns) == 1:
        yield from traits.any_of(columns[0], [key for (key,) in keys])
        return
    size = min(_COMPOSITE_AT_ONCE, (traits.max_parameters or AT_ONCE) // len(columns))
    for at in range(0, len(keys), size):
        some = list(keys[at : at + size])
        length = 1 << (len(some) - 1).bit_length()  # few lengths, since SQLAlchemy keeps a compiled statement for each
        some += some[-1:] * (min(length, size) - len(some))
        yield or_(*(and_(*map(operator.eq, columns, key)) for key in some))
