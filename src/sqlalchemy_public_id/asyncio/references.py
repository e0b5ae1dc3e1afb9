""":mod:`sqlalchemy_public_id.references` for an ``AsyncSession``."""

from sqlalchemy_public_id import references
from sqlalchemy_public_id.asyncio._awaited import awaited

__all__ = ["load"]

load = awaited(references.load)
