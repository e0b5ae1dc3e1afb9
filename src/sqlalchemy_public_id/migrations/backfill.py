"""Fill in missing public ids in short batches, in one or several processes."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import count

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from sqlalchemy_public_id.columns import MAX_RETRIES
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import MigrationRefused, PublicIdCollision
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations import Pace, PublicIdColumn, Triggers
from sqlalchemy_public_id.migrations.databases import database_of, live_table, rows_of
from sqlalchemy_public_id.migrations.obstacles import obstacles_of_read_only, obstacles_of_triggers
from sqlalchemy_public_id.migrations.rows import RowPosition, Rows, Window
from sqlalchemy_public_id.migrations.session import updating
from sqlalchemy_public_id.migrations.steps import can_be_retried
from sqlalchemy_public_id.typed import TypedId

WINDOW = 20_000
"""The number of neighboring rows that a process claims."""
_FIRST, _SMALLEST, _LARGEST = 1_000, 50, 10_000
"""The number of rows in the first batch, in the smallest and in the largest."""
_SWEEPS, _INTERRUPTED_SWEEPS = 5, 100
"""How often the table is read again: for rows that were locked or are new, and after conflicts."""

_WITHOUT_CLAIM = 120.0
"""The seconds after which a process ends if others have claimed all rows that are left."""

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.backfill")


@dataclass(frozen=True)
class Progress:
    """How far a backfill has come."""

    table: str
    filled: int = 0
    """The number of rows that got an id."""
    seen: int = 0
    """The number of rows that were read, including rows that already had an id."""
    total: int | None = None
    """The number of rows in the table, as the database estimates it; ``None`` if it has no estimate."""
    seconds: float = 0.0
    batch: int = _FIRST
    """The number of rows of the next batch."""
    finished: bool = False
    """``True`` if every row has an id."""

    @property
    def rate(self) -> float:
        """Rows filled per second."""
        return self.filled / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> int | None:
        """About how many rows remain to be read; ``None`` if the size of the table is unknown."""
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
    batch_seconds: float = 0.5,
    pause: float = 0.1,
    wait_while: Callable[[Connection], bool] | None = None,
    update_triggers: Triggers = "refuse",
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Progress:
    """Generate an id of *format* for each row of *table* whose *column* is NULL, and return the final progress.

    The server default or the application sets the ids of rows that are inserted meanwhile. If *bind* is a
    :class:`~sqlalchemy.Connection` inside a transaction, all batches run in that transaction.

    :param format: the format of the ids; ``NanoId()`` by default.
    :param batch_seconds: about how many seconds a batch takes. A batch is one statement and one transaction.
    :param pause: how long to pause after a batch, as a multiple of its duration.
    :param wait_while: called before each batch with the connection. The backfill waits while it returns ``True``, for
        example because a replica lags behind (:class:`MaxLag`) or the server is busy (:class:`MaxLoad`).
    :param update_triggers: what to do if the UPDATE would fire triggers of the table: ``"refuse"``, ``"fire"`` them, or
        ``"skip"`` them. PostgreSQL can skip them for a superuser, or for a role that may set
        ``session_replication_role``. SQLite drops them and creates them again inside each batch. MySQL and MariaDB
        cannot skip them. Columns with ``ON UPDATE CURRENT_TIMESTAMP`` always keep their values.
    :param on_progress: called after each batch.
    :param should_stop: called before each batch. The backfill ends if it returns ``True``.
    :raises ConfigurationError: if there is no such table or column, or if MySQL or MariaDB cannot tell its rows apart.
    :raises MigrationRefused: if triggers would fire and *update_triggers* does not allow it, or if row-level security
        hides rows. Nothing was changed.
    :raises PublicIdCollision: if the unique index exists already, and no free id is found.
    """
    pace = Pace(batch_seconds, pause, wait_while)
    target = PublicIdColumn.of(table, column, format=format, schema=schema)
    connected = bind.connect() if isinstance(bind, Engine) else nullcontext(bind)
    with connected as connection:
        if isinstance(bind, Engine):
            connection.execution_options(isolation_level="AUTOCOMMIT")
        session = database_of(connection.dialect).session(connection)
        with session.settings(), session.batches():
            live = live_table(connection, target)
            rows = rows_of(live)
            hidden = (live.obstacle_of_a_temporary_table(), live.obstacle_of_hidden_rows())
            why_not = [*obstacles_of_read_only(session.read_only), *filter(None, hidden)]
            obstacles = why_not or [*obstacles_of_triggers(live, live.update_triggers(), update_triggers)]
            if why_not or (obstacles and rows.has_missing()):
                raise MigrationRefused(target=target, obstacles=obstacles)
            return fill_rows(rows, pace, update_triggers, on_progress, should_stop)


def fill_rows(
    rows: Rows,
    pace: Pace,
    update_triggers: Triggers,
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Progress:
    """Set ids in *rows*, as :func:`run` does."""
    return _Backfill(rows, pace, update_triggers, on_progress, should_stop).run()


class _WaitForClaims:
    """The time in which other processes have claimed all rows without an id, and this one has filled none."""

    def __init__(self, target: PublicIdColumn) -> None:
        self.target, self.filled, self.since, self.is_reported = target, -1, 0.0, False

    def is_over(self, filled: int) -> bool:
        """Return True, and log a warning, if *filled* has not changed for a while."""
        now = time.monotonic()
        if filled != self.filled:
            self.filled, self.since, self.is_reported = filled, now, False
        waited = now - self.since
        if waited > _WITHOUT_CLAIM:
            log.warning(
                "%s: for %.0f s, other processes have claimed all rows without an id, so this one ends. If no other "
                "backfill is running, a connection that was left open holds the claim: end it, and run this again",
                *(self.target, waited),
            )
            return True
        if waited > _WITHOUT_CLAIM / 12 and not self.is_reported:
            self.is_reported = True
            log.warning("%s: waiting for other processes, which have claimed all rows without an id", self.target)
        return False


class _Stopped(Exception):
    """should_stop() returned True."""


@dataclass
class _Backfill:
    rows: Rows
    pace: Pace
    update_triggers: Triggers
    on_progress: Callable[[Progress], None] | None
    should_stop: Callable[[], bool] | None

    def __post_init__(self) -> None:
        self.connection = self.rows.connection
        self.target = self.rows.target
        self.traits = traits_for(self.connection.dialect)
        self.began = time.monotonic()
        self.before = 0
        """How many rows were read in other partitions."""
        self.most: int | None = None
        """About how many rows the present partition has: its last window may have fewer than the others."""
        self.conflicts = 0
        """The number of batches that failed because of other sessions."""
        self.progress = Progress(self.target.table, total=self.rows.count_rows())

    def run(self) -> Progress:
        table = self.rows
        try:
            parts = table.by_storage()
            found: list[bool] = []
            for rows in parts:
                self.most = rows.count_rows() if len(parts) > 1 else None
                found.append(self._fill(rows))
            # a partition may have been attached meanwhile
            is_finished = all(found) and (table in parts or not table.has_missing())
            self._report(replace(self.progress, finished=is_finished))
        except _Stopped:
            pass
        return self.progress

    def _fill(self, rows: Rows) -> bool:
        """Fill *rows*, which are stored in one piece. Return True if each of them has an id."""
        self.rows = rows
        until, sweeps, wait = self.rows.last(), 0, _WaitForClaims(self.target)
        interrupted_sweeps, self.before = 0, self.progress.seen
        while until is not None and sweeps < _SWEEPS and interrupted_sweeps < _INTERRUPTED_SWEEPS:
            conflicts, filled = self.conflicts, self.progress.filled
            if not self._sweep(until):
                # sweeps alongside other processes do not count
                interrupted = self.conflicts > conflicts and self.progress.filled > filled
                interrupted_sweeps += interrupted
                sweeps = 0 if interrupted else sweeps + 1
            elif wait.is_over(self.progress.filled):
                break
            until = self.rows.last(missing=True)
            if until is not None:
                if sweeps == 1:
                    log.warning(
                        "%s: rows that others have locked or inserted are left; looking for them again", self.target
                    )
                self._wait()
                time.sleep(min(1.0, 0.1 * 2**sweeps))  # others may be about to commit
        return until is None and (sweeps > 0 or not rows.has_missing())

    def _sweep(self, until: RowPosition) -> bool:
        """Fill the windows up to *until*. Return True if another process had claimed some of them."""
        after: RowPosition | None = None
        others = False
        for number in count(1):
            end = self.rows.end_of_window(after, until, WINDOW)
            with self.rows.claim(after) as is_ours:
                others = not (is_ours and self._window(after, end or until)) or others
            seen = self.before + min(number * self.rows.count_window(WINDOW), self.most or sys.maxsize)
            self.progress = replace(self.progress, seen=max(self.progress.seen, seen))
            if end is None or end == until:
                break
            after = end
        return others

    def _window(self, after: RowPosition | None, until: RowPosition) -> bool:
        """Fill a window. Return False if another process is working on it."""
        window = self.rows.window(after, until)
        while not window.is_done:
            self._wait()
            began = time.monotonic()
            filled = self._batch(window)
            took = time.monotonic() - began
            if filled:
                factor = min(2.0, max(0.5, self.pace.batch_seconds / max(took, 1e-4)))
                size = min(_LARGEST, max(_SMALLEST, int(self.progress.batch * factor)))
                self._report(replace(self.progress, filled=self.progress.filled + filled, batch=size))
                time.sleep(took * self.pace.pause)
        return not window.is_taken

    def _batch(self, window: Window) -> int:
        """Fill the next rows of *window*. If an id exists already, the whole batch fails: retry with fewer rows."""
        size, failures = self.progress.batch, 0
        while True:
            try:
                with updating(self.rows.live, self.update_triggers):
                    return window.fill(self.target.format.generate_many(size))
            except IntegrityError as error:
                if not isinstance(error.orig, Exception) or self.traits.violation(error.orig) is None:
                    raise  # another constraint
                failures += 1
                if size > 1:
                    size = size if failures == 1 else size // 2
                elif failures > MAX_RETRIES:
                    target, format = self.target, self.target.format
                    raise PublicIdCollision(
                        model=target.table,
                        column=target.column,
                        format=format,
                        attempts=MAX_RETRIES,
                        capacity=format.capacity,
                    ) from None
            except DBAPIError as error:
                if not can_be_retried(error, self.connection.dialect):
                    raise
                window.skip(size)  # the next sweep returns to them
                self.conflicts += 1
                # few rows are locked only briefly; a cluster refuses a whole batch if one of its rows has changed
                self.progress = replace(self.progress, batch=max(_SMALLEST, size // 2))
                return 0

    def _wait(self) -> None:
        while True:
            if self.should_stop is not None and self.should_stop():
                raise _Stopped
            if self.pace.wait_while is None or not self.pace.wait_while(self.connection):
                return
            time.sleep(1.0)

    def _report(self, progress: Progress) -> None:
        self.progress = replace(progress, seconds=time.monotonic() - self.began)
        if self.on_progress is not None:
            self.on_progress(self.progress)
