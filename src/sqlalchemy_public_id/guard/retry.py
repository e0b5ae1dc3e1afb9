"""Run an INSERT, and run it again with other ids for the rows whose generated id collided.

How much of the statement a collision undoes differs (see :mod:`sqlalchemy_public_id.dialects`), so there are four ways:

* SQLite, MySQL, MariaDB, one statement: it failed alone; run it again.
* SQLite ``executemany``: the rows before the failed one are there; go on from the failed one.
* MySQL and MariaDB ``executemany``: sent in slices of one statement each; run the failed slice again.
* PostgreSQL, where a failed statement aborts the transaction: INSERTs of one row and those of a flush go with
  ``ON CONFLICT DO NOTHING``, and rows that are missing afterwards are inserted with other ids
  (``guard/quiet.py``); other INSERTs of several rows go inside a savepoint.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from operator import length_hint
from typing import Any

from sqlalchemy import Column, func, select

from sqlalchemy_public_id.dialects import ManyRows, Traits, traits_for
from sqlalchemy_public_id.errors import PublicIdCollision
from sqlalchemy_public_id.guard import quiet
from sqlalchemy_public_id.guard.batch import Batch, Row, Slot
from sqlalchemy_public_id.guard.constraints import Match, matches
from sqlalchemy_public_id.registry import model_of
from sqlalchemy_public_id.types import PublicIdType, max_retries

__all__ = ["Insert", "exhausted"]

_SAVEPOINT = "sqlalchemy_public_id"
_PLAIN_ROW = re.compile(
    r"\)\s*VALUES\s*\((?:%(?:\(.+?\))?s(?:,\s*)?)+\)(?:\s*ON DUPLICATE\b.*)?\s*\Z", re.IGNORECASE | re.DOTALL
)
"""The statements that the drivers of MySQL turn into multi-row ones."""
_COUNTABLE = 10_000_000
"""Spaces up to this size can be full; in a larger one, counting the rows would only cost time."""


class Insert:
    """One execution of an INSERT that holds ids made by the library."""

    def __init__(self, context: Any, cursor: Any, statement: str, parameters: Any, first: int = 0) -> None:
        self.context = context
        self.cursor = cursor
        self.statement = statement
        self.parameters = parameters
        self.first = first
        self.dialect = context.dialect
        self.traits: Traits = traits_for(context.dialect)
        self.connection = context.root_connection
        self.options = {key: value for key, value in context.execution_options.items() if key == "schema_translate_map"}
        self._tries: Counter[tuple[int, str]] = Counter()
        self._taken: set[tuple[Column[Any], str]] = set()

    # --- the four ways

    def run(self) -> int:
        """One statement, of one row or many; how many rows these were."""
        batch = Batch(self.context, self.parameters, self.first)
        if not batch.may_be_ours:
            self._execute(batch.parameters)
        elif not (self._saves_transaction and quiet.run(self, batch)):
            self._until_it_fits(batch, lambda: self._execute(batch.for_driver()))
        return batch.rows

    def run_many(self) -> None:
        """The driver's ``executemany``."""
        if self.traits.many_rows is ManyRows.ROW_BY_ROW:
            self._run_row_by_row()
        elif self.traits.many_rows is ManyRows.SLICES:
            for first, rows in self._slices():
                batch = Batch(self.context, rows, first)
                self._until_it_fits(batch, lambda batch=batch: self._execute_many(batch.for_driver()))  # type: ignore[misc]
        else:
            batch = Batch(self.context, self.parameters)
            self._until_it_fits(batch, lambda: self._execute_many(batch.for_driver()))

    def _run_row_by_row(self) -> None:
        """Rows that the driver takes one after the other: count them, and go on from the one that failed."""
        first = 0
        while first < len(self.parameters):
            waiting = iter(self.parameters[first:])
            try:
                self._execute_many(waiting)
                return
            except self.dialect.dbapi.IntegrityError as error:
                first = len(self.parameters) - length_hint(waiting) - 1
                batch = Batch(self.context, [self.parameters[first]], first)
                self.replace(batch, self._collided(batch, error))
                self.parameters = list(self.parameters)
                self.parameters[first] = batch.for_driver()[0]

    def _until_it_fits(self, batch: Batch, execute: Callable[[], None]) -> None:
        """Something that takes effect as a whole or not at all."""
        while True:
            try:
                with self._savepoint():
                    execute()
                return
            except self.dialect.dbapi.IntegrityError as error:
                self.replace(batch, self._collided(batch, error))

    @property
    def _saves_transaction(self) -> bool:
        """Whether a failed statement would abort the transaction; under AUTOCOMMIT there is none to save."""
        proxied = self.connection.connection
        return self.traits.aborts_transaction and not self.traits.in_autocommit(proxied.dbapi_connection)

    @contextmanager
    def _savepoint(self) -> Generator[None]:
        """Keep the transaction usable where a failed statement would abort it."""
        if not self._saves_transaction:
            yield
            return
        cursor = self.connection.connection.cursor()
        cursor.execute(f"SAVEPOINT {_SAVEPOINT}")
        try:
            yield
        except self.dialect.dbapi.IntegrityError:
            cursor.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            cursor.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
            raise
        cursor.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        cursor.close()

    def _slices(self) -> Iterator[tuple[int, list[Row]]]:
        """Parameter sets in groups that the driver sends as one statement each, with the position of the first."""
        limit = self.traits.slice_bytes(self.dialect.driver) - len(self.statement)
        if not _PLAIN_ROW.search(self.statement):
            limit = 0  # the driver sends such rows one by one
        first, size = 0, 0
        rows: list[Row] = []
        given: list[Row] = self.parameters
        for at, row in enumerate(given):
            row_size = sum(map(_written_size, row.values() if isinstance(row, dict) else row)) + 8
            if rows and size + row_size > limit:
                yield first, rows
                first, rows, size = at, [], 0
            rows.append(row)
            size += row_size
        if rows:
            yield first, rows

    # --- what collided

    def _collided(self, batch: Batch, error: Exception) -> list[Slot]:
        """The slots to fill anew; *error* again where it is not about an id that the library made."""
        violation = self.traits.violation(error)
        if violation is None:
            raise error
        sure = False
        collided: list[Slot] = []
        for column in dict.fromkeys(slot.column for slot in batch.slots):
            match = matches(violation, column, self.dialect)
            if match is Match.NO:
                continue
            sure = sure or match is Match.YES
            slots = [slot for slot in batch.slots if slot.column is column]
            if match is Match.YES and len(slots) == 1:
                collided += slots
            else:
                collided += self._duplicates(batch, column, slots)
        if not all(map(batch.is_ours, collided)) or not (collided or sure):
            raise error
        if not collided:  # the other row is gone again; the same ids are tried once more, as often as an id may be
            self._count((-1, "the same ids"), batch.slots[0].column)
        return collided

    def _duplicates(self, batch: Batch, column: Column[Any], slots: list[Slot]) -> list[Slot]:
        """The slots whose id is in the table, or in another row of the batch; given ids go before made ones."""
        found: list[Slot] = []
        seen = self.exists(column, [batch.text(slot) for slot in slots])
        for slot in sorted(slots, key=batch.is_ours):
            text = batch.text(slot)
            if text in seen:
                found.append(slot)
            seen.add(text)
        return found

    def exists(self, column: Column[Any], texts: list[str]) -> set[str]:
        """Those of *texts* that the table holds now."""
        found: set[str] = set()
        size = self.traits.max_parameters or len(texts)
        for at in range(0, len(texts), size):
            query = select(column).where(column.in_(texts[at : at + size]))
            if self.traits.reads_old_snapshot:
                query = query.with_for_update(read=True)
            found.update(self.connection.execute(query, execution_options=self.options).scalars())
        return found

    # --- new ids

    def replace(self, batch: Batch, slots: list[Slot]) -> None:
        """Fill *slots* with ids that are neither known to be taken nor in the batch."""
        if not slots:
            return
        self._taken.update((slot.column, batch.text(slot)) for slot in batch.slots)
        for slot in slots:
            assert isinstance(slot.column.type, PublicIdType)
            while True:
                self._count((slot.row, slot.parameter.name), slot.column)
                new = slot.column.type.next_id()
                if (slot.column, new) not in self._taken and (slot.column, new) not in (batch.pending or ()):
                    break
            self._taken.add((slot.column, new))
            batch.replace(slot, new)

    def _count(self, tried: tuple[int, str], column: Column[Any]) -> None:
        if self._tries[tried] >= max_retries(column):
            raise exhausted(self.connection, column)
        self._tries[tried] += 1

    # --- the driver

    def _execute(self, parameters: Any) -> None:
        self.dialect.do_execute(self.cursor, self.statement, parameters, self.context)

    def _execute_many(self, parameters: Any) -> None:
        self.dialect.do_executemany(self.cursor, self.statement, parameters, self.context)


def exhausted(connection: Any, column: Column[Any]) -> PublicIdCollision:
    """The error for a row of *column* that has used up its retries."""
    assert isinstance(column.type, PublicIdType)
    format = column.type.id_format
    model = model_of(column.table, column.key)
    rows = None
    if format.capacity <= _COUNTABLE:
        rows = connection.execute(select(func.count()).select_from(column.table)).scalar_one()
    return PublicIdCollision(
        model=model.__name__ if model else column.table.name,
        column=column.name,
        format=format,
        attempts=max_retries(column),
        capacity=format.capacity,
        rows=rows,
    )


def _written_size(value: object) -> int:
    """How many bytes *value* takes in a statement at most, escaped and quoted."""
    if isinstance(value, str):
        return (2 if value.isascii() else 4) * len(value) + 12
    if isinstance(value, (bytes, bytearray, memoryview)):
        return 2 * len(value) + 12  # pyright: ignore[reportUnknownArgumentType]  # memoryview of what, does not matter
    return 80
