"""One lease: a transaction of its own that moves a counter, in one statement where the database can.

* **PostgreSQL, SQLite** and others with it: ``UPDATE … RETURNING``. On PostgreSQL without BEGIN and COMMIT around it,
  so that it is one round trip.
* **MySQL, MariaDB** have none for an UPDATE. ``LAST_INSERT_ID(next)`` gives the old value back with the answer to the
  UPDATE; together with COMMIT two round trips. SELECT … FOR UPDATE would be one more, while the row is locked.
* **Others**: SELECT, and an UPDATE of the row as it was seen; again, if another one was faster.

The numbers exist for the caller only once the transaction has ended well: where the outcome is unknown, they are lost.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, Dialect, Table, Update, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from sqlalchemy_public_id.errors import KeySpaceExhausted
from sqlalchemy_public_id.keys.blocks.table import END

__all__ = ["Mover", "compared", "lease", "mover_for", "remembered", "returned"]

Mover = Callable[[Connection, Table, str, int], "int | None"]
"""Moves a counter on by a count; answers where it was before, or ``None`` where it could not, or was too late."""

_NAME, _COUNT = "name_", "count_"  # not the names of the columns: an UPDATE would take them for new values


def lease(connection: Connection, table: Table, name: str, count: int, *, start: int, move: Mover) -> range:
    """The next *count* numbers of the sequence *name*, or those that are left. Its row is made if need be.

    :param connection: one that is in no transaction.
    :raises KeySpaceExhausted: where none is left.
    """
    if connection.dialect.name == "postgresql":
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
    while True:
        with connection.begin():
            first = move(connection, table, name, count)
        if first is not None:
            return range(first, first + count)
        with connection.begin():
            now = connection.scalar(select(table.c.next).where(table.c.name == name))
        if now is None:
            _begin(connection, table, name, start)
        elif now >= END:
            raise KeySpaceExhausted(
                f"the sequence {name!r} has issued its last key: its counter in {table.fullname} is at {now}, and a "
                f"BIGINT holds no more; begin another sequence"
            )
        else:
            count = min(count, END - now)


def _begin(connection: Connection, table: Table, name: str, start: int) -> None:
    """Make the row of a sequence. Whoever comes second finds it."""
    try:
        with connection.begin():
            connection.execute(insert(table).values(name=name, next=start))
    except IntegrityError:
        with connection.begin():
            if connection.scalar(select(table.c.next).where(table.c.name == name)) is None:
                raise


def mover_for(dialect: Dialect) -> Mover:
    """The best way that *dialect* has to move a counter."""
    if dialect.name in {"mysql", "mariadb"}:
        return remembered
    return returned if dialect.update_returning else compared


def returned(connection: Connection, table: Table, name: str, count: int) -> int | None:
    """By ``UPDATE … RETURNING``."""
    moved = _moved(table).values(next=table.c.next + bindparam(_COUNT)).returning(table.c.next)
    after = connection.scalars(moved, {_NAME: name, _COUNT: count}).one_or_none()
    return None if after is None else after - count


def remembered(connection: Connection, table: Table, name: str, count: int) -> int | None:
    """By ``LAST_INSERT_ID(next)``, which the server sends back as if a row had been inserted."""
    moved = _moved(table).values(next=func.last_insert_id(table.c.next) + bindparam(_COUNT))
    result = connection.execute(moved, {_NAME: name, _COUNT: count})
    return int(result.lastrowid) if result.rowcount else None


def compared(connection: Connection, table: Table, name: str, count: int) -> int | None:
    """By a SELECT, and an UPDATE that finds the row only as it was seen."""
    seen = connection.scalar(select(table.c.next).where(table.c.name == name))
    if seen is None or seen > END - count:
        return None
    unchanged = update(table).where(table.c.name == name, table.c.next == seen)
    moved = connection.execute(unchanged.values(next=seen + count)).rowcount
    return int(seen) if moved else None


def _moved(table: Table) -> Update:
    return update(table).where(table.c.name == bindparam(_NAME), table.c.next <= END - bindparam(_COUNT))
