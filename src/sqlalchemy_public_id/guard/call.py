"""One call to the driver with an INSERT: the ids in its rows, its savepoint, and the rows that it returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, cast
from weakref import ref

from sqlalchemy import Column, Table
from sqlalchemy.engine import ExecutionContext
from sqlalchemy.engine.interfaces import ExecuteStyle

from sqlalchemy_public_id._private import change_returned_rows
from sqlalchemy_public_id.columns import is_public_id, public_id_type, unique_with
from sqlalchemy_public_id.dialects import Traits, execute_unlogged, traits_for
from sqlalchemy_public_id.guard.statement import MADE_IDS, InsertStatement, cached_statements, statement_of
from sqlalchemy_public_id.types import MatchedId

Row: TypeAlias = dict[str, Any] | list[Any] | tuple[Any, ...]
"""The parameters of one row, as they are passed to the driver."""


class IdInRow(NamedTuple):
    """A public id in the row of an INSERT that is being executed."""

    row: dict[str, Any]
    """The parameters of its row as SQLAlchemy keeps them: a flush sets them on the object."""
    at: int
    """The number of its row in the call to the driver."""
    name: str
    column: Column[Any]
    place: Any
    """The key or index of the id in the driver's parameters; for executemany, in the parameters of its row."""
    is_made: bool
    """True if the id was made for this execution, so that it may be replaced."""
    beside: tuple[Any, ...] = ()
    """The values of the columns with which the id is unique; none if it is unique alone, or if they are unknown.

    Only rows with equal values can collide.
    """

    @property
    def text(self) -> Any:
        """The current id; None if the application passed None."""
        return self.row[self.name]


class DriverCall:
    """One call to the driver with an INSERT whose ids may collide.

    :param context: the execution of SQLAlchemy.
    :param sql: the statement, as it is passed to the driver.
    :param parameters: the parameters, as they are passed to the driver.
    :param first: the number of the first row in the execution, for a batch of "insertmanyvalues".
    """

    def __init__(self, context: Any, cursor: Any, sql: str, parameters: Any, first: int = 0) -> None:
        self.context = context
        self.cursor = cursor
        self.dialect: Any = context.dialect
        self.traits: Traits = traits_for(context.dialect)
        self.connection: Any = context.root_connection
        self.statement: InsertStatement = cached_statements.get(ref(context.compiled)) or statement_of(context)
        self._sql = sql
        self._parameters: Any = parameters
        self._is_many = context.execute_style is ExecuteStyle.EXECUTEMANY
        self._width, count = self.statement.shape_of(context, parameters)
        if self._is_many:  # a copy: the application may still use the list that it passed
            self._parameters, count = list(parameters), len(parameters)
        self.rows: list[dict[str, Any]] = context.compiled_parameters[first : first + count]
        self.is_later: bool = first > 0
        """True if other batches of the INSERT were sent before."""
        self.has_savepoint: bool = False
        self.taken: set[tuple[Column[Any], tuple[Any, ...], str]] = set()
        """The ids that have collided, after the values of the columns with which they are unique."""
        self.tries: Counter[tuple[int, str]] = Counter()
        """Row and parameter → how many other ids the row has had."""
        self._sent: dict[tuple[Column[Any], str], str] = {}
        """Column and new id → the id by which SQLAlchemy knows the row, from before the guard replaced it."""

    # --- the ids

    @cached_property
    def ids(self) -> list[IdInRow]:
        """The public ids of all rows, which are collected only after a collision."""
        made = self.context.execution_options.get(MADE_IDS, ())
        ids: list[IdInRow] = []
        for name, column, is_default in self.statement.ids:
            suffix = name[len(column.key) :]  # of the parameters of a row in values([…])
            others = [f"{other.key}{suffix}" for other in unique_with(column)]
            for at, row in enumerate(self.rows):
                if name not in row:
                    continue
                beside = tuple([row[other] for other in others if other in row])
                beside = beside if len(beside) == len(others) else ()
                place, is_made = self._place(name, at), is_default or name in made
                ids.append(IdInRow(row, at, name, column, place, is_made, beside))
        return ids

    @cached_property
    def has_equal_rows(self) -> bool:
        """True if SQLAlchemy cannot tell the rows apart by the ids that were sent, because two rows have equal ids.

        Read it before the first :meth:`replace`.
        """
        if len(self.rows) < 2 or not self.statement.sentinel:
            return False
        key_of_row = itemgetter(*[column.key for column in self.statement.layout.sentinel])
        return len(set(map(key_of_row, self.rows))) < len(self.rows)

    def replace(self, id: IdInRow, new: str) -> None:
        """Replace *id* by *new*, and what defaults made of it, in the parameters of the driver and of SQLAlchemy."""
        self._sent[id.column, new] = self._sent.pop((id.column, id.text), id.text)
        self._set(id, new)
        changed = {id.name}
        later = [column.key for column in self.statement.layout.prefetched]
        for name, column in self.statement.dependent.items():
            later = later[later.index(name) :]  # which had no values yet when the default was called first
            row = self.context.current_parameters = _Watched({**id.row, **dict.fromkeys(later)})
            self.context.current_column = column
            try:
                value = cast("Any", column.default).arg(self.context)
            finally:
                del self.context.current_parameters
            if changed & row.read:  # the former value has, or is made from, the id of another row
                self._set(id._replace(name=name, column=column, place=self._place(name, id.at)), value)
                changed.add(name)

    def _set(self, parameter: IdInRow, new: Any) -> None:
        parameter.row[parameter.name] = new
        process = parameter.column.type.dialect_impl(self.dialect).bind_processor(self.dialect)
        value = process(new) if process else new
        if self._is_many:
            self._parameters[parameter.at] = _with_value(self._parameters[parameter.at], parameter.place, value)
        else:
            self._parameters = _with_value(self._parameters, parameter.place, value)

    def _place(self, name: str, at: int) -> Any:
        """Return the key or index of the parameter *name* of row *at* in the parameters of the driver."""
        layout = self.statement.layout
        if layout.positions is not None:
            return layout.positions[name] + at * self._width
        escaped = layout.escaped.get(name, name)
        return f"{escaped}__{at}" if self._width else escaped

    # --- the driver

    def send(self) -> Exception | None:
        """Execute the INSERT once, with the ids that its rows have now. Return the error if it may be a collision."""
        execute = self.dialect.do_executemany if self._is_many else self.dialect.do_execute
        try:
            execute(self.cursor, self._sql, self._parameters, self.context)
        except self.dialect.dbapi.IntegrityError as raised:
            error: Exception = raised
            return error
        return None

    def set_savepoint(self) -> None:
        """Set a savepoint, unless a storage engine in the transaction does not support savepoints."""
        self.traits.begin(self.connection.connection)
        try:
            execute_unlogged(self.connection.connection, "SAVEPOINT sqlalchemy_public_id")
        except self.dialect.dbapi.Error as error:
            if self.traits.error_code(error) not in self.traits.savepoint_errors:
                raise
        else:
            self.has_savepoint = True

    def recover(self) -> None:
        """Make the connection usable after an error: roll back to the savepoint, if there is one."""
        if self.has_savepoint:
            execute_unlogged(self.connection.connection, "ROLLBACK TO SAVEPOINT sqlalchemy_public_id")

    def release_savepoint(self) -> None:
        """Release the savepoint, if there is one."""
        if self.has_savepoint:
            execute_unlogged(self.connection.connection, "RELEASE SAVEPOINT sqlalchemy_public_id")

    # --- the returned rows

    def return_rows_by_sent_ids(self) -> None:
        """Let SQLAlchemy find each returned row by the id that it has sent, even if the guard has replaced the id."""
        columns, sent = self.statement.layout.sentinel, self._sent
        if not sent or not self.statement.sentinel:
            return
        columns_of_ids = [
            (at, column, returned_text(self.context, column, at))
            for at, column in enumerate(columns, start=-len(columns))
            if is_public_id(column)
        ]

        def change(rows: Sequence[Any]) -> list[Any]:
            changed: list[Any] = []
            for row in rows:
                values = list(row)
                for at, column, text in columns_of_ids:
                    first = sent.get((column, text(values[at])))
                    if first is not None:
                        values[at] = MatchedId(first)
                changed.append(tuple(values))
            return changed

        change_returned_rows(self.context, change)


class _Watched(dict[str, Any]):
    """The parameters of a row, which note what a column default reads of them.

    SQLAlchemy passes a dictionary, and a default may do with it whatever one can do with a dictionary.
    """

    def __init__(self, row: dict[str, Any]) -> None:
        super().__init__(row)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:  # also of dict(), {**row} and json.dumps()
        return iter(self._all())

    def _all(self) -> dict[str, Any]:
        self.read.update(super().keys())
        return dict(super().items())

    def keys(self) -> Any:
        return self._all().keys()

    def values(self) -> Any:
        return self._all().values()

    def items(self) -> Any:
        return self._all().items()

    def copy(self) -> dict[str, Any]:
        return self._all()

    def __or__(self, other: Any) -> Any:
        return self._all() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._all()


def _with_value(row: Row, place: Any, value: Any) -> Row:
    # a copy: the application may still use the row that it passed
    return {**row, place: value} if isinstance(row, dict) else (*row[:place], value, *row[place + 1 :])


def returned_text(context: Any, column: Column[Any], at: int) -> Callable[[Any], str]:
    """Return a function that converts the driver's value for the id in column *at* of a returned row to text."""
    process = public_id_type(column).result_processor(context.dialect, context.cursor.description[at][1])
    return process or str


# --- the statements of the guard


def schema_options(context: ExecutionContext) -> dict[str, Any]:
    """Return the execution options that the guard's own statements need to find the table of the INSERT."""
    options = context.execution_options
    return {key: value for key, value in options.items() if key == "schema_translate_map"}


def names_of(table: Table, options: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the names of *table* and of its schema in an execution with *options*."""
    schemas: Mapping[str | None, str | None] = options.get("schema_translate_map") or {}
    return str(table.name), schemas.get(table.schema, table.schema)
