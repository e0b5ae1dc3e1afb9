"""The rows of a table in the order of their positions, and windows of them in which a backfill sets ids.

A position identifies a row, so that later statements find it. Only the server interprets its values: they never become
Python objects, because Python and its drivers would change some, such as times of more than a day, zero dates and
4-byte floats.

A batch is one statement and one transaction.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, TypeAlias

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Table,
    and_,
    bindparam,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy import column as sql_column
from sqlalchemy.types import NullType, TypeEngine

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations.column import PublicIdColumn
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.table import LiveTable
from sqlalchemy_public_id.stored_ids import as_bits_format
from sqlalchemy_public_id.types import IdColumnType

RowPosition: TypeAlias = tuple[Any, ...]
"""The position of one row, as the server renders it."""
PositionColumns: TypeAlias = dict[str, TypeEngine[Any]]
"""The columns that make up the position of a row, and their types."""
_Comparison: TypeAlias = Callable[[Any, Any], ColumnElement[bool]]
_STRICT: dict[_Comparison, _Comparison] = {operator.gt: operator.gt, operator.ge: operator.gt, operator.le: operator.lt}


class Rows(ABC):
    """The rows of *live*.

    :raises ConfigurationError: if there is no such column, or if the rows cannot be told apart.
    """

    def __init__(self, live: LiveTable, state: State) -> None:
        target = live.target
        if not state.exists:
            raise ConfigurationError(
                f"{target.table} has no column {target.column!r}; "
                f"add it first, with op.expand_public_id({target.table!r})"
            )
        types = self.read_position_columns(live)
        if not types:
            raise ConfigurationError(f"{without_position(target)}; {remedy_without_position(target)}")
        self.live: LiveTable = live
        self.state: State = state
        self.target: PublicIdColumn = target
        self.connection: Connection = live.connection
        kept = live.columns_changed_by_updates()
        names = dict.fromkeys([*types, target.column, *target.unique_with, *kept])
        columns = [Column(name, types.get(name, NullType())) for name in names]
        self.table: Table = Table(target.table, MetaData(), *columns, schema=target.schema)
        self.parts: list[Column[Any]] = [self.table.columns[name] for name in types]
        """The columns of a position, by which the rows are sorted."""
        self.column: Column[Any] = self.table.columns[target.column]
        self.others: list[Column[Any]] = [self.table.columns[name] for name in target.unique_with]
        """The columns in which rows with equal ids differ."""
        self.kept: dict[Any, Any] = {self.table.columns[name]: self.table.columns[name] for name in kept}
        """Assignments that keep ``ON UPDATE CURRENT_TIMESTAMP`` from changing a column."""

    @classmethod
    @abstractmethod
    def read_position_columns(cls, live: LiveTable) -> PositionColumns:
        """Return the columns that make up the position of a row; none if rows cannot be told apart."""

    @classmethod
    def read_key(cls, live: LiveTable) -> list[str]:
        """Return the columns of the primary key, if a position is made up of something else."""
        return []

    def by_storage(self) -> Sequence[Rows]:
        """Return these rows as the database stores them: in one piece, or those of each partition.

        :raises ConfigurationError: if rows without an id are stored where they cannot be told apart.
        """
        return [self]

    def has_missing(self) -> bool:
        """Return True if a row has no id, wherever it is stored."""
        return self.live.has_rows_to_fill(self.state)

    @cached_property
    def key(self) -> list[Any]:
        """The columns that identify a row in messages: the primary key if there is one, or else its position."""
        return [sql_column(name) for name in self.read_key(self.live)] or self.parts

    @property
    def position(self) -> list[Any]:
        """The parts of a position as they are selected and compared."""
        return [*self.parts]

    @property
    def compared(self) -> ColumnElement[Any]:
        """The id of a row as it is compared with those of others."""
        return self.column

    def has_id(self, value: Any) -> ColumnElement[bool]:
        """Return the condition that the id of a row is *value*, as the database returned it."""
        condition: ColumnElement[bool] = self.column == value
        return condition

    @abstractmethod
    def is_well_formed(self) -> ColumnElement[bool]:
        """Return the condition that the id of a row matches the pattern of stored ids."""

    def between(self, after: RowPosition | None, until: RowPosition) -> ColumnElement[bool]:
        """Return a condition for the rows behind *after*, or from the first one, up to *until*."""
        up_to = self._compare(until, operator.le)
        return up_to if after is None else and_(self._compare(after, operator.gt), up_to)

    def from_to(self, first: RowPosition, last: RowPosition) -> ColumnElement[bool]:
        """Return a condition for the rows from *first* to *last*, both included."""
        return and_(self._compare(first, operator.ge), self._compare(last, operator.le))

    def at(self, position: RowPosition) -> ColumnElement[bool]:
        """Return a condition for the row at *position*."""
        return and_(*(part == value for part, value in zip(self.position, position, strict=True)))

    def last(self, *, missing: bool = False) -> RowPosition | None:
        """Return the last position of the table, or of the rows that have no id."""
        query = select(*self.position).order_by(*(column.desc() for column in self.parts)).limit(1)
        if missing:
            query = query.where(self.column.is_(None))
        return _position(self.connection.execute(query).one_or_none())

    def end_of_window(self, after: RowPosition | None, until: RowPosition, size: int) -> RowPosition | None:
        """Return the position of the row *size* positions behind *after*; ``None`` if there are fewer rows."""
        query = select(*self.position).where(self.between(after, until)).order_by(*self.parts).offset(size - 1).limit(1)
        return _position(self.connection.execute(query).one_or_none())

    def missing(self, after: RowPosition | None, until: RowPosition) -> list[RowPosition]:
        """Return the positions of the rows in a window that have no id."""
        query = select(*self.position).where(self.between(after, until), self.column.is_(None)).order_by(*self.parts)
        return [tuple(row) for row in self.connection.execute(query)]

    def count_rows(self) -> int | None:
        """Return about how many rows there are, if the database has an estimate."""
        return self.live.estimate_rows()

    def count_window(self, size: int) -> int:
        """Return about how many rows a window of the requested *size* has."""
        return size

    def claim(self, after: RowPosition | None) -> AbstractContextManager[bool]:
        """Keep other processes out of the window behind *after*, and yield False if one of them has claimed it."""
        return nullcontext(True)

    def window(self, after: RowPosition | None, until: RowPosition) -> Window:
        """Return the rows behind *after* up to *until* that have no id."""
        return Window(self, after, until)

    def _compare(self, position: RowPosition, comparison: _Comparison) -> ColumnElement[bool]:
        # in the form for which the database uses the index of the key
        if len(position) > 1 and traits_for(self.connection.dialect).indexes_row_values:
            values = [
                bindparam(None, value, type_=part.type) for part, value in zip(self.position, position, strict=True)
            ]
            return comparison(tuple_(*self.position), tuple_(*values))
        return _compare_columns(self.position, position, comparison)


def _compare_columns(columns: Sequence[Any], values: RowPosition, comparison: _Comparison) -> ColumnElement[bool]:
    column, value = columns[0], bindparam(None, values[0], type_=columns[0].type)
    if len(columns) == 1:
        return comparison(column, value)
    rest = _compare_columns(columns[1:], values[1:], comparison)
    return or_(_STRICT[comparison](column, value), and_(column == value, rest))


def _position(row: Any) -> RowPosition | None:
    return None if row is None else tuple(row)


def without_position(target: PublicIdColumn) -> str:
    """Return the message for a table whose rows have no position of their own."""
    return (
        f"{target.table} has no primary key, and no unique index of columns that are NOT NULL, so its rows cannot be "
        f"told apart"
    )


def remedy_without_position(target: PublicIdColumn) -> str:
    """Return what helps such a table."""
    return f"add one, or give {target.column} ids, a unique index and NOT NULL by hand"


class Window:
    """The rows of a window that have no id: their positions are read first, and a process fills them in batches.

    Rows that others have locked are skipped if the database supports it. After a failure, the batch can be retried.
    """

    is_taken: bool = False
    """True if another process is filling a batch of these rows."""

    def __init__(self, rows: Rows, after: RowPosition | None, until: RowPosition) -> None:
        self.rows: Rows = rows
        self.positions: list[RowPosition] = rows.missing(after, until)

    @property
    def is_done(self) -> bool:
        """True at the end of the window."""
        return not self.positions

    def fill(self, ids: Sequence[str]) -> int:
        """Set *ids* in the next rows, and return how many rows got one."""
        positions = self.positions[: len(ids)]
        filled = self.write(positions, ids[: len(positions)])
        self.skip(len(positions))
        return filled

    def skip(self, count: int) -> None:
        """Skip the next *count* rows."""
        del self.positions[:count]

    def write(self, positions: Sequence[RowPosition], ids: Sequence[str]) -> int:
        """Set *ids* at *positions*, here one by one, because SQLite runs in this process, without round trips."""
        rows = self.rows
        names = [f"public_id_key_{at}" for at in range(len(rows.parts))]
        this_row = and_(*(column == bindparam(name) for column, name in zip(rows.parts, names, strict=True)))
        value = bindparam("public_id_made", type_=IdColumnType(rows.target.format))
        statement = update(rows.table).where(this_row, rows.column.is_(None)).values({rows.column: value, **rows.kept})
        parameters = [
            dict(zip(names, position, strict=True), public_id_made=id)
            for position, id in zip(positions, ids, strict=True)
        ]
        return rows.connection.execute(statement, parameters).rowcount


def encoded(format: Format, id: str) -> str:
    """Return *id* without quotes: text as it is, 64-bit integers in decimal, and larger ones in hexadecimal digits."""
    if not format.is_native:
        return id
    number = as_bits_format(format)
    value = number.to_int(id)
    return str(value) if number.bits == 64 else f"{value:0{number.bits // 4}x}"
