"""Three revisions in the place of one, for large tables: expand, backfill, contract.

In ``env.py``::

    from sqlalchemy_public_id.alembic.revisions import three_revisions

    context.configure(..., process_revision_directives=three_revisions)

``alembic revision --autogenerate`` then writes a revision for each phase of the public ids that models have gained, and
one before them for whatever else has changed. They can be deployed one by one, with hours or days in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from alembic.operations.ops import (
    DowngradeOps,
    MigrateOperation,
    MigrationScript,
    ModifyTableOps,
    OpContainer,
    UpgradeOps,
)
from alembic.runtime.migration import MigrationContext
from alembic.util import rev_id

from sqlalchemy_public_id.alembic.compare import FinishPublicIdOp
from sqlalchemy_public_id.alembic.ops import (
    AddPublicIdOp,
    BackfillPublicIdOp,
    ContractPublicIdOp,
    ExpandPublicIdOp,
    PublicIdOp,
)

__all__ = ["three_revisions", "three_revisions_after"]

Directives: TypeAlias = Callable[[MigrationContext, Any, list[MigrationScript]], None]

_PHASES = {"expand": ExpandPublicIdOp, "backfill": BackfillPublicIdOp, "contract": ContractPublicIdOp}


def three_revisions(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
    """For ``process_revision_directives``: split each ``op.add_public_id()`` into its phases, a revision each."""
    directives[:] = [part for script in directives for part in _split(script)]


def three_revisions_after(own: Directives) -> Directives:
    """The same for those who have a ``process_revision_directives`` already: *own* comes first."""

    def process(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
        own(context, revision, directives)
        three_revisions(context, revision, directives)

    return process


def _split(script: MigrationScript) -> list[MigrationScript]:
    """What *script* says of other things, if anything, and a script for each phase."""
    found = [_taken_from(upgrade) for upgrade in script.upgrade_ops_list]  # a list for each database
    if not any(found):
        return [script]
    for adding, downgrade in zip(found, script.downgrade_ops_list, strict=True):
        _take_undoing(adding, downgrade)
    others = [*script.upgrade_ops_list, *script.downgrade_ops_list]
    parts = [] if all(ops.is_empty() for ops in others) else [script]
    for phase in _PHASES:
        upgrades = [
            UpgradeOps(_of_phase(phase, adding), upgrade_token=upgrade.upgrade_token)
            for upgrade, adding in zip(script.upgrade_ops_list, found, strict=True)
        ]
        downgrades = [
            DowngradeOps(_undone(phase, adding), downgrade_token=downgrade.downgrade_token)
            for downgrade, adding in zip(script.downgrade_ops_list, found, strict=True)
        ]
        parts.append(_next(script, parts, phase, upgrades, downgrades))
    return parts


def _next(
    script: MigrationScript,
    before: list[MigrationScript],
    phase: str,
    upgrades: list[UpgradeOps],
    downgrades: list[DowngradeOps],
) -> MigrationScript:
    """The script of *phase*: on top of the last of *before*, or else where *script* was to be."""
    # a MigrationScript takes lists too, one entry for each database, as its properties say
    of_databases: Any = {"upgrade_ops": upgrades, "downgrade_ops": downgrades}
    place: Any = (
        {"head": before[-1].rev_id, "splice": False}
        if before
        else {
            "head": script.head,
            "splice": script.splice,
            "branch_label": script.branch_label,
            "depends_on": script.depends_on,
        }
    )
    return MigrationScript(
        rev_id() if before else script.rev_id,
        message=f"{script.message or 'public ids'}: {phase}",
        imports=set(script.imports),
        version_path=script.version_path,
        **of_databases,
        **place,
    )


def _taken_from(upgrade: UpgradeOps) -> list[AddPublicIdOp]:
    """The operations of *upgrade* that have phases; it has them no longer."""
    return [op for op in _take(upgrade, lambda op: isinstance(op, AddPublicIdOp)) if isinstance(op, AddPublicIdOp)]


def _take_undoing(adding: Iterable[AddPublicIdOp], downgrade: DowngradeOps) -> None:
    """Remove from *downgrade* what undoes *adding*; whatever else the project has made of it stays."""
    undone = {op.reverse().to_diff_tuple() for op in adding}
    _take(downgrade, lambda op: isinstance(op, PublicIdOp) and op.to_diff_tuple() in undone)


def _take(ops: OpContainer, wanted: Callable[[MigrateOperation], bool]) -> list[MigrateOperation]:
    """Remove the *wanted* operations from *ops*, with the containers that are empty then, and return them."""
    taken: list[MigrateOperation] = []
    for container in [ops, *(op for op in ops.ops if isinstance(op, ModifyTableOps))]:
        found = [op for op in container.ops if wanted(op)]
        container.ops[:] = [op for op in container.ops if op not in found]
        if found and container is not ops and container.is_empty():
            ops.ops.remove(container)
        taken += found
    return taken


def _of_phase(phase: str, adding: Iterable[AddPublicIdOp]) -> list[MigrateOperation]:
    return [_in_table(op, _PHASES[phase](op.table_name, op.column_name, **op.options)) for op in adding]


def _undone(phase: str, adding: list[AddPublicIdOp]) -> list[MigrateOperation]:
    """Nothing for ids that are there: they go with the column, unless this was there before."""
    if phase == "backfill":
        return []
    undone = [op for op in reversed(adding) if phase == "contract" or not isinstance(op, FinishPublicIdOp)]
    return [op.reverse() for op in _of_phase(phase, undone)]


def _in_table(op: AddPublicIdOp, phase: MigrateOperation) -> ModifyTableOps:
    return ModifyTableOps(op.table_name, [phase], schema=op.schema)
