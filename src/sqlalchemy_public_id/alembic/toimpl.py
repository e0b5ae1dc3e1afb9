"""Implementations of the directives: in steps that commit one by one, in the open transaction, or as a script.

With a connection, each can be run again, and none sets a counter back.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy.exc import PendingRollbackError

from sqlalchemy_public_id._private import is_in_external_transaction
from sqlalchemy_public_id.alembic import ops
from sqlalchemy_public_id.alembic.uncommitted import require_nothing_uncommitted
from sqlalchemy_public_id.dialects.quoting import commented, in_script
from sqlalchemy_public_id.errors import ConfigurationError, backfill_command
from sqlalchemy_public_id.online import PublicIdColumn
from sqlalchemy_public_id.online.plan import Plan
from sqlalchemy_public_id.online.run import plan_for
from sqlalchemy_public_id.online.unique_names import name_in_models
from sqlalchemy_public_id.operation import Phase, run_phases

_PHASES: dict[str, tuple[Phase, ...]] = {
    "add_public_id": ("expand", "backfill", "contract"),
    "expand_public_id": ("expand",),
    "backfill_public_id": ("backfill",),
    "contract_public_id": ("contract",),
    "loosen_public_id": ("relax",),
    "drop_public_id": ("drop",),
}
"""The phases of each directive."""


@Operations.implementation_for(ops.PublicIdOp)
def _run(operations: Operations, op: ops.PublicIdOp) -> None:
    context: MigrationContext = operations.get_context()
    plan = plan_for(op.target, context.dialect, allow_lock=op.consent.allow_lock)  # checks the names first
    if context.as_sql:
        _write_script(context, op, plan)
        return
    target, is_named = _named_target(context, op)
    if op.online:
        _require_own_transaction(context, op)
    connection = context.connection
    assert connection is not None
    with _autocommit_block(context) if op.online else nullcontext():
        run_phases(
            connection,
            target,
            _PHASES[op.name],
            finds_name=not is_named,
            online=op.online,
            consent=op.consent,
            patience=op.patience,
            pace=op.pace,
            dry_run=op.dry_run,
        )


def _named_target(context: MigrationContext, op: ops.PublicIdOp) -> tuple[PublicIdColumn, bool]:
    """Return the column, with the name that its unique index has in the models, and False to look for the index."""
    if op.options.get("unique_name"):
        return op.target, True
    name = name_in_models(context.opts.get("target_metadata"), op.target, context.dialect)
    if name is None:
        return op.target, False
    # what is dropped has the name that it has, whatever the models say by now
    return replace(op.target, unique_name=name), op.name not in ("loosen_public_id", "drop_public_id")


def _require_own_transaction(context: MigrationContext, op: ops.PublicIdOp) -> None:
    """Refuse to commit what others have begun.

    :raises ConfigurationError: with the remedy; nothing is changed.
    """
    if is_in_external_transaction(context):
        raise ConfigurationError(
            f"op.{op.name}() commits each of its steps, but the connection was in a transaction when Alembic got it; "
            f"in env.py, pass connectable.connect() to Alembic, not begin(), and execute nothing on it before "
            f"context.configure(); or pass online=False, which locks {op.table_name!r} until the transaction ends"
        )
    require_nothing_uncommitted(context, op.name)


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


def _write_script(context: MigrationContext, op: ops.PublicIdOp, plan: Plan) -> None:
    """Write the DDL of *op*, and the command that fills the rows.

    :raises ConfigurationError: if *op* looks at the table, for which it needs a connection.
    """
    target, phases, scripts = op.target, _PHASES[op.name], plan.scripts(op.patience.lock_timeout)
    if op.dry_run or not scripts.keys() >= {*phases}:
        instead = "; op.expand_public_id() can be a script" if scripts and op.name == "add_public_id" else ""
        raise ConfigurationError(
            f"op.{op.name}() of {target} needs a connection, because it looks at the rows, indexes and triggers of the "
            f"table: run this migration without --sql{instead}"
        )
    lines = in_script([sql for phase in phases for sql in scripts[phase]], context.dialect)
    if "drop" not in phases:
        command = backfill_command(target.table, target.column, target.format, target.schema)
        lines.append(commented(f"Give ids to the rows without one, while the table is in use:\n{command}"))
    for line in lines:
        context.impl.static_output(line)
