"""MySQL and MariaDB: a failed statement is rolled back alone; the error message names the violated index."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects._base import Fate, ManyRows, Traits, Violation

__all__ = ["MySQL"]

_DUPLICATE_ENTRY = 1062
_FORBIDDEN = {1142, 1143}  # a command, for the table or for a column
_UNDONE = {
    1020,  # the record has changed since the snapshot (MariaDB)
    1047,  # a node of Galera that is not ready: it has refused the statement
    1205,  # a lock was waited for in vain; the statement is undone, and the caller undoes the rest
    1213,  # a deadlock; Galera's certification failures, too
    3101,  # Group Replication has refused the transaction
    3796, 3797, 3798, 3799,  # a member of the group that is not ready, or too far behind: it has begun nothing
    8002, 8005, 8022, 8028, 9007,  # TiDB: write conflicts, a failed commit, a changed table
}  # fmt: skip
_UNKNOWN = {
    1053,  # the server shuts down
    1180,  # an error during COMMIT, such as a node of Galera that has lost the others
    1927, 3169,  # the connection was killed (MariaDB, MySQL)
    2002, 2003, 2006, 2013, 2055,  # no connection, or none any more
    3032,  # the server goes offline, as a member does that was expelled from its group
    3100,  # an error before or after the group was sent the transaction, such as a member that was expelled meanwhile
    4031,  # the server has closed an idle connection
}  # fmt: skip
_UNDONE_IF = {
    # InnoDB has undone it in favour of one that the group has certified; the words are of the server's language
    1180: re.compile(r"\D*149\b"),
    # a member that has left its group; other options of the server forbid for good
    1290: re.compile(r".*-read-only\b", re.DOTALL),
}
"""Errors of which the text says that the transaction was undone."""
_TABLE = text(
    "SELECT t.engine AS engine, e.transactions AS transactions FROM information_schema.tables t"
    " LEFT JOIN information_schema.engines e ON e.engine = t.engine"
    " WHERE t.table_schema = COALESCE(:schema, DATABASE()) AND t.table_name = :name"
)
_ENGINE = text(
    "SELECT engine AS engine, transactions AS transactions FROM information_schema.engines WHERE engine = :name"
)
_CREATED = re.compile(r"^\) ENGINE=(\w+)", re.MULTILINE)
_KEY = re.compile(r"for key '(.*)'\s*$", re.DOTALL)


class MySQL(Traits):
    """MySQL and MariaDB, through PyMySQL, aiomysql, asyncmy and mysqlclient, whose errors begin with the number."""

    retries = True
    aborts_transaction = False
    reads_old_snapshot = True  # REPEATABLE READ is the default
    many_rows = ManyRows.SLICES
    max_parameters = None  # the drivers write values into the statement; max_allowed_packet is 16 MB or more

    def text(self, length: int) -> TypeEngine[str]:
        """``ascii_bin``: the default collation takes ``aB`` and ``Ab`` for the same id, and four bytes a character."""
        from sqlalchemy.dialects.mysql import VARCHAR  # a third of the time to import this library

        return VARCHAR(length, charset="ascii", collation="ascii_bin")

    def native(self, bits: int) -> TypeEngine[Any]:
        from sqlalchemy.dialects.mysql import BINARY

        return super().native(bits) if bits == 64 else BINARY(bits // 8)

    def violation(self, error: Exception) -> Violation | None:
        if not error.args or error.args[0] != _DUPLICATE_ENTRY:
            return None
        found = _KEY.search(str(error.args[1])) if len(error.args) > 1 else None
        return Violation(constraint=found[1] if found else None)

    def forbids(self, error: BaseException | None) -> bool:
        return error is not None and bool(error.args) and error.args[0] in _FORBIDDEN

    def fate(self, error: Exception) -> Fate:
        code, text = (*error.args, None, None)[:2]
        if code in _UNDONE or (code in _UNDONE_IF and _UNDONE_IF[code].match(str(text))):
            return Fate.UNDONE
        return Fate.UNKNOWN if code in _UNKNOWN else Fate.FINAL

    def in_autocommit(self, dbapi_connection: Any) -> bool:
        return bool(getattr(dbapi_connection, "get_autocommit", bool)())

    def engine_without_transactions(self, connection: Connection, table: str, schema: str | None) -> str | None:
        row = connection.execute(_TABLE, {"schema": schema, "name": table}).first()
        if row is None:  # a temporary table is not listed there
            created = _CREATED.search(_definition(connection, table, schema))
            row = connection.execute(_ENGINE, {"name": created[1]}).first() if created else None
        return row.engine if row is not None and row.transactions == "NO" else None

    def slice_bytes(self, driver: str) -> int:
        # max_stmt_length of the drivers' cursors: 1 024 000 for PyMySQL and its kin, 64 KiB for mysqlclient
        return 1_000_000 if driver in {"pymysql", "aiomysql", "asyncmy"} else 60_000


def _definition(connection: Connection, table: str, schema: str | None) -> str:
    prepare = connection.dialect.identifier_preparer
    name = f"{prepare.quote(schema)}.{prepare.quote(table)}" if schema else prepare.quote(table)
    try:
        definition: str = connection.exec_driver_sql(f"SHOW CREATE TABLE {name}").one()[1]
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return ""  # there is none, or the user must not see it
    return definition
