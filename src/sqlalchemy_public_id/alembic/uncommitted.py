"""Detect what a revision has written before an operation that commits.

The commit would store it without the version of the revision. If the operation fails then, the revision cannot be run
again: its first statements would fail, because their work is done.

Earlier revisions may be part of the same transaction. They are complete, and their versions are stored with them. So
what counts is written after the last version. MySQL and MariaDB have committed all DDL already; rows count.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, cast
from uuid import uuid4

from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.errors import ConfigurationError

# PostgreSQL counts the commands of a transaction that write, and stores the number in each row as cmin. A row of a
# transaction in progress is visible to that transaction only.
_OURS = "txid_status((txid_current() >> 32 << 32) + CAST(CAST(xmin AS text) AS bigint)) = 'in progress'"
_LAST = "max(CAST(CAST(cmin AS text) AS bigint))"
_CREATED = f"""
SELECT {_LAST} FROM (
    SELECT cmin, xmin FROM pg_catalog.pg_class WHERE oid = to_regclass(:table)
    UNION ALL SELECT cmin, xmin FROM pg_catalog.pg_constraint WHERE conrelid = to_regclass(:table)
) AS created WHERE {_OURS}
"""
_COMMANDS_OF_AN_INDEX = 1
"""The commands after the last such row while PostgreSQL creates a table with a primary key."""

_PAUSES_ON_MYSQL = [min(0.1 * 1.3**number, 2) for number in range(20)]
"""Seconds, at most 47 in all. They grow, because each session that reads the view keeps it from being refreshed."""
_STATEMENT_IS_NO_TEXT = 3854
"""The error of MySQL if a statement of another transaction has bytes, as those of a UUID: the view has all of them."""


def require_nothing_uncommitted(context: MigrationContext, operation: str, table: str) -> None:
    """Raise an error if *operation* would commit what its own revision has written.

    :raises ConfigurationError: with the remedy; nothing is changed.
    """
    connection = context.connection
    assert connection is not None
    if connection.in_transaction() and _DETECTORS[connection.dialect.name](connection, context, table):
        raise ConfigurationError(
            f"op.{operation}() commits each of its steps, and this revision has written something before it, which the "
            f"commit would store without the version: after a failure, the revision could not be run again; move "
            f"op.{operation}() into a revision of its own, or pass online=False, which locks the table until the "
            f"transaction ends"
        )


def _written_on_sqlite(connection: Connection, context: MigrationContext, table: str) -> bool:
    # the driver begins at the first INSERT, UPDATE or DELETE; Alembic commits the version of each revision
    driver: Any = connection.connection.driver_connection
    return not context.impl.transactional_ddl and bool(driver.in_transaction)


def _written_on_mysql(connection: Connection, context: MigrationContext, table: str) -> bool:
    # The server refreshes innodb_trx only if nothing has read it for 0.1 seconds. It is fresh if it has this query,
    # and it has no query of a transaction that has read nothing.
    mark = f"public_id_{uuid4().hex}"
    query = (
        f"SELECT /* {mark} */ trx_rows_modified, trx_query FROM information_schema.innodb_trx "
        f"WHERE trx_mysql_thread_id = CONNECTION_ID()"
    )
    try:
        _send(connection, f"SELECT 1 FROM {table} LIMIT 1").close()
        for pause in _PAUSES_ON_MYSQL:
            rows = _rows_if_readable(connection, query)
            if any(mark in (row.trx_query or "") for row in rows):
                return any(row.trx_rows_modified for row in rows)
            time.sleep(random.uniform(pause, 2 * pause))
    except DBAPIError as error:
        if error.connection_invalidated:
            raise  # otherwise, without the privilege PROCESS
    return False


def _rows_if_readable(connection: Connection, query: str) -> Sequence[Any]:
    try:
        return cast("Sequence[Any]", _send(connection, query).all())
    except DBAPIError as error:
        if traits_for(connection.dialect).error_code(error.orig) != _STATEMENT_IS_NO_TEXT:
            raise
        return []  # that statement ends in a moment


def _written_on_postgresql(connection: Connection, context: MigrationContext, table: str) -> bool:
    if _send(connection, "SELECT txid_current_if_assigned() IS NULL").scalar():
        return False  # the transaction has written nothing
    versions = quoted_table(context.version_table, context.version_table_schema, connection.dialect)
    if connection.scalar(text("SELECT to_regclass(:table) IS NULL"), {"table": versions}):
        return True  # a program without versions
    last = _send(connection, f"SELECT {_LAST} FROM {versions} WHERE {_OURS}").scalar()
    if last is None:
        created = connection.scalar(text(_CREATED), {"table": versions})
        if created is None:
            return True
        last = created + _COMMANDS_OF_AN_INDEX
    now = _number_of_next_command(connection, versions)
    return now is not None and now > last + 1


def _number_of_next_command(connection: Connection, versions: str) -> int | None:
    # an INSERT that is undone; an UPDATE would replace the cmin of the row
    _send(connection, "SAVEPOINT public_id_command")
    try:
        insert = f"INSERT INTO {versions} (version_num) VALUES ('public_id_command') RETURNING CAST(cmin AS text)"
        number: str = _send(connection, insert).scalar_one()
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return None  # a version table with more columns
    finally:
        _send(connection, "ROLLBACK TO SAVEPOINT public_id_command")
        _send(connection, "RELEASE SAVEPOINT public_id_command")
    return int(number)


def _send(connection: Connection, sql: str) -> Any:
    return connection.exec_driver_sql(sql, execution_options={"no_parameters": True})


_DETECTORS = {
    "mariadb": _written_on_mysql,
    "mysql": _written_on_mysql,
    "postgresql": _written_on_postgresql,
    "sqlite": _written_on_sqlite,
}
