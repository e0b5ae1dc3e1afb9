"""One guarded execution of an INSERT: the ids that collided, and the ids to try next."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from traceback import clear_frames
from types import TracebackType
from typing import Any

from sqlalchemy import Column, Table
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects import Traits, Violation, traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.guard import taken
from sqlalchemy_public_id.guard.constraints import Match, match_violation
from sqlalchemy_public_id.guard.parameters import Batch, Slot, table_of
from sqlalchemy_public_id.types import max_retries, public_id_type, to_database

_FEW = 10
"""So many collisions of a batch are taken one by one, if the database names them.

Under REPEATABLE READ a SELECT may not see the rows, and under SERIALIZABLE it can make the transaction fail.
"""


def integrity_error(dialect: Any) -> type[Exception]:
    """Return the class of errors among which violations are: not every driver has an ``IntegrityError``."""
    found: type[Exception] = getattr(dialect.dbapi, "IntegrityError", dialect.dbapi.Error)
    return found


def names_of(table: Table, options: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the names of *table* and of its schema in an execution with *options*."""
    schemas: Mapping[str | None, str | None] = options.get("schema_translate_map") or {}
    return str(table.name), schemas.get(table.schema, table.schema)


def send_savepoint(connection: Any, command: str) -> None:
    """Execute a *command* on the savepoint of the guard. Like the driver's own BEGIN, it is not logged."""
    traits_for(connection.dialect).send(connection.connection, f"{command} sqlalchemy_public_id")


_replaced: Counter[str] = Counter()
_replaced_lock = threading.Lock()


def _note(column: Column[Any], tries: int) -> None:
    table = column.table.name
    with _replaced_lock:
        _replaced[table] += 1
    # not the id: it may be a secret
    taken.logger.info("%s: a %s was taken, and is replaced (try %d)", table, column.name, tries)


def collisions() -> dict[str, int]:
    """Return table → how many public ids this process has replaced because they were taken. For metrics.

    Each one is also logged as INFO by the logger ``sqlalchemy_public_id``.

    >>> from sqlalchemy_public_id import guard
    >>> sum(guard.collisions().values()) >= 0
    True
    """
    with _replaced_lock:
        return dict(_replaced)


class GuardedInsert:
    """One guarded INSERT: executes it and remembers which ids collided."""

    def __init__(self, context: Any, cursor: Any, statement: str) -> None:
        self.context = context
        self.cursor = cursor
        self.statement = statement
        self.dialect: Any = context.dialect
        self.traits: Traits = traits_for(context.dialect)
        self.driver_error: type[Exception] = context.dialect.dbapi.Error
        self.integrity_error: type[Exception] = integrity_error(context.dialect)
        self.connection: Any = context.root_connection
        self.options: dict[str, Any] = {
            key: value for key, value in context.execution_options.items() if key == "schema_translate_map"
        }
        """For statements of the guard, so that they find the same table."""
        self._tries: Counter[tuple[int, str]] = Counter()
        self.taken: set[tuple[Column[Any], str]] = set()
        """Ids that have collided."""

    def __enter__(self) -> GuardedInsert:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, frames: TracebackType | None) -> None:
        # After a KeyboardInterrupt and its like, SQLAlchemy closes the connection alone, and keeps the cursors in a
        # cycle of references through the frames of the traceback.
        if kind is not None and not issubclass(kind, Exception):
            with suppress(Exception):  # the connection or the event loop may be closed
                self.traits.forget_statement(self.cursor)
            clear_frames(frames)

    # --- the driver

    def execute(self, parameters: Any, statement: str | None = None) -> None:
        """Execute the statement, or another form of it."""
        self.dialect.do_execute(self.cursor, statement or self.statement, parameters, self.context)

    def execute_many(self, parameters: Any) -> None:
        self.dialect.do_executemany(self.cursor, self.statement, parameters, self.context)

    def send(self, command: str) -> None:
        """Execute a *command* on the savepoint of the guard."""
        send_savepoint(self.connection, command)

    @property
    def names(self) -> tuple[str, str | None]:
        """The names of the table and of its schema in this execution."""
        return names_of(table_of(self.context.compiled), self.options)

    @cached_property
    def engine_without_transactions(self) -> str | None:
        """The storage engine of the table, if a statement that fails leaves rows in it."""
        return self.traits.engine_without_transactions(self.connection, *self.names)

    @property
    def sees_commits(self) -> bool:
        """True if a statement sees what others have committed since the transaction began."""
        return self.traits.sees_commits(self.connection.connection.dbapi_connection, self.dialect)

    @property
    def in_transaction(self) -> bool:
        """False if the failed statement has rolled back the whole transaction."""
        return self.traits.in_transaction(self.connection.connection.dbapi_connection)

    @property
    def in_autocommit(self) -> bool:
        """True if each statement commits by itself, so that there is no transaction."""
        return self.traits.in_autocommit(self.connection.connection.dbapi_connection)

    @property
    def risks_transaction(self) -> bool:
        """True if a failed statement aborts the transaction."""
        return self.traits.aborts_transaction and not self.in_autocommit

    @property
    def has_immediate_result(self) -> bool:
        """True if the driver has the result of a statement when it was sent, and not only when its rows are read."""
        if self.context.execution_options.get("stream_results") and self.dialect.supports_server_side_cursors:
            return False
        return not self.traits.defers_results(self.connection.connection.driver_connection)

    # --- retries

    def execute_with_retries(self, batch: Batch, execute: Callable[[Any], None], *, in_savepoint: bool) -> None:
        """Call *execute* until no id collides. Collided ids are replaced before each retry.

        :param in_savepoint: a failure would undo more than *execute* has done, or less.
        """
        if not in_savepoint:
            self._execute_until_stored(batch, execute)
            return
        self.traits.begin(self.connection.connection)
        try:
            self.send("SAVEPOINT")
        except self.driver_error as error:
            if self.traits.error_code(error) not in self.traits.savepoint_errors:
                raise
            self._execute_without_savepoint(batch, execute)
            return
        while True:
            try:
                execute(batch.for_driver())
                break
            except self.integrity_error as error:
                if not self.in_transaction:  # INSERT OR ROLLBACK has ended it, and the earlier work of the caller
                    raise
                # first of all: until then, PostgreSQL refuses the SELECT that looks for the collided ids, too
                self.send("ROLLBACK TO SAVEPOINT")
                try:
                    self.replace(batch, self.collided(batch, error))
                except Exception:
                    self._undo()
                    raise
        self.send("RELEASE SAVEPOINT")

    def _execute_without_savepoint(self, batch: Batch, execute: Callable[[Any], None]) -> None:
        if batch.rows == 1:
            self._execute_until_stored(batch, execute)
            return
        try:
            execute(batch.for_driver())
        except self.integrity_error as error:
            self.collided(batch, error)  # may tell of a table without transactions
            raise

    def _execute_until_stored(self, batch: Batch, execute: Callable[[Any], None]) -> None:
        while True:
            try:
                execute(batch.for_driver())
                return
            except self.integrity_error as error:
                self.replace(batch, self.collided(batch, error))

    def _undo(self) -> None:
        # called while an error is raised, which no other error may hide
        if not self.connection.invalidated:
            with suppress(self.driver_error):
                self.send("ROLLBACK TO SAVEPOINT")
                self.send("RELEASE SAVEPOINT")

    # --- collided ids

    def collided(self, batch: Batch, error: Exception) -> list[Slot]:
        """Return the slots whose ids have to be replaced; raise *error* if it is not about generated ids."""
        violation = self.traits.violation(error)
        if violation is None and self.traits.error_code(error) is None:
            taken.warn_unguarded(self.dialect, f"the driver {self.dialect.driver} reports no number with the error")
        if violation is None or not (self.in_transaction or self.in_autocommit):
            raise error
        with suppress(self.driver_error):
            self.traits.forget_statement(self.cursor)
        slots = None
        try:
            slots = self._slots_of(batch, violation)
        finally:
            if slots is None or slots:  # it is not raised again, and the frames of its traceback can hold a cursor
                error.__traceback__ = None
        if not slots:
            raise error
        self._refuse_if_rows_stayed(batch, slots[0].column, violation, error)
        return slots

    def _slots_of(self, batch: Batch, violation: Violation) -> list[Slot]:
        collided: list[Slot] = []
        hidden: list[Slot] = []
        for column in dict.fromkeys(slot.column for slot in batch.slots):
            match = match_violation(violation, column, self.dialect)
            if match is Match.NO:
                continue
            slots = [slot for slot in batch.slots if slot.column is column]
            if match is Match.YES and len(slots) == 1:
                duplicates = slots  # nothing to look for, nor a right to SELECT needed
            else:
                named = self._named(batch, slots, violation) if match is Match.YES else set[str]()
                duplicates = self._duplicates(batch, column, slots, named)
            collided += duplicates
            # the other row cannot be seen (row-level security), or is gone again: it may have had any of the ids
            if not duplicates and match is Match.YES:
                hidden += slots
        # the error is about an id of the application, too, and no other id for this row is right
        if not all(map(batch.is_generated, collided + hidden)):
            return []
        self.taken.update((slot.column, batch.text(slot)) for slot in collided)
        return collided + hidden

    def _refuse_if_rows_stayed(self, batch: Batch, column: Column[Any], violation: Violation, error: Exception) -> None:
        # MyISAM and its like keep the rows before the refused one: another run would insert them twice
        texts = [batch.text(slot) for slot in batch.slots if slot.column is column]
        engine = self.engine_without_transactions if len(texts) > 1 else None
        if engine is None:
            return
        # the ids may be those of the rows that stay
        if match_violation(violation, column, self.dialect) is Match.MAYBE:
            raise error
        stored = len(self._readable(column, texts))
        raise ConfigurationError(
            f"an INSERT of {len(texts)} rows into {column.table.name} collided in {column.name}, and the engine "
            f"{engine} has no transactions: the rows before the collision stay ({stored} of the {len(texts)} ids are "
            f"in the table now), so the INSERT is not run again; insert one row at a time (flushes do so with "
            f"create_engine(…, use_insertmanyvalues=False)), "
            f"or change the table: ALTER TABLE {column.table.name} ENGINE=InnoDB"
        ) from error

    def _named(self, batch: Batch, slots: list[Slot], violation: Violation) -> set[str]:
        """Return the id that the database names in the error, if exactly one of *slots* has it."""
        name, value = violation.entry or (None, None)
        named = [slot for slot in slots if slot.column.name == name and self._in_error(slot, batch.text(slot)) == value]
        return {batch.text(named[0])} if len(named) == 1 else set()

    def _in_error(self, slot: Slot, text: str | None) -> str | None:
        if text is None:
            return None
        return self.traits.format_in_error(to_database(public_id_type(slot.column).id_format, text, self.dialect))

    def _duplicates(self, batch: Batch, column: Column[Any], slots: list[Slot], named: set[str]) -> list[Slot]:
        """Return the slots whose id is *named*, in the table, or in another row of the batch."""
        duplicates: list[Slot] = []
        seen = set(named)
        if not named or self.sees_commits or len(self.taken) >= _FEW:
            seen |= self._readable(column, [batch.text(slot) for slot in slots])
        # ids of the application first: of two equal ids in the batch, the first one stays
        for slot in sorted(slots, key=batch.is_generated):
            text = batch.text(slot)
            if text in seen:
                duplicates.append(slot)
            seen.add(text)
        return duplicates

    def _readable(self, column: Column[Any], texts: list[str]) -> set[str]:
        # a role that may insert need not have the right to SELECT
        try:
            return taken.stored_ids(self.connection, column, texts, self.options)
        except DBAPIError as error:
            if not self.traits.is_permission_error(error.orig):
                raise
            if self.risks_transaction:
                self.send("ROLLBACK TO SAVEPOINT")
            return set()

    # --- new ids

    def replace(self, batch: Batch, slots: list[Slot]) -> None:
        """Fill *slots* with ids that have not collided and that no other row of the batch has."""
        used = {(slot.column, batch.text(slot)) for slot in batch.slots} | self.taken
        for slot in slots:
            new = self._next_id(slot, used)
            while (slot.column, new) in used:
                new = self._next_id(slot, used)
            used.add((slot.column, new))
            batch.replace(slot, new)
            _note(slot.column, self._tries[slot.row, slot.parameter.name])

    def _next_id(self, slot: Slot, used: set[tuple[Column[Any], str]]) -> str:
        """Return a new id for a row; raise the error for a row that has used up its retries."""
        row = slot.row, slot.parameter.name
        if self._tries[row] >= max_retries(slot.column):
            raise taken.exhausted(self.connection, slot.column, used, self.options)
        self._tries[row] += 1
        return public_id_type(slot.column).next_id()
