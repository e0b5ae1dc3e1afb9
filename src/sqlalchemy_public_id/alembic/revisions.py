"""Three revisions instead of one, for large tables: expand, backfill, contract.

In ``env.py``::

    from sqlalchemy_public_id.alembic.revisions import three_revisions

    context.configure(..., process_revision_directives=three_revisions)

``alembic revision --autogenerate`` then writes a revision for each phase of new public ids, after one for all other
changes. They can be deployed one by one, with hours or days in between.
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
    """Split each ``op.add_public_id()`` into its phases, a revision each. For ``process_revision_directives``."""
    directives[:] = [part for script in directives for part in _split(script)]


def three_revisions_after(own: Directives) -> Directives:
    """Call *own*, another function for ``process_revision_directives``, and then :func:`three_revisions`."""

    def process(context: MigrationContext, revision: Any, directives: list[MigrationScript]) -> None:
        own(context, revision, directives)
        three_revisions(context, revision, directives)

    return process


def _split(script: MigrationScript) -> list[MigrationScript]:
    """Return *script* with its other operations, if any, and a script for each phase."""
    taken = [_take(upgrade, lambda op: isinstance(op, AddPublicIdOp)) for upgrade in script.upgrade_ops_list]
    if not any(taken):
        return [script]
    for added, downgrade in zip(taken, script.downgrade_ops_list, strict=True):
        _take_reversed(downgrade, added)
    others = [*script.upgrade_ops_list, *script.downgrade_ops_list]
    parts = [] if all(ops.is_empty() for ops in others) else [script]
    for phase in _PHASES:
        upgrades = [
            UpgradeOps(_of_phase(phase, added), upgrade_token=upgrade.upgrade_token)
            for upgrade, added in zip(script.upgrade_ops_list, taken, strict=True)
        ]
        downgrades = [
            DowngradeOps(_undone(phase, added), downgrade_token=downgrade.downgrade_token)
            for downgrade, added in zip(script.downgrade_ops_list, taken, strict=True)
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
    """Return the script of *phase*, on top of the last one of *before*, or else in the place of *script*."""
    # the type stubs name one UpgradeOps; the properties accept lists, one entry for each database
    ops: Any = {"upgrade_ops": upgrades, "downgrade_ops": downgrades}
    place: Any = (
        {"head": before[-1].rev_id, "splice": False}
        if before
        else {name: getattr(script, name) for name in ("head", "splice", "branch_label", "depends_on")}
    )
    return MigrationScript(
        rev_id() if before else script.rev_id,
        message=f"{script.message or 'public ids'}: {phase}",
        imports=set(script.imports),
        version_path=script.version_path,
        **ops,
        **place,
    )


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


def _take_reversed(downgrade: DowngradeOps, added: Iterable[AddPublicIdOp]) -> None:
    # only the reverse of these: the project may have written other downgrades
    undone = {op.reverse().to_diff_tuple() for op in added}
    _take(downgrade, lambda op: isinstance(op, PublicIdOp) and op.to_diff_tuple() in undone)


def _of_phase(phase: str, added: Iterable[AddPublicIdOp]) -> list[MigrateOperation]:
    return [
        ModifyTableOps(op.table_name, [_PHASES[phase](op.table_name, op.column_name, **op.options)], schema=op.schema)
        for op in added
    ]


def _undone(phase: str, added: list[AddPublicIdOp]) -> list[MigrateOperation]:
    if phase == "backfill":
        return []  # the ids go with the column
    # a column that existed before stays
    undone = [op for op in reversed(added) if phase == "contract" or not isinstance(op, FinishPublicIdOp)]
    return [op.reverse() for op in _of_phase(phase, undone)]
