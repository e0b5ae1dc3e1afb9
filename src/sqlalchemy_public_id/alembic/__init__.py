"""Alembic operations that add public ids to tables while they stay in use.

>>> import sqlalchemy_public_id.alembic  # in env.py, for Alembic before 1.18; later ones load it themselves

Your migrations can then call ``op.add_public_id()`` and its siblings. Type checkers cannot see these methods. If you
use one, call the functions of this module instead, and pass ``op`` as their first argument: the module ``alembic.op``,
or an :class:`~alembic.operations.Operations`.
"""

from importlib import import_module

from sqlalchemy_public_id.errors import require

with require("alembic"):
    import_module("alembic")

from sqlalchemy_public_id.alembic.clusters.operations import (
    ClusterOp,
    CreateClusterConfigOp,
    CreateClusterSequenceOp,
    DropClusterConfigOp,
    DropClusterSequenceOp,
    SetClusterOp,
    UnsetClusterOp,
    create_cluster_config,
    create_cluster_sequence,
    drop_cluster_config,
    drop_cluster_sequence,
    set_cluster,
    unset_cluster,
)
from sqlalchemy_public_id.alembic.compare import register_comparators
from sqlalchemy_public_id.alembic.ops import (
    AddPublicIdOp,
    BackfillPublicIdOp,
    ContractPublicIdOp,
    DropPublicIdOp,
    ExpandPublicIdOp,
    LoosenPublicIdOp,
    PublicIdOp,
    add_public_id,
    backfill_public_id,
    contract_public_id,
    drop_public_id,
    expand_public_id,
    loosen_public_id,
)
from sqlalchemy_public_id.migrations import Options
from sqlalchemy_public_id.migrations.operation import take_turn

__all__ = [
    "AddPublicIdOp",
    "BackfillPublicIdOp",
    "ClusterOp",
    "ContractPublicIdOp",
    "CreateClusterConfigOp",
    "CreateClusterSequenceOp",
    "DropClusterConfigOp",
    "DropClusterSequenceOp",
    "DropPublicIdOp",
    "ExpandPublicIdOp",
    "LoosenPublicIdOp",
    "Options",
    "PublicIdOp",
    "SetClusterOp",
    "UnsetClusterOp",
    "add_public_id",
    "backfill_public_id",
    "contract_public_id",
    "create_cluster_config",
    "create_cluster_sequence",
    "drop_cluster_config",
    "drop_cluster_sequence",
    "drop_public_id",
    "expand_public_id",
    "loosen_public_id",
    "set_cluster",
    "take_turn",
    "unset_cluster",
]

register_comparators()
import_module("sqlalchemy_public_id.alembic.toimpl")
