""":mod:`sqlalchemy_public_id.references` for an ``AsyncSession``."""

from __future__ import annotations

from sqlalchemy_public_id import references
from sqlalchemy_public_id.asyncio._awaited import awaited

__all__ = ["load"]

load = awaited(references.load)
