"""PostgreSQL: many rows in one INSERT, which has the values of a column as one array.

``INSERT … SELECT … FROM unnest(…)`` has as many parameters as columns. VALUES have one for each value, and the driver
reads their text anew for each statement: that takes most of the time.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, time
from typing import Any

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
from sqlalchemy import insert as insert_into
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from sqlalchemy_public_id._private import sent_parameters
from sqlalchemy_public_id.guard import on_conflict
from sqlalchemy_public_id.types import IdColumnType

_PLAIN = (Boolean, Date, DateTime, Float, Integer, Numeric, Time, Uuid)


def _item_type(type_: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any] | None:
    """Return the type of the items of an array, if each value is sent in the same way as by itself."""
    if isinstance(type_, IdColumnType):
        return type_.as_parameter
    impl = type_.dialect_impl(dialect)
    if isinstance(impl, (Enum, TypeDecorator)) or not type(impl).__module__.startswith("sqlalchemy."):
        return None
    if isinstance(impl, String):
        return String()  # a cast to VARCHAR(n) would cut longer strings
    return type_ if isinstance(impl, _PLAIN) or isinstance(type_, Interval) else None


def _are_alike(values: list[Any]) -> bool:
    """Return True if the driver sends all *values* as the same type: it takes that of an array from one item."""
    kinds = set(map(type, values)) - {type(None)}
    if any(issubclass(kind, (list, tuple, set, dict)) for kind in kinds):
        return False
    if len(kinds) > 1:
        return all(issubclass(kind, str) and not issubclass(kind, enum.Enum) for kind in kinds)
    if any(issubclass(kind, (datetime, time)) for kind in kinds):
        return len({value.tzinfo is None for value in values if value is not None}) == 1
    return True


def can_insert_arrays(
    connection: Connection, table: Table, columns: dict[str, Column[Any]], rows: Sequence[dict[str, Any]]
) -> bool:
    """Return True if *rows* can be inserted as arrays with the values that a flush would store.

    :param columns: attribute → its column.
    """
    dialect, sent = connection.dialect, set(columns.values())
    if dialect.name != "postgresql" or any(column.default is not None for column in {*table.columns} - sent):
        return False
    if any(_item_type(column.type, dialect) is None for column in sent):
        return False
    if not all(_are_alike([row.get(name) for row in rows]) for name in columns):
        return False
    return on_conflict.can_skip_rows(connection, table)


class ArrayInsert:
    """INSERTs of rows with the same columns.

    :param sent: attribute → its column.
    :param public_id: the attribute of the public id, which is sent.
    :param returned: attribute → the expression whose value is set on each row.
    :param ready: keys of columns whose values need no check.
    :param options: for the INSERT of a row that was left out.
    """

    def __init__(
        self,
        connection: Connection,
        table: Table,
        sent: dict[str, Column[Any]],
        public_id: str,
        returned: dict[str, Any],
        ready: Collection[str],
        options: dict[str, Any],
    ) -> None:
        self.connection: Connection = connection
        self.table: Table = table
        self.public_id: str = public_id
        self.returned: dict[str, Any] = returned
        self.sent: dict[str, Column[Any]] = sent
        self._columns = [*sent.values()]
        self._types = [_item_type(column.type, connection.dialect) or column.type for column in self._columns]
        self._ready = ready
        self._options = options
        self._statement = self._build()

    def _build(self) -> Any:
        from sqlalchemy.dialects.postgresql import insert  # only programs with PostgreSQL need it

        arrays = [bindparam(f"array_{at}", type_=ARRAY(type_)) for at, type_ in enumerate(self._types)]
        rows = func.unnest(*arrays).table_valued(*(f"c{at}" for at in range(len(arrays)))).render_derived()
        keys = [column.key for column in self._columns]
        filled = insert(self.table).from_select(keys, select(*rows.c), include_defaults=False)
        columns: list[Column[Any]] = [self.sent[self.public_id], *self.returned.values()]
        return filled.on_conflict_do_nothing().returning(*columns)

    def insert(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Insert *rows*, and set what the database returns. Return those that it has left out."""
        ids = [row[self.public_id] for row in rows]
        if len({*ids}) < len(ids):  # nobody could tell which one of two rows with the same id was left out
            first: dict[str, dict[str, Any]] = {}
            repeated = [row for row, id in zip(rows, ids, strict=True) if first.setdefault(id, row) is not row]
            return self.insert([*first.values()]) + repeated
        values = [self._values(rows, name) for name in self.sent]
        parameters = {f"array_{at}": array for at, array in enumerate(values)}
        stored = self.connection.execute(self._statement, parameters).all()
        if [row[0] for row in stored] != ids:  # one was left out
            return self._match(rows, stored)
        for at, name in enumerate(self.returned, start=1):
            for row, new in zip(rows, stored, strict=True):
                row[name] = new[at]
        return []

    def _match(self, rows: Sequence[dict[str, Any]], stored: Sequence[Any]) -> list[dict[str, Any]]:
        """Set what *stored* rows have on those with the same ids, and return the others."""
        missing = {row[self.public_id]: row for row in rows}
        for id, *new in stored:
            row = missing.pop(id, None)
            if row is None:
                raise on_conflict.other_ids(self.sent[self.public_id])
            row.update(zip(self.returned, new, strict=True))
        return [*missing.values()]

    def _values(self, rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
        values, column = [row.get(name) for row in rows], self.sent[name]
        type_ = column.type
        if isinstance(type_, IdColumnType) and not type_.is_native and column.key not in self._ready:
            check = type_.bind_processor(self.connection.dialect)  # sent as plain strings
            return [check(value) for value in values]
        return values

    def insert_alone(self, row: dict[str, Any]) -> None:
        """Insert a row that was left out: it gets another id, or the error of the constraint that it violates.

        An id that the application has given is no one's to replace: its error is raised.
        """
        parameters = {column.key: row.get(name) for name, column in self.sent.items()}
        columns: list[Column[Any]] = list(self.returned.values())
        query = insert_into(self.table).returning(*columns)
        result = self.connection.execute(query, parameters, execution_options=self._options)
        ids = {name: column for name, column in self.sent.items() if isinstance(column.type, IdColumnType)}
        set_sent_ids([row], ids, sent_parameters(result) or ())
        row.update(zip(self.returned, result.one(), strict=True))


def set_sent_ids(
    rows: Sequence[dict[str, Any]], ids: Mapping[str, Column[Any]], sent: Sequence[Mapping[str, Any]]
) -> None:
    """Set the ids that an INSERT has sent on *rows*; *ids* has their attributes, *sent* its parameters for each row."""
    for name, column in ids.items():
        for row, parameters in zip(rows, sent):  # noqa: B905  # nothing is known to be sent if nothing was replaced
            row[name] = parameters[column.key]
