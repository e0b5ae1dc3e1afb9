"""Names that the library gives to objects in the database, each derived from the table and the column.

>>> unique_name("user", "public_id"), not_null_check_name("user", "public_id")
('uq_user_public_id', 'ck_user_public_id_not_null')
"""

from __future__ import annotations

import hashlib
from typing import Literal, TypeAlias

ClusterObject: TypeAlias = Literal["key", "range", "given", "sequence"]
"""The trigger that makes keys, the triggers that check their range, and the counter, which is a table on MySQL."""
_BYTES = 63
"""PostgreSQL's limit for a name; MySQL and MariaDB allow 64 characters."""


def unique_name(table: str, column: str) -> str:
    """Return the name of the unique index, ``uq_<table>_<column>``."""
    return derived_name("uq", table, column)


def not_null_check_name(table: str, column: str) -> str:
    """Return the name of the temporary CHECK constraint of a column that becomes NOT NULL."""
    return derived_name("ck", table, column, "not_null")


def cluster_name(kind: ClusterObject, table: str) -> str:
    """Return the name of an object that belongs to the cluster keys of *table*.

    The name does not contain the column: ``user.role_id`` and ``user_role.id`` would share a name, and a table has only
    one such key.
    """
    return derived_name(f"cluster_{kind}", table)


def derived_name(*parts: str) -> str:
    """Join *parts* with ``_``. A name that is too long is truncated, and ends with a hash of the full name."""
    name = "_".join(parts).encode()
    if len(name) > _BYTES:
        digest = hashlib.sha256(name).hexdigest()[:8]
        name = name[: _BYTES - 9].decode(errors="ignore").encode() + f"_{digest}".encode()
    return name.decode()
