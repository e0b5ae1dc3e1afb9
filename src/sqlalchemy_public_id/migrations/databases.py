"""The classes for each database, chosen by the name of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection
from sqlalchemy.engine import Dialect

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrations.column import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import Consent
from sqlalchemy_public_id.migrations.mysql.plan import MySQLPlan
from sqlalchemy_public_id.migrations.mysql.rows import MySQLRows
from sqlalchemy_public_id.migrations.mysql.session import MySQLSession
from sqlalchemy_public_id.migrations.mysql.table import MySQLTable
from sqlalchemy_public_id.migrations.plan import Plan
from sqlalchemy_public_id.migrations.postgresql.plan import PostgreSQLPlan
from sqlalchemy_public_id.migrations.postgresql.rows import PostgreSQLRows
from sqlalchemy_public_id.migrations.postgresql.session import PostgreSQLSession
from sqlalchemy_public_id.migrations.postgresql.table import PostgreSQLTable
from sqlalchemy_public_id.migrations.rows import Rows
from sqlalchemy_public_id.migrations.session import MigrationSession
from sqlalchemy_public_id.migrations.sqlite.plan import SQLitePlan
from sqlalchemy_public_id.migrations.sqlite.table import SQLiteRows, SQLiteSession, SQLiteTable
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.table import LiveTable


class Database(NamedTuple):
    """The classes for one kind of database."""

    plan: type[Plan]
    table: type[LiveTable]
    rows: type[Rows]
    session: type[MigrationSession]


_MYSQL = Database(MySQLPlan, MySQLTable, MySQLRows, MySQLSession)
DATABASES: Mapping[str, Database] = {
    "mariadb": _MYSQL,
    "mysql": _MYSQL,
    "postgresql": Database(PostgreSQLPlan, PostgreSQLTable, PostgreSQLRows, PostgreSQLSession),
    "sqlite": Database(SQLitePlan, SQLiteTable, SQLiteRows, SQLiteSession),
}
"""Name of a dialect → classes."""


def is_supported(dialect: Dialect) -> bool:
    """Return True if tables in the database of *dialect* can be migrated."""
    return dialect.name in DATABASES


def database_of(dialect: Dialect) -> Database:
    """Return the classes for the database of *dialect*.

    :raises ConfigurationError: if the database is not supported.
    """
    database = DATABASES.get(dialect.name)
    if database is None:
        raise ConfigurationError(f"migrations do not support {dialect.name}; expected one of {names_of_databases()}")
    return database


def names_of_databases() -> str:
    """Return the names of the dialects whose databases can be migrated, for a message."""
    return ", ".join(sorted(DATABASES))


def live_table(connection: Connection, target: PublicIdColumn) -> LiveTable:
    """Return the table of *target* in the database of *connection*."""
    traits_for(connection.dialect).before_create(connection)
    return database_of(connection.dialect).table(connection, target)


def rows_of(live: LiveTable, state: State | None = None) -> Rows:
    """Return the rows of a table.

    :param state: the state of its column, if it is known; otherwise, it is read.
    :raises ConfigurationError: if the table has no such column, or if its rows cannot be told apart.
    """
    return database_of(live.connection.dialect).rows(live, state or live.read_state())


def plan_for(target: PublicIdColumn, dialect: Dialect, consent: Consent | None = None, *, online: bool = True) -> Plan:
    """Return the plan for the database of *dialect*.

    :raises ConfigurationError: if the database is not supported, or does not accept one of the names.
    """
    return database_of(dialect).plan(target, dialect, consent, online=online)
