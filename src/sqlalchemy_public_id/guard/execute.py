"""Execute an INSERT, and repeat it with new ids, until it stores its rows or fails for another reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from traceback import clear_frames
from types import TracebackType
from typing import Any

from sqlalchemy import Column
from sqlalchemy.engine.interfaces import ExecuteStyle

from sqlalchemy_public_id._private import change_returned_rows
from sqlalchemy_public_id.columns import is_public_id, public_id_type
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.guard.collision import Collisions, Match, match_violation, warn_unguarded
from sqlalchemy_public_id.guard.statement import Batch, Slot, names_of, schema_options
from sqlalchemy_public_id.types import MatchedId


def send_savepoint(connection: Any, command: str) -> None:
    """Execute a *command* for the guard's savepoint. Like the driver's own BEGIN, it is not logged."""
    with closing(connection.connection.cursor()) as cursor:
        cursor.execute(f"{command} sqlalchemy_public_id")


class Execution:
    """One call to the driver with an INSERT whose ids may collide."""

    def __init__(self, context: Any, cursor: Any, statement: str, batch: Batch) -> None:
        self._context = context
        self._cursor = cursor
        self._statement = statement
        self._batch = batch
        self._dialect: Any = context.dialect
        self._traits = traits_for(context.dialect)
        self._connection: Any = context.root_connection
        self._options = schema_options(context)
        self._collisions = Collisions(batch, self._connection, self._options, self._recover)
        self._has_savepoint = False

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, frames: TracebackType | None) -> None:
        # After an exception such as KeyboardInterrupt, SQLAlchemy closes the connection but not its cursors, which a
        # reference cycle through the frames of the traceback keeps alive.
        if kind is not None and not issubclass(kind, Exception):
            with suppress(Exception):  # the connection or the event loop may be closed
                self._traits.forget_statement(self._cursor)
            clear_frames(frames)

    def run(self, *, in_savepoint: bool, error: Exception | None = None) -> None:
        """Execute the INSERT until no id collides.

        :param in_savepoint: True to set a savepoint first. Without one, a failure undoes more than the INSERT
            (PostgreSQL aborts the transaction) or less (an ``executemany`` keeps the rows before the refused one).
        :param error: the error of the INSERT, if it was already executed and failed.
        """
        self._has_savepoint = in_savepoint and self._set_savepoint()
        # if the savepoint could not be set, only a single row can be sent again
        is_repeatable = self._has_savepoint or not in_savepoint or len(self._batch.rows) == 1
        while error is not None or (error := self.send()) is not None:
            self._replace_ids(error, is_repeatable=is_repeatable)
            error = None
        if self._has_savepoint:
            send_savepoint(self._connection, "RELEASE SAVEPOINT")

    def send(self) -> Exception | None:
        """Execute the INSERT once, with the ids that its rows have now. Return the error if it may be a collision."""
        is_many = self._context.execute_style is ExecuteStyle.EXECUTEMANY
        execute = self._dialect.do_executemany if is_many else self._dialect.do_execute
        try:
            execute(self._cursor, self._statement, self._batch.parameters, self._context)
        except self._dialect.dbapi.IntegrityError as raised:
            error: Exception = raised
            return error
        return None

    def _replace_ids(self, error: Exception, *, is_repeatable: bool) -> None:
        """Replace the ids that have collided; raise *error* if it has another cause, or if no retry is possible."""
        slots = None
        try:
            slots = self._find_slots(error)
            if not slots or not is_repeatable or self._batch.has_equal_rows:
                raise error
            self._collisions.replace(slots)
        except Exception:
            # an error is already being raised, and an error of the recovery must not hide it
            if self._has_savepoint and not self._connection.invalidated:
                with suppress(self._dialect.dbapi.Error):
                    self._recover()
                    if self._batch.is_later:  # earlier batches must not stay: make the transaction fail
                        self.send()
                    send_savepoint(self._connection, "RELEASE SAVEPOINT")
            raise
        finally:
            if slots is None or slots:  # the frames of its traceback can hold a cursor
                error.__traceback__ = None

    def _find_slots(self, error: Exception) -> list[Slot]:
        """Return the slots whose ids have to be replaced; none if *error* is not about ids made for the INSERT."""
        violation = self._traits.violation(error)
        if violation is None:
            if self._traits.error_code(error) is None:
                warn_unguarded(self._dialect, f"the driver {self._dialect.driver} reports no number with the error")
            return []
        dbapi_connection = self._connection.connection.dbapi_connection
        # statements such as INSERT OR ROLLBACK end the transaction, and undo the earlier work of the caller
        if not (self._traits.in_transaction(dbapi_connection) or self._traits.in_autocommit(dbapi_connection)):
            return []
        self._recover()  # must come first: until then, PostgreSQL also refuses the SELECT for the taken ids
        with suppress(self._dialect.dbapi.Error):
            self._traits.forget_statement(self._cursor)
        slots = self._collisions.find(violation)
        column = slots[0].column if slots else None
        # engines such as MyISAM keep the rows before the refused one: another run would insert them twice
        if column is not None and sum(slot.column is column for slot in self._batch.slots) > 1:
            table = names_of(column.table, self._options)
            engine = self._traits.engine_without_transactions(self._connection, *table)
            if engine is not None and match_violation(violation, column, self._dialect) is Match.MAYBE:
                return []
            if engine is not None:
                raise self._collisions.rows_stayed(column, engine) from error
        return slots

    # --- the savepoint

    def _set_savepoint(self) -> bool:
        """Set the savepoint. Return False if a storage engine in the transaction does not support savepoints."""
        self._traits.begin(self._connection.connection)
        try:
            send_savepoint(self._connection, "SAVEPOINT")
        except self._dialect.dbapi.Error as error:
            if self._traits.error_code(error) not in self._traits.savepoint_errors:
                raise
            return False
        return True

    def _recover(self) -> None:
        if self._has_savepoint:
            send_savepoint(self._connection, "ROLLBACK TO SAVEPOINT")


# --- returned rows


def return_rows_by_noted_ids(context: Any, batch: Batch) -> None:
    """Let SQLAlchemy match the returned rows of a batch by the ids that it noted before the guard replaced them."""
    noted = batch.noted if batch.statement.sentinel else {}
    columns = batch.statement.places.sentinel
    texts = [
        (at - len(columns), column, returned_text(context, column, at - len(columns)))
        for at, column in enumerate(columns)
        if noted and is_public_id(column)
    ]

    def change(rows: Sequence[Any]) -> list[Any]:
        changed: list[Any] = []
        for row in rows:
            values = list(row)
            for at, column, text in texts:
                first = noted.get((column, text(values[at])))
                if first is not None:
                    values[at] = MatchedId(first)
            changed.append(tuple(values))
        return changed

    if noted:
        change_returned_rows(context, change)


def returned_text(context: Any, column: Column[Any], at: int) -> Callable[[Any], str]:
    """Return a function that converts the driver's value for the id in column *at* of a returned row to text."""
    process = public_id_type(column).result_processor(context.dialect, context.cursor.description[at][1])
    return process or str
