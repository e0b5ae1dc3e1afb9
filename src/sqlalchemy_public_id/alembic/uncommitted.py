"""Detect what a revision has written before an operation that commits.

The commit would store it without the version of the revision. If the operation fails then, the revision cannot be run
again: its first statements would fail, because their work is done.

Earlier revisions may be part of the same transaction. They are complete, and their versions are stored with them.
"""

from __future__ import annotations

from typing import Any

from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, select, table, text

from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.errors import ConfigurationError

_IS_OURS = "xmin = CAST(pg_current_xact_id() AS xid)"
"""True for the rows that the open transaction of PostgreSQL has written."""


def require_nothing_uncommitted(context: MigrationContext, operation: str) -> None:
    """Raise an error if *operation* would commit what its own revision has written, as far as the database tells.

    :raises ConfigurationError: with the remedy; nothing is changed.
    """
    connection = context.connection
    assert connection is not None
    if connection.in_transaction() and _has_written(connection, context):
        raise ConfigurationError(
            f"op.{operation}() commits each of its steps, and this revision has written something before it, which the "
            f"commit would store without the version: after a failure, the revision could not be run again; move "
            f"op.{operation}() into a revision of its own, or pass online=False, which locks the table until the "
            f"transaction ends"
        )


def _has_written(connection: Connection, context: MigrationContext) -> bool:
    if connection.dialect.name == "sqlite":
        # The driver begins at the first INSERT, UPDATE or DELETE; Alembic commits the version of each revision.
        driver: Any = connection.connection.driver_connection
        return not context.impl.transactional_ddl and bool(driver.in_transaction)
    if connection.dialect.name != "postgresql":
        return False  # MySQL and MariaDB have committed all DDL already, and do not tell of rows
    if connection.scalar(text("SELECT pg_current_xact_id_if_assigned() IS NULL")):
        return False  # the transaction has written nothing
    # A transaction that has created the table of versions, or has written to it, may have run earlier revisions.
    versions = quoted_table(context.version_table, context.version_table_schema, connection.dialect)
    created = text(f"SELECT {_IS_OURS} FROM pg_catalog.pg_class WHERE oid = to_regclass(:name)")
    is_created = connection.scalar(created, {"name": versions})
    if is_created is None:
        return True  # a program without versions
    rows = table(context.version_table, schema=context.version_table_schema)
    written = select(text("1")).select_from(rows).where(text(_IS_OURS)).limit(1)
    return not is_created and connection.scalar(written) is None
