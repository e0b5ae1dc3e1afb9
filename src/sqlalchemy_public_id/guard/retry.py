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
from collections.abc import Iterator
from operator import length_hint
from typing import Any

from sqlalchemy_public_id._compat import set_rowcount
from sqlalchemy_public_id.dialects import ManyRows
from sqlalchemy_public_id.guard import on_conflict
from sqlalchemy_public_id.guard.execution import Attempt
from sqlalchemy_public_id.guard.parameters import Batch, Row

__all__ = ["run", "run_again", "run_many"]

_PLAIN_ROW = re.compile(
    r"\)\s*VALUES\s*\((?:%(?:\(.+?\))?s(?:,\s*)?)+\)(?:\s*ON DUPLICATE\b.*)?\s*\Z", re.IGNORECASE | re.DOTALL
)
"""The statements that the drivers of MySQL turn into multi-row ones."""


def run(attempt: Attempt, parameters: Any, first: int) -> None:
    """One statement, of one row or many; *first* is the position of the first one in the execution."""
    batch = Batch(attempt.context, parameters, first)
    if not batch.may_be_ours or not attempt.tells_outcome:
        attempt.execute(parameters)
    elif not (attempt.risks_transaction and attempt.sees_commits and on_conflict.run(attempt, batch)):
        attempt.until_it_fits(batch, attempt.execute)


def run_again(attempt: Attempt, parameters: Any, error: Exception, first: int) -> None:
    """The same for a statement that has just failed, alone."""
    batch = Batch(attempt.context, parameters, first)
    attempt.replace(batch, attempt.collided(batch, error))
    attempt.until_it_fits(batch, attempt.execute)


def run_many(attempt: Attempt, rows: list[Row]) -> None:
    """The driver's ``executemany``."""
    if attempt.traits.many_rows is ManyRows.ROW_BY_ROW:
        _row_by_row(attempt, rows)
    elif attempt.traits.many_rows is ManyRows.SLICES:
        inserted = 0
        for first, some in _slices(attempt, rows):
            attempt.until_it_fits(Batch(attempt.context, some, first), attempt.execute_many)
            inserted += attempt.cursor.rowcount
        set_rowcount(attempt.context, inserted)
    else:
        attempt.until_it_fits(Batch(attempt.context, rows), attempt.execute_many)


def _row_by_row(attempt: Attempt, rows: list[Row]) -> None:
    """Rows that the driver takes one after the other: see how far it came, and go on from the one that failed."""
    first = 0
    while first < len(rows):
        waiting = iter(rows[first:])
        try:
            attempt.execute_many(waiting)
            set_rowcount(attempt.context, len(rows))
            return
        except attempt.refused as error:
            first = len(rows) - length_hint(waiting) - 1
            batch = Batch(attempt.context, [rows[first]], first)
            attempt.replace(batch, attempt.collided(batch, error))
            rows = [*rows[:first], *batch.for_driver(), *rows[first + 1 :]]


def _slices(attempt: Attempt, rows: list[Row]) -> Iterator[tuple[int, list[Row]]]:
    """Rows in groups that the driver sends as one statement each, with the position of the first of each."""
    limit = attempt.traits.slice_bytes(attempt.dialect.driver) - len(attempt.statement)
    if not _PLAIN_ROW.search(attempt.statement):
        limit = 0  # the driver sends such rows one by one
    first, size = 0, 0
    some: list[Row] = []
    for at, row in enumerate(rows):
        row_size = 8
        for value in row.values() if isinstance(row, dict) else row:
            row_size += len(value) * 2 + 4 if type(value) is str and value.isascii() else _written_size(value)
        if some and size + row_size > limit:
            yield first, some
            first, some, size = at, [], 0
        some.append(row)
        size += row_size
    if some:
        yield first, some


def _written_size(value: object) -> int:
    """How many bytes *value* takes in a statement at most, escaped and quoted."""
    if isinstance(value, str):
        return len(value) * 4 + 4
    if isinstance(value, (bytes, bytearray, memoryview)):
        return 2 * len(value) + 12  # pyright: ignore[reportUnknownArgumentType]  # memoryview of what, does not matter
    return 48 if isinstance(value, (int, float, type(None))) else len(str(value)) * 2 + 48
