"""Send the rows of new objects, and set what the database makes of them: keys and defaults."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Any, TypeAlias, cast

from sqlalchemy import Column, Connection, Integer, Select, Table, insert, select
from sqlalchemy.orm import Mapper

from sqlalchemy_public_id._private import sent_parameters
from sqlalchemy_public_id.bulk.arrays import ArrayInsert, set_sent_ids
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.guard.statement import MADE_IDS
from sqlalchemy_public_id.orm.inspection import id_attributes
from sqlalchemy_public_id.types import public_id_type

Values: TypeAlias = dict[str, Any]
"""The attributes of an object that are set, as in its ``__dict__``."""

_AT_ONCE = 10_000
"""Rows that are sent and read back at a time: enough for speed, and far below the packet sizes of databases."""


def columns_of(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    """Return attribute → column of the table."""
    return {
        prop.key: prop.columns[0]
        for prop in mapper.column_attrs
        if isinstance(prop.columns[0], Column) and prop.columns[0].table is mapper.local_table
    }


def send(
    connection: Connection, mapper: Mapper[Any], rows: list[Values], *, arrays: bool, made: Collection[str]
) -> None:
    """Insert *rows*, the attributes of objects that have their ids, and set their keys and defaults.

    :param arrays: send an array for each column.
    :param made: attributes whose ids the caller has just made. A collision may replace them, and they are well-formed.
    """
    table, ids, columns = cast("Table", mapper.local_table), id_attributes(mapper), columns_of(mapper)
    ready = [ids[name].key for name in made if public_id_type(ids[name]).is_plain_text]
    options = {MADE_IDS: frozenset(ids[name].key for name in made)}
    for names, alike in _group_by_columns(rows, columns, ids):
        unset = [name for name in columns if name not in names]
        sent = {name: columns[name] for name in columns if name in names}
        array_insert: ArrayInsert | None = None
        if arrays:
            returned = {name: mapper.attrs[name].class_attribute.expression for name in unset}
            array_insert = ArrayInsert(connection, table, sent, next(iter(ids)), returned, ready, options)
        for at in range(0, len(alike), _AT_ONCE):
            batch = alike[at : at + _AT_ONCE] if len(alike) > _AT_ONCE else alike
            if array_insert is not None:
                for row in array_insert.insert(batch):
                    array_insert.insert_alone(row)
            else:
                result = connection.execute(insert(table), _parameters(sent, batch), execution_options=options)
                if made:  # some may have been replaced
                    set_sent_ids(batch, ids, sent_parameters(result) or ())
                _read_back(connection, mapper, batch, unset)


def _parameters(sent: dict[str, Column[Any]], rows: list[Values]) -> list[dict[str, Any]]:
    keys = [column.key for column in sent.values()]
    values = [[row.get(name) for row in rows] for name in sent]
    return [dict(zip(keys, row)) for row in zip(*values)]  # noqa: B905  # strict=True costs a third of the time


def _group_by_columns(
    rows: list[Values], columns: dict[str, Column[Any]], ids: Collection[str]
) -> Iterator[tuple[frozenset[str], list[Values]]]:
    """Yield groups of neighbouring rows with the same attributes to send; as in a flush, a default replaces None.

    All rows have their *ids*, and none has its key.
    """
    with_null = {name for name, column in columns.items() if column.type.should_evaluate_none}  # JSON: None is a value
    sent = frozenset(name for name, column in columns.items() if not column.primary_key)
    optional = [
        name
        for name, column in columns.items()
        if name in sent
        and name not in ids
        and (column.default is not None or column.server_default is not None or name in with_null)
    ]
    if not optional:
        yield sent, rows
        return

    def left_out(row: Values) -> list[str]:
        missing = [name for name in optional if row.get(name) is None]
        return [name for name in missing if name not in row or name not in with_null] if with_null else missing

    for names, group in groupby(rows, key=left_out):
        yield sent.difference(names), list(group)


def _read_back(connection: Connection, mapper: Mapper[Any], rows: list[Values], unset: list[str]) -> None:
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
