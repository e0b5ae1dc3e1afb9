"""Ids that a column holds before it becomes unique: duplicates, and strings that its format does not accept."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from sqlalchemy import Connection, Executable, and_, func, select, update

from sqlalchemy_public_id.backfill.rows import Key, Rows
from sqlalchemy_public_id.backfill.triggers import Triggers, transaction_without_triggers
from sqlalchemy_public_id.errors import InvalidPublicId
from sqlalchemy_public_id.online import PublicIdColumn
from sqlalchemy_public_id.types import IdColumnType, to_database

_WINDOW = 20_000
"""The number of rows that are read at once."""

_PASSES_WITHOUT_PROGRESS = 20
"""The number of times in a row that replacing may leave as many duplicates as before."""

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.online")


def count_duplicates(connection: Connection, target: PublicIdColumn) -> tuple[int, list[str]]:
    """Return the number of ids that rows share, and up to three of them."""
    column = Rows(connection, target).column
    shared = select(column).where(column.is_not(None)).group_by(column).having(func.count() > 1)
    number = connection.scalar(select(func.count()).select_from(shared.subquery())) or 0
    return number, [str(value) for value in connection.execute(shared.limit(3)).scalars()] if number else []


def replace_duplicates(connection: Connection, target: PublicIdColumn, triggers: Triggers) -> int:
    """Replace the ids of all rows but the first of each group that shares one, and return how many there were.

    :param triggers: "skip" leaves out those that an UPDATE fires.

    Before the unique index exists, nothing prevents two rows from getting the same id. With the 62 bits of the default
    format, that is likely in a table of three thousand million rows; with a shorter format, sooner.
    """
    rows = Rows(connection, target)
    replaced, left, without_progress = 0, math.inf, 0
    while without_progress < _PASSES_WITHOUT_PROGRESS:
        repetitions = connection.execute(_repetitions(rows)).all()
        if not repetitions:
            break
        # new ids may be taken as well; a space that is nearly full needs many passes, each with fewer rows
        without_progress = 0 if len(repetitions) < left else without_progress + 1
        left = min(left, len(repetitions))
        replaced += _replace_all(connection, rows, [(tuple(key), value) for value, *key in repetitions], triggers)
    return replaced


def _repetitions(rows: Rows) -> Executable:
    """Build the SELECT of id and key of each row whose id a row with a smaller key has."""
    shared = select(rows.column).group_by(rows.column).having(func.count() > 1)
    position = func.row_number().over(partition_by=rows.column, order_by=rows.key).label("position")
    numbered = (
        select(rows.column, *rows.key, position).where(rows.column.is_not(None), rows.column.in_(shared)).subquery()
    )
    *values, place = numbered.columns
    return select(*values).where(place > 1)


def invalid_ids(connection: Connection, target: PublicIdColumn) -> Iterator[tuple[Key, Any]]:
    """Yield key and id of each row whose id the format does not accept. Reads the whole table."""
    rows = Rows(connection, target)
    read = IdColumnType(target.format).dialect_impl(connection.dialect).result_processor(connection.dialect, None)
    until, after = rows.last(connection), None
    while until is not None and after != until:
        end = rows.end_of_window(connection, after, until, _WINDOW) or until
        query = select(rows.column, *rows.key).where(rows.between(after, end), rows.column.is_not(None))
        for value, *key in connection.execute(query):
            if not _is_valid(target, read, value):
                yield tuple(key), value
        after = end


def _is_valid(target: PublicIdColumn, read: Callable[[Any], Any] | None, value: Any) -> bool:
    try:
        return target.format.is_valid(value if read is None else read(value))
    except InvalidPublicId:
        return False


def replace_invalid(connection: Connection, target: PublicIdColumn, triggers: Triggers) -> int:
    """Replace the ids that the format does not accept, and return how many there were.

    :param triggers: "skip" leaves out those that an UPDATE fires.
    """
    return _replace_all(connection, Rows(connection, target), [*invalid_ids(connection, target)], triggers)


def _replace_all(connection: Connection, rows: Rows, old: list[tuple[Key, Any]], triggers: Triggers) -> int:
    is_skipped = triggers == "skip" and bool(old)
    with transaction_without_triggers(connection, rows.target) if is_skipped else nullcontext():
        return sum(_replace(connection, rows, key, value) for key, value in old)


def _replace(connection: Connection, rows: Rows, key: Key, old: Any) -> int:
    target = rows.target
    same_row = and_(*(part == value for part, value in zip(rows.key, key, strict=True)))
    id = target.format.generate()
    new: dict[Any, Any] = {rows.column: to_database(target.format, id, connection.dialect), **rows.kept}
    changed = connection.execute(update(rows.table).where(same_row, rows.column == old).values(new)).rowcount
    if changed:
        log.warning("%s: the row %s had %r, and has %r now", target, ", ".join(map(str, key)), old, id)
    return changed
