"""What differs between databases: one file each, the careful answers in ``_base``."""

from __future__ import annotations

from sqlalchemy.engine import Dialect

from sqlalchemy_public_id.dialects._base import Fate, ManyRows, Traits, Violation
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import PostgreSQL
from sqlalchemy_public_id.dialects.sqlite import SQLite

__all__ = ["Fate", "ManyRows", "Traits", "Violation", "traits_for"]

_UNKNOWN = Traits()
_BY_NAME: dict[str, Traits] = {
    "mariadb": MySQL(),
    "mysql": MySQL(),
    "postgresql": PostgreSQL(),
    "sqlite": SQLite(),
}


def traits_for(dialect: Dialect) -> Traits:
    """What may be relied on with *dialect*."""
    if dialect.name == "cockroachdb" and dialect.name not in _BY_NAME:
        from sqlalchemy_public_id.dialects.cockroachdb import CockroachDB  # a module that most programs do not need

        _BY_NAME[dialect.name] = CockroachDB()
    return _BY_NAME.get(dialect.name, _UNKNOWN)
