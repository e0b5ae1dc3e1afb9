"""Execute an INSERT, and again with new ids, until it stores its rows or fails for another reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from traceback import clear_frames
from types import TracebackType
from typing import Any

from sqlalchemy import Column
from sqlalchemy.engine.interfaces import ExecuteStyle

from sqlalchemy_public_id._private import change_returned_rows
from sqlalchemy_public_id.dialects import Traits, traits_for
from sqlalchemy_public_id.guard.collision import Collisions, Match, match_violation, warn_unguarded
from sqlalchemy_public_id.guard.statement import Batch, Slot, schema_options, statement_of
from sqlalchemy_public_id.types import MatchedId, is_public_id, public_id_type


def names_of(table: Any, options: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the names of *table* and of its schema in an execution with *options*."""
    schemas: Mapping[str | None, str | None] = options.get("schema_translate_map") or {}
    return str(table.name), schemas.get(table.schema, table.schema)


def send_savepoint(connection: Any, command: str) -> None:
    """Execute a *command* on the savepoint of the guard. Like the driver's own BEGIN, it is not logged."""
    traits_for(connection.dialect).send(connection.connection, f"{command} sqlalchemy_public_id")


class Execution:
    """One execution of an INSERT whose ids may collide, or one batch of it."""

    def __init__(self, context: Any, cursor: Any, statement: str) -> None:
        self.context = context
        self.cursor = cursor
        self.statement = statement
        self.dialect: Any = context.dialect
        self.traits: Traits = traits_for(context.dialect)
        self.connection: Any = context.root_connection
        self.options: dict[str, Any] = schema_options(context)
        """For statements of the guard, so that they find the same table."""
        self._collisions = Collisions(self.connection, self.options, self._recover)
        self._has_savepoint = False

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, frames: TracebackType | None) -> None:
        # After a KeyboardInterrupt and its like, SQLAlchemy closes the connection alone, and keeps the cursors in a
        # cycle of references through the frames of the traceback.
        if kind is not None and not issubclass(kind, Exception):
            with suppress(Exception):  # the connection or the event loop may be closed
                self.traits.forget_statement(self.cursor)
            clear_frames(frames)

    # --- the driver

    def send(self, batch: Batch, statement: str | None = None) -> None:
        """Execute the statement, or another form of it, with the ids that *batch* has now."""
        execute = self.dialect.do_execute
        if self.context.execute_style is ExecuteStyle.EXECUTEMANY:
            execute = self.dialect.do_executemany
        execute(self.cursor, statement or self.statement, batch.for_driver(), self.context)

    @property
    def dbapi_connection(self) -> Any:
        return self.connection.connection.dbapi_connection

    @property
    def names(self) -> tuple[str, str | None]:
        """The names of the table and of its schema in this execution."""
        return names_of(statement_of(self.context).table, self.options)

    @cached_property
    def in_autocommit(self) -> bool:
        """True if each statement commits by itself, so that there is no transaction to save."""
        return self.traits.in_autocommit(self.dbapi_connection)

    # --- retries

    def run(self, batch: Batch, *, in_savepoint: bool, error: Exception | None = None) -> None:
        """Execute the INSERT until no id collides. Collided ids are replaced before each retry.

        :param in_savepoint: a failure undoes more than the INSERT, or less: it aborts a transaction of PostgreSQL, and
            an ``executemany`` keeps the rows before the refused one.
        :param error: the INSERT was executed already, and has failed.
        """
        self._has_savepoint = in_savepoint and self._set_savepoint()
        is_repeatable = self._has_savepoint or not in_savepoint or batch.rows == 1
        while error is not None or (error := self._try(batch)) is not None:
            try:
                self._replace_ids(batch, error, is_repeatable=is_repeatable)
            except Exception:
                self._undo()
                raise
            error = None
        if self._has_savepoint:
            send_savepoint(self.connection, "RELEASE SAVEPOINT")

    def _try(self, batch: Batch) -> Exception | None:
        """Execute the INSERT. Return the error if it may be a collision."""
        try:
            self.send(batch)
            return None
        except self.dialect.dbapi.IntegrityError as raised:
            error: Exception = raised
            return error

    def _replace_ids(self, batch: Batch, error: Exception, *, is_repeatable: bool) -> None:
        """Replace the ids that have collided; raise *error* if it is not about them, or cannot be mended."""
        violation = self.traits.violation(error)
        if violation is None and self.traits.error_code(error) is None:
            warn_unguarded(self.dialect, f"the driver {self.dialect.driver} reports no number with the error")
        # INSERT OR ROLLBACK and its like end the transaction, with the earlier work of the caller
        if violation is None or not (self.in_autocommit or self.traits.in_transaction(self.dbapi_connection)):
            raise error
        self._recover()  # first of all: until then, PostgreSQL refuses the SELECT that looks for the taken ids, too
        with suppress(self.dialect.dbapi.Error):
            self.traits.forget_statement(self.cursor)
        slots: list[Slot] | None = None
        try:
            slots = self._collisions.slots_of(batch, violation)
        finally:
            if slots is None or slots:  # it is not raised again, and the frames of its traceback can hold a cursor
                error.__traceback__ = None
        if slots and sum(slot.column is slots[0].column for slot in batch.slots) > 1:
            column = slots[0].column
            engine = self.traits.engine_without_transactions(self.connection, *self.names)
            # MyISAM and its like keep the rows before the refused one: another run would insert them twice
            if engine is not None and match_violation(violation, column, self.dialect) is not Match.MAYBE:
                raise self._collisions.rows_stayed(batch, column, engine) from error
            is_repeatable = is_repeatable and engine is None
        if not slots or not is_repeatable or batch.has_equal_rows:
            raise error
        self._collisions.replace(batch, slots)

    # --- the savepoint

    def _set_savepoint(self) -> bool:
        """Set the savepoint. Return False if a storage engine that takes part in the transaction has none."""
        self.traits.begin(self.connection.connection)
        try:
            send_savepoint(self.connection, "SAVEPOINT")
        except self.dialect.dbapi.Error as error:
            if self.traits.error_code(error) not in self.traits.savepoint_errors:
                raise
            return False
        return True

    def _recover(self) -> None:
        if self._has_savepoint:
            send_savepoint(self.connection, "ROLLBACK TO SAVEPOINT")

    def _undo(self) -> None:
        # called while an error is raised, which no other error may hide
        if self._has_savepoint and not self.connection.invalidated:
            with suppress(self.dialect.dbapi.Error):
                self._recover()
                send_savepoint(self.connection, "RELEASE SAVEPOINT")


def return_rows_by_sent_ids(context: Any, batch: Batch) -> None:
    """Let SQLAlchemy find the rows of a batch whose ids were stored as others than it has noted before.

    The guard has replaced them, or the application has given another spelling.
    """
    noted = batch.noted_texts() if batch.statement.sentinel else {}
    if not noted:
        return
    columns = batch.statement.places.sentinel
    shown = [
        (at - len(columns), column, returned_text(context, column, at - len(columns)))
        for at, column in enumerate(columns)
        if is_public_id(column)
    ]

    def change(rows: Sequence[Any]) -> list[Any]:
        changed: list[Any] = []
        for row in rows:
            values = list(row)
            for at, column, text in shown:
                sent = noted.get((column, text(values[at])))
                if sent is not None:
                    values[at] = MatchedId(sent)
            changed.append(tuple(values))
        return changed

    change_returned_rows(context, change)


def returned_text(context: Any, column: Column[Any], at: int) -> Callable[[Any], str]:
    """Return a function that reads the id in column *at* of the rows of *context*, as the driver returns them."""
    process = public_id_type(column).result_processor(context.dialect, context.cursor.description[at][1])
    return process or str
