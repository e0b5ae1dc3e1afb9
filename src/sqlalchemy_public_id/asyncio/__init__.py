"""The library for ``AsyncSession``: the same names, awaited.

>>> from sqlalchemy_public_id.asyncio import bulk, lookup

Models, formats and the guard need no twin: an ``AsyncSession`` runs the same unit of work.
"""

from __future__ import annotations

from sqlalchemy_public_id.asyncio import bulk, lookup

__all__ = ["bulk", "lookup"]
