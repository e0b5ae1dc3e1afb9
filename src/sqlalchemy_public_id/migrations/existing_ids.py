"""Ids that a column holds before it becomes unique: duplicates, and values that its format does not accept.

The database validates the ids. Python reads them only if the pattern of a format is not enough, as with a check digit.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

from sqlalchemy import ColumnElement, Select, String, and_, bindparam, cast, func, not_, select, update
from sqlalchemy.dialects.mysql import CHAR

from sqlalchemy_public_id.migrations.consent import Triggers
from sqlalchemy_public_id.migrations.rows import RowPosition, Rows
from sqlalchemy_public_id.migrations.session import updating
from sqlalchemy_public_id.types import IdColumnType

_WINDOW = 20_000
"""The number of rows that are read at once."""
_SECONDS_BETWEEN_REPORTS = 10.0

_PASSES_WITHOUT_PROGRESS = 20
"""How many passes in a row may replace ids without reducing the number of duplicates."""

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrations")


def count_duplicates(rows: Rows) -> tuple[int, list[Any]]:
    """Return the number of ids that several rows share which must differ in them, and up to three of these ids."""
    column = rows.column
    shared = select(column).where(column.is_not(None)).group_by(column, *rows.others).having(func.count() > 1)
    return _count(rows, shared)


def count_invalid(rows: Rows, *, sample: int | None = None) -> tuple[int, list[Any]]:
    """Return the number of values that the format does not accept, and up to three of them.

    :param sample: about how many rows are read, from the beginning of the table; all by default.
    """
    number, examples, left = 0, list[Any](), sample
    for part in rows.by_storage():
        found, shown, seen = _count_invalid(part, left)
        number, examples = number + found, [*examples, *shown][:3]
        if left is not None:
            left -= seen
            if left <= 0:
                break
    return number, examples


def _count_invalid(rows: Rows, sample: int | None) -> tuple[int, list[Any], int]:
    """Return the number of invalid ids in the *sample*, three of them, and about how many rows it has."""
    until, size = rows.last(), 0
    if until is not None and sample is not None:
        end = rows.end_of_window(None, until, sample)
        until, size = end or until, sample if end is not None else rows.count_rows() or 0
    if until is not None and _is_judged(rows):
        condition = and_(rows.between(None, until), _is_invalid(rows))
        return *_count(rows, select(rows.column).where(condition)), size
    number, examples = 0, list[Any]()
    for number, row in enumerate(_invalid_rows(rows, until), 1):
        if number <= 3:
            examples.append(row[0])
    return number, examples, size


def count_lost(rows: Rows) -> tuple[int, list[Any]]:
    """Return the number of values with non-ASCII characters, on MySQL or MariaDB, and up to three of them."""
    column = rows.column
    is_lost = func.length(cast(column, CHAR(charset="utf8mb4"))) > func.char_length(column)
    return _count(rows, select(column).where(is_lost))


def _count(rows: Rows, found: Select[Any]) -> tuple[int, list[Any]]:
    number = rows.connection.scalar(select(func.count()).select_from(found.subquery())) or 0
    return number, [*rows.connection.execute(found.limit(3)).scalars()] if number else []


# --- validating ids


def _is_judged(rows: Rows) -> bool:
    format = rows.target.format
    return format.is_native or format.has_exact_pattern


def _is_invalid(rows: Rows) -> ColumnElement[bool]:
    return and_(rows.column.is_not(None), not_(rows.is_well_formed()))


def _invalid_rows(rows: Rows, until: RowPosition | None) -> Iterator[Sequence[Any]]:
    """Yield the id, key and position of each row up to *until* whose id the format does not accept."""
    is_judged, canonical = _is_judged(rows), rows.target.format.canonical
    query = _select_rows(rows).where(_is_invalid(rows) if is_judged else rows.column.is_not(None))
    after, windows, reported = None, 0, time.monotonic()
    while until is not None and after != until:
        end = rows.end_of_window(after, until, _WINDOW) or until
        for row in rows.connection.execute(query.where(rows.between(after, end))):
            if is_judged or canonical(row[0]) != row[0]:  # no lookup finds another spelling
                yield row
        after, windows = end, windows + 1
        if time.monotonic() - reported >= _SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            log.info("%s: about %d ids are checked", rows.target, windows * rows.count_window(_WINDOW))


# --- replacing ids


def replace_invalid(rows: Rows, triggers: Triggers) -> int:
    """Replace the ids that the format does not accept, and return how many were replaced.

    :param triggers: "skip" skips the triggers that an UPDATE fires.
    """
    return sum(_replace_all(part, [*_invalid_rows(part, part.last())], triggers) for part in rows.by_storage())


def replace_duplicates(rows: Rows, triggers: Triggers) -> int:
    """Replace the id of every row but the first in each group that shares one, and return how many were replaced.

    :param triggers: "skip" skips the triggers that an UPDATE fires.

    Before the unique index exists, nothing prevents two rows from getting the same id. With the 62 bits of the default
    format, that is likely in a table of three billion rows; with a shorter format, in a smaller table.
    """
    # rows with equal ids that must differ are in one partition, because the unique index contains its key
    return sum(_replace_duplicates(part, triggers) for part in rows.by_storage())


def _replace_duplicates(rows: Rows, triggers: Triggers) -> int:
    replaced, left, without_progress = 0, math.inf, 0
    while without_progress < _PASSES_WITHOUT_PROGRESS:
        repetitions = rows.connection.execute(_repetitions(rows)).all()
        if not repetitions:
            break
        # new ids may be taken, too: if few ids of the format are free, it takes many passes, each over fewer rows
        without_progress = 0 if len(repetitions) < left else without_progress + 1
        left = min(left, len(repetitions))
        replaced += _replace_all(rows, repetitions, triggers)
    return replaced


def _select_rows(rows: Rows) -> Select[Any]:
    """Return a SELECT of the id of each row, its key as one string, and its position."""
    first, *others = (cast(part, String) for part in rows.key)
    key: ColumnElement[str] = reduce(lambda before, part: before + ", " + part, others, first)
    return select(rows.column, key.label("public_id_row")).add_columns(*rows.position)


def _repetitions(rows: Rows) -> Select[Any]:
    """Return the SELECT of :func:`_select_rows` for each row whose id also belongs to a row with a smaller key."""
    shared = select(rows.compared).group_by(rows.compared).having(func.count() > 1)
    position = (
        func.row_number().over(partition_by=[rows.column, *rows.others], order_by=rows.key).label("public_id_position")
    )
    numbered = (
        _select_rows(rows).add_columns(position).where(rows.column.is_not(None), rows.compared.in_(shared)).subquery()
    )
    *values, number = numbered.columns
    return select(*values).where(number > 1)


def _replace_all(rows: Rows, found: Sequence[Sequence[Any]], triggers: Triggers) -> int:
    if not found:
        return 0
    with updating(rows.live, triggers):
        return sum(_replace(rows, *row) for row in found)


def _replace(rows: Rows, old: Any, key: str, *position: Any) -> int:
    target, id = rows.target, rows.target.format.generate()
    new = bindparam(None, id, type_=IdColumnType(target.format))
    same_row = and_(rows.at(position), rows.has_id(old))
    statement = update(rows.table).where(same_row).values({rows.column: new, **rows.kept})
    changed = rows.connection.execute(statement).rowcount
    if changed:
        log.warning("%s: the row %s had %r, and has %r now", target, key, old, id)
    return changed
