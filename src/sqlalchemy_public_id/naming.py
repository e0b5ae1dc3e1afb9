"""Names of what stands in a database beside a column of public ids; each is derived from the table and the column.

>>> unique_name("user", "public_id")
'uq_user_public_id'
"""

from __future__ import annotations

import hashlib

__all__ = ["derived_name", "unique_name"]

_BYTES = 63
"""PostgreSQL's limit for a name; MySQL and MariaDB allow 64 characters."""


def unique_name(table: str, column: str) -> str:
    """``uq_<table>_<column>``, the name of the unique index."""
    return derived_name("uq", table, column)


def derived_name(*parts: str) -> str:
    """*parts* joined by ``_``; a name longer than any database takes is cut, and ends with a hash of the whole."""
    name = "_".join(parts).encode()
    if len(name) > _BYTES:
        digest = hashlib.sha256(name).hexdigest()[:8]
        name = name[: _BYTES - 9].decode(errors="ignore").encode() + f"_{digest}".encode()
    return name.decode()
