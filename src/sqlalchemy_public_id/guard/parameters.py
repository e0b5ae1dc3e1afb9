"""The parameters of a compiled INSERT that hold public ids, and their positions in one call to the driver."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from weakref import ref

from sqlalchemy import Column, Table
from sqlalchemy.engine.interfaces import ExecuteStyle

from sqlalchemy_public_id._compat import (
    default_columns,
    inserted_table,
    parameter_positions,
    parameters_per_row,
)
from sqlalchemy_public_id.guard.refusals import refuse_mistakes
from sqlalchemy_public_id.types import public_id_columns, public_id_type
from sqlalchemy_public_id.weak import RefDict

Row: TypeAlias = dict[str, Any] | list[Any] | tuple[Any, ...]
"""The parameters of one row in the shape for the driver."""


@dataclass(frozen=True)
class IdParameter:
    """A bind parameter of an INSERT that holds a public id."""

    column: Column[Any]
    name: str
    is_default: bool
    """True if the column default makes the id, in every execution of the statement: the library's, or another one."""


known: RefDict[Any, tuple[IdParameter, ...]] = RefDict()
"""Compiled statement → its :func:`id_parameters`, for the engine's events: they see every statement of a program."""

MADE_IDS = "sqlalchemy_public_id_made_ids"
"""An execution option: names of parameters whose ids the caller has just made, as the column default would have.

Nobody has seen these ids, so the guard may replace them.
"""


def id_parameters(compiled: Any) -> tuple[IdParameter, ...]:
    """Return the parameters of a *compiled* statement that hold public ids; none if it is no INSERT.

    Refuses a statement that must not be executed: each one passes here once, and its executions find it cached.
    """
    parameters = known.get(ref(compiled))
    if parameters is not None:
        return parameters
    is_insert = getattr(compiled, "isinsert", False)  # DDL has neither
    if is_insert or getattr(compiled, "ctes", None):  # there may be an INSERT among them
        refuse_mistakes(compiled)
    return known.keep(compiled, tuple(_find_id_parameters(compiled)) if is_insert else ())


def _find_id_parameters(compiled: Any) -> Iterator[IdParameter]:
    table = inserted_table(compiled)
    if table is None:
        return  # an INSERT inside a CTE, whose rows are unknown
    columns = {column.key: column for column in public_id_columns(table)}
    defaults = {name: columns.get(column.key) for name, column in default_columns(compiled).items()}
    for name, bound in compiled.binds.items():
        default = defaults.get(name)
        if default is not None:
            yield IdParameter(default, name, is_default=True)
            continue
        for key, column in columns.items():
            # the rows after the first of insert().values([…]) have parameters like public_id_m1
            row = name.removeprefix(f"{key}_m")
            if bound.type is column.type and (name == key or (row != name and row.isdigit())):
                yield IdParameter(column, name, is_default=False)


def table_of(compiled: Any) -> Table:
    """Return the table that a *compiled* INSERT with public ids writes."""
    table: Table = id_parameters(compiled)[0].column.table
    return table


@dataclass(frozen=True)
class Slot:
    """One public id in one execution."""

    row: int
    """The position of its row in ``context.compiled_parameters``."""
    parameter: IdParameter
    place: Any
    """Its key or position in the parameters for the driver; for executemany, in those of its row."""

    @property
    def column(self) -> Column[Any]:
        return self.parameter.column


def may_contain_generated(context: Any) -> bool:
    """Return True if the guard may replace ids of an execution."""
    # a loop instead of any(): a flush of one object passes here, and a generator takes longer than all else
    for parameter in id_parameters(context.compiled):
        if parameter.is_default:
            return True
    return bool(context.execution_options.get(MADE_IDS))


class Batch:
    """The rows of one call to the driver: reads their ids and replaces them.

    *parameters* are those for the driver. A batch of "insertmanyvalues" begins at row *first*.
    """

    def __init__(self, context: Any, parameters: Any, first: int = 0) -> None:
        self.context = context
        self.parameters: Any = parameters
        self._made: Collection[str] = context.execution_options.get(MADE_IDS, ())
        self._id_parameters = id_parameters(context.compiled)
        self.first = first
        self._is_many = context.execute_style is ExecuteStyle.EXECUTEMANY and isinstance(parameters, list)
        self._is_copied = False
        self.rows: int = len(self.parameters) if self._is_many else rows_in(context, parameters)

    # --- reading

    @cached_property
    def slots(self) -> list[Slot]:
        """The public ids of all rows. They are searched for after a collision only."""
        compiled = self.context.compiled
        rows = self.context.compiled_parameters[self.first : self.first + self.rows]
        positions = parameter_positions(compiled)
        escaped: dict[str, str] = compiled.escaped_bind_names or {}
        width = 0 if self._is_many else _per_row(self.context, self.parameters)[0]
        slots: list[Slot] = []
        for parameter in self._id_parameters:
            name = escaped.get(parameter.name, parameter.name)
            for at, row in enumerate(rows):
                if parameter.name not in row:
                    continue
                place: Any = f"{name}__{at}" if width else name
                if positions is not None:
                    place = positions[parameter.name] + at * width
                slots.append(Slot(self.first + at, parameter, place))
        return slots

    @property
    def has_different_ids(self) -> bool:
        """True if no two rows have the same id in the first column of public ids. Cheaper than :attr:`slots`."""
        name, rows = self._id_parameters[0].name, self.context.compiled_parameters
        return len({row[name] for row in rows[self.first : self.first + self.rows]}) == self.rows

    def text(self, slot: Slot) -> str:
        value: str = self.context.compiled_parameters[slot.row][slot.parameter.name]
        return value

    def is_generated(self, slot: Slot) -> bool:
        """Return True if the id in *slot* was made for this execution, so that it may be replaced."""
        return slot.parameter.is_default or slot.parameter.name in self._made

    # --- writing

    def replace(self, slot: Slot, new: str) -> None:
        """Put *new* into *slot*: for the driver, and for SQLAlchemy, which sets it on the object of a flush."""
        self.context.compiled_parameters[slot.row][slot.parameter.name] = new
        dialect = self.context.dialect
        process = public_id_type(slot.column).dialect_impl(dialect).bind_processor(dialect)
        value = process(new) if process else new
        if not self._is_copied:  # the application may still hold the parameters that it gave
            self.parameters, self._is_copied = _mutable(self.parameters), True
        if self._is_many:
            row = self.parameters[slot.row - self.first] = _mutable(self.parameters[slot.row - self.first])
            row[slot.place] = value
        else:
            self.parameters[slot.place] = value

    def for_driver(self) -> Any:
        """Return the parameters in their original shape, for the driver."""
        if not self._is_copied:
            return self.parameters
        if self._is_many:
            return [_final(row) for row in self.parameters]
        return _final(self.parameters)


def rows_in(context: Any, parameters: Any) -> int:
    """Return the number of rows in one statement with *parameters*."""
    width, once = _per_row(context, parameters)
    return (len(parameters) - once) // width if width else 1


def _per_row(context: Any, parameters: Any) -> tuple[int, int]:
    # "insertmanyvalues" sends some statements row by row, with the parameters as they are: the width is 0 then
    if context.execute_style is not ExecuteStyle.INSERTMANYVALUES:
        return 0, 0
    return parameters_per_row(context.compiled, parameters)


def _mutable(row: Row) -> Any:
    return dict(row) if isinstance(row, dict) else list(row)


def _final(row: Row) -> Row:
    return tuple(row) if isinstance(row, list) else row
