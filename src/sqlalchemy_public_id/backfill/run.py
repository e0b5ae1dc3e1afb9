"""The backfill itself: window after window, batch after batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from sqlalchemy_public_id.backfill import sessions
from sqlalchemy_public_id.backfill.keys import Key, Rows
from sqlalchemy_public_id.backfill.writing import Window, window_for
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdCollision
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.online import Target
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import MAX_RETRIES

__all__ = ["Progress", "run"]

WINDOW = 20_000
"""How many neighbouring rows a process takes for itself."""
_FIRST, _SMALLEST, _LARGEST = 1_000, 50, 10_000
"""Rows in a batch: in the first one, at least, at most."""
_SWEEPS = 5
"""How often the table is gone through again for rows that were busy, or new."""


@dataclass(frozen=True)
class Progress:
    """How far a backfill is."""

    table: str
    filled: int = 0
    """How many rows have got an id."""
    seen: int = 0
    """How many rows were gone past, those that had one already included."""
    total: int | None = None
    """How many rows there are, as the database estimates it."""
    seconds: float = 0.0
    batch: int = _FIRST
    """How many rows the next batch will have."""
    finished: bool = False
    """Whether no row is left without an id."""

    @property
    def rate(self) -> float:
        """Rows filled per second."""
        return self.filled / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> int | None:
        """About how many rows are still to be looked at."""
        if self.finished:
            return 0
        return None if self.total is None else max(0, self.total - self.seen)


def run(
    bind: Engine | Connection,
    table: str,
    column: str = "public_id",
    *,
    format: Format | type[TypedId] | None = None,
    schema: str | None = None,
    seconds: float = 0.5,
    pause: float = 0.1,
    wait_while: Callable[[Connection], bool] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Progress:
    """Give an id of *format* to each row of *table* whose *column* is NULL.

    A batch is one statement and one transaction, of about as many rows as take *seconds*; after it, the table rests for
    *pause* times as long. *wait_while* is asked before each batch, and the backfill waits as long as it answers true:
    for the lag of a replica, or the load of the server. *should_stop* ends it between two batches.

    Rows that are inserted later are not its business: the database-side default, or the program, gives them an id. With
    a :class:`~sqlalchemy.Connection` that is inside a transaction, everything happens in that transaction.

    :raises ConfigurationError: where there is no such table or column, or no primary key.
    :raises PublicIdCollision: where the unique index is there already, and no free id is found.
    """
    if seconds <= 0 or pause < 0:
        raise ConfigurationError(f"seconds={seconds!r}, pause={pause!r} cannot work: expected times above 0")
    target = Target.of(table, column, format=format, schema=schema)
    connected = bind.connect() if isinstance(bind, Engine) else nullcontext(bind)
    with connected as connection:
        if isinstance(bind, Engine):
            connection.execution_options(isolation_level="AUTOCOMMIT")
        with sessions.patient(connection):
            work = _Backfill(connection, target, seconds, pause)
            work.wait_while, work.on_progress, work.should_stop = wait_while, on_progress, should_stop
            return work.run()


class _Stopped(Exception):
    """The caller wants no more batches."""


class _Backfill:
    def __init__(self, connection: Connection, target: Target, seconds: float, pause: float) -> None:
        self.connection = connection
        self.target = target
        self.rows = Rows(connection, target)
        self.traits = traits_for(connection.dialect)
        self.seconds = seconds
        self.pause = pause
        self.wait_while: Callable[[Connection], bool] | None = None
        self.on_progress: Callable[[Progress], None] | None = None
        self.should_stop: Callable[[], bool] | None = None
        self.began = time.monotonic()
        self.progress = Progress(target.table, total=sessions.estimated_rows(connection, self.rows.table))

    def run(self) -> Progress:
        try:
            until, sweeps = self.rows.last(self.connection), 0
            while until is not None and sweeps < _SWEEPS:
                if not self._sweep(until):
                    sweeps += 1  # while others are at work, there is no end to it
                until = self.rows.last(self.connection, missing=True)
                if until is not None:
                    self._wait()
                    time.sleep(min(1.0, 0.1 * 2**sweeps))  # others may be about to commit
            self._tell(replace(self.progress, finished=until is None))
        except _Stopped:
            pass
        return self.progress

    def _sweep(self, until: Key) -> bool:
        """Fill all windows up to *until*, but for those that another process has; say whether there were any."""
        after: Key | None = None
        others = False
        for number in count():
            end = self.rows.end_of_window(self.connection, after, until, WINDOW)
            with sessions.claimed(self.connection, self.target, after) as ours:
                if ours:
                    self._window(after, end or until)
                others = others or not ours
            self.progress = replace(self.progress, seen=max(self.progress.seen, (number + 1) * WINDOW))
            if end is None or end == until:
                break
            after = end
        return others

    def _window(self, after: Key | None, until: Key) -> None:
        window = window_for(self.connection, self.rows, after, until)
        filled: int | None = 0
        while filled is not None:
            self._wait()
            began = time.monotonic()
            filled = self._batch(window)
            took = time.monotonic() - began
            if filled:
                factor = min(2.0, max(0.5, self.seconds / max(took, 1e-4)))
                size = min(_LARGEST, max(_SMALLEST, int(self.progress.batch * factor)))
                self._tell(replace(self.progress, filled=self.progress.filled + filled, batch=size))
                time.sleep(took * self.pause)

    def _batch(self, window: Window) -> int | None:
        """Fill the next rows of *window*. Where an id is taken, and all of them fail, try with fewer rows."""
        size, failures = self.progress.batch, 0
        while True:
            try:
                with self._savepoint():
                    return window.fill(self.target.format.generate_many(size))
            except IntegrityError as error:
                if not isinstance(error.orig, Exception) or self.traits.violation(error.orig) is None:
                    raise  # something else is wrong with the rows
                failures += 1
                if size > 1:
                    size = size if failures == 1 else size // 2
                elif failures > MAX_RETRIES:
                    raise self._full() from None
            except DBAPIError as error:
                if not sessions.is_busy(error):
                    raise
                window.skip(size)  # the next sweep comes back to them
                return 0

    def _full(self) -> PublicIdCollision:
        format = self.target.format
        return PublicIdCollision(
            model=self.target.table,
            column=self.target.column,
            format=format,
            attempts=MAX_RETRIES,
            capacity=format.capacity,
        )

    @contextmanager
    def _savepoint(self) -> Generator[None]:
        """Inside the caller's transaction, keep it usable where a failed statement would abort it."""
        if sessions.commits_by_itself(self.connection):
            with sessions.atomic(self.connection):
                yield
            return
        with self.connection.begin_nested():
            yield

    def _wait(self) -> None:
        while True:
            if self.should_stop is not None and self.should_stop():
                raise _Stopped
            if self.wait_while is None or not self.wait_while(self.connection):
                return
            time.sleep(1.0)

    def _tell(self, progress: Progress) -> None:
        self.progress = replace(progress, seconds=time.monotonic() - self.began)
        if self.on_progress is not None:
            self.on_progress(self.progress)
