"""One execution of an INSERT with ids that the library made: what collided, and which ids to try next."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import Column, func, select

from sqlalchemy_public_id.dialects import Traits, traits_for
from sqlalchemy_public_id.errors import PublicIdCollision
from sqlalchemy_public_id.guard.batch import Batch, Slot
from sqlalchemy_public_id.guard.constraints import Match, matches
from sqlalchemy_public_id.registry import model_of
from sqlalchemy_public_id.types import max_retries, public_id_type

__all__ = ["Attempt", "exhausted"]

_COUNTABLE = 10_000_000
"""Spaces up to this size can be full; in a larger one, counting the rows would only cost time."""


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

    # --- the driver

    def execute(self, parameters: Any, statement: str | None = None) -> None:
        """Run the statement, or another form of it."""
        self.dialect.do_execute(self.cursor, statement or self.statement, parameters, self.context)

    def execute_many(self, parameters: Any) -> None:
        """Run the statement for many rows, as the driver does that."""
        self.dialect.do_executemany(self.cursor, self.statement, parameters, self.context)

    def send(self, savepoint: str) -> None:
        """A statement about the savepoint of the guard; like the driver's own BEGIN, it is not logged."""
        cursor = self.connection.connection.cursor()
        cursor.execute(f"{savepoint} sqlalchemy_public_id")
        cursor.close()

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

    # --- what collided

    def collided(self, batch: Batch, error: Exception) -> list[Slot]:
        """The slots to fill anew; *error* again where it is not about an id that the library made."""
        violation = self.traits.violation(error)
        if violation is None:
            raise error
        collided: list[Slot] = []
        for column in dict.fromkeys(slot.column for slot in batch.slots):
            match = matches(violation, column, self.dialect)
            if match is Match.NO:
                continue
            slots = [slot for slot in batch.slots if slot.column is column]
            found = slots if match is Match.YES and len(slots) == 1 else self._duplicates(batch, column, slots)
            # a row that is there but cannot be seen (REPEATABLE READ), or is gone again: any of the ids may be the one
            collided += found or (slots if match is Match.YES else [])
        if not collided or not all(map(batch.is_ours, collided)):
            raise error
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
        for condition in self.traits.any_of(column, texts, public_id_type(column).as_parameter):
            query = select(column).where(condition)
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
            while True:
                self._count((slot.row, slot.parameter.name), slot.column)
                new = public_id_type(slot.column).next_id()
                if (slot.column, new) not in self._taken and (slot.column, new) not in (batch.pending or ()):
                    break
            self._taken.add((slot.column, new))
            batch.replace(slot, new)

    def _count(self, tried: tuple[int, str], column: Column[Any]) -> None:
        if self._tries[tried] >= max_retries(column):
            raise exhausted(self.connection, column)
        self._tries[tried] += 1


def exhausted(connection: Any, column: Column[Any]) -> PublicIdCollision:
    """The error for a row of *column* that has used up its retries."""
    format = public_id_type(column).id_format
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
