"""Ids that a column holds before it becomes unique: duplicates, and values that its format does not accept.

The database judges them. Only ids of formats whose pattern is not enough, such as those with a check digit, are read.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import reduce
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    String,
    Text,
    and_,
    bindparam,
    case,
    cast,
    false,
    func,
    not_,
    select,
    update,
)
from sqlalchemy.dialects.mysql import CHAR

from sqlalchemy_public_id.backfill.rows import Rows, rows_of
from sqlalchemy_public_id.backfill.triggers import transaction_without_triggers
from sqlalchemy_public_id.formats import NanoId
from sqlalchemy_public_id.formats.alphabets import character_class
from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.catalog import Triggers
from sqlalchemy_public_id.types import IdColumnType, as_bits_format

_WINDOW = 20_000
"""The number of rows that are read at once."""
_SECONDS_BETWEEN_REPORTS = 10.0

_PASSES_WITHOUT_PROGRESS = 20
"""The number of times in a row that replacing may leave as many duplicates as before."""

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrating")


def count_duplicates(connection: Connection, target: PublicIdColumn) -> tuple[int, list[Any]]:
    """Return the number of ids that rows share, and up to three of them."""
    column = rows_of(connection, target).column
    shared = select(column).where(column.is_not(None)).group_by(column).having(func.count() > 1)
    return _count(connection, shared)


def count_invalid(connection: Connection, target: PublicIdColumn) -> tuple[int, list[Any]]:
    """Return the number of values that the format does not accept, and up to three of them."""
    rows = rows_of(connection, target)
    if _is_judged(rows):
        return _count(connection, select(rows.column).where(_is_invalid(connection, rows)))
    number, examples = 0, list[Any]()
    for number, row in enumerate(_invalid_rows(connection, rows), 1):
        if number <= 3:
            examples.append(row[0])
    return number, examples


def count_lost(connection: Connection, target: PublicIdColumn) -> tuple[int, list[Any]]:
    """Return the number of values of MySQL or MariaDB with other characters than ASCII, and up to three of them."""
    column = rows_of(connection, target).column
    is_lost = func.length(cast(column, CHAR(charset="utf8mb4"))) > func.char_length(column)
    return _count(connection, select(column).where(is_lost))


def _count(connection: Connection, found: Select[Any]) -> tuple[int, list[Any]]:
    number = connection.scalar(select(func.count()).select_from(found.subquery())) or 0
    return number, [*connection.execute(found.limit(3)).scalars()] if number else []


# --- judging ids


def _is_judged(rows: Rows) -> bool:
    format = rows.target.format
    return format.is_native or format.has_exact_pattern


def _is_invalid(connection: Connection, rows: Rows) -> ColumnElement[bool]:
    return and_(rows.column.is_not(None), not_(_is_well_formed(connection.dialect.name, rows)))


def _is_well_formed(dialect: str, rows: Rows) -> ColumnElement[bool]:
    """Return the condition that the value of a row matches the pattern of the format."""
    format, column = rows.target.format, rows.column
    if format.is_native:
        number = as_bits_format(format)
        if number.bits == 64:
            return column >= 0
        digits = func.lower(func.hex(column))
        if dialect == "postgresql":
            digits = func.encode(column, "hex") if number.bits == 96 else func.replace(cast(column, Text), "-", "")
        return digits.regexp_match(number.hex_pattern)
    if dialect == "postgresql":
        text = cast(column, Text).collate("C")
        if not isinstance(format, NanoId) or len(format.forms) > 1:
            return text.regexp_match(format.pattern)
        # a search for other characters takes a quarter of the time
        lead = "" if format.prefix is None else format.prefix + format.separator
        others = f"[^{character_class(format.alphabet)[1:]}"
        body = func.substr(text, len(lead) + 1) if lead else text
        is_id = and_(func.length(text) == format.max_length, not_(body.regexp_match(others)))
        return and_(text.startswith(lead, autoescape=True), is_id) if lead else is_id
    # elsewhere, "$" matches before a newline, too
    lengths = [form.max_length for form in format.forms]
    if dialect == "sqlite":
        is_id = and_(func.length(column).in_(lengths), column.regexp_match(format.pattern))
        return case((func.typeof(column) == "text", is_id), else_=false())
    text = cast(column, CHAR(charset="utf8mb4")).collate("utf8mb4_bin")  # other collations ignore case
    return and_(func.char_length(text).in_(lengths), text.regexp_match(format.pattern))


def _invalid_rows(connection: Connection, rows: Rows) -> Iterator[Sequence[Any]]:
    """Yield id, key and place of each row whose id the format does not accept. Reads the whole table."""
    is_judged, is_valid = _is_judged(rows), rows.target.format.is_valid
    query = _select_rows(rows).where(_is_invalid(connection, rows) if is_judged else rows.column.is_not(None))
    until, after, windows, reported = rows.last(connection), None, 0, time.monotonic()
    while until is not None and after != until:
        end = rows.end_of_window(connection, after, until, _WINDOW) or until
        for row in connection.execute(query.where(rows.between(after, end))):
            if is_judged or not is_valid(row[0]):
                yield row
        after, windows = end, windows + 1
        if time.monotonic() - reported >= _SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            log.info("%s: about %d ids are checked", rows.target, windows * rows.count_window(_WINDOW))


# --- replacing ids


def replace_invalid(connection: Connection, target: PublicIdColumn, triggers: Triggers) -> int:
    """Replace the ids that the format does not accept, and return how many there were.

    :param triggers: "skip" leaves out those that an UPDATE fires.
    """
    rows = rows_of(connection, target)
    return _replace_all(connection, rows, [*_invalid_rows(connection, rows)], triggers)


def replace_duplicates(connection: Connection, target: PublicIdColumn, triggers: Triggers) -> int:
    """Replace the ids of all rows but the first of each group that shares one, and return how many there were.

    :param triggers: "skip" leaves out those that an UPDATE fires.

    Before the unique index exists, nothing prevents two rows from getting the same id. With the 62 bits of the default
    format, that is likely in a table of three thousand million rows; with a shorter format, sooner.
    """
    rows = rows_of(connection, target)
    replaced, left, without_progress = 0, math.inf, 0
    while without_progress < _PASSES_WITHOUT_PROGRESS:
        repetitions = connection.execute(_repetitions(rows)).all()
        if not repetitions:
            break
        # new ids may be taken as well; a space that is nearly full needs many passes, each with fewer rows
        without_progress = 0 if len(repetitions) < left else without_progress + 1
        left = min(left, len(repetitions))
        replaced += _replace_all(connection, rows, repetitions, triggers)
    return replaced


def _select_rows(rows: Rows) -> Select[Any]:
    """Return the SELECT of the id, the key as one text, and the place of each row."""
    first, *others = (cast(part, String) for part in rows.key)
    key: ColumnElement[str] = reduce(lambda before, part: before + ", " + part, others, first)
    return select(rows.column, key.label("public_id_row")).add_columns(*rows.place)


def _repetitions(rows: Rows) -> Select[Any]:
    """Return that SELECT for each row whose id a row with a smaller key has."""
    shared = select(rows.column).group_by(rows.column).having(func.count() > 1)
    position = func.row_number().over(partition_by=rows.column, order_by=rows.key).label("public_id_position")
    numbered = (
        _select_rows(rows).add_columns(position).where(rows.column.is_not(None), rows.column.in_(shared)).subquery()
    )
    *values, place = numbered.columns
    return select(*values).where(place > 1)


def _replace_all(connection: Connection, rows: Rows, found: Sequence[Sequence[Any]], triggers: Triggers) -> int:
    is_skipped = triggers == "skip" and bool(found)
    with transaction_without_triggers(connection, rows.target) if is_skipped else nullcontext():
        return sum(_replace(connection, rows, *row) for row in found)


def _replace(connection: Connection, rows: Rows, old: Any, key: str, *place: Any) -> int:
    target, id = rows.target, rows.target.format.generate()
    new = bindparam(None, id, type_=IdColumnType(target.format))
    same_row = and_(rows.at(place), rows.column == old)
    changed = connection.execute(update(rows.table).where(same_row).values({rows.column: new, **rows.kept})).rowcount
    if changed:
        log.warning("%s: the row %s had %r, and has %r now", target, key, old, id)
    return changed
