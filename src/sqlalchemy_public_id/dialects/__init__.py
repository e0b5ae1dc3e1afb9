"""Differences between databases: one module each, and cautious answers for others in ``_base``."""

from __future__ import annotations

import sys

from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects._base import Outcome, Traits, Violation
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import CockroachDB, OtherPostgreSQL, PostgreSQL
from sqlalchemy_public_id.dialects.sqlite import SQLite

__all__ = ["Outcome", "Traits", "Violation", "is_autocommit", "is_retryable", "traits_for"]

_UNSUPPORTED = Traits()
_BY_NAME: dict[str, Traits] = {
    "cockroachdb": CockroachDB(),
    "mariadb": MySQL(),
    "mysql": MySQL(),
    "postgresql": PostgreSQL(),
    "sqlite": SQLite(),
}


_FAMILIES: tuple[tuple[str, str, Traits], ...] = (
    ("sqlalchemy.dialects.postgresql.base", "PGDialect", OtherPostgreSQL()),
    ("sqlalchemy.dialects.mysql.base", "MySQLDialect", _BY_NAME["mysql"]),
    ("sqlalchemy.dialects.sqlite.base", "SQLiteDialect", _BY_NAME["sqlite"]),
)
"""Module and class of SQLAlchemy's own dialects, and the traits of their children in other packages."""
_OF_CHILDREN: dict[type[Dialect], Traits] = {}


def traits_for(dialect: Dialect) -> Traits:
    """Return the traits of the database of *dialect*: those of its name, or of the family of its class."""
    return _BY_NAME.get(dialect.name) or _OF_CHILDREN.get(type(dialect)) or _traits_of_child(dialect)


def _traits_of_child(dialect: Dialect) -> Traits:
    # not imported: if nothing has loaded the module of a family, no dialect is of its class
    families = ((getattr(sys.modules.get(module), name, ()), traits) for module, name, traits in _FAMILIES)
    traits = next((traits for family, traits in families if isinstance(dialect, family)), _UNSUPPORTED)
    return _OF_CHILDREN.setdefault(type(dialect), traits)


def is_retryable(error: BaseException, *, idempotent: bool = False) -> bool:
    """Return True if the database gave up the transaction of *error*, which may succeed if it is run again as a whole.

    Such are deadlocks, serialization failures, refusals by Galera and group replication, lock timeouts of MySQL and
    MariaDB, and a busy SQLite file (``docs/guides/several-nodes.md`` has the numbers). The code is read from the error
    of any driver. An error that another one hides is seen: a deadlock ends the savepoints, so that the ``ROLLBACK TO
    SAVEPOINT`` of a ``with session.begin_nested()`` fails after it.

    >>> from sqlalchemy.exc import OperationalError
    >>> from sqlalchemy_public_id.guard import is_retryable
    >>> is_retryable(OperationalError("COMMIT", {}, Exception(1213, "Deadlock found when trying to get lock")))
    True
    >>> is_retryable(ValueError(1213))
    False

    :param idempotent: the transaction may be run again after it was committed, because it looks for its own rows
        (:func:`~sqlalchemy_public_id.idempotency.insert_once`). Then a lost connection is retryable, too, although the
        COMMIT may have been stored.
    """
    wanted = {Outcome.RETRYABLE, Outcome.UNKNOWN} if idempotent else {Outcome.RETRYABLE}
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DBAPIError):
            if idempotent and cause.connection_invalidated:
                return True
            orig = cause.orig
            if isinstance(orig, Exception) and any(each.outcome(orig) in wanted for each in _BY_NAME.values()):
                return True
        cause = cause.__context__
    return False


def is_autocommit(connection: Connection) -> bool:
    """Return True if *connection* commits each statement, by its options or by the mode of its driver."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    return traits_for(connection.dialect).in_autocommit(connection.connection.dbapi_connection)
