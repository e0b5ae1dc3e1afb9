"""Read the triggers, procedures, functions and events of MySQL and MariaDB that name a table.

Views store the columns that ``*`` stood for when they were created.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.migrations.plan import Migration
from sqlalchemy_public_id.migrations.session import send
from sqlalchemy_public_id.migrations.steps import can_be_retried
from sqlalchemy_public_id.migrations.stored_code.programs import Reader, StoredCode
from sqlalchemy_public_id.migrations.stored_code.scope import BrokenStatement, Language, Path, Program
from sqlalchemy_public_id.migrations.stored_code.shapes import Change, Shape
from sqlalchemy_public_id.migrations.stored_code.tokens import Lexis

_LEXIS = Lexis(folds_quoted=True, has_backslashes=True, has_hash_comments=True, quotes_text="'\"")
LANGUAGE = Language(_LEXIS, inserts="equal", selects_into="equal")
_HERE = "COALESCE(:schema, DATABASE())"
# a body that this user may not see is NULL
_PROGRAMS = {
    "TRIGGERS": """
SELECT 'trigger' AS kind, t.TRIGGER_SCHEMA AS `schema`, t.TRIGGER_NAME AS name, t.ACTION_STATEMENT AS body,
       t.SQL_MODE AS mode, t.EVENT_OBJECT_SCHEMA = {here} AND t.EVENT_OBJECT_TABLE = :table AS is_ours
FROM information_schema.TRIGGERS t WHERE {condition} ORDER BY t.TRIGGER_SCHEMA, t.TRIGGER_NAME
""",
    "ROUTINES": """
SELECT LOWER(t.ROUTINE_TYPE) AS kind, t.ROUTINE_SCHEMA AS `schema`, t.ROUTINE_NAME AS name,
       t.ROUTINE_DEFINITION AS body, t.SQL_MODE AS mode, 0 AS is_ours
FROM information_schema.ROUTINES t WHERE {condition} ORDER BY t.ROUTINE_SCHEMA, t.ROUTINE_NAME
""",
    "EVENTS": """
SELECT 'event' AS kind, t.EVENT_SCHEMA AS `schema`, t.EVENT_NAME AS name, t.EVENT_DEFINITION AS body,
       t.SQL_MODE AS mode, 0 AS is_ours
FROM information_schema.EVENTS t WHERE {condition} ORDER BY t.EVENT_SCHEMA, t.EVENT_NAME
""",
}
# MariaDB finds triggers by the database of their table, which is their own; otherwise, it opens all tables
_SCHEMA = {"TRIGGERS": "t.EVENT_OBJECT_SCHEMA", "ROUTINES": "t.ROUTINE_SCHEMA", "EVENTS": "t.EVENT_SCHEMA"}
_COLUMNS = text(f"""
SELECT c.COLUMN_NAME FROM information_schema.COLUMNS c
WHERE c.TABLE_SCHEMA = COALESCE(:in, {_HERE}) AND c.TABLE_NAME = :name AND c.EXTRA NOT LIKE '%INVISIBLE%'
ORDER BY c.ORDINAL_POSITION
""")
_DATABASES = text(f"""
SELECT {_HERE} AS here, COUNT(*) AS others FROM information_schema.SCHEMATA s
WHERE s.SCHEMA_NAME NOT IN ({_HERE}, 'information_schema', 'mysql', 'performance_schema', 'sys')
""")
_SEEN = text(f"""
SELECT DISTINCT s.DIGEST_TEXT FROM performance_schema.events_statements_summary_by_digest s
WHERE s.SCHEMA_NAME = {_HERE} AND LOCATE(LOWER(:table), LOWER(s.DIGEST_TEXT)) > 0
ORDER BY 1
""")
_SHOWN_BY = {"TRIGGER": "triggers", "EVENT": "events", "EXECUTE": "routines"}
_FEW = 10
"""How many statements of the statistics a report names."""
_SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")


def read_stored_code(migration: Migration, change: Change, missing: Sequence[str]) -> StoredCode:
    """Return what the *change* of the table breaks in the code that the database stores.

    :param missing: the privileges that the user lacks to see all triggers, events, procedures and functions.
    """
    return _Catalogs(migration, change).read(missing)


def find_statements(migration: Migration, change: Change) -> Sequence[BrokenStatement]:
    """Return what the *change* breaks among the statements in ``performance_schema``, if the user may read them."""
    try:
        seen = migration.table.connection.execute(_SEEN, migration.table.names).scalars().all()
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return ()
    programs = [Program("performance_schema", statement) for statement in seen if statement]
    return _Catalogs(migration, change).reader(1).read(programs).by_position[:_FEW]


@dataclass
class _Catalogs:
    migration: Migration
    change: Change

    def read(self, missing: Sequence[str]) -> StoredCode:
        rows: list[Row[Any]] = []
        unlisted: list[str] = []
        for kind in _PROGRAMS:
            try:
                rows += self._read(kind)
            except DBAPIError as error:
                if error.connection_invalidated:
                    raise
                unlisted.append(kind.lower())  # a server that speaks MySQL's protocol, such as OceanBase, has no events
        here, programs = self._database.here, [(row, self._as_written(row)) for row in rows]
        hidden = [f"{row.kind} {row.name}" for row, body in programs if body is None]
        own = self.reader(1).read(self._program(row, body) for row, body in programs if body and row.schema == here)
        others = self.reader(2).read(self._program(row, body) for row, body in programs if body and row.schema != here)
        reasons = [*own.not_examined, *others.not_examined]
        if hidden:
            names = ", ".join(hidden[:3]) + (f" and {len(hidden) - 3} others" if len(hidden) > 3 else "")
            reasons.append(f"the {names}, whose statements this user may not see as they were written")
        if unlisted:
            reasons.append(f"{' and '.join(unlisted)}, which the server does not list")
        if missing:
            kinds = " and ".join(_SHOWN_BY[privilege] for privilege in missing)
            reasons.append(f"{kinds}, which this user may not see without the privilege {', '.join(missing)}")
        return StoredCode(
            (*own.by_position, *others.by_position),
            (*own.by_name, *others.by_name),
            tuple(dict.fromkeys(reasons)),
            ("the triggers of other databases",) if self._is_mariadb and self._database.others else (),
        )

    def _read(self, kind: str) -> Iterable[Row[Any]]:
        """Read the programs of this database that name the table, and those of others that name both."""
        schema, body = _SCHEMA[kind], {"TRIGGERS": "t.ACTION_STATEMENT", "ROUTINES": "t.ROUTINE_DEFINITION"}
        statement = body.get(kind, "t.EVENT_DEFINITION")
        named = f"LOCATE(LOWER(:table), LOWER({statement})) > 0"
        condition = f"{schema} = {_HERE} AND ({statement} IS NULL OR {named}"
        condition += " OR t.EVENT_OBJECT_TABLE = :table)" if kind == "TRIGGERS" else ")"
        if not (self._is_mariadb and kind == "TRIGGERS"):  # MariaDB would open all tables of the server
            elsewhere = f"{named} AND LOCATE(LOWER({_HERE}), LOWER({statement})) > 0"
            systems = ", ".join(f"'{name}'" for name in _SYSTEM)
            condition = f"({condition}) OR ({elsewhere} AND {schema} NOT IN ({systems}))"
        return self.migration.table.read(text(_PROGRAMS[kind].format(here=_HERE, condition=condition)))

    @property
    def _is_mariadb(self) -> bool:
        return bool(getattr(self.migration.plan.dialect, "is_mariadb", False))

    @cached_property
    def _database(self) -> Row[Any]:
        return self.migration.table.read(_DATABASES)[0]

    def reader(self, parts: int) -> Reader:
        """Return a reader of programs that name the table by a path of at least so many *parts*."""
        here, table = self._database.here.lower(), self.migration.target.table.lower()

        def is_ours(path: Path) -> bool:
            return len(path) >= parts and path[-1:] == (table,) and path[-2:-1] in ((), (here,))

        return Reader(LANGUAGE, self.change, self._table, is_ours, self._columns_of, {})

    @cached_property
    def _table(self) -> Shape:
        columns = self._columns_of((self.migration.target.table,)) or ()
        return self.change.of(columns)

    def _columns_of(self, path: Path) -> Sequence[str] | None:
        if path not in self._known:
            names = {"name": path[-1], "in": path[-2] if len(path) > 1 else None}
            connection, table = self.migration.table.connection, self.migration.table
            found = connection.execute(_COLUMNS, {**table.names, **names}).scalars().all()
            self._known[path] = [name.lower() for name in found] or None
        return self._known[path]

    @cached_property
    def _known(self) -> dict[Path, Sequence[str] | None]:
        return {}

    def _program(self, row: Row[Any], body: str) -> Program:
        modes = {*str(row.mode).split(",")}
        lexis = replace(
            _LEXIS,
            has_backslashes="NO_BACKSLASH_ESCAPES" not in modes,
            quotes_text="'" if "ANSI_QUOTES" in modes else "'\"",
        )
        rows = {"new": self._table, "old": self._table} if row.is_ours else {}
        schema = "" if row.schema == self._database.here else f"{row.schema}."
        return Program(f"the {row.kind} {schema}{row.name}", body, rows, lexis=lexis)

    def _as_written(self, row: Row[Any]) -> str | None:
        """Return the body of a program as it was written, or None if this user may not see it.

        In the catalogs, its texts have lost their escapes, so that one may seem to contain the statements behind it.
        """
        body, connection = row.body, self.migration.table.connection
        if body is None:
            return None
        beginning = re.split(r"['\"\\]", body, maxsplit=1)[0]
        if beginning == body:
            return str(body)
        try:
            name = quoted_table(row.name, row.schema, connection.dialect)
            found = send(connection, f"SHOW CREATE {row.kind} {name}").one()
        except DBAPIError as error:
            if error.connection_invalidated or can_be_retried(error, connection.dialect):
                raise
            return None
        written = str(found[3 if row.kind == "event" else 2])
        return written[written.find(beginning) :] if beginning in written else None
