"""The library for ``AsyncSession``: the same names, awaited.

>>> from sqlalchemy_public_id.asyncio import bulk, lookup

Models, formats and the guard need no twin: an ``AsyncSession`` runs the same unit of work.
"""

from importlib import import_module

from sqlalchemy_public_id.errors import require

with require("greenlet", extra="asyncio"):
    import_module("greenlet")

from sqlalchemy_public_id.asyncio import bulk, idempotency, lookup, references, tokens

__all__ = ["bulk", "idempotency", "lookup", "references", "tokens"]
