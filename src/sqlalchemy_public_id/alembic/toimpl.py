"""Implementations of the directives: in steps that commit one by one, as a script, or in the open transaction.

Each can be run again, and none sets a counter back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import cast

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, PendingRollbackError

from sqlalchemy_public_id import backfill
from sqlalchemy_public_id._private import is_in_external_transaction
from sqlalchemy_public_id.advice import about
from sqlalchemy_public_id.alembic import ops
from sqlalchemy_public_id.alembic.uncommitted import require_nothing_uncommitted
from sqlalchemy_public_id.alembic.unique_names import name_in_models
from sqlalchemy_public_id.backfill.contents import replace_duplicates, replace_invalid
from sqlalchemy_public_id.errors import BackfillIncomplete, ConfigurationError, DryRun
from sqlalchemy_public_id.migrating.nodes import waits_for_nodes
from sqlalchemy_public_id.online.plan import Plan, PublicIdColumn, Step
from sqlalchemy_public_id.online.run import plan_for, run, run_inside, script, without_time_limits
from sqlalchemy_public_id.online.scripts import start_of_script
from sqlalchemy_public_id.preflight import examine

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.online")

_ATTEMPTS_AT_UNIQUENESS = 5
_SECONDS_BETWEEN_REPORTS = 10.0

_PHASES = {
    "add_public_id": ("expand", "backfill", "contract"),
    "expand_public_id": ("expand",),
    "backfill_public_id": ("backfill",),
    "contract_public_id": ("contract",),
    "loosen_public_id": ("relax",),
    "drop_public_id": ("drop",),
}
"""The phases of each directive; all but the backfill are methods of a plan."""


@Operations.implementation_for(ops.PublicIdOp)
def _run(operations: Operations, op: ops.PublicIdOp) -> None:
    context: MigrationContext = operations.get_context()
    plan = plan_for(op.target, context.dialect)  # checks the names before anything is read
    if context.as_sql and context.dialect.name == "sqlite":
        plan.backfill_sql()  # raises: SQLite has no script
    if op.online and not context.as_sql and is_in_external_transaction(context):
        raise ConfigurationError(
            f"op.{op.name}() commits each of its steps, but the connection was in a transaction when Alembic got it; "
            f"in env.py, pass connectable.connect() to Alembic, not begin(), and execute nothing on it before "
            f"context.configure(); or pass online=False, which locks {op.table_name!r} until the transaction ends"
        )
    if op.online and not context.as_sql:
        require_nothing_uncommitted(context, op.name)
    with ExitStack() as stack:
        stack.enter_context(_autocommit_block(context) if op.online else nullcontext())
        if op.online and not context.as_sql:
            stack.enter_context(waits_for_nodes(cast("Connection", context.connection)))
            stack.enter_context(without_time_limits(cast("Connection", context.connection)))
        migration = _Migration(context, op)
        if not context.as_sql:
            report = examine(migration.connection, migration.plan, _PHASES[op.name], op.consent)
            if op.dry_run:
                raise DryRun(report)
            report.require_clear_way()
            for warning in report.warnings:
                log.warning("%s", warning)
        migration.refuse_unready()
        for phase in _PHASES[op.name]:
            migration.run(phase)
        migration.write_script()


@contextmanager
def _autocommit_block(context: MigrationContext) -> Generator[None]:
    """Alembic's block, which commits after a failure, too: on a lost connection, that would hide the first error."""
    failure: BaseException | None = None
    try:
        with context.autocommit_block():
            try:
                yield
            except BaseException as error:
                failure = error
                raise
    except PendingRollbackError:
        if failure is None:
            raise
        raise failure from None


def _log_progress() -> Callable[[backfill.Progress], None]:
    last = time.monotonic()

    def report(progress: backfill.Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_REPORTS:
            last = time.monotonic()
            left = "" if progress.left is None else f", about {progress.left} left"
            log.info("%s: %d rows filled, %.0f a second%s", progress.table, progress.filled, progress.rate, left)

    return report


class _Migration:
    """The phases of one table, as steps that commit, as a script, or inside the open transaction."""

    def __init__(self, context: MigrationContext, op: ops.PublicIdOp) -> None:
        self.context = context
        self.op = op
        self.connection = cast("Connection", context.connection)  # a script has none, and reads nothing
        self.target = self._named_target()
        self.plan: Plan = plan_for(self.target, context.dialect, online=op.online, allow_lock=op.consent.allow_lock)
        self.statements: list[str] = []
        """The statements of the script so far."""

    def _named_target(self) -> PublicIdColumn:
        """Return the column, with the name that its unique index has in the models or, without them, in the database.

        What is dropped has the name that it has, whatever the models say by now.
        """
        target = self.op.target
        if self.op.options.get("unique_name"):
            return target
        name = name_in_models(self.context.opts.get("target_metadata"), target, self.context.dialect)
        if name is not None:
            target = replace(target, unique_name=name)
        drops = {"relax", "drop"} & {*_PHASES[self.op.name]}
        if not self.context.as_sql and (name is None or drops):
            target = target.with_existing_name(self.connection, valid=not drops)
        return target

    def refuse_unready(self) -> None:
        """Let a script fail before its first ALTER if the kind of table, or a trigger, stands in its way."""
        phases, wanted = _PHASES[self.op.name], self.op.consent.update_triggers
        if not self.context.as_sql:
            return
        if phases != ("backfill",):
            self.statements += self.plan.refuse_structure_sql()
        if "backfill" in phases and wanted != "fire":
            self.statements += self.plan.refuse_triggers_sql(skip=wanted == "skip")

    def run(self, phase: str) -> None:
        if phase == "backfill":
            self._backfill()
            return
        if phase == "contract" and not self.context.as_sql:
            self._require_ids()
            if self.op.consent.on_invalid == "replace":
                replace_invalid(self.connection, self.target, self.op.consent.update_triggers)
        steps: list[Step] = getattr(self.plan, phase)()
        if self.context.as_sql:
            script(steps, self.context.dialect, self.op.patience, self.statements.append)
        elif self.op.online:
            self._until_unique(steps)
        else:
            run_inside(steps, self.target, self.connection)

    def _backfill(self) -> None:
        if self.context.as_sql:
            self.statements += self.plan.backfill_sql(skip_triggers=self.op.consent.update_triggers == "skip")
            return
        if not self.target.has_rows_to_fill(self.connection):
            return
        progress = backfill.run(
            self.connection,
            self.target.table,
            self.target.column,
            format=self.target.format,
            schema=self.target.schema,
            batch_seconds=self.op.batch_seconds,
            pause=self.op.pause if self.op.online else 0,
            wait_while=self.op.wait_while,
            update_triggers=self.op.consent.update_triggers,
            on_progress=_log_progress(),
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
        if not self.op.online and not state.valid and self._may_replace_duplicates:
            self._replace_duplicates()  # a failed index would abort the transaction

    def _accept_stragglers(self) -> None:
        has_run = "backfill" in _PHASES[self.op.name] or self.target.are_few_missing(self.connection)
        if not (has_run and self.plan.can_fill_stragglers):
            raise self._incomplete()

    def _until_unique(self, steps: Sequence[Step]) -> None:
        """Run *steps*. If two rows share an id, the unique index fails: replace one id, and try again."""
        for attempt in range(_ATTEMPTS_AT_UNIQUENESS):
            try:
                run(steps, self.target, self.connection, self.op.patience)
                return
            except IntegrityError:
                last = attempt == _ATTEMPTS_AT_UNIQUENESS - 1 or not self._may_replace_duplicates
                if last or not self._replace_duplicates():
                    raise

    def _replace_duplicates(self) -> int:
        return replace_duplicates(self.connection, self.target, self.op.consent.update_triggers)

    @property
    def _may_replace_duplicates(self) -> bool:
        # there were none before the backfill of the same operation
        return self.op.consent.on_duplicate == "replace" or "backfill" in _PHASES[self.op.name]

    def _incomplete(self) -> BackfillIncomplete:
        target, advice = self.target, about("no-default", table=self.target.table, column=self.target.column)
        return BackfillIncomplete(
            table=target.table,
            column=target.column,
            schema=target.schema,
            format=target.format,
            missing=target.count_missing(self.connection),
            advice=f"{advice.danger}\n{advice.good}",
        )

    def write_script(self) -> None:
        """Write the statements of the script, if there is one."""
        if not self.context.as_sql:
            return
        psql = bool(self.context.opts.get("public_id_psql", True))
        for sql in [*start_of_script(self.statements, self.context.dialect, psql=psql), *self.statements]:
            has_end = sql.startswith(("--", "\\", "DELIMITER")) or sql.endswith("//")
            self.context.impl.static_output(sql if has_end else f"{sql};")
