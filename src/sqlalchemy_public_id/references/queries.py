"""Read keys and public ids from the tables, without the conditions that an application adds to its sessions.

``with_loader_criteria()`` and listeners to ``do_orm_execute`` hide objects, but must not hide foreign keys and the
public ids that stand for them. So these statements are executed on the session's connection, and select from tables.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias, cast

from sqlalchemy import Column, ColumnElement, FromClause, Integer, and_, or_, select
from sqlalchemy.orm import InstanceState, Mapper, Session

from sqlalchemy_public_id.dialects import Traits, traits_for
from sqlalchemy_public_id.orm.inspection import is_sharded
from sqlalchemy_public_id.references.reference import Source

Beside: TypeAlias = tuple[tuple[str, Any], ...]
"""The other columns of a composite foreign key: attributes of the row that it points to, and their values."""

AT_ONCE = 10_000
"""The most keys that one access to an attribute looks up: far more than a page, in one statement everywhere."""

_COMPOSITE_AT_ONCE = 512
"""The most rows per statement by a composite primary key: SQLite limits the depth of expressions to 1,000."""


def key_and_public_id(source: Source) -> tuple[FromClause, Column[Any], Column[str]]:
    """Return the FROM clause and the columns of *source*: one table if it has both columns, else a join."""
    mapper = source.mapper
    columns = [cast("list[Column[Any]]", mapper.column_attrs[name].columns) for name in (source.key, source.public_id)]
    keys, public_ids = columns
    for key, public_id in product(keys, public_ids):  # an inherited key is a column of several tables
        if key.table is public_id.table:
            return key.table, key, public_id
    return mapper.persist_selectable, keys[0], public_ids[0]


def columns_in(table: FromClause, mapper: Mapper[Any], name: str) -> Column[Any]:
    """Return the column of the attribute *name* in *table*, or another one if *table* has none."""
    columns = cast("list[Column[Any]]", mapper.column_attrs[name].columns)
    return next((column for column in columns if column.table is table), columns[0])


def public_ids_by_key(
    session: Session, source: Source, shard: Any, keys: Sequence[Any], beside: Beside = ()
) -> dict[Any, str | None]:
    """Return key → public id; ``None`` if several shards have a row with this key.

    :param beside: the other values of a composite foreign key.
    """
    table, column, public_id = key_and_public_id(source)
    mapper = source.mapper
    query: Any = select(column, public_id).select_from(table)
    query = query.where(*(columns_in(table, mapper, name) == value for name, value in beside))
    public_ids: dict[Any, Any] = {}
    for condition in _traits(session, mapper, shard).any_of(column, keys):
        for key, text in _execute(session, mapper, shard, query.where(condition)).all():
            public_ids[key] = text if public_ids.get(key, text) == text else None
    if not isinstance(column.type, Integer):  # by its collation the column may hold another spelling, 'eur' for 'EUR'
        for key in keys:
            if key not in public_ids:
                row = _execute(session, mapper, shard, query.where(column == key)).first()
                public_ids[key] = None if row is None else row[1]
    return public_ids


def values_of(
    session: Session, mapper: Mapper[Any], shard: Any, states: Sequence[InstanceState[Any]], names: Sequence[str]
) -> Iterator[tuple[InstanceState[Any], dict[str, Any]]]:
    """Yield the stored values of the attributes *names* for *states*, persistent objects of one mapper and shard."""
    own: list[Any] = list(mapper.primary_key)
    columns: list[Any] = [mapper.column_attrs[name].columns[0] for name in names]
    query: Any = select(*own, *columns).select_from(mapper.persist_selectable)
    by_identity = {tuple(state.identity or ()): state for state in states}
    for condition in _any_of(_traits(session, mapper, shard), own, list(by_identity)):
        for row in _execute(session, mapper, shard, query.where(condition)):
            state = by_identity.get(tuple(row[: len(own)]))  # None: PostgreSQL pads CHAR with blanks
            if state is not None:
                yield state, dict(zip(names, row[len(own) :], strict=True))


def _bind_arguments(session: Session, mapper: Mapper[Any], shard: Any) -> dict[str, Any]:
    # the same key is another row in each shard
    return {"mapper": mapper} | ({"shard_id": shard} if shard is not None and is_sharded(session) else {})


def _execute(session: Session, mapper: Mapper[Any], shard: Any, query: Any) -> Any:
    """Execute *query* on the database of *mapper*, in the transaction of *session*, without a flush."""
    bind_arguments = _bind_arguments(session, mapper, shard)
    if is_sharded(session) and shard is None:  # only the session can send a statement to several databases
        with session.no_autoflush:
            return session.execute(query, bind_arguments=bind_arguments)
    return session.connection(bind_arguments={**bind_arguments, "clause": query}).execute(query)


def _traits(session: Session, mapper: Mapper[Any], shard: Any) -> Traits:
    return traits_for(session.get_bind(**_bind_arguments(session, mapper, shard)).dialect)


def _any_of(
    traits: Traits, columns: Sequence[ColumnElement[Any]], keys: Sequence[tuple[Any, ...]]
) -> Iterator[ColumnElement[bool]]:
    """Yield conditions that together select the rows with one of *keys*, as few as the database allows.

    For a composite key: ``a = 1 AND b = 2 OR a = 3 AND …``, for which every database uses its index. For tuples,
    ``(a, b) IN …``, SQLite scans the whole table, and some databases do not support them.
    """
    if len(columns) == 1:
        yield from traits.any_of(columns[0], [key for (key,) in keys])
        return
    size = min(_COMPOSITE_AT_ONCE, (traits.max_parameters or AT_ONCE) // len(columns))
    for at in range(0, len(keys), size):
        chunk = list(keys[at : at + size])
        length = 1 << (len(chunk) - 1).bit_length()  # few lengths, since SQLAlchemy caches a statement for each
        chunk += chunk[-1:] * (min(length, size) - len(chunk))
        yield or_(*(and_(*map(operator.eq, columns, key)) for key in chunk))
