"""What the catalogs of MySQL and MariaDB say about a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import Executable, Row, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.migrations.state import IndexFacts, State
from sqlalchemy_public_id.migrations.table import LiveTable, indexes_from

# Each part of a query names the table by parameters: for a part that refers to another part instead, MariaDB reads the
# tables of all databases.
_HERE = "TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table"
_TABLE = text(f"""
SELECT TABLE_TYPE AS kind, EXISTS (
    SELECT 1 FROM information_schema.PARTITIONS WHERE {_HERE} AND PARTITION_NAME IS NOT NULL) AS is_partitioned
FROM information_schema.TABLES WHERE {_HERE}
""")
_COLUMN = text("""
SELECT c.IS_NULLABLE = 'YES' AS nullable, c.COLUMN_DEFAULT AS `default`, c.COLUMN_COMMENT AS comment,
       c.COLLATION_NAME AS collation, c.EXTRA AS extra, c.COLUMN_TYPE AS type, c.CHARACTER_SET_NAME AS charset,
       EXISTS (SELECT 1 FROM information_schema.TRIGGERS t
               WHERE t.EVENT_OBJECT_SCHEMA = COALESCE(:schema, DATABASE()) AND t.EVENT_OBJECT_TABLE = :table
               AND t.ACTION_TIMING = 'BEFORE' AND t.EVENT_MANIPULATION = 'INSERT'
               AND INSTR(t.ACTION_STATEMENT, REPLACE(c.COLUMN_NAME, '`', '``')) > 0) AS filled
FROM information_schema.COLUMNS c
WHERE c.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND c.TABLE_NAME = :table AND c.COLUMN_NAME = :column
""")
_CHECKS = text("""
SELECT * FROM information_schema.CHECK_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table AND CONSTRAINT_NAME = :column
""")
# a part without a column is an expression; SUB_PART is the length of a prefix
_INDEXES = text(f"""
SELECT INDEX_NAME AS name, NON_UNIQUE = 0 AS `unique`, NON_UNIQUE = 0 AS `constraint`,
       INDEX_NAME = 'PRIMARY' AS `primary`,
       CASE WHEN COUNT(*) = 1 AND MAX(SUB_PART) IS NULL THEN MAX(COLUMN_NAME) END AS only_column,
       CASE WHEN COUNT(*) = 1 AND MAX(SUB_PART) IS NOT NULL THEN MAX(COLUMN_NAME) END AS prefix_of,
       COALESCE(MAX(SUB_PART), 0) AS prefix,
       LOWER(MAX(INDEX_TYPE)) AS kind
FROM information_schema.STATISTICS
WHERE {_HERE}
GROUP BY INDEX_NAME, NON_UNIQUE
ORDER BY INDEX_NAME
""")
_ROWS = text(f"SELECT TABLE_ROWS FROM information_schema.TABLES WHERE {_HERE}")
_BYTES = text(f"SELECT DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES WHERE {_HERE}")
_TRIGGERS = text("""
SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = COALESCE(:schema, DATABASE()) AND EVENT_OBJECT_TABLE = :table
  AND EVENT_MANIPULATION = 'UPDATE'
ORDER BY TRIGGER_NAME
""")
_CHANGED_BY_UPDATES = text(f"""
SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE {_HERE} AND EXTRA LIKE '%on update%'
ORDER BY ORDINAL_POSITION
""")
_NO_SUCH_TABLE = 1146
_LEFT_OUT = 1684
"""The warning of MariaDB for a table that a query of the catalogs has left out."""
_ESCAPED = re.compile(r"\\(['\\])")


class MySQLTable(LiveTable):
    """A table of MySQL or MariaDB."""

    @property
    def is_mariadb(self) -> bool:
        return bool(getattr(self.connection.dialect, "is_mariadb", False))

    def read(self, query: Executable) -> Sequence[Row[Any]]:
        """Return the rows of a *query* of the catalogs that looks up this table alone.

        If another session is changing the definition of the table, MariaDB leaves the table out, with a warning, if
        this session has any lock, such as that of its turn. Then wait for the other session, and read again.

        :raises DBAPIError: if the wait takes longer than the session waits for locks.
        """
        while True:
            rows = super().read(query)
            if not self.is_mariadb or all(warning.Code != _LEFT_OUT for warning in self._send("SHOW WARNINGS")):
                return rows
            try:
                self._send(f"SELECT 1 FROM {self.name} LIMIT 0")
            except DBAPIError as error:
                cause = error.orig if isinstance(error.orig, Exception) else None
                if traits_for(self.connection.dialect).error_code(cause) != _NO_SUCH_TABLE:
                    raise

    def _send(self, sql: str) -> Sequence[Row[Any]]:
        return self.connection.exec_driver_sql(sql, execution_options={"no_parameters": True}).all()

    def _read_state(self) -> tuple[str, State, Iterable[IndexFacts]] | None:
        found = self.read(_TABLE)
        if not found:
            return None
        table = found[0]
        kind = "table" if table.kind in ("BASE TABLE", "SYSTEM VERSIONED") else table.kind
        row = next(iter(self.read(_COLUMN)), None)
        versioned = table.kind == "SYSTEM VERSIONED"
        misfit = self._partitioned() if table.is_partitioned else None
        state = State(versioned=versioned, misfit=misfit)
        if row is not None:
            collation = f" CHARACTER SET {row.charset} COLLATE {row.collation}" if row.charset else ""
            state = State(
                exists=True,
                type=f"{row.type}{collation}",
                nullable=bool(row.nullable),
                collation=row.collation,
                exact=row.collation is None or row.collation.endswith("_bin"),
                comment=row.comment or None,
                attributes=self._attributes(row),
                default=self._default(row),
                filled=bool(row.filled),
                versioned=versioned,
                misfit=misfit,
            )
        # SQLAlchemy documents Row._mapping
        indexes = (index._mapping for index in self.read(_INDEXES))  # pyright: ignore[reportPrivateUsage]
        return kind, state, indexes_from(indexes)

    def _default(self, row: Row[Any]) -> str | None:
        if row.default in (None, "NULL"):  # MariaDB returns NULL as the string "NULL"
            return None
        if self.is_mariadb:
            return str(row.default)
        # MySQL returns a constant without its quotes, and an expression with escaped quotes and backslashes
        if "DEFAULT_GENERATED" in row.extra:
            return _ESCAPED.sub(r"\1", str(row.default))
        return "'" + str(row.default).replace("'", "''") + "'"

    def _attributes(self, row: Row[Any]) -> str:
        attributes = " INVISIBLE" if "INVISIBLE" in row.extra else ""
        if self.is_mariadb:  # MySQL stores the CHECK of a column as a CHECK of the table
            for check in (row._mapping for row in self.read(_CHECKS)):  # pyright: ignore[reportPrivateUsage]
                if check.get("LEVEL", "Column") == "Column":  # since MariaDB 10.5.10
                    attributes += f" CHECK ({check['CHECK_CLAUSE']})"
        return attributes

    def estimate_rows(self) -> int | None:
        return next((rows for (rows,) in self.read(_ROWS)), None) or None

    def estimate_bytes(self) -> int | None:
        size = next((size for (size,) in self.read(_BYTES)), None)
        return None if size is None else int(size)

    def update_triggers(self) -> list[str]:
        """Return the names of the UPDATE triggers, which users without the privilege ``TRIGGER`` do not see."""
        return [name for (name,) in self.read(_TRIGGERS)]

    def without_triggers(self) -> AbstractContextManager[None]:
        return nullcontext()  # unreachable: the obstacles refuse it

    def columns_changed_by_updates(self) -> list[str]:
        return [name for (name,) in self.read(_CHANGED_BY_UPDATES)]
