"""Draw again for rows that share an id, when the unique index is about to be built."""

from __future__ import annotations

from sqlalchemy import Connection, func, or_, select, update

from sqlalchemy_public_id.backfill.keys import Rows
from sqlalchemy_public_id.online import Target
from sqlalchemy_public_id.types import stored

__all__ = ["draw_again"]


def draw_again(connection: Connection, target: Target) -> int:
    """Give other ids to all rows but the first of each group that shares one; how many there were.

    Before there is an index, nothing keeps two rows from drawing the same id. With the 62 bits of the default format,
    that is to be expected once in a table of three thousand million rows; with a shorter format, sooner.
    """
    rows = Rows(connection, target)
    column = rows.column
    shared = select(column).where(column.is_not(None)).group_by(column).having(func.count() > 1)
    again = 0
    for value in connection.execute(shared).scalars().all():
        keys = connection.execute(select(*rows.key).where(column == value).order_by(*rows.key)).all()
        for key in keys[1:]:
            differs = or_(*(part != value for part, value in zip(rows.key, key, strict=True)))
            other = stored(target.format, target.format.generate(), connection.dialect)
            connection.execute(update(rows.table).where(~differs, column == value).values({column: other}))
            again += 1
    return again
