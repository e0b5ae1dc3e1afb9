"""What the catalogs of MySQL and MariaDB say about a table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import Row, text

from sqlalchemy_public_id.migrating.state import IndexFacts, State
from sqlalchemy_public_id.migrating.table import LiveTable, indexes_from

_HERE = "TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table"
_TABLE = text(f"""
SELECT TABLE_TYPE AS kind, EXISTS (
    SELECT 1 FROM information_schema.PARTITIONS WHERE {_HERE} AND PARTITION_NAME IS NOT NULL) AS is_partitioned
FROM information_schema.TABLES WHERE {_HERE}
""")
_COLUMN = text("""
SELECT c.IS_NULLABLE = 'YES' AS nullable, c.COLUMN_DEFAULT AS `default`, c.COLUMN_COMMENT AS comment,
       c.COLLATION_NAME AS collation, c.EXTRA AS extra, c.COLUMN_TYPE AS type, c.CHARACTER_SET_NAME AS charset,
       EXISTS (SELECT 1 FROM information_schema.TRIGGERS t WHERE t.EVENT_OBJECT_SCHEMA = c.TABLE_SCHEMA
               AND t.EVENT_OBJECT_TABLE = c.TABLE_NAME AND t.ACTION_TIMING = 'BEFORE'
               AND t.EVENT_MANIPULATION = 'INSERT'
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
_ESCAPED = re.compile(r"\\(['\\])")


class MySQLTable(LiveTable):
    """A table of MySQL or MariaDB."""

    @property
    def is_mariadb(self) -> bool:
        return bool(getattr(self.connection.dialect, "is_mariadb", False))

    def _read_state(self) -> tuple[str, State, Iterable[IndexFacts]] | None:
        table = self.connection.execute(_TABLE, self.names).one_or_none()
        if table is None:
            return None
        kind = "table" if table.kind in ("BASE TABLE", "SYSTEM VERSIONED") else table.kind
        row = self.connection.execute(_COLUMN, self.names).one_or_none()
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
        return kind, state, indexes_from(self.connection.execute(_INDEXES, self.names).mappings())

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
            for check in self.connection.execute(_CHECKS, self.names).mappings():
                if check.get("LEVEL", "Column") == "Column":  # since MariaDB 10.5.10
                    attributes += f" CHECK ({check['CHECK_CLAUSE']})"
        return attributes

    def estimate_rows(self) -> int | None:
        return self.connection.scalar(_ROWS, self.names) or None

    def estimate_bytes(self) -> int | None:
        size = self.connection.scalar(_BYTES, self.names)
        return None if size is None else int(size)

    def update_triggers(self) -> list[str]:
        """Return the names of the UPDATE triggers, which users without the privilege ``TRIGGER`` do not see."""
        return list(self.connection.execute(_TRIGGERS, self.names).scalars())

    def without_triggers(self) -> AbstractContextManager[None]:
        return nullcontext()  # unreachable: the obstacles refuse it

    def columns_changed_by_updates(self) -> list[str]:
        return list(self.connection.execute(_CHANGED_BY_UPDATES, self.names).scalars())
