"""Read how many bytes a table has, and how many are free where its database is."""

from __future__ import annotations

import shutil
from pathlib import Path

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects.indexes import names_in_queries

_TABLE = {
    "postgresql": text("SELECT pg_table_size(to_regclass(:regclass))"),
    "sqlite": text("SELECT sum(pgsize) FROM dbstat(:database) WHERE name = :table COLLATE NOCASE AND aggregate = 1"),
}
_OF_MYSQL = text("""
SELECT DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table
""")
# the disk with the longest path that the folder of the data begins with; in kilobytes
_FREE_OF_MARIADB = text("""
SELECT Available * 1024 FROM information_schema.DISKS
WHERE LEFT(@@datadir, LENGTH(Path)) = Path ORDER BY LENGTH(Path) DESC LIMIT 1
""")


def table_bytes(connection: Connection, table: str, schema: str | None) -> int | None:
    """Return the bytes of *table*, on MySQL and MariaDB with its indexes; ``None`` if the database cannot tell.

    SQLite counts them if it was built with ``SQLITE_ENABLE_DBSTAT_VTAB``.
    """
    query = _TABLE.get(connection.dialect.name, _OF_MYSQL)
    return _number(connection, query, names_in_queries(connection, table, schema, ""))


def free_bytes(connection: Connection, schema: str | None) -> int | None:
    """Return the free bytes on the disk of the database, if they can be known.

    Those of SQLite are known if the database is a file, and those of MariaDB if its plugin ``DISKS`` is installed.
    """
    if connection.dialect.name == "sqlite":
        query = text("SELECT file FROM pragma_database_list WHERE name = :name")
        file = connection.execute(query, {"name": schema or "main"}).scalar()
        return shutil.disk_usage(Path(file).parent).free if file else None
    if getattr(connection.dialect, "is_mariadb", False):
        return _number(connection, _FREE_OF_MARIADB, {})
    return None


def _number(connection: Connection, query: TextClause, parameters: dict[str, object]) -> int | None:
    try:
        value = connection.execute(query, parameters).scalar()
    except DBAPIError as error:  # SQLite without dbstat; MariaDB without the plugin, or without the privilege FILE
        if error.connection_invalidated:
            raise
        return None
    return None if value is None else int(value)
