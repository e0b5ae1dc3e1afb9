"""Insert the objects of an iterable batch by batch, in constant memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from itertools import islice

from sqlalchemy.orm import Session

from sqlalchemy_public_id.bulk.objects import insert, iterator_of
from sqlalchemy_public_id.errors import safe_repr
from sqlalchemy_public_id.orm.inspection import session_of

BATCH = 5_000
"""The number of objects that are inserted at a time, unless the caller gives another one."""


def insert_many(
    session: Session,
    objects: Iterable[object],
    *,
    batch: int = BATCH,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Insert *objects*, *batch* of them at a time. Return their number.

    Each batch is inserted as by :func:`insert`, in the transaction of the caller. The session keeps weak references, so
    an object that nothing else refers to is freed before the next batch is taken from *objects*.

    An exception has a note with the number of objects that were inserted before. If *objects* raises it, or has
    something that is not a mapped object, earlier batches stay in the transaction. If the database refuses a batch,
    the transaction is rolled back, as by a flush.

    :param progress: called after each batch, with the number of objects so far. It may commit.
    """
    session = session_of(session)
    batches = Batches(batch, progress)
    if iscoroutinefunction(progress):
        raise TypeError("progress is an async function: sqlalchemy_public_id.asyncio.bulk.insert_many() awaits it")
    iterator = iterator_of(objects)
    while batches.insert_next(session, iterator):
        batches.report()
    return batches.inserted


class Batches:
    """One call of :func:`insert_many`, or of its asynchronous twin."""

    def __init__(self, size: int, progress: Callable[[int], object] | None) -> None:
        """Check both."""
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"batch is {safe_repr(size)}, expected a whole number from 1")
        if progress is not None and not callable(progress):
            raise TypeError(f"progress is {safe_repr(progress)}, expected a function of the number of objects so far")
        self.size: int = size
        self.progress: Callable[[int], object] | None = progress
        self.inserted: int = 0
        """The number of objects in the batches before."""

    def insert_next(self, session: Session, objects: Iterator[object]) -> bool:
        """Insert the next batch. Return False if there was no object left."""
        with self.noting():
            taken = list(islice(objects, self.size))
        self.insert(session, taken)
        return bool(taken)

    def insert(self, session: Session, taken: list[object]) -> None:
        """Insert the objects of one batch."""
        with self.noting(f", and these of the batch were not: {self.inserted + 1} to {self.inserted + len(taken)}"):
            insert(session, taken)
        self.inserted += len(taken)

    def report(self) -> object:
        """Call the function of the caller; an asynchronous one returns what is to be awaited."""
        return None if self.progress is None else self.progress(self.inserted)

    @contextmanager
    def noting(self, more: str = "") -> Generator[None]:
        """Note the number of objects on an exception."""
        try:
            yield
        except Exception as error:
            _add_note(error, f"bulk.insert_many(): {self.inserted} objects were inserted before{more}")
            raise


def _add_note(error: Exception, note: str) -> None:
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:  # where other programs look for notes
        vars(error)["__notes__"] = [*vars(error).get("__notes__", ()), note]
