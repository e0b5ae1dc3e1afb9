"""One execution of an INSERT with ids that the library made: what collided, and which ids to try next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from itertools import chain
from traceback import clear_frames
from types import TracebackType
from typing import Any

from sqlalchemy import Column, func, select
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id._compat import plain_table
from sqlalchemy_public_id.dialects import Traits, Violation, traits_for
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdCollision
from sqlalchemy_public_id.guard import generated
from sqlalchemy_public_id.guard.constraints import Match, matches
from sqlalchemy_public_id.guard.parameters import Batch, Slot
from sqlalchemy_public_id.registry import model_of
from sqlalchemy_public_id.types import max_retries, public_id_type, stored

__all__ = ["Attempt", "exhausted"]

_COUNTABLE = 10_000_000
"""Spaces up to this size can be full; in a larger one, counting the rows would only cost time."""


_FEW = 10
"""So many collisions of a batch are taken one by one where the database names them, and a SELECT would be no good:
under REPEATABLE READ it may not see the rows, and under SERIALIZABLE what it reads can fail the transaction."""


class Attempt:
    """What is known of an INSERT while it is tried, and the means to try it."""

    def __init__(self, context: Any, cursor: Any, statement: str) -> None:
        self.context = context
        self.cursor = cursor
        self.statement = statement
        self.dialect = context.dialect
        self.traits: Traits = traits_for(context.dialect)
        self.connection = context.root_connection
        self.options = {key: value for key, value in context.execution_options.items() if key == "schema_translate_map"}
        """For statements of our own, so that they find the same table."""
        self._tries: Counter[tuple[int, str]] = Counter()
        self._taken: set[tuple[Column[Any], str]] = set()
        """What has collided: ids that are known not to be free."""

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, frames: TracebackType | None) -> None:
        """Free the cursors after a KeyboardInterrupt and its like, for which SQLAlchemy closes the connection alone.

        SQLAlchemy keeps them in a cycle of references, by way of the frames.
        """
        if kind is not None and not issubclass(kind, Exception):
            with suppress(Exception):  # the connection may be closed by now, or the event loop
                self.traits.forget_statement(self.cursor)
            clear_frames(frames)

    # --- the driver

    def execute(self, parameters: Any, statement: str | None = None) -> None:
        """Run the statement, or another form of it."""
        self.dialect.do_execute(self.cursor, statement or self.statement, parameters, self.context)

    def execute_many(self, parameters: Any) -> None:
        """Run the statement for many rows, as the driver does that."""
        self.dialect.do_executemany(self.cursor, self.statement, parameters, self.context)

    def send(self, savepoint: str) -> None:
        """A statement about the savepoint of the guard; like the driver's own BEGIN, it is not logged."""
        with closing(self.connection.connection.cursor()) as cursor:
            cursor.execute(f"{savepoint} sqlalchemy_public_id")

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
    def has_collided(self) -> bool:
        """True if a row was refused because of an id that the library made."""
        return bool(self._taken)

    @property
    def refused(self) -> type[Exception]:
        """The driver's error for a violated constraint."""
        error: type[Exception] = self.dialect.dbapi.IntegrityError
        return error

    @property
    def sees_commits(self) -> bool:
        """Whether a statement sees what others have committed since the transaction began."""
        proxied = self.connection.connection
        return self.traits.sees_commits(proxied.dbapi_connection, self.dialect)

    @property
    def risks_transaction(self) -> bool:
        """Whether a failed statement aborts the transaction; under AUTOCOMMIT there is none to lose."""
        proxied = self.connection.connection
        return self.traits.aborts_transaction and not self.traits.in_autocommit(proxied.dbapi_connection)

    @property
    def tells_outcome(self) -> bool:
        """Whether the driver knows what has become of a statement when it was sent, and not when its rows are read."""
        if self.context.execution_options.get("stream_results") and self.dialect.supports_server_side_cursors:
            return False
        return not self.traits.defers_results(self.connection.connection.driver_connection)

    # --- until there is no collision

    def until_it_fits(self, batch: Batch, execute: Callable[[Any], None]) -> None:
        """Something that takes effect as a whole or not at all, with other ids for what has collided each time.

        Where a failed statement would abort the transaction, a savepoint keeps it usable.
        """
        saved = self.risks_transaction
        if saved:
            self.send("SAVEPOINT")
        while True:
            try:
                execute(batch.for_driver())
                break
            except self.refused as error:
                if saved:
                    self.send("ROLLBACK TO SAVEPOINT")
                try:
                    self.replace(batch, self.collided(batch, error))
                except Exception:
                    if saved:
                        self._undo()
                    raise
        if saved:
            self.send("RELEASE SAVEPOINT")

    @contextmanager
    def saved(self) -> Generator[None]:
        """Let statements of the guard that fail leave the transaction as it was."""
        self.send("SAVEPOINT")
        try:
            yield
        except Exception:
            self._undo()
            raise
        self.send("RELEASE SAVEPOINT")

    def _undo(self) -> None:
        """Go back to before the savepoint, after an error that the caller has to see, and no other in its place."""
        if not self.connection.invalidated:
            with suppress(self.dialect.dbapi.Error):
                self.send("ROLLBACK TO SAVEPOINT")
                self.send("RELEASE SAVEPOINT")

    # --- what collided

    def collided(self, batch: Batch, error: Exception) -> list[Slot]:
        """The slots to fill anew; *error* again where it is not about an id that the library made."""
        violation = self.traits.violation(error)
        if violation is None:
            raise error
        self.traits.forget_statement(self.cursor)
        slots = None
        try:
            slots = self._slots_of(batch, violation)
        finally:
            if slots is None or slots:  # not raised again; the frames of its traceback can hold a cursor, too
                error.__traceback__ = None
        if not slots:
            raise error
        self._refuse_if_rows_stayed(batch, slots[0].column, violation, error)
        return slots

    def _slots_of(self, batch: Batch, violation: Violation) -> list[Slot]:
        """Return the slots to fill anew; none if the library made none of them, or not all."""
        collided: list[Slot] = []
        hidden: list[Slot] = []
        for column in dict.fromkeys(slot.column for slot in batch.slots):
            match = matches(violation, column, self.dialect)
            if match is Match.NO:
                continue
            slots = [slot for slot in batch.slots if slot.column is column]
            if match is Match.YES and len(slots) == 1:
                found = slots
            else:
                named = self._named(batch, slots, violation) if match is Match.YES else set[str]()
                found = self._duplicates(batch, column, slots, named)
            collided += found
            if not found and match is Match.YES:  # a row that cannot be seen, or is gone again: any id may be the one
                hidden += slots
        if not all(map(batch.is_ours, collided + hidden)):
            return []
        self._taken.update((slot.column, batch.text(slot)) for slot in collided)
        return collided + hidden

    def _refuse_if_rows_stayed(self, batch: Batch, column: Column[Any], violation: Violation, error: Exception) -> None:
        """Refuse to run an INSERT of several rows again if those before the refused one are stored already."""
        texts = [batch.text(slot) for slot in batch.slots if slot.column is column]
        if len(texts) == 1:
            return
        engine = self.engine_without_transactions
        if engine is None:
            return
        if matches(violation, column, self.dialect) is Match.MAYBE:  # the ids may be there because the rows are
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
        """The id that the database complains of, where it says so and only one of *slots* has it."""
        column, value = violation.entry or (None, None)
        named = [
            slot for slot in slots if slot.column.name == column and self._written(batch.text(slot), slot) == value
        ]
        return {batch.text(named[0])} if len(named) == 1 else set()

    def _written(self, text: str | None, slot: Slot) -> str | None:
        if text is None:
            return None
        return self.traits.format_in_error(stored(public_id_type(slot.column).id_format, text, self.dialect))

    def _duplicates(self, batch: Batch, column: Column[Any], slots: list[Slot], named: set[str]) -> list[Slot]:
        """The slots whose id is *named*, in the table, or in another row of the batch; given ids go before made ones.

        Two of them are a duplicate of one another even if the database has named one: it is the first that stays.
        """
        found: list[Slot] = []
        seen = set(named)
        if not named or self.sees_commits or len(self._taken) >= _FEW:
            seen |= self._readable(column, [batch.text(slot) for slot in slots])
        for slot in sorted(slots, key=batch.is_ours):
            text = batch.text(slot)
            if text in seen:
                found.append(slot)
            seen.add(text)
        return found

    def exists(self, column: Column[Any], texts: list[str]) -> set[str]:
        """Those of *texts* that the table holds now."""
        return _existing(self.connection, column, texts, self.options)

    def _readable(self, column: Column[Any], texts: list[str]) -> set[str]:
        """The same inside of the savepoint; none for a role that may not read the table."""
        try:
            return self.exists(column, texts)
        except DBAPIError as error:
            if not self.traits.is_permission_error(error.orig):
                raise
            if self.risks_transaction:
                self.send("ROLLBACK TO SAVEPOINT")
            return set()

    # --- new ids

    def replace(self, batch: Batch, slots: list[Slot]) -> None:
        """Fill *slots* with ids that are neither known to be taken nor in the batch."""
        if not slots:
            return
        held = {(slot.column, batch.text(slot)) for slot in batch.slots}
        for slot in slots:
            while True:
                self._count(slot, held)
                new = public_id_type(slot.column).next_id()
                drawn = slot.column, new
                if drawn not in self._taken and drawn not in held and drawn not in (batch.pending or ()):
                    break
            held.add(drawn)
            batch.replace(slot, new)

    def _count(self, slot: Slot, held: set[tuple[Column[Any], str]]) -> None:
        tried = slot.row, slot.parameter.name
        if self._tries[tried] >= max_retries(slot.column):
            raise exhausted(self.connection, slot.column, self._taken | held, self.options)
        self._tries[tried] += 1


def exhausted(
    connection: Any,
    column: Column[Any],
    known: Iterable[tuple[Column[Any], str]] = (),
    options: Mapping[str, Any] | None = None,
) -> PublicIdCollision:
    """The error for a row of *column* that has used up its retries; the ids that are *known* cannot be had either."""
    format = public_id_type(column).id_format
    model = model_of(column.table, column.key)
    rows = None
    if format.capacity <= _COUNTABLE:
        texts = {text for other, text in chain(known, generated.of(connection) or ()) if other is column}
        rows = _taken(connection, column, texts, options or {})
    return PublicIdCollision(
        model=model.__name__ if model else column.table.name,
        column=column.name,
        format=format,
        attempts=max_retries(column),
        capacity=format.capacity,
        rows=rows,
    )


def _taken(connection: Any, column: Column[Any], known: set[str], options: Mapping[str, Any]) -> int | None:
    """How many ids are taken: by the rows that can be seen, and those of *known* that others have or are to get."""
    try:
        visible = _existing(connection, column, list(known), options)
        query = select(func.count()).select_from(column.table)
        rows: int = connection.execute(query, execution_options=options).scalar_one()
    except DBAPIError as error:
        if not traits_for(connection.dialect).is_permission_error(error.orig):
            raise
        return None
    return rows + len(known - visible)


def _existing(connection: Any, column: Column[Any], texts: list[str], options: Mapping[str, Any]) -> set[str]:
    traits = traits_for(connection.dialect)
    found: set[str] = set()
    for condition in traits.any_of(column, texts, public_id_type(column).as_parameter):
        query = select(column).where(condition)
        if traits.reads_old_snapshot:
            query = query.with_for_update(read=True)
        found.update(connection.execute(query, execution_options=options).scalars())
    return found
