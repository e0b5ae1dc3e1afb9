"""Autogenerate: operations that can never work on their table are refused, so that no revision has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic.operations.ops import ModifyTableOps, UpgradeOps

from sqlalchemy_public_id.alembic.ops import PublicIdOp
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.preflight.structure import obstacles_of_structure

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext


def refuse_impossible_ops(context: AutogenContext, upgrade: UpgradeOps, schemas: object) -> bool:
    """Raise an error with every operation on a table that cannot have the unique index.

    :raises MigrationRefused: if there is one. No revision is written.
    """
    assert context.connection is not None
    changes = [op for changes in upgrade.ops if isinstance(changes, ModifyTableOps) for op in changes.ops]
    refused = [
        (str(op.target), obstacle)
        for op in changes
        if isinstance(op, PublicIdOp)
        for obstacle in obstacles_of_structure(context.connection, op.table_name, op.schema)
    ]
    if refused:
        targets = ", ".join(dict.fromkeys(target for target, _ in refused))
        raise MigrationRefused(target=targets, obstacles=[obstacle for _, obstacle in refused])
    return False
