"""Differences between databases: one module each, and cautious answers for others in ``_base``."""

from __future__ import annotations

from sqlalchemy.engine import Connection, Dialect

from sqlalchemy_public_id.dialects._base import ManyRows, Outcome, Traits, Violation
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import CockroachDB, PostgreSQL
from sqlalchemy_public_id.dialects.sqlite import SQLite

__all__ = ["ManyRows", "Outcome", "Traits", "Violation", "is_autocommit", "traits_for"]

_UNSUPPORTED = Traits()
_BY_NAME: dict[str, Traits] = {
    "cockroachdb": CockroachDB(),
    "mariadb": MySQL(),
    "mysql": MySQL(),
    "postgresql": PostgreSQL(),
    "sqlite": SQLite(),
}


def traits_for(dialect: Dialect) -> Traits:
    """Return the traits of the database of *dialect*."""
    return _BY_NAME.get(dialect.name, _UNSUPPORTED)


def is_autocommit(connection: Connection) -> bool:
    """Return True if *connection* commits each statement, by its options or by the mode of its driver."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    return traits_for(connection.dialect).in_autocommit(connection.connection.dbapi_connection)
