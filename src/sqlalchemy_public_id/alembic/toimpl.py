"""What the operations do: steps that commit one by one, those of a script, or all in the transaction that is open."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from sqlalchemy_public_id import backfill
from sqlalchemy_public_id.advice import about
from sqlalchemy_public_id.alembic._compat import is_inside_transaction
from sqlalchemy_public_id.alembic.ops import (
    AddPublicIdOp,
    BackfillPublicIdOp,
    ContractPublicIdOp,
    DropPublicIdOp,
    ExpandPublicIdOp,
    LoosenPublicIdOp,
    PublicIdOp,
)
from sqlalchemy_public_id.backfill.rows import replace_duplicates
from sqlalchemy_public_id.errors import BackfillIncomplete, ConfigurationError
from sqlalchemy_public_id.online.plan import Plan, Step
from sqlalchemy_public_id.online.run import plan_for, run, run_inside, script

__all__: list[str] = []

log = logging.getLogger("sqlalchemy_public_id.online")

_ATTEMPTS_AT_UNIQUENESS = 5
_SECONDS_BETWEEN_REPORTS = 10.0


@Operations.implementation_for(AddPublicIdOp)
def _add(operations: Operations, op: AddPublicIdOp) -> None:
    with _begun(operations, op) as work:
        work.expand()
        work.backfill()
        work.contract()


@Operations.implementation_for(ExpandPublicIdOp)
def _expand(operations: Operations, op: ExpandPublicIdOp) -> None:
    with _begun(operations, op) as work:
        work.expand()


@Operations.implementation_for(BackfillPublicIdOp)
def _backfill(operations: Operations, op: BackfillPublicIdOp) -> None:
    with _begun(operations, op) as work:
        work.backfill()


@Operations.implementation_for(ContractPublicIdOp)
def _contract(operations: Operations, op: ContractPublicIdOp) -> None:
    with _begun(operations, op) as work:
        work.contract()


@Operations.implementation_for(LoosenPublicIdOp)
def _loosen(operations: Operations, op: LoosenPublicIdOp) -> None:
    with _begun(operations, op) as work:
        work.run(work.plan.relax())


@Operations.implementation_for(DropPublicIdOp)
def _drop(operations: Operations, op: DropPublicIdOp) -> None:
    with _begun(operations, op) as work:
        work.run(work.plan.drop())


@contextmanager
def _begun(operations: Operations, op: PublicIdOp) -> Generator[_Work]:
    """The work that *op* asks for, outside of any transaction where each step is to commit by itself."""
    context: MigrationContext = operations.get_context()
    work = _Work(context, op)
    if context.as_sql and context.dialect.name == "sqlite":
        work.plan.backfill_sql()  # says why there is no script
    if op.online and not context.as_sql and is_inside_transaction(context):
        raise ConfigurationError(
            f"op.{op.name}() commits each of its steps, but the connection was in a transaction when Alembic got it; "
            f"in env.py, pass connectable.connect() to Alembic, not begin(), and execute nothing on it before "
            f"context.configure(); or say online=False, which locks {op.table_name!r} until the transaction ends"
        )
    with context.autocommit_block() if op.online else nullcontext():
        yield work


def _reporter() -> Callable[[backfill.Progress], None]:
    """Says to the log how far a backfill is, every ten seconds."""
    last = time.monotonic()

    def report(progress: backfill.Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_REPORTS:
            last = time.monotonic()
            left = "" if progress.left is None else f", about {progress.left} left"
            log.info("%s: %d rows filled, %.0f a second%s", progress.table, progress.filled, progress.rate, left)

    return report


class _Work:
    """One operation while it is carried out."""

    def __init__(self, context: MigrationContext, op: PublicIdOp) -> None:
        self.context = context
        self.op = op
        self.target = op.target
        self.plan: Plan = plan_for(op.target, context.dialect, online=op.online)

    @property
    def connection(self) -> Connection:
        connection = self.context.connection
        assert connection is not None
        return connection

    def expand(self) -> None:
        self.run(self.plan.expand())

    def backfill(self) -> None:
        if self.context.as_sql:
            for sql in self.plan.backfill_sql():
                self._say(sql)
            return
        if self.target.read_state(self.connection).complete:
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
            on_progress=_reporter(),
        )
        if not progress.finished:
            raise self._incomplete()

    def contract(self) -> None:
        if not self.context.as_sql:
            state = self.target.read_state(self.connection)
            if not state.exists:
                raise ConfigurationError(
                    f"there is no column {self.target}; add it first, with op.expand_public_id({self.target.table!r})"
                )
            if state.nullable and not state.checked and self.target.count_missing(self.connection):
                raise self._incomplete()
            if not self.op.online and not state.valid:
                replace_duplicates(self.connection, self.target)  # an index that fails would end the transaction
        self.run(self.plan.contract())

    def run(self, steps: Sequence[Step]) -> None:
        if self.context.as_sql:
            script(steps, self.context.dialect, self.op.patience, self._say)
        elif self.op.online:
            self._until_unique(steps)
        else:
            run_inside(steps, self.target, self.connection)

    def _until_unique(self, steps: Sequence[Step]) -> None:
        """Run *steps*; where two rows share an id, so that the unique index cannot be built, draw again."""
        for attempt in range(_ATTEMPTS_AT_UNIQUENESS):
            try:
                run(steps, self.target, self.connection, self.op.patience)
                return
            except IntegrityError:
                last = attempt == _ATTEMPTS_AT_UNIQUENESS - 1
                if last or not replace_duplicates(self.connection, self.target):
                    raise

    def _incomplete(self) -> BackfillIncomplete:
        missing = self.target.count_missing(self.connection)
        advice = about("no-default", table=self.target.table, column=self.target.column)
        return BackfillIncomplete(
            table=self.target.table,
            column=self.target.column,
            schema=self.target.schema,
            format=self.target.format,
            missing=missing,
            advice=f"{advice.danger}\n{advice.good}",
        )

    def _say(self, sql: str) -> None:
        self.context.impl.static_output(sql if sql.startswith(("--", "DELIMITER")) or sql.endswith("//") else f"{sql};")
