"""Alembic operations that take public ids into tables that are in use.

>>> import sqlalchemy_public_id.alembic  # in env.py, with Alembic before 1.18; later ones find it themselves

Migrations then have ``op.add_public_id()`` and its siblings. Type checkers do not know these; the functions here are
the same, with ``op`` as their first argument.
"""

from __future__ import annotations

from importlib import import_module

from sqlalchemy_public_id.errors import MissingExtra

try:
    import_module("alembic")
except ModuleNotFoundError as error:
    raise MissingExtra("alembic", extra="alembic") from error

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
from sqlalchemy_public_id.alembic.plugin import register

__all__ = [
    "AddPublicIdOp",
    "BackfillPublicIdOp",
    "ContractPublicIdOp",
    "DropPublicIdOp",
    "ExpandPublicIdOp",
    "LoosenPublicIdOp",
    "PublicIdOp",
    "add_public_id",
    "backfill_public_id",
    "contract_public_id",
    "drop_public_id",
    "expand_public_id",
    "loosen_public_id",
]

register()
