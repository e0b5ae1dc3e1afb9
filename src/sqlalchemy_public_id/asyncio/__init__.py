"""Async versions of the library's functions, for ``AsyncSession``.

>>> from sqlalchemy_public_id.asyncio import bulk, lookup

Models, formats and the guard work with an ``AsyncSession`` without change.
"""

from importlib import import_module

from sqlalchemy_public_id.errors import require

with require("greenlet", extra="asyncio"):
    import_module("greenlet")

from sqlalchemy_public_id.asyncio import bulk, idempotency, lookup, references, tokens

__all__ = ["bulk", "idempotency", "lookup", "references", "tokens"]
