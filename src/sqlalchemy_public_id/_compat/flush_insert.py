"""The INSERT of a flush, whose rows SQLite returns in any order: the public id tells them apart.

Tested on 2.0.40, 2.0.57 and 2.1.9, as the other parts of this package.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, cast

from sqlalchemy import Column, Dialect, Insert, Table
from sqlalchemy.orm import Mapper
from sqlalchemy.types import NullType


def watch_flushed_inserts(mapper: Mapper[Any], column: Column[Any]) -> None:
    """Make flushes of *mapper* insert many rows by one statement, where SQLAlchemy sends a statement for each.

    A flush needs the keys of its rows in the order of its objects. SQLite does not promise an order, so SQLAlchemy
    sends an INSERT for each row, unless a "sentinel" column tells rows apart: the public id in *column* does. Declared
    on the table, it would change INSERTs of the application as well, so the statement of the flush has it.
    """
    table = column.table
    mapper.base_mapper._memo(("insert", table), lambda: FlushInsert(table, column))


class FlushInsert(Insert):
    """The INSERT of a flush into a table with public ids."""

    inherit_cache = True

    def __init__(self, table: Table, public_id: Column[Any]) -> None:
        super().__init__(table)
        self.public_id = public_id

    def _compiler(self, dialect: Dialect, **options: Any) -> Any:
        return _matching_ids(cast("Any", dialect.statement_compiler))(dialect, self, **options)


def is_of_flush(compiled: Any) -> bool:
    """Return True if a *compiled* INSERT is that of a flush, which rolls back what an error leaves."""
    return isinstance(compiled.statement, FlushInsert)


_AS_STORED: Column[Any] = Column("public_id", NullType())


@cache
def _matching_ids(compiler: Any) -> Any:
    """Return a subclass of *compiler* for which the public id of a flush may be the sentinel.

    It is on SQLite, and on other databases if it is the primary key, too.
    """

    class MatchingCompiler(compiler):  # type: ignore[misc]  # that of the dialect
        _insertmanyvalues: Any

        def __init__(self, *arguments: Any, **options: Any) -> None:
            inherited: Any = super()
            inherited.__init__(*arguments, **options)
            many = self._insertmanyvalues
            self.matches_ids = many is not None and list(many.sentinel_columns or ()) == [self.statement.public_id]
            if self.matches_ids:  # values are compared as the driver sends and returns them: no type converts them
                self._insertmanyvalues = cast("Any", many)._replace(sentinel_columns=[_AS_STORED])

        def _get_sentinel_column_for_table(self, table: Table) -> Any:
            inherited: Any = super()
            found = inherited._get_sentinel_column_for_table(table)
            if found is not None or self.dialect.name != "sqlite":
                return found
            column, default = self.statement.public_id, self.statement.public_id.default
            # an SQL expression makes ids that nobody knows before
            has_ids = column.key in (self.column_keys or ()) or (default is not None and default.is_callable)
            return [column] if has_ids else None

        def _deliver_insertmanyvalues_batches(
            self, statement: Any, parameters: Any, compiled_parameters: Any, *others: Any
        ) -> Iterator[Any]:
            inherited: Any = super()
            batches = inherited._deliver_insertmanyvalues_batches(statement, parameters, compiled_parameters, *others)
            if not self.matches_ids:
                yield from batches
                return
            key = self.statement.public_id.key
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
