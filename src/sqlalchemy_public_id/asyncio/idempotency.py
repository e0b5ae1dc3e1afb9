""":mod:`sqlalchemy_public_id.idempotency` for an ``AsyncSession``."""

from sqlalchemy_public_id import idempotency
from sqlalchemy_public_id.asyncio._awaited import awaited

__all__ = ["insert_once"]

insert_once = awaited(idempotency.insert_once)
