"""Run one operation on a column of public ids: examine the table, refuse or go on, and run its phases.

Alembic's operations and the command line are thin layers above :func:`run_phases`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from sqlalchemy_public_id import backfill
from sqlalchemy_public_id.backfill.contents import replace_duplicates, replace_invalid
from sqlalchemy_public_id.errors import BackfillIncomplete, ConfigurationError, DryRun, MigrationRefused
from sqlalchemy_public_id.migrating.column import Patience, PublicIdColumn
from sqlalchemy_public_id.migrating.locks import hold_turn
from sqlalchemy_public_id.migrating.nodes import waits_for_nodes
from sqlalchemy_public_id.migrating.plan import Plan, Step
from sqlalchemy_public_id.migrating.run import (
    Result,
    limits_of_operation,
    plan_for,
    run,
    run_inside,
    until_locked,
    without_translated_schemas,
)
from sqlalchemy_public_id.preflight import Consent, MigrationReport, examine
from sqlalchemy_public_id.preflight.contents import obstacles_of_duplicates

Phase: TypeAlias = Literal["expand", "backfill", "contract", "relax", "drop"]
PHASES: dict[str, tuple[Phase, ...]] = {
    "add": ("expand", "backfill", "contract"),
    "expand": ("expand",),
    "backfill": ("backfill",),
    "contract": ("contract",),
    "loosen": ("relax",),
    "drop": ("drop",),
}
"""The phases of each operation, by the name of its command; that of Alembic's has "_public_id" behind it."""

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrating")

_ATTEMPTS_AT_UNIQUENESS = 5
_SECONDS_BETWEEN_REPORTS = 10.0


def run_phases(
    connection: Connection,
    target: PublicIdColumn,
    phases: Sequence[Phase],
    *,
    online: bool = True,
    consent: Consent | None = None,
    patience: Patience | None = None,
    pace: backfill.Pace | None = None,
    dry_run: bool = False,
    on_progress: Callable[[backfill.Progress], None] | None = None,
) -> None:
    """Run *phases* of a migration to *target*, one after the other. Each can be run again: what is done is skipped.

    :param connection: in AUTOCOMMIT mode, because each step commits; without *online*, inside a transaction.
    :param online: False to run all steps inside the open transaction, which locks the table until it ends.
    :param on_progress: called after each batch of the backfill; by default, a line is logged now and then.
    :raises DryRun: with the report, if this is a *dry_run*. Nothing was changed.
    :raises MigrationRefused: if something stands in the way. Nothing was changed.
    :raises BackfillIncomplete: if rows have no id, and the column is to become NOT NULL.
    :raises LockNotAvailable: if others keep the table locked, or another migration of it does not end.
    :raises ConfigurationError: if there is no such table or column, or the database does not accept one of the names.
    """
    consent, patience, pace = consent or Consent(), patience or Patience(), pace or backfill.Pace()
    plan_for(target, connection.dialect)  # checks the names before anything is read

    def look() -> tuple[Plan, MigrationReport]:
        plan = plan_for(target, connection.dialect, online=online, allow_lock=consent.allow_lock)
        return plan, examine(connection, plan, phases, consent, runs=not dry_run)

    def patiently(action: Callable[[], Result], name: str) -> Result:
        # a lock that is not available would abort a transaction, which waits for it instead
        return until_locked(action, name, target, connection, patience) if online else action()

    with ExitStack() as stack:
        stack.enter_context(without_translated_schemas(connection))
        timeout = patience.index_timeout if online else patience.lock_timeout  # a transaction has other locks meanwhile
        has_session = stack.enter_context(hold_turn(connection, target.table, target.schema, timeout=timeout))
        if online:
            stack.enter_context(waits_for_nodes(connection))
        if online and has_session:
            stack.enter_context(limits_of_operation(connection, patience))
        plan, report = patiently(look, "examine the table")
        if dry_run:
            raise DryRun(report)
        report.require_clear_way()
        for warning in report.warnings:
            log.warning("%s", warning)
        operation = _Operation(connection, plan, phases, consent, patience, pace, on_progress or _log_progress())
        for phase in phases:
            patiently(partial(operation.run, phase), phase)


def _log_progress() -> Callable[[backfill.Progress], None]:
    last = time.monotonic()

    def report(progress: backfill.Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_REPORTS:
            last = time.monotonic()
            left = "" if progress.left is None else f", about {progress.left} left"
            log.info("%s: %d rows filled, %.0f a second%s", progress.table, progress.filled, progress.rate, left)

    return report


@dataclass(frozen=True)
class _Operation:
    connection: Connection
    plan: Plan
    phases: Sequence[Phase]
    consent: Consent
    patience: Patience
    pace: backfill.Pace
    on_progress: Callable[[backfill.Progress], None]

    @property
    def target(self) -> PublicIdColumn:
        return self.plan.target

    def run(self, phase: Phase) -> None:
        if phase == "backfill":
            self._backfill()
            return
        if phase == "contract":
            self._require_ids()
            if self.consent.on_invalid == "replace":
                replace_invalid(self.connection, self.target, self.consent.update_triggers)
        steps: list[Step] = getattr(self.plan, phase)()
        if self.plan.online:
            self._until_unique(steps)
        else:
            run_inside(steps, self.target, self.connection)

    def _backfill(self) -> None:
        if not self.target.has_rows_to_fill(self.connection):
            return
        progress = backfill.run(
            self.connection,
            self.target.table,
            self.target.column,
            format=self.target.format,
            schema=self.target.schema,
            batch_seconds=self.pace.batch_seconds,
            pause=self.pace.pause if self.plan.online else 0,
            wait_while=self.pace.wait_while,
            update_triggers=self.consent.update_triggers,
            on_progress=self.on_progress,
        )
        if not progress.finished:
            self._accept_stragglers()

    def _require_ids(self) -> None:
        state = self.target.read_state(self.connection)
        if not state.exists:
            raise ConfigurationError(
                f"there is no column {self.target}; add it first, with op.expand_public_id({self.target.table!r})"
            )
        if state.nullable and not state.checked and self.target.count_missing(self.connection):
            self._accept_stragglers()
        if not self.plan.online and not state.valid and self._may_replace_duplicates:
            self._replace_duplicates()  # a failed index would abort the transaction

    def _accept_stragglers(self) -> None:
        has_run = "backfill" in self.phases or self.target.are_few_missing(self.connection)
        if not (has_run and self.plan.can_fill_stragglers):
            raise self._incomplete()

    def _until_unique(self, steps: Sequence[Step]) -> None:
        """Run *steps*. If two rows share an id, the unique index fails: replace one id, and try again."""
        for attempt in range(_ATTEMPTS_AT_UNIQUENESS):
            try:
                run(steps, self.target, self.connection, self.patience)
                return
            except IntegrityError:
                last = attempt == _ATTEMPTS_AT_UNIQUENESS - 1 or not self._may_replace_duplicates
                if last or not self._replace_duplicates():
                    if not self._may_replace_duplicates:
                        self._refuse_duplicates()
                    raise

    def _refuse_duplicates(self) -> None:
        """Take back an index that could not be built, which would refuse the ids of others.

        :raises MigrationRefused: if rows share an id.
        """
        run(self.plan.drop_unfinished(), self.target, self.connection, self.patience)
        obstacles = [*obstacles_of_duplicates(self.connection, self.target)]
        if obstacles:
            raise MigrationRefused(target=self.target, obstacles=obstacles) from None

    def _replace_duplicates(self) -> int:
        return replace_duplicates(self.connection, self.target, self.consent.update_triggers)

    @property
    def _may_replace_duplicates(self) -> bool:
        # there were none before the backfill of the same operation
        return self.consent.on_duplicate == "replace" or "backfill" in self.phases

    def _incomplete(self) -> BackfillIncomplete:
        target = self.target
        return BackfillIncomplete(
            table=target.table,
            column=target.column,
            schema=target.schema,
            format=target.format,
            missing=target.count_missing(self.connection),
        )
