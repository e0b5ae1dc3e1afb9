"""The rows of a table in the order of their key, whatever the key is made of."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Column, ColumnElement, Connection, MetaData, Table, and_, bindparam, inspect, or_, select, tuple_

from sqlalchemy_public_id.dialects.reflection import columns_of, primary_key_of
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.online import Target

__all__ = ["Key", "Rows"]

Key: TypeAlias = tuple[Any, ...]
"""The values of the primary key of one row."""


class Rows:
    """The table of a *target*, as the database describes it."""

    def __init__(self, connection: Connection, target: Target) -> None:
        self.target = target
        inspector = inspect(connection)
        if not inspector.has_table(target.table, schema=target.schema):
            raise ConfigurationError(f"there is no table {target.table!r}")
        columns = columns_of(inspector, target.table, target.schema)
        key = primary_key_of(inspector, target.table, target.schema)
        if not key:
            raise ConfigurationError(
                f"{target.table} has no primary key, so its rows cannot be told apart; "
                f"add one, or fill {target.column} by hand"
            )
        if target.column not in columns:
            raise ConfigurationError(
                f"{target.table} has no column {target.column!r}; "
                f"add it first, with op.expand_public_id({target.table!r})"
            )
        self.table = Table(
            target.table,
            MetaData(),
            *(
                Column(name, columns[name]["type"], primary_key=name in key)
                for name in dict.fromkeys([*key, target.column])
            ),
            schema=target.schema,
        )
        self.key = [self.table.columns[name] for name in key]
        self.column = self.table.columns[target.column]
        self._row_values = connection.dialect.name not in ("mysql", "mariadb")  # these scan for (a, b) > (1, 2)

    def between(self, after: Key | None, until: Key) -> ColumnElement[bool]:
        """The rows behind *after*, or from the first one, up to *until*."""
        up_to = self._compared(until, _UP_TO)
        return up_to if after is None else and_(self._compared(after, _BEHIND), up_to)

    def from_to(self, first: Key, last: Key) -> ColumnElement[bool]:
        """The rows from *first* to *last*, both included."""
        return and_(self._compared(first, _FROM), self._compared(last, _UP_TO))

    def last(self, connection: Connection, *, missing: bool = False) -> Key | None:
        """The last key of the table, or of the rows that have no id."""
        query = select(*self.key).order_by(*(column.desc() for column in self.key)).limit(1)
        if missing:
            query = query.where(self.column.is_(None))
        return _key(connection.execute(query).one_or_none())

    def end_of_window(self, connection: Connection, after: Key | None, until: Key, size: int) -> Key | None:
        """The key of the row *size* places behind *after*; ``None`` where there are fewer rows."""
        query = select(*self.key).where(self.between(after, until)).order_by(*self.key).offset(size - 1).limit(1)
        return _key(connection.execute(query).one_or_none())

    def missing(self, connection: Connection, after: Key | None, until: Key) -> list[Key]:
        """The keys of the rows in a window that have no id."""
        query = select(*self.key).where(self.between(after, until), self.column.is_(None)).order_by(*self.key)
        return [tuple(row) for row in connection.execute(query)]

    def _compared(self, key: Key, how: _Comparison) -> ColumnElement[bool]:
        """The key of a row compared with *key*, said in the way for which the database uses an index."""
        if len(key) == 1:
            return how(self.key[0], key[0])
        if self._row_values:
            given = [bindparam(None, value, type_=column.type) for column, value in zip(self.key, key, strict=True)]
            return how(tuple_(*self.key), tuple_(*given))
        return _column_by_column(self.key, key, how)


_Comparison: TypeAlias = Callable[[Any, Any], ColumnElement[bool]]
_BEHIND, _FROM, _UP_TO = operator.gt, operator.ge, operator.le
_STRICT = {_BEHIND: _BEHIND, _FROM: _BEHIND, _UP_TO: operator.lt}


def _column_by_column(columns: Sequence[Any], values: Key, how: _Comparison) -> ColumnElement[bool]:
    column, value = columns[0], values[0]
    if len(columns) == 1:
        return how(column, value)
    rest = _column_by_column(columns[1:], values[1:], how)
    return or_(_STRICT[how](column, value), and_(column == value, rest))


def _key(row: Any) -> Key | None:
    return None if row is None else tuple(row)
