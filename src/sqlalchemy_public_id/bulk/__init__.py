"""Insert many objects at once and fill in their keys, public ids and defaults, on every database.

>>> from sqlalchemy_public_id import bulk
>>> users = [User(name=name) for name in ("Ada", "Grace", "Edsger")]
>>> bulk.insert(session, users)
>>> all(user.id and user.public_id for user in users)
True

To insert more objects than fit into memory, pass a generator:

>>> bulk.insert_many(session, (User(name=f"number {number}") for number in range(10_000)), batch=2_000)
10000

PostgreSQL receives one array per column, and returns the keys with the public ids. On other databases, rows are sent
without RETURNING, and keys are read back by public id: only the first and the last key, if exactly these rows fit
between them, and otherwise all keys. Objects that need the unit of work (of several models, with relationships set, SQL
expressions as values or attributes, joined-table inheritance, listeners to their INSERTs) are flushed instead; on
PostgreSQL, so are objects with values other than strings, numbers, dates, times, booleans and UUIDs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from inspect import iscoroutinefunction
from itertools import islice

from sqlalchemy.orm import Session

from sqlalchemy_public_id.bulk.objects import insert, iterator_of
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import session_of

__all__ = ["insert", "insert_many"]

BATCH = 5_000
"""The default number of objects in a batch."""


def insert_many(
    session: Session,
    objects: Iterable[object],
    *,
    batch: int = BATCH,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Insert *objects* in batches of *batch*, and return their number.

    Each batch is inserted as by :func:`insert`, in the caller's transaction. The session keeps weak references, so an
    object that nothing else refers to is freed before the next batch is taken from *objects*.

    An exception has a note with the number of objects inserted so far. If *objects* raises it, or yields something that
    is not a mapped object, earlier batches stay in the transaction. If the database refuses a batch, the transaction is
    rolled back, as in a flush.

    :param progress: called after each batch, with the number of objects inserted so far. It may commit.
    """
    session = session_of(session)
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise ValueError(f"batch is {safe_repr(batch)}, expected a whole number of 1 or more")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is {safe_repr(progress)}, expected a function of the number of objects so far")
    if iscoroutinefunction(progress):
        raise TypeError("progress is an async function; use sqlalchemy_public_id.asyncio.bulk.insert_many()")
    iterator, inserted = iterator_of(objects), 0
    while True:
        with _noting(inserted):
            taken = list(islice(iterator, batch))
        if not taken:
            return inserted
        with _noting(inserted, f", and these of the batch were not: {inserted + 1} to {inserted + len(taken)}"):
            insert(session, taken)
        inserted += len(taken)
        del taken  # free these objects before the next ones are taken
        if progress is not None:
            progress(inserted)


@contextmanager
def _noting(inserted: int, more: str = "") -> Generator[None]:
    """Add a note with the number of inserted objects to an exception."""
    try:
        yield
    except Exception as error:
        note = f"bulk.insert_many(): {inserted} objects were inserted before{more}"
        if sys.version_info >= (3, 11):
            error.add_note(note)
        else:  # where tools look for notes on Python 3.10
            vars(error)["__notes__"] = [*vars(error).get("__notes__", ()), note]
        raise
