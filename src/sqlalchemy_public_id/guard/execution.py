"""One guarded execution of an INSERT: the ids that collided, and the ids to try next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from traceback import clear_frames
from types import TracebackType
from typing import Any

from sqlalchemy import Column
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id._compat import plain_table, read_pipelined_rows
from sqlalchemy_public_id.dialects import Traits, Violation, traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.guard import generated
from sqlalchemy_public_id.guard.constraints import Match, match_violation
from sqlalchemy_public_id.guard.draws import draw_free
from sqlalchemy_public_id.guard.parameters import Batch, Slot
from sqlalchemy_public_id.types import public_id_type, to_database

_FEW = 10
"""So many collisions of a batch are taken one by one, if the database names them.

Under REPEATABLE READ a SELECT may not see the rows, and under SERIALIZABLE it can make the transaction fail.
"""


class GuardedInsert:
    """One guarded INSERT: executes it and remembers which ids collided."""

    def __init__(self, context: Any, cursor: Any, statement: str) -> None:
        self.context = context
        self.cursor = cursor
        self.statement = statement
        self.dialect: Any = context.dialect
        self.traits: Traits = traits_for(context.dialect)
        self.integrity_error: type[Exception] = context.dialect.dbapi.IntegrityError
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
        """Execute a *command* on the savepoint of the guard. Like the driver's own BEGIN, it is not logged."""
        self.traits.send(self.connection.connection, f"{command} sqlalchemy_public_id")

    @property
    def names(self) -> tuple[str, str | None]:
        """The names of the table and of its schema in this execution."""
        table = plain_table(self.context.compiled.statement.table)
        schemas: Mapping[str | None, str | None] = self.options.get("schema_translate_map") or {}
        return str(table.name), schemas.get(table.schema, table.schema)

    @cached_property
    def engine_without_transactions(self) -> str | None:
        """The storage engine of the table, if a statement that fails leaves rows in it."""
        return self.traits.engine_without_transactions(self.connection, *self.names)

    @property
    def sees_commits(self) -> bool:
        """True if a statement sees what others have committed since the transaction began."""
        return self.traits.sees_commits(self.connection.connection.dbapi_connection, self.dialect)

    @property
    def risks_transaction(self) -> bool:
        """True if a failed statement aborts the transaction. Under AUTOCOMMIT there is none."""
        driver_connection = self.connection.connection.dbapi_connection
        return self.traits.aborts_transaction and not self.traits.in_autocommit(driver_connection)

    @property
    def has_immediate_result(self) -> bool:
        """True if the driver has the result of a statement when it was sent, and not only when its rows are read."""
        if self.context.execution_options.get("stream_results") and self.dialect.supports_server_side_cursors:
            return False
        return not self.traits.defers_results(self.connection.connection.driver_connection)

    # --- retries

    def execute_with_retries(
        self, batch: Batch, execute: Callable[[Any], None], *, may_be_skipped: bool = False
    ) -> None:
        """Call *execute* until no id collides. Collided ids are replaced before each retry.

        *execute* inserts all rows or none. A savepoint keeps the transaction usable if an error would abort it; the
        driver sends it together with the statement, if it can.

        :param may_be_skipped: a trigger may have left the row out before. Then its effects must not happen twice.
        """
        if not self.risks_transaction:
            self._execute_until_stored(batch, execute)
            return
        is_set, is_released = False, False
        while not is_released:
            try:
                with self._together():
                    if not is_set:
                        self.send("SAVEPOINT")
                    execute(batch.for_driver())
                    if is_set or not may_be_skipped:
                        self.send("RELEASE SAVEPOINT")
                        is_released = True
            except self.integrity_error as error:
                # first of all: until then, PostgreSQL refuses the SELECT that looks for the collided ids, too
                self.send("ROLLBACK TO SAVEPOINT")
                is_set, is_released = True, False
                try:
                    self.replace(batch, self.collided(batch, error))
                except Exception as raised:
                    self._undo(is_rolled_back=raised is error)
                    raise
                continue
            if not is_released:
                if self.cursor.rowcount == 0:
                    self.send("ROLLBACK TO SAVEPOINT")
                self.send("RELEASE SAVEPOINT")
                is_released = True

    def _execute_until_stored(self, batch: Batch, execute: Callable[[Any], None]) -> None:
        while True:
            try:
                execute(batch.for_driver())
                return
            except self.integrity_error as error:
                self.replace(batch, self.collided(batch, error))

    @contextmanager
    def _together(self) -> Generator[None]:
        """Send the statements of the block in one round trip, if the driver can."""
        dbapi_connection = self.connection.connection.dbapi_connection
        context = self.traits.pipeline(dbapi_connection)
        if context is None:
            yield
            return
        with context:
            yield
        read_pipelined_rows(self.cursor, dbapi_connection)

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """Keep the transaction usable if statements of the guard fail."""
        self.send("SAVEPOINT")
        try:
            yield
        except Exception:
            self._undo()
            raise
        self.send("RELEASE SAVEPOINT")

    def _undo(self, *, is_rolled_back: bool = False) -> None:
        # called while an error is raised, which no other error may hide
        if not self.connection.invalidated:
            with suppress(self.dialect.dbapi.Error), self._together():
                if not is_rolled_back:
                    self.send("ROLLBACK TO SAVEPOINT")
                self.send("RELEASE SAVEPOINT")

    # --- collided ids

    def collided(self, batch: Batch, error: Exception) -> list[Slot]:
        """Return the slots whose ids have to be replaced; raise *error* if it is not about generated ids."""
        violation = self.traits.violation(error)
        if violation is None:
            raise error
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

    def _readable(self, column: Column[Any], texts: list[str], *, may_lock: bool = True) -> set[str]:
        # a role that may insert need not have the right to SELECT
        try:
            return generated.stored_ids(self.connection, column, texts, self.options, may_lock=may_lock)
        except DBAPIError as error:
            if not self.traits.is_permission_error(error.orig):
                raise
            if self.risks_transaction:
                self.send("ROLLBACK TO SAVEPOINT")
            return set()

    # --- new ids

    def replace(self, batch: Batch, slots: list[Slot]) -> None:
        """Fill *slots* with ids that have not collided and that no other row of the batch or flush has.

        If several ids have collided, or one again, few are free. Then the table is read before the next INSERT: that
        takes one statement for many ids, and less than an INSERT that fails.
        """
        is_narrow = len(slots) > 1 or any(self._tries[slot.row, slot.parameter.name] for slot in slots)
        for column in dict.fromkeys(slot.column for slot in slots):
            own = [slot for slot in slots if slot.column is column]
            self._replace_ids(batch, column, own, may_read=is_narrow and self.sees_commits)

    def _replace_ids(self, batch: Batch, column: Column[Any], slots: list[Slot], *, may_read: bool) -> None:
        rows = {(slot.row, slot.parameter.name): slot for slot in slots}
        of_batch = {batch.text(slot) for slot in batch.slots if slot.column is column}
        of_flush: Collection[str] = batch.ids.get(column, ()) if batch.ids else ()

        def is_used(text: str) -> bool:
            return text in of_batch or text in of_flush or (column, text) in self.taken

        def stored(texts: list[str]) -> set[str]:
            # no locks: those on free ids would make two transactions wait for each other
            taken = self._readable(column, texts, may_lock=False) if may_read else set[str]()
            self.taken.update((column, text) for text in taken)
            return taken

        def exhausted() -> Exception:
            held = {(slot.column, batch.text(slot)) for slot in batch.slots}
            return generated.exhausted(self.connection, column, self.taken | held, self.options)

        new = draw_free(column, list(rows), self._tries, is_used=is_used, stored=stored, exhausted=exhausted)
        for row, text in new:
            batch.replace(rows[row], text)
