"""The INSERT of a flush, compiled so that many rows are one short statement where SQLAlchemy has a longer way.

Tested on 2.0.40, 2.0.57 and 2.1.9, as the other parts of this package.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, cast
from weakref import ref

from sqlalchemy import ARRAY, Column, Dialect, Insert, Table
from sqlalchemy.engine import result_tuple
from sqlalchemy.orm import Mapper
from sqlalchemy.types import NullType, TypeEngine


@dataclass(frozen=True)
class FlushedIds:
    """A column of public ids, and what the INSERT of a flush needs of the modules above."""

    column: Column[Any]
    item_type: Callable[[TypeEngine[Any], Dialect], TypeEngine[Any] | None]
    """Returns the type of the items of an array, or None if values cannot be sent in one."""
    are_alike: Callable[[list[Any]], bool]
    """Returns True if values can be sent in one array."""


def watch_flushed_inserts(mapper: Mapper[Any], ids: FlushedIds) -> None:
    """Make flushes of *mapper* insert many rows by one short statement, where SQLAlchemy has a longer way.

    A flush needs the keys of its rows in the order of its objects. SQLite does not promise an order, so SQLAlchemy
    sends an INSERT for each row, unless a "sentinel" column tells rows apart: the public id does. A sentinel of the
    table would change INSERTs of the application as well, so the statement has it. On PostgreSQL, the statement has an
    array for each column instead of a parameter for each value.
    """
    table = ids.column.table
    mapper.base_mapper._memo(("insert", table), lambda: FlushInsert(table, ids).with_cache_key())


class PreparedInsert(Insert):
    """An INSERT whose rows all have the same parameters, which SQLAlchemy may change.

    If nothing is to be added to them, it does not copy those of each row.
    """

    inherit_cache = True
    ready: Collection[str] = ()

    def _compiler(self, dialect: Dialect, **options: Any) -> Any:
        return _prepared(cast("Any", dialect.statement_compiler))(dialect, self, **options)


class CheckedInsert(PreparedInsert):
    """The same, for values of the *ready* columns that are what the driver takes. Each table has one set of them."""

    inherit_cache = True  # the class is part of the key

    def __init__(self, table: Table, ready: Collection[str]) -> None:
        super().__init__(table)
        self.ready = ready


@cache
def _prepared(compiler: Any) -> Any:
    """Return a subclass of *compiler* that compiles :class:`PreparedInsert`."""

    class PreparedCompiler(compiler):  # type: ignore[misc]  # that of the dialect
        is_complete: bool | None = None

        # named as SQLAlchemy names them: it calls this for each row, and **options would be a dictionary for each row
        def construct_params(
            self,
            params: Any = None,
            extracted_parameters: Any = None,
            escape_names: bool = True,
            *,
            _group_number: int | None = None,
            _collected_params: Any = None,  # of 2.1
            **options: Any,
        ) -> Any:
            if self.is_complete is None and params:  # defaults may have more parameters
                self.is_complete = params.keys() == set(self.bind_names.values())
            if self.is_complete and params:
                return params
            if _collected_params is not None:
                options["_collected_params"] = _collected_params
            inherited: Any = super()
            return inherited.construct_params(params, extracted_parameters, escape_names, _group_number, **options)

        @cached_property
        def _inserted_primary_key_from_returning_getter(self) -> Callable[[Any, Any], Any]:
            # that of SQLAlchemy has an iterator over the columns of the key for each row
            inherited: Any = super()
            getter: Callable[[Any, Any], Any] = inherited._inserted_primary_key_from_returning_getter
            key, returning = self._only_key, list[Any](self.implicit_returning or ())
            places = [at for at, column in enumerate(returning) if column is key]
            if key is None or not places:
                return getter
            place, as_row = places[0], result_tuple([key.key])
            return lambda row, parameters: as_row((row[place],))

        @cached_property
        def _inserted_primary_key_from_lastrowid_getter(self) -> Callable[[Any, Any], Any]:
            # the same for databases without RETURNING, where each row is a statement
            inherited: Any = super()
            getter: Callable[[Any, Any], Any] = inherited._inserted_primary_key_from_lastrowid_getter
            key = self._only_key
            if key is None or not self._is_lastrowid(key):
                return getter
            as_row = result_tuple([key.key])
            return lambda number, parameters: getter(None, parameters) if number is None else as_row((number,))

        @cached_property
        def _only_key(self) -> Column[Any] | None:
            """Return the column of the key; None if there are several."""
            columns = list(self.statement.table.primary_key)
            return columns[0] if len(columns) == 1 else None

        def _is_lastrowid(self, key: Column[Any]) -> bool:
            """Return True if the key is the number that the driver reports."""
            is_sent = key.key in self.binds or key.key in (self.column_keys or ())
            is_number = key.type._cached_result_processor(self.dialect, None) is None
            return key is self.statement.table.autoincrement_column and is_number and not is_sent

        @cached_property
        def _bind_processors(self) -> dict[str, Any]:
            inherited: Any = super()
            ready = self.statement.ready
            return {name: process for name, process in inherited._bind_processors.items() if name not in ready}

    return PreparedCompiler


class FlushInsert(PreparedInsert):
    """The INSERT of a flush into a table with public ids."""

    inherit_cache = True
    _derived: tuple[ref[FlushInsert], dict[Any, FlushInsert]] | None = None
    """The statement whose results these are, and arguments of ``return_defaults()`` → the result."""

    def __init__(self, table: Table, ids: FlushedIds) -> None:
        super().__init__(table)
        self.ids = ids

    def return_defaults(
        self, *columns: Any, supplemental_cols: Any = None, sort_by_parameter_order: bool = False
    ) -> FlushInsert:
        """Return the same statement as before for the same columns.

        The unit of work calls it in each flush. To build a statement and its cache key takes longer than all else
        that the library adds to the flush of one object.
        """
        derive = partial(super().return_defaults, *columns, sort_by_parameter_order=sort_by_parameter_order)
        if supplemental_cols is not None:
            return derive(supplemental_cols=supplemental_cols)
        derived = self._derived
        if derived is None or derived[0]() is not self:  # a copy has those of its original
            derived = self._derived = ref(self), {}
        key = columns, sort_by_parameter_order
        statement = derived[1].get(key)
        if statement is None:
            statement = derived[1][key] = derive().with_cache_key()
        return statement

    def with_cache_key(self) -> FlushInsert:
        """Return the statement itself, with the cache key that SQLAlchemy would build for its first execution.

        A thread that copies the statement meanwhile could give the copy the key of the original.
        """
        self._generate_cache_key()
        return self

    def __getstate__(self) -> dict[str, Any]:
        inherited: Any = super()  # leaves out the cache key
        return {name: value for name, value in inherited.__getstate__().items() if name != "_derived"}

    def _compiler(self, dialect: Dialect, **options: Any) -> Any:
        subclass = {"sqlite": _matching_ids, "postgresql": _sending_arrays}.get(dialect.name)
        compiler = _prepared(cast("Any", dialect.statement_compiler))
        return (subclass(compiler) if subclass else compiler)(dialect, self, **options)


def is_of_flush(compiled: Any) -> bool:
    """Return True if a *compiled* INSERT is that of a flush, which rolls back what an error leaves."""
    return isinstance(compiled.statement, FlushInsert)


_AS_STORED: Column[Any] = Column("public_id", NullType())


@cache
def _matching_ids(compiler: Any) -> Any:
    """Return a subclass of *compiler* for which the public id of a flush is the sentinel."""

    class MatchingCompiler(compiler):  # type: ignore[misc]  # that of the dialect
        _insertmanyvalues: Any

        def __init__(self, *arguments: Any, **options: Any) -> None:
            inherited: Any = super()
            inherited.__init__(*arguments, **options)
            many = self._insertmanyvalues
            self.matches_ids = many is not None and many.sentinel_columns == [self.statement.ids.column]
            if self.matches_ids:  # values are compared as the driver sends and returns them: no type converts them
                self._insertmanyvalues = cast("Any", many)._replace(sentinel_columns=[_AS_STORED])

        def _get_sentinel_column_for_table(self, table: Table) -> Any:
            column = self.statement.ids.column
            has_ids = column.default is not None or column.key in (self.column_keys or ())
            inherited: Any = super()
            return inherited._get_sentinel_column_for_table(table) or ([column] if has_ids else None)

        def _deliver_insertmanyvalues_batches(
            self, statement: Any, parameters: Any, compiled_parameters: Any, *others: Any
        ) -> Iterator[Any]:
            inherited: Any = super()
            batches = inherited._deliver_insertmanyvalues_batches(statement, parameters, compiled_parameters, *others)
            if not self.matches_ids:
                yield from batches
                return
            key = self.statement.ids.column.key
            place = self.positiontup.index(key) if self.positional else key
            process = self._bind_processors.get(key)
            first = 0
            for batch in batches:
                rows = compiled_parameters[first : first + len(batch.batch)]
                first += len(rows)
                yield batch._replace(sentinel_values=_IdsOf(rows, batch.batch, key, place, process))

    return MatchingCompiler


class _IdsOf:
    """The ids of rows, as the driver sends them.

    They are read when their INSERT has been executed: the guard may have replaced some until then.
    """

    def __init__(
        self,
        rows: list[dict[str, Any]],
        sent: Sequence[Any],
        key: str,
        place: Any,
        process: Callable[[Any], Any] | None,
    ) -> None:
        self._rows, self._key, self._process = rows, key, process
        self._ids = [row[key] for row in rows]
        self._sent = [row[place] for row in sent]

    def __iter__(self) -> Iterator[Any]:
        ids = [row[self._key] for row in self._rows]
        if ids == self._ids:
            return iter(self._sent)
        process = self._process
        return iter([process(id) if process else id for id in ids])


FEW_ROWS = 20
"""Fewer rows are as fast without arrays, in a flush and in a bulk insert."""

_PLACEHOLDER = re.compile(r"(?:%\((\w+)\)s|\$\d+|%s)(?:::[\w ]+(?:\(\d+(?:, \d+)?\))?)?")
_VALUES = re.compile(r" FROM \(VALUES \(.*?, 0\)\) AS imp_sen\((?=p0[,\w ]*, sen_counter\) ORDER BY sen_counter)")


@cache
def _sending_arrays(compiler: Any) -> Any:
    """Return a subclass of *compiler* whose statements for many rows take the values of a column as one array."""

    class ArrayCompiler(compiler):  # type: ignore[misc]  # that of the dialect
        def _deliver_insertmanyvalues_batches(
            self, statement: Any, parameters: Any, compiled_parameters: Any, sizes: Any, batch_size: int, *others: Any
        ) -> Iterator[Any]:
            inherited: Any = super()
            whole: Callable[..., Iterator[Any]] = inherited._deliver_insertmanyvalues_batches
            sql: str | None = None
            template: Any = None
            if len(parameters) >= FEW_ROWS and self._item_types:
                one_row = parameters[:1], compiled_parameters[:1]
                template = next(whole(statement, *one_row, sizes, batch_size, *others))
                sql = self._with_arrays(template.replaced_statement)
            columns = self._columns_of(parameters) if sql else {}
            if not sql or not all(map(self.statement.ids.are_alike, columns.values())):
                yield from whole(statement, parameters, compiled_parameters, sizes, batch_size, *others)
                return
            starts = range(0, len(parameters), batch_size)
            for number, first in enumerate(starts, 1):
                end = first + batch_size
                arrays = {key: values[first:end] for key, values in columns.items()}
                yield template._replace(
                    replaced_statement=sql,
                    replaced_parameters=tuple(arrays.values()) if self.positional else arrays,
                    batch=parameters[first:end],
                    current_batch_size=min(end, len(parameters)) - first,
                    batchnum=number,
                    total_batches=len(starts),
                )

        @cached_property
        def _item_types(self) -> list[str]:
            """The types of the items, as SQL; none if a value is more than a parameter, or there are others."""
            many = self._insertmanyvalues
            elements = list(many.insert_crud_params or ())
            found = [self.statement.ids.item_type(element[0].type, self.dialect) for element in elements]
            is_plain = (
                many.embed_values_counter
                and len(self.bind_names) == len(elements)
                and all(len(element[3]) == 1 and _PLACEHOLDER.fullmatch(element[2]) for element in elements)
            )
            if not is_plain or None in found:
                return []
            return [self.dialect.type_compiler_instance.process(ARRAY(type_)) for type_ in found]

        @cached_property
        def _keys(self) -> list[str]:
            """The names of the parameters, in the order of the columns."""
            return [next(iter(element[3])) for element in self._insertmanyvalues.insert_crud_params]

        @cached_property
        def array_places(self) -> dict[str, Any]:
            """Return the name of each parameter → its place in a statement with arrays; nothing without arrays."""
            keys = self._keys if self._item_types else []
            return {key: at if self.positional else self._sent_name(key) for at, key in enumerate(keys)}

        def _sent_name(self, key: str) -> str:
            """Return the name of a parameter for the driver: characters such as blanks are escaped."""
            escaped: dict[str, str] = self.escaped_bind_names or {}
            return escaped.get(key, key)

        def _with_arrays(self, statement: str) -> str | None:
            """Return *statement*, which inserts one row, with arrays instead of its VALUES."""
            numbered = self._numeric_binds
            places = [
                f"${at}" if numbered else self.bindtemplate % {"name": self._sent_name(key)}
                for at, key in enumerate(self._keys, 1)
            ]
            arrays = ", ".join(f"{place}::{type_}" for place, type_ in zip(places, self._item_types, strict=True))
            parts = _VALUES.split(statement)
            if len(parts) != 2:
                return None
            return f"{parts[0]} FROM unnest({arrays}) WITH ORDINALITY AS imp_sen({parts[1]}"

        def _columns_of(self, parameters: Any) -> dict[str, list[Any]]:
            """Return parameter → its values in all rows, by the names for the driver."""
            if self.positional:
                places: list[Any] = [self.positiontup.index(key) for key in self._keys]
            else:
                places = [self._sent_name(key) for key in self._keys]
            names = self._keys if self.positional else places
            return {name: [row[place] for row in parameters] for name, place in zip(names, places, strict=True)}

    return ArrayCompiler


def array_places(compiled: Any) -> dict[str, Any]:
    """Return the name of each parameter → its place in a statement with arrays; nothing if there can be none."""
    is_possible = isinstance(compiled.statement, FlushInsert) and compiled.dialect.name == "postgresql"
    places: dict[str, Any] = compiled.array_places if is_possible else {}
    return places
