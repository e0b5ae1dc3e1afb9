"""Run an operation on a column of public ids: examine the table, and refuse the operation or run its phases.

Alembic's operations and the command line are thin layers on top of :func:`run_phases`. :func:`take_turn` serializes
whole upgrades.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import IntegrityError

from sqlalchemy_public_id.errors import BackfillIncomplete, ConfigurationError, DryRun, MigrationRefused
from sqlalchemy_public_id.migrations import Pace, Timeouts, backfill
from sqlalchemy_public_id.migrations.databases import database_of, is_supported, live_table, rows_of
from sqlalchemy_public_id.migrations.existing_ids import replace_duplicates, replace_invalid
from sqlalchemy_public_id.migrations.obstacles import find_obstacles, obstacles_of_duplicates
from sqlalchemy_public_id.migrations.plan import Migration, Phase, Plan
from sqlalchemy_public_id.migrations.report import MigrationReport, build_report
from sqlalchemy_public_id.migrations.rows import Rows
from sqlalchemy_public_id.migrations.session import MigrationSession
from sqlalchemy_public_id.migrations.steps import Result, Runner, until_locked, without_translated_schemas
from sqlalchemy_public_id.migrations.table import LiveTable

PHASES: dict[str, tuple[Phase, ...]] = {
    "add": ("expand", "backfill", "contract"),
    "expand": ("expand",),
    "backfill": ("backfill",),
    "contract": ("contract",),
    "loosen": ("loosen",),
    "drop": ("drop",),
}
"""The phases of each operation, by its name on the command line; Alembic's operations add "_public_id" to it."""

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrations")

_ATTEMPTS_AT_UNIQUENESS = 5
_SECONDS_BETWEEN_REPORTS = 10.0


def examine(connection: Connection, plan: Plan, phases: Sequence[Phase]) -> MigrationReport:
    """Return a report of what *phases* would do and of all obstacles. Nothing is changed.

    :raises ConfigurationError: if the table does not exist.
    """
    database = database_of(connection.dialect)
    live, session = live_table(connection, plan.target), database.session(connection)
    with session.all_rows():
        is_stable, read_only = session.is_stable, session.read_only
        migration = Migration(live, plan, phases, live.read_state(), is_stable=is_stable, read_only=read_only)
        return build_report(migration, find_obstacles(migration))


def run_phases(
    connection: Connection,
    plan: Plan,
    phases: Sequence[Phase],
    *,
    timeouts: Timeouts | None = None,
    pace: Pace | None = None,
    dry_run: bool = False,
    on_progress: Callable[[backfill.Progress], None] | None = None,
) -> None:
    """Run *phases* of *plan*, one after the other. After a failure, run them again to continue.

    :param connection: a connection in AUTOCOMMIT mode, because each step commits. For a plan that is not online, one
        inside a transaction: it locks the table until it ends.
    :param dry_run: ``True`` examines the table, changes nothing, and raises :class:`DryRun` with the report.
    :param on_progress: called after each batch of the backfill. By default, progress is logged every few seconds.
    :raises DryRun: with the report, if *dry_run* is set. Nothing was changed.
    :raises MigrationRefused: if there is an obstacle. Nothing was changed.
    :raises BackfillIncomplete: if the column should become NOT NULL, but rows have no id.
    :raises LockNotAvailable: if other sessions keep the table locked, or another migration of the table does not end.
    :raises ConfigurationError: if the table or column does not exist, or the database does not accept one of the names.
    """
    target, online, timeouts = plan.target, plan.online, timeouts or Timeouts()
    database = database_of(connection.dialect)
    session = database.session(connection, timeouts if online else None)
    runner = Runner(live_table(connection, target), session if online else None)

    def with_retries(action: Callable[[], Result], name: str) -> Result:
        # inside a transaction, statements wait for their locks: a timeout would abort it, and a retry would fail
        return until_locked(action, name, target, session) if online else action()

    def look() -> tuple[Migration, MigrationReport | None]:
        facts: dict[str, Any] = {"is_stable": session.is_stable, "read_only": session.read_only}
        migration = Migration(runner.table, plan, phases, runner.state, runs=not dry_run, **facts)
        if not migration.state.exists and phases[0] in ("contract", "loosen"):
            raise ConfigurationError(
                f"there is no column {target}; add it first, with op.expand_public_id({target.table!r})"
            )
        obstacles = find_obstacles(migration)
        if dry_run:
            return migration, build_report(migration, obstacles)
        if obstacles:
            raise MigrationRefused(target=target, obstacles=obstacles)
        return migration, None

    with ExitStack() as stack:
        stack.enter_context(without_translated_schemas(connection))
        timeout = timeouts.index_timeout if online else timeouts.lock_timeout  # a transaction has other locks meanwhile
        stack.enter_context(session.take_turn(target.table, target.schema, timeout=timeout))
        stack.enter_context(session.settings())
        migration, report = with_retries(look, "examine the table")
        if report is not None:
            raise DryRun(report)
        for warning in plan.warnings(migration):
            log.warning("%s", warning)
        for program in migration.stored_code.not_examined:
            log.warning("%s: not examined: %s", target, program)
        operation = _Operation(runner, migration, session, pace or Pace(), on_progress or _log_progress())
        for phase in phases:
            with_retries(partial(operation.run, phase), phase)


def _log_progress() -> Callable[[backfill.Progress], None]:
    last = time.monotonic()

    def report(progress: backfill.Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_REPORTS:
            last = time.monotonic()
            left = "" if progress.left is None else f", about {progress.left} left"
            log.info("%s: %d rows filled, %.0f a second%s", progress.table, progress.filled, progress.rate, left)

    return report


@dataclass
class _Operation:
    runner: Runner
    migration: Migration
    session: MigrationSession
    pace: Pace
    on_progress: Callable[[backfill.Progress], None]

    def __post_init__(self) -> None:
        self.plan, self.consent = self.migration.plan, self.migration.consent
        self.table, self.target = self.migration.table, self.migration.target

    @property
    def rows(self) -> Rows:
        return rows_of(self.table, self.runner.state)

    def run(self, phase: Phase) -> None:
        if phase == "backfill":
            self._backfill()
            return
        if phase == "contract":
            self._require_ids()
            if self.consent.on_invalid == "replace":
                replace_invalid(self.rows, self.consent.update_triggers)
        self._until_unique(phase)

    def _backfill(self) -> None:
        if not (self.migration.fills_rows or self.table.has_rows_to_fill(self.runner.state)):
            return
        pace = self.pace if self.plan.online else replace(self.pace, pause=0)
        with self.session.batches():
            progress = backfill.fill_rows(self.rows, pace, self.consent.update_triggers, self.on_progress)
        if not progress.finished:
            self._accept_stragglers()

    def _require_ids(self) -> None:
        state = self.runner.state
        if state.nullable and not state.checked and self.table.count_missing():
            self._accept_stragglers()
        if not self.plan.online and not state.valid and self._may_replace_duplicates:
            self._replace_duplicates()  # a failed index would abort the transaction

    def _accept_stragglers(self) -> None:
        has_run = "backfill" in self.migration.phases or self.table.are_few_missing()
        if not (has_run and self.plan.can_fill_stragglers):
            raise incomplete(self.table)

    def _until_unique(self, phase: Phase) -> None:
        """Run the steps of *phase*. If two rows share an id, the unique index fails: replace one of them, and retry."""
        steps = [step for _, step in self.plan.steps_of([phase])]
        for attempt in range(_ATTEMPTS_AT_UNIQUENESS):
            try:
                self.runner.run(steps)
                return
            except IntegrityError as error:
                if error.connection_invalidated or not self.plan.online:
                    raise
                last = attempt == _ATTEMPTS_AT_UNIQUENESS - 1 or not self._may_replace_duplicates
                if last or not self._replace_duplicates():
                    if not self._may_replace_duplicates:
                        self._refuse_duplicates()
                    raise

    def _refuse_duplicates(self) -> None:
        """Drop an index that could not be built, because it would still reject duplicate ids of others.

        :raises MigrationRefused: if rows share an id.
        """
        self.runner.run(self.plan.drop_unfinished())
        obstacles = [*obstacles_of_duplicates(self.rows)]
        if obstacles:
            raise MigrationRefused(target=self.target, obstacles=obstacles) from None

    def _replace_duplicates(self) -> int:
        return replace_duplicates(self.rows, self.consent.update_triggers)

    @property
    def _may_replace_duplicates(self) -> bool:
        # the checks found no duplicates before the backfill of this operation
        return self.consent.on_duplicate == "replace" or "backfill" in self.migration.phases


def incomplete(live: LiveTable) -> BackfillIncomplete:
    """Return the error that says how many rows of a table have no id."""
    place: dict[str, Any] = {name: getattr(live.target, name) for name in ("table", "column", "schema", "format")}
    return BackfillIncomplete(**place, missing=live.count_missing())


# --- a whole upgrade


@contextmanager
def take_turn(connection: Connection, *, timeout: float = 3600.0) -> Generator[None]:
    """Let one process at a time migrate the database. Other processes wait for their turn, and find nothing to do.

    In ``env.py``, put ``context.configure()`` and ``context.run_migrations()`` inside this context manager. The lock
    belongs to the database session of *connection*. Behind a pooler that switches sessions no lock is possible, so a
    warning is logged and the migration goes on.

    :param timeout: how many seconds to wait for another process.
    :raises LockNotAvailable: if the other process is still running then. The error has the number of its connection.
    :raises ConfigurationError: if *connection* is inside a transaction.
    """
    if connection.in_transaction():
        raise ConfigurationError(
            "the connection is inside a transaction, where take_turn() cannot wait for other processes; call it "
            "with connectable.connect(), and execute nothing before it"
        )
    if not is_supported(connection.dialect):
        log.warning("the library knows no lock of this database, so take_turn() cannot keep others from migrating")
    if not is_supported(connection.dialect) or not database_of(connection.dialect).session.has_turns:
        yield
        return
    level = connection.get_isolation_level()
    with _isolation(connection, "AUTOCOMMIT"):  # not inside a transaction, which would have a snapshot
        session = database_of(connection.dialect).session(connection)
        if not session.is_stable:
            log.warning(
                "a pooler changes the session of PostgreSQL, so take_turn() cannot keep other processes from migrating"
            )
        with session.take_turn(timeout=timeout), _isolation(connection, level):
            yield


@contextmanager
def _isolation(connection: Connection, level: IsolationLevel) -> Generator[None]:
    before = connection.get_isolation_level()
    connection.rollback()
    connection.execution_options(isolation_level=level)
    try:
        yield
    finally:
        connection.rollback()
        if not connection.invalidated:
            connection.execution_options(isolation_level=before)
