"""Where the public ids stand in a compiled INSERT and in the parameters of one execution of it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from sqlalchemy import Column
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import ExecuteStyle

from sqlalchemy_public_id._compat import plain_table, values_names
from sqlalchemy_public_id.guard import generated
from sqlalchemy_public_id.guard.refusals import refuse_mistakes
from sqlalchemy_public_id.types import PublicIdType, public_id_columns

__all__ = ["Batch", "IdParameter", "Row", "Slot", "id_parameters", "rows_of"]

Row: TypeAlias = dict[str, Any] | list[Any] | tuple[Any, ...]
"""The parameters of one row in the shape the driver wants."""


@dataclass(frozen=True)
class IdParameter:
    """A bound parameter of an INSERT that holds a public id."""

    column: Column[Any]
    name: str
    """The name of the parameter."""
    made: bool
    """Whether the column default makes it, in every execution of the statement."""


_parameters: weakref.WeakKeyDictionary[Any, tuple[IdParameter, ...]] = weakref.WeakKeyDictionary()


def id_parameters(compiled: Any) -> tuple[IdParameter, ...]:
    """The parameters of the INSERT *compiled* that hold public ids; empty if there are none.

    A statement that must not be run is refused here, where each one comes by once.
    """
    found = _parameters.get(compiled)
    if found is None:
        refuse_mistakes(compiled)
        found = _parameters[compiled] = tuple(_find(compiled))
    return found


def _find(compiled: Any) -> Iterator[IdParameter]:
    table = getattr(compiled.statement, "table", None)
    if table is None:
        return  # an INSERT inside a CTE; nothing is known of its rows
    columns = {column.key: column for column in public_id_columns(plain_table(table))}
    # for insert().values([…]), the prefetched columns of later rows are stand-ins: "public_id_m1" with an "original"
    made = {column.key: columns.get(getattr(column, "original", column).key) for column in compiled.insert_prefetch}
    for name, bound in compiled.binds.items():
        prefetched = made.get(name)
        if prefetched is not None:
            yield IdParameter(prefetched, name, made=True)
            continue
        for key, column in columns.items():
            row = name.removeprefix(f"{key}_m")
            if bound.type is column.type and (name == key or (row != name and row.isdigit())):
                yield IdParameter(column, name, made=False)


@dataclass(frozen=True)
class Slot:
    """One public id in one execution."""

    row: int
    """The position of its row in ``context.compiled_parameters``."""
    parameter: IdParameter
    place: Any
    """Where it stands in the parameters given to the driver: a key or a position, behind the row for executemany."""

    @property
    def column(self) -> Column[Any]:
        return self.parameter.column


class Batch:
    """The rows of one call to the driver: what their ids are, and how to replace one.

    *parameters* is what the driver gets. A batch of "insertmanyvalues" begins at row *first*.
    """

    def __init__(self, context: Any, parameters: Any, first: int = 0) -> None:
        self.context = context
        self.parameters = parameters
        self.pending = generated.of(context.root_connection)
        self._many = isinstance(parameters, list) and context.execute_style is ExecuteStyle.EXECUTEMANY
        self._names = id_parameters(context.compiled)
        self._first = first
        self._copied = False
        compiled = context.compiled
        self._positions: dict[str, int] | None = (
            {name: at for at, name in enumerate(compiled.positiontup or ())} if compiled.positional else None
        )
        self.rows, self._width, self.numbered = self._shape()

    # --- reading

    @property
    def may_be_ours(self) -> bool:
        """Whether the library made any of the ids, found out without looking at each row."""
        return bool(self.pending) or any(parameter.made for parameter in self._names)

    @cached_property
    def slots(self) -> list[Slot]:
        """The public ids of all rows. Made when something has collided, and not before."""
        return list(self._find_slots())

    def text(self, slot: Slot) -> str:
        """The id in *slot*."""
        value: str = self.context.compiled_parameters[slot.row][slot.parameter.name]
        return value

    def is_ours(self, slot: Slot) -> bool:
        """Whether the library made the id in *slot*, so that it may be replaced."""
        if slot.parameter.made:
            return True
        return generated.is_ours(self.pending, slot.column, self.text(slot))

    def slots_by_row(self) -> dict[int, list[Slot]]:
        """Row → its public ids."""
        rows: dict[int, list[Slot]] = {}
        for slot in self.slots:
            rows.setdefault(slot.row, []).append(slot)
        return rows

    def names_in_row(self) -> set[str]:
        """The names of the parameters of a row."""
        return set(self.context.compiled_parameters[self._first])

    # --- writing

    def replace(self, slot: Slot, new: str) -> None:
        """Put *new* into *slot*: for the driver, for the result that SQLAlchemy builds, and for the object."""
        old = self.text(slot)
        self.context.compiled_parameters[slot.row][slot.parameter.name] = new
        processor = _bind_processor(slot.column, self.context.dialect)
        stored = processor(new) if processor else new
        if not self._copied:
            self.parameters, self._copied = _mutable(self.parameters), True
        if self._many:
            row = self.parameters[slot.row - self._first] = _mutable(self.parameters[slot.row - self._first])
            row[slot.place] = stored
        else:
            self.parameters[slot.place] = stored
        generated.replace(self.pending, slot.column, old, new)

    def for_driver(self) -> Any:
        """The parameters in the shape the driver was given them."""
        if not self._copied:
            return self.parameters
        if self._many:
            return [_final(row) for row in self.parameters]
        return _final(self.parameters)

    # --- inside

    def _find_slots(self) -> Iterator[Slot]:
        given = self.context.compiled_parameters
        escaped: dict[str, str] = self.context.compiled.escaped_bind_names or {}
        for parameter in self._names:
            name = escaped.get(parameter.name, parameter.name)
            for row in range(self.rows):
                if parameter.name not in given[self._first + row]:
                    continue
                if self._positions is not None:
                    place: Any = self._positions[parameter.name] + row * self._width
                else:
                    place = f"{name}__{row}" if self.numbered else name
                yield Slot(self._first + row, parameter, place)

    def _shape(self) -> tuple[int, int, bool]:
        """How many rows there are, how many positions lie between them, and whether names carry a row number."""
        compiled, parameters = self.context.compiled, self.parameters
        if self._many:
            return len(parameters), 0, False
        if self.context.execute_style is not ExecuteStyle.INSERTMANYVALUES:
            return 1, 0, False
        if self._positions is None and self._names[0].name in parameters:
            return 1, 0, False  # SQLAlchemy goes row by row, with the statement as it is
        return rows_of(compiled, len(parameters), 1), _width(compiled)[0], True


def rows_of(compiled: Any, parameters: int, calls: int) -> int:
    """How many rows *calls* batches of "insertmanyvalues" with *parameters* parameters in all have."""
    if not calls:
        return 0
    width, once = _width(compiled)
    return (parameters - calls * once) // width


def _width(compiled: Any) -> tuple[int, int]:
    """How many parameters there are for each row, and how many for the statement as a whole."""
    names = compiled.positiontup if compiled.positional else compiled.bind_names.values()
    repeated = values_names(compiled)
    width = sum(name in repeated for name in names)
    return width, len(names) - width


def _mutable(row: Row) -> Any:
    return dict(row) if isinstance(row, dict) else list(row)


def _final(row: Row) -> Row:
    return tuple(row) if isinstance(row, list) else row


def _bind_processor(column: Column[Any], dialect: Dialect) -> Any:
    assert isinstance(column.type, PublicIdType)
    return column.type.dialect_impl(dialect).bind_processor(dialect)
