"""Separate revisions for operations on public ids: one by default, or three for large tables.

An operation on public ids commits each of its steps, and with it everything that its revision did before. If the
operation then failed, the revision would be half done, and you could not run it again. Therefore
``alembic revision --autogenerate`` writes these operations into a separate revision, after the one for other changes.

For large tables, in ``env.py``::

    from sqlalchemy_public_id.alembic.revisions import three_revisions

    context.configure(..., process_revision_directives=three_revisions)

Each phase of new public ids then gets its own revision: expand, backfill and contract. You can deploy them one by one,
hours or days apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from alembic.operations.ops import (
    AddColumnOp,
    CreateForeignKeyOp,
    CreateIndexOp,
    CreateTableOp,
    CreateUniqueConstraintOp,
    DowngradeOps,
    MigrateOperation,
    MigrationScript,
    ModifyTableOps,
    OpContainer,
    UpgradeOps,
)
from alembic.util import rev_id
from sqlalchemy import ColumnClause
from sqlalchemy.sql.visitors import iterate

from sqlalchemy_public_id.alembic.ops import (
    AddPublicIdOp,
    BackfillPublicIdOp,
    ContractPublicIdOp,
    ExpandPublicIdOp,
    LoosenPublicIdOp,
    PublicIdOp,
)

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext
    from alembic.runtime.migration import MigrationContext  # half imported while Alembic loads plugins

__all__ = ["three_revisions", "three_revisions_after"]

Directives: TypeAlias = "Callable[[MigrationContext, Any, list[MigrationScript]], None]"

Changes: TypeAlias = tuple[list[Any], list[Any]]
"""The operations of an upgrade, and those of its downgrade."""

_PHASES: dict[str, type[PublicIdOp]] = {
    "expand": ExpandPublicIdOp,
    "backfill": BackfillPublicIdOp,
    "contract": ContractPublicIdOp,
}


def three_revisions(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
    """Split each ``op.add_public_id()`` into three revisions. Pass this as ``process_revision_directives``."""
    directives[:] = [part for script in directives for part in _split(script, _PHASES)]


def three_revisions_after(own: Directives) -> Directives:
    """Return a ``process_revision_directives`` function that calls *own*, and then :func:`three_revisions`."""
    return _chain(own, three_revisions)


def separate_revisions(context: AutogenContext, *schemas: object) -> None:
    """Add :func:`one_revision` to the ``process_revision_directives`` of env.py, and compare nothing."""
    # with several databases, Alembic runs the hook after each one, and adds the next database to the last script
    several = context.opts.get("upgrade_token") != "upgrades"
    own: Directives | None = context.opts.get("process_revision_directives")
    if not several and getattr(own, "_separates", None) is None:
        process: Any = one_revision if own is None else _chain(own, one_revision)
        process._separates = True
        context.opts["process_revision_directives"] = process


def one_revision(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
    """Move the operations that commit into a separate revision, after the one for all other changes."""
    directives[:] = [part for script in directives for part in _split(script, {})]


def _chain(first: Directives, second: Directives) -> Directives:
    def process(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
        first(context, revision, directives)
        second(context, revision, directives)

    return process


def _split(script: MigrationScript, phases: Mapping[str, type[PublicIdOp]]) -> list[MigrationScript]:
    """Split *script* into one for other operations, those for public ids, and one for operations that depend on these.

    :param phases: the phases of new public ids that get a script, each with its operation.
    """

    def is_new(op: MigrateOperation) -> bool:
        return bool(phases) and isinstance(op, AddPublicIdOp)

    databases = [*zip(script.upgrade_ops_list, script.downgrade_ops_list, strict=True)]
    every = [op for upgrade, _ in databases for op in _each(upgrade.ops)]
    if len({_commits(op) for op in every}) < 2 and not any(map(is_new, every)):
        return [script]
    parts: dict[str, list[Changes]] = defaultdict(list)
    for database in databases:
        new, _ = _take(*database, is_new)
        ours, undone = _take(*database, _commits)
        parts["public ids"].append((ours, undone))
        for phase, kind in phases.items():
            parts[phase].append(_in_phase(kind, _each(new)))
        columns = {_name(op.schema, op.table_name, op.column_name) for op in _each(new + ours)}
        parts["after public ids"].append(_take_dependent(*database, columns))
    message, scripts = script.message or "public ids", [script]
    is_free = all(ops.is_empty() for database in databases for ops in database)
    for what, changes in parts.items():
        if any(upgrade for upgrade, _ in changes):
            if not is_free:
                scripts.append(_follow(scripts[-1]))
            is_free = False
            last = scripts[-1]
            last.message = f"{message}: {what}"
            for up, down, ops in zip(last.upgrade_ops_list, last.downgrade_ops_list, changes, strict=True):
                up.ops[:], down.ops[:] = ops
    return scripts


class _LaterOps(UpgradeOps):
    """The operations of a later script, with earlier diffs: ``alembic check`` looks only at the last script."""

    def __init__(self, before: UpgradeOps) -> None:
        super().__init__([], upgrade_token=before.upgrade_token)
        self.before = before

    def as_diffs(self) -> Any:
        earlier: list[Any] = self.before.as_diffs()
        return [*earlier, *super().as_diffs()]


def _follow(script: MigrationScript) -> MigrationScript:
    """Return a script on top of *script*, without operations."""
    # the type stubs name one UpgradeOps; MigrationScript accepts lists
    upgrades: Any = [_LaterOps(ops) for ops in script.upgrade_ops_list]
    downgrades: Any = [DowngradeOps([], downgrade_token=ops.downgrade_token) for ops in script.downgrade_ops_list]
    place: dict[str, Any] = {"head": script.rev_id, "splice": False, "version_path": script.version_path}
    return MigrationScript(rev_id(), upgrades, downgrades, imports=set(script.imports), **place)


def _commits(op: MigrateOperation) -> bool:
    return isinstance(op, PublicIdOp) and op.online


def _in_phase(kind: type[PublicIdOp], added: list[Any]) -> Changes:
    """Return the operations of one phase of the *added* ones, and those that undo them."""
    ops = [kind(op.table_name, op.column_name, **op.options) for op in added]
    undone = [_undo(op, of) for op, of in zip(reversed(ops), reversed(added), strict=True)]
    return [*map(_in_table, ops)], [_in_table(op) for op in undone if isinstance(op, PublicIdOp)]


def _undo(op: PublicIdOp, of: AddPublicIdOp) -> MigrateOperation:
    """Return the operation that undoes *op*, which is a phase *of* another operation."""
    if of.undone_by is None or isinstance(op, BackfillPublicIdOp):
        return op.reverse()
    if isinstance(op, ExpandPublicIdOp):
        return of.undone_by  # a column that existed before stays
    options = of.undone_by.options.copy()
    options["server_default"] = op.target.server_default  # which the downgrade of the expand removes
    return LoosenPublicIdOp(op.table_name, op.column_name, **options)


def _each(ops: Iterable[Any]) -> list[Any]:
    """Return *ops*, with each container for a table replaced by its operations."""
    return [op for top in ops for op in (top.ops if isinstance(top, ModifyTableOps) else [top])]


def _in_table(op: PublicIdOp) -> ModifyTableOps:
    return ModifyTableOps(op.table_name, [op], schema=op.schema)


def _take(upgrade: OpContainer, downgrade: OpContainer, condition: Callable[[MigrateOperation], bool]) -> Changes:
    """Remove operations from *upgrade*, and those that undo them from *downgrade*, and return both.

    Other operations of the downgrade stay: the project may have written them.
    """
    taken = _remove(upgrade, condition)
    undone = {_identity(op.reverse()) for op in _each(taken)}
    return taken, _remove(downgrade, lambda op: _identity(op) in undone)


def _take_dependent(upgrade: OpContainer, downgrade: OpContainer, columns: set[str]) -> Changes:
    """Take the operations that need *columns*, such as an index on one of them and another column."""
    taken, undone = _take(upgrade, downgrade, lambda op: not _needs(op).isdisjoint(columns))
    if taken:
        more, more_undone = _take_dependent(upgrade, downgrade, {name for op in _each(taken) for name in _makes(op)})
        taken, undone = taken + more, more_undone + undone
    return taken, undone


def _remove(container: OpContainer, condition: Callable[[MigrateOperation], bool]) -> list[Any]:
    """Remove operations from *container*, and return them, each in a container for its table."""
    removed: list[Any] = []
    for op in [*container.ops]:
        if isinstance(op, ModifyTableOps):
            removed += [ModifyTableOps(op.table_name, [each], schema=op.schema) for each in _remove(op, condition)]
        elif condition(op):
            removed.append(op)
            container.ops.remove(op)
    container.ops[:] = [op for op in container.ops if not isinstance(op, ModifyTableOps) or op.ops]
    return removed


def _identity(op: object) -> tuple[Any, ...]:
    """Return the class and the names of an operation, which identify it."""
    names = ("schema", "table_name", "column_name", "index_name", "constraint_name")
    return type(op), *(getattr(op, name, None) for name in names)


def _makes(op: MigrateOperation) -> set[str]:
    """Return the columns that an operation adds, as ``schema.table.column``."""
    if isinstance(op, CreateTableOp):
        return {f"{op.to_table().fullname}.{column.name}" for column in op.to_table().columns}
    return {_name(op.schema, op.table_name, op.column.name)} if isinstance(op, AddColumnOp) else set()


def _needs(op: MigrateOperation) -> set[str]:
    """Return the columns that an operation needs, as ``schema.table.column``."""
    if isinstance(op, (CreateIndexOp, CreateUniqueConstraintOp)):
        return {_name(op.schema, op.table_name, column) for part in op.columns for column in _names_in(part)}
    if isinstance(op, CreateForeignKeyOp):
        local = {_name(op.kw.get("source_schema"), op.source_table, column) for column in op.local_cols}
        return local | {_name(op.kw.get("referent_schema"), op.referent_table, column) for column in op.remote_cols}
    if isinstance(op, CreateTableOp):
        return {key.target_fullname for key in op.to_table().foreign_keys}
    return {key.target_fullname for key in op.column.foreign_keys} if isinstance(op, AddColumnOp) else set()


def _names_in(part: Any) -> list[str]:
    if isinstance(part, str):
        return [part]
    return [element.name for element in iterate(part) if isinstance(element, ColumnClause)]  # of an expression


def _name(schema: str | None, table: str, column: str) -> str:
    return ".".join(filter(None, (schema, table, column)))
