"""Revisions for operations that commit: one of their own by default, or three for large tables.

An operation on public ids commits each of its steps, and so everything that its revision has done before. If it fails
then, the revision is half done, and cannot be run again. So ``alembic revision --autogenerate`` writes these operations
into a revision of their own, after one for all other changes.

For large tables, in ``env.py``::

    from sqlalchemy_public_id.alembic.revisions import three_revisions

    context.configure(..., process_revision_directives=three_revisions)

Then each phase of new public ids has its revision: expand, backfill, contract. They can be deployed one by one, with
hours or days in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from alembic.operations.ops import (
    AddColumnOp,
    CreateForeignKeyOp,
    CreateIndexOp,
    CreateTableOp,
    CreateUniqueConstraintOp,
    DowngradeOps,
    DropTableOp,
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
    FinishPublicIdOp,
    LoosenPublicIdOp,
    PublicIdOp,
)

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext
    from alembic.runtime.migration import MigrationContext  # half imported while Alembic loads plugins

__all__ = ["three_revisions", "three_revisions_after"]

Directives: TypeAlias = "Callable[[MigrationContext, Any, list[MigrationScript]], None]"

_PHASES = {"expand": ExpandPublicIdOp, "backfill": BackfillPublicIdOp, "contract": ContractPublicIdOp}


def three_revisions(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
    """Split each ``op.add_public_id()`` into its phases, a revision each. For ``process_revision_directives``."""
    directives[:] = [part for script in directives for part in _in_phases(script)]


def three_revisions_after(own: Directives) -> Directives:
    """Call *own*, another function for ``process_revision_directives``, and then :func:`three_revisions`."""
    return _after(own, three_revisions)


def separate_revisions(context: AutogenContext, *schemas: object) -> bool:
    """Add :func:`one_revision` to the ``process_revision_directives`` of env.py. Compares nothing."""
    # with several databases, Alembic runs the hook after each one, and adds the next one to the last script
    several = context.opts.get("upgrade_token") != "upgrades"
    own: Directives | None = context.opts.get("process_revision_directives")
    if not several and getattr(own, "_separates", None) is None:
        process: Any = one_revision if own is None else _after(own, one_revision)
        process._separates = True
        context.opts["process_revision_directives"] = process
    return False


def one_revision(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
    """Move the operations that commit into a revision of their own, after one for all other changes."""
    directives[:] = [part for script in directives for part in _apart(script)]


def _after(first: Directives, second: Directives) -> Directives:
    def process(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
        first(context, revision, directives)
        second(context, revision, directives)

    return process


def _apart(script: MigrationScript) -> list[MigrationScript]:
    """Return *script* without the operations that commit, and one with these."""
    ops = [op for upgrade in script.upgrade_ops_list for op in _each(upgrade)]
    if all(map(_commits, ops)) or not any(map(_commits, ops)):
        return [script]
    split = _Split(script, _commits)
    split.add("public ids", [_in_tables(ops) for ops in split.taken], [_in_tables(ops) for ops in split.undone])
    return split.scripts()


def _commits(op: MigrateOperation) -> bool:
    return isinstance(op, PublicIdOp) and op.online


def _in_phases(script: MigrationScript) -> list[MigrationScript]:
    """Return *script* with its other operations, if any, and a script for each phase."""
    split = _Split(script, lambda op: isinstance(op, AddPublicIdOp))
    if not any(split.taken):
        return [script]
    for phase in _PHASES:
        split.add(phase, [_of_phase(phase, ops) for ops in split.taken], [_undone(phase, ops) for ops in split.taken])
    return split.scripts()


class _LaterOps(UpgradeOps):
    """The operations of a script after the first one. ``alembic check`` looks at the last script only."""

    def __init__(self, ops: Sequence[MigrateOperation], token: str, before: UpgradeOps | None) -> None:
        super().__init__(ops, upgrade_token=token)
        self.before = before

    def as_diffs(self) -> Any:
        earlier: list[Any] = self.before.as_diffs() if self.before is not None else []
        return [*earlier, *super().as_diffs()]


class _Split:
    """The scripts that one script becomes: its rest, those for the operations taken out, and what depends on these.

    Each list of operations has an entry for each database.
    """

    def __init__(self, script: MigrationScript, condition: Callable[[MigrateOperation], bool]) -> None:
        self.script = script
        self.taken = [_take(upgrade, condition) for upgrade in script.upgrade_ops_list]
        self.undone = self._take_reversed(self.taken)
        self.dependent = [
            _take_dependent(upgrade, {_name(op.schema, op.table_name, op.column_name) for op in ops})
            for upgrade, ops in zip(script.upgrade_ops_list, self.taken, strict=True)
        ]
        self.dependent_undone = self._take_reversed(self.dependent)
        others = [*script.upgrade_ops_list, *script.downgrade_ops_list]
        self.parts = [] if all(ops.is_empty() for ops in others) else [script]

    def add(self, what: str, upgrades: list[list[Any]], downgrades: list[list[Any]]) -> None:
        """Add a script on top of the last one, or else in the place of the whole."""
        script = self.script
        before = self.parts[-1].upgrade_ops_list if self.parts else [None] * len(upgrades)
        pairs_up = zip(upgrades, script.upgrade_ops_list, before, strict=True)
        pairs_down = zip(downgrades, script.downgrade_ops_list, strict=True)
        # the type stubs name one UpgradeOps; the properties accept lists
        ops: Any = {
            "upgrade_ops": [_LaterOps(ops, old.upgrade_token, earlier) for ops, old, earlier in pairs_up],
            "downgrade_ops": [DowngradeOps(ops, downgrade_token=old.downgrade_token) for ops, old in pairs_down],
        }
        place: Any = (
            {"head": self.parts[-1].rev_id, "splice": False}
            if self.parts
            else {name: getattr(script, name) for name in ("head", "splice", "branch_label", "depends_on")}
        )
        part = MigrationScript(
            rev_id() if self.parts else script.rev_id,
            message=f"{script.message or 'public ids'}: {what}",
            imports=set(script.imports),
            version_path=script.version_path,
            **ops,
            **place,
        )
        self.parts.append(part)

    def scripts(self) -> list[MigrationScript]:
        if any(self.dependent):
            upgrades = [_in_tables(ops) for ops in self.dependent]
            self.add("after public ids", upgrades, [_in_tables(ops) for ops in self.dependent_undone])
        return self.parts

    def _take_reversed(self, taken: Sequence[Sequence[MigrateOperation]]) -> list[list[Any]]:
        # only the reverse of these: the project may have written other downgrades
        pairs = zip(self.script.downgrade_ops_list, taken, strict=True)
        return [_take(downgrade, _is_reverse_of(ops)) for downgrade, ops in pairs]


def _each(ops: OpContainer) -> list[MigrateOperation]:
    return [op for top in ops.ops for op in (top.ops if isinstance(top, ModifyTableOps) else [top])]


def _take(ops: OpContainer, condition: Callable[[MigrateOperation], bool]) -> list[Any]:
    """Remove operations from *ops*, with the containers that are empty then, and return them."""
    taken: list[Any] = []
    for container in [ops, *(op for op in ops.ops if isinstance(op, ModifyTableOps))]:
        matching = [op for op in container.ops if condition(op)]
        container.ops[:] = [op for op in container.ops if op not in matching]
        if matching and container is not ops and container.is_empty():
            ops.ops.remove(container)
        taken += matching
    return taken


def _take_dependent(ops: OpContainer, columns: set[str]) -> list[Any]:
    """Remove operations that need *columns*, such as an index on one of them and another one, and return them."""
    taken, needed = list[Any](), set(columns)
    while more := _take(ops, lambda op: not _columns_of(op).isdisjoint(needed)):
        taken += more
        needed.update(*map(_made_by, more))
    return taken


def _made_by(op: MigrateOperation) -> set[str]:
    if isinstance(op, CreateTableOp):
        return {f"{op.to_table().fullname}.{column.name}" for column in op.to_table().columns}
    return {_name(op.schema, op.table_name, op.column.name)} if isinstance(op, AddColumnOp) else set()


def _is_reverse_of(ops: Sequence[MigrateOperation]) -> Callable[[MigrateOperation], bool]:
    undone = [_identity(op.reverse()) for op in ops]
    return lambda op: _identity(op) in undone


def _identity(op: object) -> tuple[Any, ...]:
    """Return the class of an operation and the names it has, by which two of them are the same."""
    names = ("schema", "table_name", "column_name", "index_name", "constraint_name")
    return type(op), *(getattr(op, name, None) for name in names)


def _in_tables(ops: Iterable[Any]) -> list[MigrateOperation]:
    return [
        op
        if isinstance(op, (CreateTableOp, DropTableOp, ModifyTableOps))
        else ModifyTableOps(_table_of(op), [op], schema=getattr(op, "schema", None))
        for op in ops
    ]


def _table_of(op: Any) -> str:
    return str(op.source_table if isinstance(op, CreateForeignKeyOp) else op.table_name)


def _columns_of(op: MigrateOperation) -> set[str]:
    """Return the columns that an operation needs, as ``schema.table.column``."""
    if isinstance(op, (CreateIndexOp, CreateUniqueConstraintOp)):
        return {_name(op.schema, op.table_name, column) for part in op.columns for column in _names_in(part)}
    if isinstance(op, CreateForeignKeyOp):
        local = {_name(op.kw.get("source_schema"), op.source_table, column) for column in op.local_cols}
        remote = {_name(op.kw.get("referent_schema"), op.referent_table, column) for column in op.remote_cols}
        return local | remote
    if isinstance(op, CreateTableOp):
        return {key.target_fullname for key in op.to_table().foreign_keys}
    if isinstance(op, AddColumnOp):
        return {key.target_fullname for key in op.column.foreign_keys}
    return set()


def _names_in(part: Any) -> list[str]:
    if isinstance(part, str):
        return [part]
    return [element.name for element in iterate(part) if isinstance(element, ColumnClause)]  # of an expression


def _name(schema: str | None, table: str, column: str) -> str:
    return ".".join(filter(None, (schema, table, column)))


def _of_phase(phase: str, added: Iterable[AddPublicIdOp]) -> list[MigrateOperation]:
    return _in_tables(_PHASES[phase](op.table_name, op.column_name, **op.options) for op in added)


def _undone(phase: str, added: list[AddPublicIdOp]) -> list[MigrateOperation]:
    if phase == "backfill":
        return []  # the ids go with the column
    if phase == "contract":
        return _in_tables(_undo_contract(op) for op in reversed(added))
    # a column that existed before stays
    return _in_tables(
        op.reverse()
        if isinstance(op, FinishPublicIdOp)
        else ExpandPublicIdOp(op.table_name, op.column_name, **op.options).reverse()
        for op in reversed(added)
    )


def _undo_contract(op: AddPublicIdOp) -> MigrateOperation:
    if op.undone_by is None:
        return ContractPublicIdOp(op.table_name, op.column_name, **op.options).reverse()
    options = op.undone_by.options.copy()
    options["server_default"] = op.options.get("server_default", "keep")  # which the downgrade of the expand removes
    return LoosenPublicIdOp(op.table_name, op.column_name, **options)
