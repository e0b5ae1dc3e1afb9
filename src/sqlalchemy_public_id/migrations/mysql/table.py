"""What the catalogs of MySQL and MariaDB say about a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import Any

from sqlalchemy import Executable, Row, inspect, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.quoting import literal, quoted
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations.mysql.rights import missing_privileges, read_user
from sqlalchemy_public_id.migrations.session import send
from sqlalchemy_public_id.migrations.state import Demand, IndexFacts, State
from sqlalchemy_public_id.migrations.table import LiveTable, columns_of, indexes_from

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
# a part without a column is an expression; SUB_PART is the length of a prefix; old servers lack the last column of *
_INDEXES = text(f"""
SELECT *, INDEX_NAME AS name, NON_UNIQUE = 0 AS `unique`, INDEX_NAME = 'PRIMARY' AS `primary`, COLUMN_NAME AS `column`,
       SUB_PART AS prefix, LOWER(INDEX_TYPE) AS kind
FROM information_schema.STATISTICS
WHERE {_HERE}
ORDER BY INDEX_NAME, SEQ_IN_INDEX
""")
# an expression has its columns in backticks; KEY() without columns is by the primary key
_PARTITION_KEYS = text(f"""
SELECT DISTINCT PARTITION_METHOD AS method, PARTITION_EXPRESSION AS expression, SUBPARTITION_METHOD AS submethod,
       SUBPARTITION_EXPRESSION AS subexpression
FROM information_schema.PARTITIONS WHERE {_HERE} AND PARTITION_NAME IS NOT NULL
""")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|`((?:[^`]|``)*)`")
_ROWS = text(f"SELECT TABLE_ROWS FROM information_schema.TABLES WHERE {_HERE}")
_BYTES = text(f"SELECT DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES WHERE {_HERE}")
_ALL_CHECKS = text("""
SELECT t.CONSTRAINT_NAME AS name, c.CHECK_CLAUSE AS clause
FROM information_schema.TABLE_CONSTRAINTS t JOIN information_schema.CHECK_CONSTRAINTS c
     ON c.CONSTRAINT_SCHEMA = t.CONSTRAINT_SCHEMA AND c.CONSTRAINT_NAME = t.CONSTRAINT_NAME
WHERE t.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND t.TABLE_NAME = :table AND t.CONSTRAINT_TYPE = 'CHECK'
  AND t.ENFORCED = 'YES'
ORDER BY 1
""")
_ALL_CHECKS_OF_MARIADB = text("""
SELECT CONSTRAINT_NAME AS name, CHECK_CLAUSE AS clause FROM information_schema.CHECK_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table
ORDER BY 1
""")
_REFERENCES = text("""
SELECT TABLE_SCHEMA AS `schema`, TABLE_NAME AS `table`, COLUMN_NAME AS `column`
FROM information_schema.KEY_COLUMN_USAGE
WHERE REFERENCED_TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND REFERENCED_TABLE_NAME = :table
  AND REFERENCED_COLUMN_NAME = :column
ORDER BY 1, 2, 3
""")
_TRIGGERS = text("""
SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = COALESCE(:schema, DATABASE()) AND EVENT_OBJECT_TABLE = :table
  AND EVENT_MANIPULATION = 'UPDATE'
ORDER BY TRIGGER_NAME
""")
_TRIGGERS_OF_NEW_ROWS = text("""
SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = COALESCE(:schema, DATABASE()) AND EVENT_OBJECT_TABLE = :table
  AND EVENT_MANIPULATION = 'INSERT' AND LOCATE(LOWER(:column), LOWER(ACTION_STATEMENT)) > 0
ORDER BY TRIGGER_NAME
""")
_CHANGED_BY_UPDATES = text(f"""
SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE {_HERE} AND EXTRA LIKE '%on update%'
ORDER BY ORDINAL_POSITION
""")
_KINDS_THAT_COPY = text(f"""
SELECT COLUMN_NAME AS name, DATA_TYPE AS kind FROM information_schema.COLUMNS
WHERE {_HERE} AND (DATA_TYPE IN ('date', 'datetime', 'enum', 'set', 'time', 'timestamp')
                   OR DATA_TYPE LIKE '%text' OR DATA_TYPE LIKE '%blob')
""")
_JSON_TEXTS = re.compile(r"(tiny|medium)?(text|blob)")
_NO_SUCH_TABLE = 1146
_LEFT_OUT = 1684
"""The warning of MariaDB for a table that a query of the catalogs has left out."""
_EXACT = re.compile(r"_bin$|(?<!_ai)(?<!_hu_0900_as)_cs(_ks)?$")
"""Collations that distinguish all texts of printable ASCII.

A Hungarian one takes "ggy" for "gyGy", and some that ignore accents take "V" for "u".
"""
_ESCAPED = re.compile(r"\\(['\\])")


class MySQLTable(LiveTable):
    """A table of MySQL or MariaDB."""

    ignores_case = True

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
        keys = tuple(self._partition_keys()) if table.is_partitioned else ()
        misfit = self.obstacle_of_partitions(keys)
        state = State(versioned=versioned, partition_keys=keys, misfit=misfit)
        if row is not None:
            collation = f" CHARACTER SET {row.charset} COLLATE {row.collation}" if row.charset else ""
            state = State(
                exists=True,
                type=f"{row.type}{collation}",
                nullable=bool(row.nullable),
                collation=row.collation,
                exact=row.collation is None or _EXACT.search(row.collation) is not None,
                comment=row.comment or None,
                attributes=self._attributes(),
                is_invisible="INVISIBLE" in row.extra,
                default=self._default(row),
                filled=bool(row.filled),
                versioned=versioned,
                partition_keys=keys,
                misfit=misfit,
            )
        parts = groupby(self.read(_INDEXES), lambda part: part.name)
        return kind, state, indexes_from(self._index(name, list(group)) for name, group in parts)

    def _index(self, name: str, parts: Sequence[Any]) -> dict[str, Any]:
        """Return the facts of an index, from its *parts* in their order."""
        first, has_prefix = parts[0], any(part.prefix for part in parts)
        facts, shown_by = first._mapping, ""
        if facts.get("IS_VISIBLE") == "NO" or facts.get("IGNORED") == "YES":  # since MySQL 8.0 and MariaDB 10.6
            shows = "NOT IGNORED" if self.is_mariadb else "VISIBLE"
            shown_by = f"ALTER TABLE {self.name} ALTER INDEX {quoted(name, self.connection.dialect)} {shows}"
        return {
            "name": name,
            "unique": first.unique,
            "constraint": first.unique,
            "primary": first.primary,
            "columns": [] if has_prefix else [part.column for part in parts],
            "prefix_of": first.column if has_prefix and len(parts) == 1 else None,
            "prefix": max(part.prefix or 0 for part in parts),
            "kind": first.kind,
            "shown_by": shown_by,
        }

    def _partition_keys(self) -> list[str]:
        """Return the columns by which the table is partitioned."""
        keys: list[str] = []
        for row in self.read(_PARTITION_KEYS):
            for method, expression in ((row.method, row.expression), (row.submethod, row.subexpression)):
                if method is not None:
                    names = [name.replace("``", "`") for name in _QUOTED.findall(expression or "") if name]
                    keys += names or self._plain_names(expression) or self.read_primary_key()
        return keys

    def _plain_names(self, expression: str | None) -> list[str]:
        """Return the columns that an expression of OceanBase names, which has them without backticks."""
        words = re.findall(r"[^\W\d]\w*", expression or "")
        columns = columns_of(inspect(self.connection), self.target.table, self.target.schema)
        return [name for name in columns if name in words]

    def _default(self, row: Row[Any]) -> str | None:
        if row.default is None:
            return None
        if self.is_mariadb:
            return None if row.default == "NULL" else str(row.default)  # it quotes a text, unlike NULL
        # MySQL returns a constant without its quotes, and an expression with escaped quotes and backslashes
        if "DEFAULT_GENERATED" in row.extra:
            return _ESCAPED.sub(r"\1", str(row.default))
        return literal(str(row.default), self.connection.dialect)

    def _attributes(self) -> str:
        attributes = ""
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

    def read_checks(self) -> dict[str, str] | None:
        """Return the CHECKs that are enforced, name → clause; ``None`` if the server does not list them."""
        try:
            checks = self.read(_ALL_CHECKS_OF_MARIADB if self.is_mariadb else _ALL_CHECKS)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            return None  # a server that speaks the protocol of MySQL, such as OceanBase, may have no such catalog
        return {row.name: row.clause if self.is_mariadb else _ESCAPED.sub(r"\1", row.clause) for row in checks}

    def read_copying_checks(self, *, modifies: bool) -> Iterator[str]:
        """Yield the causes in CHECKs for which the server copies the table, although an ALTER changes no such column.

        The type of the column, as an ALTER reads it, differs from the type that is stored.

        :param modifies: whether the ALTER modifies a column.
        """
        checks = (self.read_checks() or {}) if modifies or self.is_mariadb else {}
        kinds: dict[str, str] = {row.name: row.kind for row in (self.read(_KINDS_THAT_COPY) if checks else ())}
        for name, clause in checks.items():
            if self.is_mariadb:
                if _JSON_TEXTS.fullmatch(kinds.get(name, "")) and clause == f"json_valid(`{name}`)":
                    yield f"the column {name} is {kinds[name]} with CHECK (json_valid({name}))"
            else:
                named = {each.replace("``", "`") for each in _QUOTED.findall(clause) if each}
                for column in sorted(each for each in named if kinds.get(each, "text") not in ("text", "blob")):
                    yield f"the CHECK {name} names the column {column} of the type {kinds[column]}"

    def read_constraints(self) -> Iterator[Demand]:
        checks = self.read_checks()
        if checks is None:
            yield Demand("any CHECK constraint", None, why_not="the server does not list them")
        for name, clause in (checks or {}).items():
            yield Demand(f"the CHECK constraint {name}", clause)
        yield from self.generated_columns("CHAR_LENGTH")
        yield from self.demands_of_triggers(name for (name,) in self.read(_TRIGGERS_OF_NEW_ROWS))

    def read_references(self) -> Sequence[tuple[str | None, str, str]]:
        return [(row.schema, row.table, row.column) for row in self.read(_REFERENCES)]

    def update_triggers(self) -> list[str]:
        """Return the names of the UPDATE triggers, which users without the privilege ``TRIGGER`` do not see."""
        return [name for (name,) in self.read(_TRIGGERS)]

    def obstacle_of_a_temporary_table(self) -> Obstacle | None:
        try:  # the catalogs describe the table that it hides
            statement = str(send(self.connection, f"SHOW CREATE TABLE {self.name}").one()[1])
        except DBAPIError as error:
            if not traits_for(self.connection.dialect).is_permission_error(error):
                raise
            return None
        is_hidden = statement.startswith("CREATE TEMPORARY ")
        return self.hidden_by("table", f"DROP TEMPORARY TABLE {self.name}") if is_hidden else None

    def obstacles_of_hidden_triggers(self) -> Iterator[Obstacle]:
        if missing_privileges(self, ["TRIGGER"]):
            user = read_user(self.connection)
            problem = f"{user} may not see triggers of {self.target.table}, and the backfill would fire them"
            remedy = f'GRANT TRIGGER ON {self.name} TO {user}, or pass update_triggers="fire" to accept this'
            yield Obstacle("update-triggers", problem, remedy)

    def without_triggers(self) -> AbstractContextManager[None]:
        return nullcontext()  # unreachable: the obstacles refuse it

    def columns_changed_by_updates(self) -> list[str]:
        return [name for (name,) in self.read(_CHANGED_BY_UPDATES)]
