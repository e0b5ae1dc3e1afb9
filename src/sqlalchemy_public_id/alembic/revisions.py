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

import copy
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from secrets import randbelow
from typing import TYPE_CHECKING, Any, TypeAlias, cast

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
    from alembic.script import ScriptDirectory

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
    directives[:] = _split_all(context, directives, _PHASES)


def three_revisions_after(own: Directives) -> Directives:
    """Return a ``process_revision_directives`` function that calls *own*, and then :func:`three_revisions`."""
    return _chain(own, three_revisions)


def separate_revisions(context: AutogenContext, *schemas: object) -> None:
    """Add :func:`one_revision` to the ``process_revision_directives`` of env.py, and compare nothing."""
    # with several databases, Alembic runs the hook after each one, and adds the next database to the last script
    several = context.opts.get("upgrade_token") != "upgrades"
    own: Directives | None = context.opts.get("process_revision_directives")
    if getattr(own, "_separates", None) is None:
        process: Any = _chain(own or _nothing, _nothing if several else one_revision)
        process._separates = True
        context.opts["process_revision_directives"] = process


def _nothing(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
    """Change nothing."""


def one_revision(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
    """Move the operations that commit into a separate revision, after the one for all other changes."""
    directives[:] = _split_all(context, directives, {})


def _chain(first: Directives, second: Directives) -> Directives:
    def process(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
        before = [*directives]
        first(context, revision, directives)
        if not directives and _is_check(context):
            directives[:] = before  # env.py writes no empty revision, but "alembic check" reads the last script
        for ops in [ops for script in directives for ops in script.downgrade_ops_list]:
            _remove(ops, lambda op: False)  # only what is empty, of which batch mode would write an empty block
        second(context, revision, directives)

    return process


def _is_check(context: MigrationContext) -> bool:
    """Return True if *context* belongs to ``alembic check``, which passes a function of its own to the environment.

    Alembic 1.13 to 1.20 name it so. With another name, a check beside such a hook ends as it does without the library.
    """
    return getattr(context.opts.get("fn"), "__qualname__", "").startswith("check.")


def _split_all(
    context: MigrationContext, scripts: list[MigrationScript], phases: Mapping[str, type[PublicIdOp]]
) -> list[MigrationScript]:
    """Split each script. What follows on one of *scripts* follows on its last part."""
    taken = {str(script.rev_id) for script in scripts}
    folder: ScriptDirectory | None = getattr(context, "script", None)
    if folder is not None:  # of two revisions with one id, Alembic would run only one
        taken |= {str(each.revision) for each in folder.walk_revisions()}
    last: dict[str | None, str | None] = {}
    parts: list[MigrationScript] = []
    for script in scripts:
        script.head = last.get(script.head, script.head)
        parts += _split(script, phases, taken)
        last[script.rev_id] = parts[-1].rev_id
    return parts


def _split(script: MigrationScript, phases: Mapping[str, type[PublicIdOp]], taken: set[str]) -> list[MigrationScript]:
    """Split *script* into one for other operations, those for public ids, and one for operations that depend on these.

    :param phases: the phases of new public ids that get a script, each with its operation.
    :param taken: the ids of all revisions, to which those of the new scripts are added.
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
                scripts.append(_follow(scripts[-1], taken))
            is_free = False
            last = scripts[-1]
            # a project that numbers its revisions may begin the message with the number
            begun = re.sub(rf"^(\W*){re.escape(str(script.rev_id))}\b", rf"\g<1>{last.rev_id}", message)
            last.message = f"{begun}: {what}"
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


def _follow(script: MigrationScript, taken: set[str]) -> MigrationScript:
    """Return a script on top of *script*, without operations. It keeps what a hook of the project has set."""
    follower: Any = copy.copy(script)  # the type stubs name one UpgradeOps; MigrationScript accepts lists
    follower.upgrade_ops = [_LaterOps(ops) for ops in script.upgrade_ops_list]
    follower.downgrade_ops = [
        DowngradeOps([], downgrade_token=ops.downgrade_token) for ops in script.downgrade_ops_list
    ]
    follower.rev_id = _next_id(str(script.rev_id), taken)
    follower.imports = set(script.imports)
    follower.head, follower.splice = script.rev_id, False
    follower.branch_label = follower.depends_on = None  # it inherits those of the script below it
    return cast("MigrationScript", follower)


def _next_id(rev_id: str, taken: set[str]) -> str:
    """Return a new id after *rev_id*, and add it to *taken*. Names of files that begin with it are in this order.

    After ``0002``, it is ``0003``; after ``add_ids``, ``add_ids_2``; after random digits, as many of them.
    """
    number = re.fullmatch(r"(.*?)([0-9]*)", rev_id, re.DOTALL)
    assert number is not None
    head, digits = number.groups()
    if re.fullmatch(r"[0-9a-f]{8,}", rev_id) and head:
        first, count = int(rev_id, 16) + 1, 16 ** len(rev_id)
        found = f"{first + randbelow(max(1, count - first)):0{len(rev_id)}x}"
    elif digits:
        found = f"{head}{int(digits) + 1:0{len(digits)}}"
    else:
        found = f"{rev_id}_2"
    if found in taken:
        return _next_id(found, taken)
    taken.add(found)
    return found


def _commits(op: MigrateOperation) -> bool:
    return isinstance(op, PublicIdOp) and op.online


def _in_phase(kind: type[PublicIdOp], added: list[Any]) -> Changes:
    """Return the operations of one phase of the *added* ones, and those that undo them."""
    ops = [kind(op.table_name, op.column_name, **op.options) for op in added]
    undone = [_undo(op, of) for op, of in zip(reversed(ops), reversed(added), strict=True)]
    return [*map(_in_table, ops)], [_in_table(op) for op in undone if isinstance(op, PublicIdOp)]


def _undo(op: PublicIdOp, of: AddPublicIdOp) -> MigrateOperation:
    """Return the operation that undoes *op*, which is a phase *of* another operation."""
    if not isinstance(of.undone_by, PublicIdOp) or isinstance(op, BackfillPublicIdOp):
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
