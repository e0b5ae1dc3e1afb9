"""The default of a public-id column, which gives each row of an INSERT its id.

It hands over the ids that ``before_insert`` has drawn for the objects of a flush, and draws those of any other INSERT.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from sqlalchemy.engine import ExecutionContext

from sqlalchemy_public_id._private import column_of_table
from sqlalchemy_public_id.guard.drawing import NewIds, flush_ids
from sqlalchemy_public_id.guard.statement import cached_statements, statement_of
from sqlalchemy_public_id.types import IdColumnType
from sqlalchemy_public_id.weak import RefDict


class _Ready(list[str]):
    """Ids for the next rows of an INSERT, in reverse order."""

    def __init__(self, context: ExecutionContext, column: object, source: NewIds) -> None:
        self.column = column
        """The column of the first row: with ``values([…])``, each row has its own column object."""
        self.source = source
        self.next: _Ready | None = None
        """The ids of another column, if the INSERT has several public ids."""
        self.execution = ref(context)
        """Kept, because Python takes longer to make a new weak reference than to return this one again."""


class IdDefault:
    """The column default: returns an id for a row without one. Unlike a closure, it can be pickled."""

    __name__ = "next_id"  # packages that make schemas take a default for a function, and read its name

    def __init__(self, type_: IdColumnType) -> None:
        self.type = type_

    def __call__(self, context: Any) -> str | None:
        """Return an id that no other row of the INSERT has; None for the copy of a column in another table.

        SQLAlchemy calls this for each row without an id, also in programs without the guard. The first call of an
        execution raises an error for an INSERT that must not be executed, and takes the ids of all rows.
        """
        # form libraries and constructors call column defaults as well, with None or with an object
        if not isinstance(context, ExecutionContext):
            return self.type.next_id()
        ready = _executions.get(ref(context))
        if ready and ready.column is context.current_column:  # type: ignore[attr-defined]
            return ready.pop()
        return self._take(context, ready)

    def _take(self, context: Any, first: _Ready | None) -> str | None:
        """Return the id of the next row; the first call for a column takes the ids of all rows."""
        column = getattr(context, "current_column", None)
        original: Any = column_of_table(column)
        if original is None or context.compiled is None:  # the default is executed without an INSERT
            return self.type.next_id()
        statement = cached_statements.get(ref(context.compiled)) or statement_of(context)
        # a history table copies the column with its default
        if statement.copies and any(original is each for each in statement.copies):
            return None
        ready = first
        while ready is not None and ready.source.column is not original:
            ready = ready.next
        if ready is None:
            # of a release of SQLAlchemy with other names, nothing is known: the ids are drawn here, one by one
            by_column = flush_ids.get(ref(context.root_connection)) if statement.insert is not None else None
            ids = by_column.get(original) if by_column else None
            count = len(context.compiled_parameters) if statement.has_parameters_of_rows else 1
            if count == 1 and statement.has_parameters_of_rows:  # nothing has to be kept
                if ids is None:
                    return self.type.next_id()
                if not ids.waiting:
                    return ids.draw()
                state, public_id = ids.waiting.popitem(last=False)
                ids.sent.add(state)
                return public_id
            ready = _Ready(context, column, ids or NewIds(self.type, original))
            ready.extend(reversed(ready.source.hand_over(count)))
            ready.next = first
            _executions.keep(context, ready)
        elif not ready:
            ready.extend(ready.source.hand_over(1))
        return ready.pop()


_executions: RefDict[ExecutionContext, _Ready] = RefDict()
"""Execution → the ids of its next rows."""
