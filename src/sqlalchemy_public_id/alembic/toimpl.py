"""Implementations of the directives: in steps that commit one by one, in the open transaction, or as a script.

With a connection, each directive can be run again, and none resets a counter.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from alembic.operations import Operations
from sqlalchemy import inspect
from sqlalchemy.exc import PendingRollbackError

from sqlalchemy_public_id.alembic import ops
from sqlalchemy_public_id.dialects.quoting import commented, in_script, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import command_line
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import database_of, plan_for
from sqlalchemy_public_id.migrations.from_models import (
    format_in_models,
    name_in_models,
    others_in_models,
    sql_type_in_models,
)
from sqlalchemy_public_id.migrations.operation import PHASES, run_phases
from sqlalchemy_public_id.migrations.plan import Phase, Plan
from sqlalchemy_public_id.migrations.table import columns_of

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext  # half imported while Alembic loads plugins


log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrations")


def _phases_of(op: ops.PublicIdOp) -> tuple[Phase, ...]:
    return PHASES[op.name.removesuffix("_public_id")]


@Operations.implementation_for(ops.PublicIdOp)
def _run(operations: Operations, op: ops.PublicIdOp) -> None:
    context: MigrationContext = operations.get_context()
    plan = plan_for(_named_target(context, op), context.dialect, op.consent, online=op.online)
    if context.as_sql:
        _write_script(context, op, plan)
        return
    _warn_of_other_format(context, op)
    if op.online:
        _require_nothing_uncommitted(context, op)
    connection = context.connection
    assert connection is not None
    with _autocommit_block(context, op) if op.online else nullcontext():
        run_phases(connection, plan, _phases_of(op), timeouts=op.timeouts, pace=op.pace, dry_run=op.dry_run)


def _named_target(context: MigrationContext, op: ops.PublicIdOp) -> PublicIdColumn:
    """Return the target of *op*, with what the models say about its unique index, and the type of a new column."""
    models, target = context.opts.get("target_metadata"), op.target
    if "unique_with" not in op.options:
        others = others_in_models(models, target) or ()
        if others and _has_columns(context, target, others):  # or else the model is newer than this revision
            target = replace(target, unique_with=others)
    if "sql_type" not in op.options and "expand" in _phases_of(op):
        target = replace(target, sql_type=sql_type_in_models(models, target))
    name = name_in_models(models, target, context.dialect)
    return target if name is None or op.options.get("unique_name") else replace(target, unique_name=name)


def _has_columns(context: MigrationContext, target: PublicIdColumn, names: Sequence[str]) -> bool:
    if context.connection is None:
        return False  # a script has no index
    inspector = inspect(context.connection)
    return inspector.has_table(target.table, target.schema) and {*names} <= {
        *columns_of(inspector, target.table, target.schema)
    }


def _warn_of_other_format(context: MigrationContext, op: ops.PublicIdOp) -> None:
    """Log a warning if *op* generates ids that the model does not accept. An old revision may do so on an empty table,
    so it is not refused.
    """
    declared = format_in_models(context.opts.get("target_metadata"), op.target)
    if declared is None or not {"expand", "backfill"}.intersection(_phases_of(op)):
        return
    if not declared.is_valid(op.target.format.example()):
        log.warning(
            "op.%s(%r) generates ids of %r, which look-ups do not find, because the model has ids of %r: "
            "write format=%r",
            *(op.name, op.table_name, op.target.format, declared, declared),
        )


def _require_nothing_uncommitted(context: MigrationContext, op: ops.PublicIdOp) -> None:
    """Raise an error if the revision has written something, which would be committed without the version.

    :raises ConfigurationError: with the remedy; nothing is changed.
    """
    if _has_written(context):
        raise ConfigurationError(
            f"op.{op.name}() commits each of its steps, but this revision has already written something, which would "
            f"be committed without the version, so the revision could not be run again after a failure; move "
            f"op.{op.name}() into a separate revision, or pass online=False, which locks {op.table_name!r} until the "
            f"transaction ends"
        )


def _has_written(context: MigrationContext) -> bool:
    connection = context.connection
    if connection is None or not connection.in_transaction():
        return False

    def versions() -> str | None:
        if not context.get_current_heads():
            return None
        return quoted_table(context.version_table, context.version_table_schema, context.dialect)

    session = database_of(context.dialect).session(connection)
    return session.has_written(versions, transactional_ddl=context.impl.transactional_ddl)


@contextmanager
def _autocommit_block(context: MigrationContext, op: ops.PublicIdOp) -> Generator[None]:
    """Enter Alembic's block, but raise the original error if the block fails to commit on a lost connection.

    :raises ConfigurationError: if the connection is inside a transaction that Alembic has not begun.
    """
    failure: BaseException | None = None
    try:
        with ExitStack() as stack:
            try:
                stack.enter_context(context.autocommit_block())
            except (AssertionError, AttributeError):  # how Alembic refuses it, without and with python -O
                raise ConfigurationError(
                    f"op.{op.name}() commits each of its steps, but the connection is inside a transaction that "
                    f"Alembic did not begin; pass connectable.connect() to Alembic instead of begin(), commit what you "
                    f"execute before context.configure(), and run the migration inside context.begin_transaction(); or "
                    f"pass online=False, which locks {op.table_name!r} until the transaction ends"
                ) from None
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

    :raises ConfigurationError: if *op* needs a connection to examine the table.
    """
    target, phases, scripts = op.target, _phases_of(op), plan.scripts(op.timeouts.lock_timeout)
    if op.dry_run or not scripts.keys() >= {*phases}:
        instead = "; op.expand_public_id() can be a script" if scripts and op.name == "add_public_id" else ""
        raise ConfigurationError(
            f"op.{op.name}() of {target} needs a connection, because it looks at the rows, indexes and triggers of the "
            f"table: run this migration without --sql{instead}"
        )
    lines = in_script([sql for phase in phases for sql in scripts[phase]], context.dialect)
    if "drop" not in phases:
        options = {"column": target.column, "format": target.format, "schema": target.schema}
        command = command_line("backfill", target.table, **options)
        lines.append(commented(f"Give ids to the rows without one, while the table is in use:\n{command}"))
    for line in lines:
        context.impl.static_output(line)
