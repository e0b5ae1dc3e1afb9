"""Find rows by public id.

>>> from sqlalchemy_public_id import lookup
>>> user = lookup.get_one(session, User, "izkpm55j334u")
>>> lookup.get(session, User, "no such id") is None
True

Input that cannot be an id of the model (malformed, another type's prefix, an integer, ``None``) is answered without a
statement: :func:`get` returns ``None``, :func:`get_one` and :func:`page` raise
:class:`~sqlalchemy_public_id.PublicIdNotFound`, the others leave it out. The integer key is never accepted. A format
that has several spellings of one id accepts all of them, and returns the canonical one.

``sqlalchemy_public_id.asyncio.lookup`` has the same functions for an ``AsyncSession``.
"""

from __future__ import annotations

from sqlalchemy_public_id.lookup.pages import Page, PageOptions, page
from sqlalchemy_public_id.lookup.rows import LoadOptions, get, get_many, get_one, keys_of, public_ids_of, resolve

__all__ = [
    "LoadOptions",
    "Page",
    "PageOptions",
    "get",
    "get_many",
    "get_one",
    "keys_of",
    "page",
    "public_ids_of",
    "resolve",
]
