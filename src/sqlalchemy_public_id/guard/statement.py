"""The ids of an INSERT: the parameters that hold them, and the layout of these parameters in an execution."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, NamedTuple, cast
from weakref import ref

from sqlalchemy import Column, Insert, Table
from sqlalchemy.engine import ExecutionContext
from sqlalchemy.engine.interfaces import ExecuteStyle

from sqlalchemy_public_id._private import (
    ParameterLayout,
    column_of_table,
    has_many_rows,
    has_own_values,
    is_known_row,
    read_layout,
)
from sqlalchemy_public_id.columns import is_public_id, public_id_columns
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.guard.checks import clauses_after_values, inserted_by, refuse_mistakes
from sqlalchemy_public_id.types import unwrapped
from sqlalchemy_public_id.weak import RefDict

MADE_IDS = "sqlalchemy_public_id_made_ids"
"""An execution option: the names of parameters whose ids the caller has just made, in place of the column default.

The application has not seen these ids, so the guard may replace them.
"""


class IdParameter(NamedTuple):
    """A bind parameter of an INSERT that holds a public id."""

    name: str
    column: Column[Any]
    is_default: bool
    """True if a column default, the library's or another one, makes the id in each execution of the statement."""


NO_LAYOUT = ParameterLayout()


@dataclass
class InsertStatement:
    """What the guard knows about a compiled statement. It is read before the first execution, and then cached."""

    ids: tuple[IdParameter, ...] = ()
    """Empty if the statement is not an INSERT with public ids, or if their layout is unknown."""
    copies: tuple[Any, ...] = ()
    """Columns with a Python default that hold no public ids of the table, such as a copied id in a history table."""
    names: tuple[str, ...] = ()
    """The names of all parameters, as they are passed to the driver."""
    layout: ParameterLayout = NO_LAYOUT
    insert: Insert | None = None
    """The statement, if it is an INSERT."""

    @cached_property
    def sentinel(self) -> list[Column[Any]]:
        """The sentinel columns that hold public ids, by which SQLAlchemy tells the rows of a batch apart."""
        return [column for column in self.layout.sentinel if is_public_id(column)]

    @cached_property
    def can_skip_rows(self) -> bool:
        """True if ``ON CONFLICT DO NOTHING`` may be added: each set of parameters is one row of VALUES."""
        insert = self.insert
        if insert is None or insert.select is not None or has_many_rows(insert):
            return False
        return not clauses_after_values(insert)

    @cached_property
    def has_parameters_of_rows(self) -> bool:
        """True if each set of parameters is one row; ``insert().values([…])`` has all rows in one, or it is unknown."""
        return self.insert is not None and not has_many_rows(self.insert)

    @cached_property
    def has_defaults(self) -> bool:
        """True if a column default makes an id in each execution."""
        return any(parameter.is_default for parameter in self.ids)

    @cached_property
    def dependent(self) -> dict[str, Column[Any]]:
        """Parameter → its column, for column defaults that may read the id of their row.

        The rows of ``insert().values([…])`` are read through their own values only.
        """
        columns: tuple[Any, ...] = self.layout.prefetched if self.has_parameters_of_rows else ()
        names = {parameter.name for parameter in self.ids}
        return {
            column.key: column
            for column in columns
            if column.key not in names
            and getattr(column.default, "is_callable", False)
            and _takes_execution(column.default.arg)
        }

    @cached_property
    def can_insert_alone(self) -> bool:
        """True if a row of a batch can be inserted without the others, and found in their result by its id.

        The INSERT has to come from a flush, which a session rolls back if it fails: an application may catch the error
        of its own statement, and then some of its rows would stay.
        """
        made = {id(parameter.column) for parameter in self.ids if parameter.is_default}
        if len(self.layout.sentinel) != 1 or id(self.layout.sentinel[0]) not in made:
            return False
        return self.insert is not None and not self.returns_rows_to_application and not has_own_values(self.insert)

    @cached_property
    def column_keys(self) -> frozenset[str]:
        """The keys of the columns of :attr:`table`."""
        return frozenset(self.table.columns.keys())

    @cached_property
    def returns_rows_to_application(self) -> bool:
        """True if the application wrote a RETURNING clause. In a flush, SQLAlchemy adds the clause itself."""
        return self.insert is not None and bool(list(self.insert.exported_columns))

    def shape_of(self, context: Any, parameters: Any) -> tuple[int, int]:
        """Return the number of *parameters* per row in a call to the driver, and the number of rows.

        For parameters that a driver takes by name, "insertmanyvalues" appends the number of the row to the name. All
        other statements, and those that it sends row by row, have the unchanged parameters of one row: the result is
        ``0, 1``. If the shape is unknown, the result is ``0, 0``.
        """
        if context.execute_style is not ExecuteStyle.INSERTMANYVALUES:
            return 0, 1
        width, names = self.layout.width, self.layout.positions or self.names
        if self.layout.positions is None:
            width = sum(f"{name}__0" in parameters for name in names)
            if not width and not is_known_row(self.names, parameters):
                return 0, 0
        once = len(names) - width
        return width, (len(parameters) - once) // width if width else 1

    @cached_property
    def table(self) -> Table:
        """The table of the INSERT; only if :attr:`ids` is not empty."""
        table: Table = self.ids[0].column.table
        return table


def _takes_execution(function: Any) -> bool:
    """Return True if a column default may take the execution; SQLAlchemy wraps one that does not."""
    try:
        parameters = signature(function).parameters.values()  # of the function that is wrapped
    except (TypeError, ValueError):  # it is written in C, and has no signature: SQLAlchemy passes it nothing
        return False
    return any(
        each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) and each.default is Parameter.empty
        for each in parameters
    )


cached_statements: RefDict[Any, InsertStatement] = RefDict()
"""Compiled statement → what is known about it: a cache, because the engine's events run for every statement."""


def statement_of(context: ExecutionContext) -> InsertStatement:
    """Return what is known about the statement of *context*; raise an error if it must not be executed."""
    found = cached_statements.get(ref(context.compiled))
    return found or cached_statements.keep(context.compiled, _read(context))


def _read(context: ExecutionContext) -> InsertStatement:
    compiled: Any = context.compiled
    insert = inserted_by(compiled)
    if insert is not None or getattr(compiled, "ctes", None):  # a CTE may be an INSERT
        refuse_mistakes(compiled)
    layout = None if insert is None else read_layout(context)
    if insert is None or layout is None:
        return InsertStatement()
    if layout.sort_column is not None and is_public_id(layout.sort_column):
        raise unwrapped(_unsorted(layout.sort_column))
    original = {escaped: name for name, escaped in layout.escaped.items()}
    names = {name: original.get(name, name) for name in cast("dict[str, Any]", compiled.params)}
    return InsertStatement(
        tuple(_id_parameters(insert, [*names.values()], layout)),
        tuple(column for column in map(column_of_table, layout.prefetched) if not is_public_id(column)),
        tuple(names),
        layout,
        insert,
    )


def _unsorted(column: Column[Any]) -> ConfigurationError:
    return ConfigurationError(
        f"{column.table.name}.{column.name} is an SQL expression in an INSERT of many rows with "
        f"sort_by_parameter_order=True, but ids that the database generates cannot be matched with the parameters. "
        f"Leave out sort_by_parameter_order=True, let the library generate the ids, or insert the rows one by one"
    )


def _id_parameters(insert: Insert, names: list[str], layout: ParameterLayout) -> Iterator[IdParameter]:
    defaults = {name: column for name, column in layout.defaults.items() if is_public_id(column)}
    for name, column in defaults.items():
        yield IdParameter(name, column, is_default=True)
    # with joined-table inheritance, the ORM's INSERT into one of the tables still refers to the model
    table = next((column.table for column in defaults.values()), insert.table)
    for column in public_id_columns(table):
        # after the first row, insert().values([…]) names parameters public_id_m1, …; a column may have such a name, too
        name_of_row = re.compile(rf"{re.escape(column.key)}(_m\d+)?")
        others = {other.key for other in table.columns if other is not column}
        for name in filter(name_of_row.fullmatch, names):
            if name not in others and name not in defaults:
                yield IdParameter(name, column, is_default=False)


def may_replace_ids(context: Any) -> bool:
    """Return True if an execution has ids that were made for it, so that the guard may replace them."""
    return statement_of(context).has_defaults or bool(context.execution_options.get(MADE_IDS))
