"""PostgreSQL: insert many rows with one statement, which has one array of values for each column.

``INSERT … SELECT … FROM unnest(…)`` has one parameter per column. VALUES would have one per value, and the driver would
spend most of its time on parsing the text of each statement.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Boolean,
    Column,
    Connection,
    Date,
    DateTime,
    Enum,
    Float,
    Integer,
    Interval,
    Numeric,
    String,
    Table,
    Time,
    Uuid,
    bindparam,
    func,
    select,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.guard import on_conflict
from sqlalchemy_public_id.guard.call import names_of
from sqlalchemy_public_id.types import IdColumnType

_FEW_ROWS = 20
"""Fewer rows are as fast without arrays."""

_TYPES = (Boolean, Date, DateTime, Float, Integer, Numeric, Time, Uuid)
_VALUES = {bool, date, datetime, Decimal, float, int, str, time, timedelta, UUID}


def item_types(
    connection: Connection,
    table: Table,
    columns: dict[str, Column[Any]],
    ids: Collection[str],
    rows: list[dict[str, Any]],
) -> dict[str, TypeEngine[Any]] | None:
    """Return the types with which arrays store what a flush of *rows* would store; None if *rows* have to be flushed.

    :param columns: attribute → its column. The result has the same attributes as keys.
    :param ids: attributes of public ids. If one is None in all rows, its ids are generated before the rows are sent.
    """
    if not traits_for(connection.dialect).array_parameters or len(rows) < _FEW_ROWS:
        return None
    if any(column.default is not None for column in {*table.columns}.difference(columns.values())):
        return None
    types: dict[str, TypeEngine[Any]] = {}
    for name, column in columns.items():
        values = [row.get(name) for row in rows]
        kinds: set[type[Any]] = {*map(type, values)}
        # SQLAlchemy calls a default for each row, but not for the items of an array
        if column.default is not None and NoneType in kinds and name not in ids:
            return None
        if isinstance(column.type, IdColumnType):  # its type checks each value, which new ids do not need
            is_new = name in ids and kinds == {NoneType}
            types[name] = String() if column.type.is_plain_text and is_new else column.type
            continue
        type_ = _item_type(column.type, connection.dialect)
        if type_ is None or not _are_alike(kinds - {NoneType}, values):
            return None
        types[name] = type_
    return types if on_conflict.can_skip_rows(connection, table) else None


def _item_type(type_: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any] | None:
    """Return the type of the items of an array; None unless an item is sent in the same way as a single value."""
    impl = type_.dialect_impl(dialect)
    if isinstance(impl, Enum) or not type(impl).__module__.startswith("sqlalchemy."):
        return None
    if isinstance(impl, String):
        return String()  # a cast to VARCHAR(n) would truncate longer strings
    return type_ if isinstance(impl, _TYPES) or isinstance(type_, Interval) else None


def _are_alike(kinds: set[type[Any]], values: list[Any]) -> bool:
    """Return True if the driver sends all *values* as one type: it derives an array's type from one item."""
    if kinds & {datetime, time}:
        return len(kinds) == 1 and len({value.tzinfo is None for value in values if value is not None}) == 1
    return len(kinds) < 2 and kinds <= _VALUES


def insert_arrays(
    connection: Connection,
    rows: Sequence[dict[str, Any]],
    sent: dict[str, Column[Any]],
    types: dict[str, TypeEngine[Any]],
    returned: dict[str, Any],
) -> list[dict[str, Any]]:
    """Insert *rows*, and set the values that the database returns. Return the rows that it has skipped.

    :param sent: attribute → its column.
    :param types: attribute → the type of the items, from :func:`item_types`.
    :param returned: attribute → the expression whose value is set on each row; the first is a public id, which is sent.
    """
    from sqlalchemy.dialects.postgresql import insert  # only programs with PostgreSQL need it

    public_id = next(iter(returned))
    missing = {row[public_id]: row for row in rows}
    # of several rows with the same id, only one is sent: otherwise it would be unknown which of them was skipped
    repeated = [row for row in rows if missing[row[public_id]] is not row] if len(missing) < len(rows) else []
    arrays = [
        bindparam(None, [row.get(name) for row in missing.values()], type_=ARRAY(types[name]), unique=True)
        for name in sent
    ]
    # PostgreSQL itself looks for an unnest() of several arrays in pg_catalog; another one would be that of any role
    unnest: Any = func.unnest if len(arrays) > 1 else func.pg_catalog.unnest
    items = unnest(*arrays).table_valued(*(f"c{at}" for at in range(len(arrays)))).render_derived()
    keys = [column.key for column in sent.values()]
    table: Any = sent[public_id].table
    query: Any = insert(table).from_select(keys, select(*items.c), include_defaults=False)
    names = names_of(table, connection.get_execution_options())
    try:
        stored: Sequence[Any] = connection.execute(query.on_conflict_do_nothing().returning(*returned.values())).all()
    except DBAPIError as error:
        on_conflict.note_refusal(connection, names, error.orig)
        raise
    try:
        found = [missing.pop(values[0]) for values in stored]
    except KeyError:
        raise on_conflict.other_ids(sent[public_id]) from None
    if missing:
        on_conflict.check_skipped(connection, names)
    for at, name in enumerate([*returned][1:], start=1):  # the public ids are those that were sent
        for row, values in zip(found, stored, strict=True):
            row[name] = values[at]
    return [*repeated, *missing.values()]
