""":mod:`sqlalchemy_public_id.bulk` for an ``AsyncSession``."""

from sqlalchemy_public_id import bulk
from sqlalchemy_public_id.asyncio._awaited import awaited

__all__ = ["insert"]

insert = awaited(bulk.insert)
