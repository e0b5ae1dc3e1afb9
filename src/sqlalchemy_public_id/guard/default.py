"""The default of a public-id column, which makes a different id for each row of an INSERT."""

from __future__ import annotations

from typing import Any
from weakref import ref

from sqlalchemy import Column
from sqlalchemy.engine import ExecutionContext

from sqlalchemy_public_id._private import column_of_table
from sqlalchemy_public_id.columns import max_retries
from sqlalchemy_public_id.guard.collision import exhausted
from sqlalchemy_public_id.guard.statement import statement_of
from sqlalchemy_public_id.types import IdColumnType, unwrapped
from sqlalchemy_public_id.weak import RefDict


class IdDefault:
    """The column default: generates an id for a row without one. Unlike a closure, it can be pickled."""

    def __init__(self, type_: IdColumnType) -> None:
        self.type = type_

    def __call__(self, context: Any) -> str | None:
        """Return an id that no other row of the INSERT has; None for the copy of a column in another table.

        SQLAlchemy calls this for each row without an id, also in programs without the guard. The first call of an
        execution raises an error for an INSERT that must not be executed.
        """
        # form libraries and constructors call column defaults as well, with None or with an object
        if not isinstance(context, ExecutionContext):
            return self.type.next_id()
        columns = _made.get(ref(context))
        if columns is None:
            columns = _made.keep(context, {})
        column = getattr(context, "current_column", None)
        if id(column) not in columns:
            # a history table copies the column with its default; each row of values([…]) has its own column object, and
            # all rows share one set of ids
            original = column_of_table(column)
            is_copy = context.compiled is not None and any(original is each for each in statement_of(context).copies)
            columns[id(column)] = columns.setdefault(id(original), None if is_copy else set())
        made = columns[id(column)]
        if made is None:
            return None
        public_id = self.type.next_id()
        if public_id in made:
            public_id = self._another_id(column_of_table(column), made)
        made.add(public_id)
        return public_id

    def _another_id(self, column: Column[Any] | None, made: set[str]) -> str:
        """Return an id that no earlier row has: SQLAlchemy tells the rows of a batch apart by their ids."""
        if column is None:
            return self.type.next_id()  # the unique index refuses a duplicate
        for _ in range(max_retries(column)):
            public_id = self.type.next_id()
            if public_id not in made:
                return public_id
        raise unwrapped(exhausted(column))


_made: RefDict[ExecutionContext, dict[int, set[str] | None]] = RefDict()
"""Execution → identity of a column → the ids that its default has made; None for the copy of a column."""
