"""Implementations of the directives: in steps that commit one by one, as a script, or in the open transaction.

Each can be run again, and none sets a counter back.
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
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.online import PublicIdColumn
from sqlalchemy_public_id.online.run import plan_for, script
from sqlalchemy_public_id.online.scripts import start_of_script
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
    plan_for(op.target, context.dialect)  # checks the names before anything is read
    target, is_named = _named_target(context, op)
    if context.as_sql:
        with context.autocommit_block() if op.online else nullcontext():
            _write_script(context, op, target)
        return
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


# --- scripts


def _write_script(context: MigrationContext, op: ops.PublicIdOp, target: PublicIdColumn) -> None:
    phases, wanted = _PHASES[op.name], op.consent.update_triggers
    plan = plan_for(target, context.dialect, online=op.online, allow_lock=op.consent.allow_lock)
    statements: list[str] = []
    if phases != ("backfill",):
        statements += plan.refuse_structure_sql()
    if "backfill" in phases and wanted != "fire":
        statements += plan.refuse_triggers_sql(skip=wanted == "skip")
    for phase in phases:
        if phase == "backfill":
            statements += plan.backfill_sql(skip_triggers=wanted == "skip")
        else:
            script(getattr(plan, phase)(), context.dialect, op.patience, statements.append)
    psql = bool(context.opts.get("public_id_psql", True))
    for sql in [*start_of_script(statements, context.dialect, psql=psql), *statements]:
        has_end = sql.startswith(("--", "\\", "DELIMITER")) or sql.endswith("//")
        context.impl.static_output(sql if has_end else f"{sql};")
