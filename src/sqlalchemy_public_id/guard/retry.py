"""Execute an INSERT, and execute it again with other ids for the rows whose generated id collided.

How much of the statement a collision undoes differs (see :mod:`sqlalchemy_public_id.dialects`), so there are four ways:

* SQLite, MySQL, MariaDB, one statement: it failed alone; execute it again.
* SQLite ``executemany``: the rows before the failed one are stored; go on from the failed one.
* MySQL and MariaDB ``executemany``: sent in slices of one statement each; execute the failed slice again.
* PostgreSQL, where a failed statement aborts the transaction: INSERTs of one row and those of a flush get an
  ``ON CONFLICT DO NOTHING``, and rows that are missing afterwards are inserted with other ids
  (``guard/on_conflict.py``); other INSERTs of several rows are executed inside a savepoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from operator import length_hint
from typing import Any

from sqlalchemy_public_id._compat import set_rowcount
from sqlalchemy_public_id.dialects import ManyRows
from sqlalchemy_public_id.guard import on_conflict
from sqlalchemy_public_id.guard.execution import GuardedInsert
from sqlalchemy_public_id.guard.parameters import Batch, Row, may_contain_generated

# The statements that PyMySQL, aiomysql and asyncmy turn into multi-row ones, by private regular expressions. One that
# only theirs match is sent row by row. One that only this one matched would insert rows twice after a collision.
_PLAIN_ROW = re.compile(
    r"\)\s*VALUES\s*\((?:%(?:\(.+?\))?s(?:,\s*)?)+\)(?:\s*ON DUPLICATE\b.*)?\s*\Z", re.IGNORECASE | re.DOTALL
)

_SIMPLE = {str, int, float, bool, type(None)}
_SOME = 100
"""Rows whose size is added up together."""


def run(guarded: GuardedInsert, parameters: Any, first: int) -> int:
    """Execute one statement, and return the number of its rows.

    :param first: the position of its first row in the execution.
    """
    batch = Batch(guarded.context, parameters, first)
    if not may_contain_generated(guarded.context) or not guarded.has_immediate_result:
        guarded.execute(parameters)
    elif not (guarded.risks_transaction and guarded.sees_commits and on_conflict.run(guarded, batch)):
        guarded.execute_with_retries(batch, guarded.execute)
    return batch.rows


def run_again(guarded: GuardedInsert, parameters: Any, error: Exception, first: int) -> None:
    """Execute one statement that has just failed with *error*, and whose failure has undone nothing else."""
    batch = Batch(guarded.context, parameters, first)
    guarded.replace(batch, guarded.collided(batch, error))
    guarded.execute_with_retries(batch, guarded.execute)


def run_many(guarded: GuardedInsert, rows: list[Row]) -> None:
    """Execute the statement by the driver's ``executemany``."""
    if guarded.traits.many_rows is ManyRows.ROW_BY_ROW:
        _run_row_by_row(guarded, rows)
    elif guarded.traits.many_rows is ManyRows.SLICES:
        inserted = 0
        for first, slice_rows in _slices(guarded, rows):
            guarded.execute_with_retries(Batch(guarded.context, slice_rows, first), guarded.execute_many)
            inserted += guarded.cursor.rowcount
        set_rowcount(guarded.context, inserted)
    else:
        guarded.execute_with_retries(Batch(guarded.context, rows), guarded.execute_many)


def _run_row_by_row(guarded: GuardedInsert, rows: list[Row]) -> None:
    first = 0
    while first < len(rows):
        remaining = iter(rows[first:])
        try:
            guarded.execute_many(remaining)
            set_rowcount(guarded.context, len(rows))
            return
        except guarded.integrity_error as error:
            # sqlite3 takes a row from the iterator, executes it, and takes the next one: the last one taken has failed
            first = len(rows) - length_hint(remaining) - 1
            batch = Batch(guarded.context, [rows[first]], first)
            guarded.replace(batch, guarded.collided(batch, error))
            rows = [*rows[:first], *batch.for_driver(), *rows[first + 1 :]]


def _slices(guarded: GuardedInsert, rows: list[Row]) -> Iterator[tuple[int, list[Row]]]:
    """Yield *rows* in slices that the driver sends as one statement each, with the position of the first of each."""
    limit = guarded.traits.slice_bytes(guarded.dialect.driver) - len(guarded.statement)
    if not _PLAIN_ROW.search(guarded.statement):
        limit = 0  # the driver sends such rows one by one
    first = size = at = 0
    while at < len(rows):
        some = rows[at : at + _SOME]
        together = _size_together(some)
        if together is not None and size + together <= limit:
            size, at = size + together, at + len(some)
            continue
        for row in some:
            row_size = _size(row)
            if at > first and size + row_size > limit:
                yield first, rows[first:at]
                first, size = at, 0
            size, at = size + row_size, at + 1
    if first < at:
        yield first, rows[first:at]


def _size_together(rows: list[Row]) -> int | None:
    """Return how many bytes *rows* take at most, in a fifth of the time; None if they have values of other types."""
    values = list(chain.from_iterable(row.values() if isinstance(row, dict) else row for row in rows))
    kinds = set(map(type, values))
    if not kinds <= _SIMPLE:
        return None
    strings = values if kinds == {str} else [value for value in values if type(value) is str]
    text = "".join(strings)
    if not text.isascii():
        return None
    return 8 * len(rows) + 2 * len(text) + 4 * len(strings) + 48 * (len(values) - len(strings))


def _size(row: Row) -> int:
    size = 8
    for value in row.values() if isinstance(row, dict) else row:
        size += len(value) * 2 + 4 if type(value) is str and value.isascii() else _literal_size(value)
    return size


def _literal_size(value: object) -> int:
    """Return how many bytes *value* takes in a statement at most, escaped and quoted."""
    if isinstance(value, str):
        return len(value) * 4 + 4
    if isinstance(value, (bytes, bytearray, memoryview)):
        return 2 * len(value) + 12  # pyright: ignore[reportUnknownArgumentType]  # a memoryview of any type
    return 48 if isinstance(value, (int, float, type(None))) else len(str(value)) * 2 + 48
