"""Differences between databases: one module each, and cautious answers for all other databases in ``_base``."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects._base import (
    KeyCounter,
    LimitPerRow,
    Oracle,
    Outcome,
    SQLServer,
    Traits,
    Violation,
    execute_unlogged,
)
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import AuroraDSQL, CockroachDB, OtherPostgreSQL, PostgreSQL
from sqlalchemy_public_id.dialects.sqlite import SQLite
from sqlalchemy_public_id.errors import ConfigurationError

__all__ = [
    "KeyCounter",
    "LimitPerRow",
    "Outcome",
    "Traits",
    "Violation",
    "before_create",
    "begin_to_write",
    "execute_unlogged",
    "is_autocommit",
    "is_retryable",
    "key_counter_of",
    "message_of",
    "missing_for_retries",
    "sees_commits",
    "traits_for",
]

_OTHERS = ""
_FAMILIES: dict[str, dict[str, Traits]] = {
    "sqlalchemy.dialects.mssql.base.MSDialect": {_OTHERS: SQLServer()},
    "sqlalchemy.dialects.mysql.base.MySQLDialect": {_OTHERS: MySQL()},
    "sqlalchemy.dialects.oracle.base.OracleDialect": {_OTHERS: Oracle()},
    "sqlalchemy.dialects.postgresql.base.PGDialect": {
        "postgresql": PostgreSQL(),
        "cockroachdb": CockroachDB(),
        "auroradsql": AuroraDSQL(),
        _OTHERS: OtherPostgreSQL(),
    },
    "sqlalchemy.dialects.sqlite.base.SQLiteDialect": {_OTHERS: SQLite()},
}
"""Class of one of SQLAlchemy's dialects → name of a dialect that derives from it → traits.

The classes are not imported: a program that uses another database need not load them.
"""
_KNOWN = [traits for family in _FAMILIES.values() for traits in family.values()]
_UNKNOWN = Traits()
_OF_CLASSES: dict[type[Dialect], Traits] = {}


def traits_for(dialect: Dialect) -> Traits:
    """Return the traits of the database of *dialect*, by the SQLAlchemy dialect from which its class derives."""
    cls = type(dialect)
    return _OF_CLASSES.get(cls) or _OF_CLASSES.setdefault(cls, _traits_of(cls))


def _traits_of(cls: type[Dialect]) -> Traits:
    for base in cls.__mro__:
        family = _FAMILIES.get(f"{base.__module__}.{base.__qualname__}")
        if family is not None:
            return family.get(cls.name) or family[_OTHERS]
    return _UNKNOWN


def key_counter_of(dialect: Dialect) -> KeyCounter:
    """Return what counts the keys of a table in the database of *dialect*.

    :raises ConfigurationError: if that is unknown, so that cluster keys cannot be supported.
    """
    counter = traits_for(dialect).key_counter
    if counter is None:
        raise ConfigurationError(
            f"cluster keys do not support {dialect.name}; expected PostgreSQL, MySQL, MariaDB or SQLite"
        )
    return counter


def missing_for_retries(dialect: Dialect) -> str | None:
    """Return what the database or the driver lacks, so that collisions are not retried; ``None`` if it lacks nothing.

    A driver that reports errors without a number is detected at its first error.
    """
    traits = traits_for(dialect)
    if not traits.retries:
        return traits.no_retries
    has_class = hasattr(dialect.loaded_dbapi, "IntegrityError")
    return None if has_class else f"the driver {dialect.driver} has no IntegrityError"


def is_retryable(error: BaseException, *, idempotent: bool = False) -> bool:
    """Return True if *error* means that the database aborted the transaction, which may succeed if it is repeated.

    Deadlocks, serialization failures, refusals by Galera and group replication, lock timeouts of MySQL and MariaDB, and
    a busy SQLite file are retryable, with any driver (see ``docs/guides/collisions.md`` for the codes). Errors in the
    context of *error* count, too: a deadlock ends the savepoints, so the ``ROLLBACK TO SAVEPOINT`` of
    ``begin_nested()`` fails after it.

    >>> from sqlalchemy.exc import OperationalError
    >>> from sqlalchemy_public_id.guard import is_retryable
    >>> is_retryable(OperationalError("COMMIT", {}, Exception(1213, "Deadlock found when trying to get lock")))
    True
    >>> is_retryable(ValueError(1213))
    False

    :param idempotent: True if the transaction may be repeated after its COMMIT, because it finds its own rows
        (:func:`~sqlalchemy_public_id.idempotency.insert_once`). Then a lost connection is retryable, too, although the
        COMMIT may have succeeded.
    """
    wanted = {Outcome.RETRYABLE, Outcome.UNKNOWN} if idempotent else {Outcome.RETRYABLE}
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DBAPIError):
            if idempotent and cause.connection_invalidated:
                return True
            orig = cause.orig
            if isinstance(orig, Exception) and any(each.outcome(orig) in wanted for each in _KNOWN):
                return True
        cause = cause.__context__
    return False


def message_of(error: Exception) -> str:
    """Return the driver's message in *error*, without the number of the error and the statement."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return cause.args[1] if len(cause.args) > 1 and isinstance(cause.args[1], str) else str(cause)


def sees_commits(connection: Connection) -> bool:
    """Return True if a statement of *connection* sees what others have committed since the transaction began."""
    return traits_for(connection.dialect).sees_commits(connection.connection.dbapi_connection, connection.dialect)


def begin_to_write(connection: Connection) -> None:
    """On SQLite, begin the transaction, if it has not begun, and wait for the write lock; elsewhere, do nothing.

    The driver sends BEGIN only before the first write, so an earlier savepoint would be the transaction itself; and a
    transaction that has already read may not get the lock.
    """
    traits = traits_for(connection.dialect)
    if isinstance(traits, SQLite) and not traits.in_transaction(connection.connection.dbapi_connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def before_create(table: object, connection: object, **_: Any) -> None:
    """Ask the server what the DDL depends on. Runs before each CREATE TABLE, also of one that is only written."""
    if isinstance(connection, Connection):
        traits_for(connection.dialect).before_create(connection)


def is_autocommit(connection: Connection) -> bool:
    """Return True if *connection* commits each statement, by its options or by the mode of its driver."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    return traits_for(connection.dialect).in_autocommit(connection.connection.dbapi_connection)
