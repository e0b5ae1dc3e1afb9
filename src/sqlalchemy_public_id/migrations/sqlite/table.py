"""A table of SQLite, its rows, by ``rowid`` or by the key of a table without one, and the session of a migration."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, case, false, func, inspect, text
from sqlalchemy.types import NullType

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.quoting import quoted, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError, Obstacle
from sqlalchemy_public_id.migrations.plan import Lock
from sqlalchemy_public_id.migrations.rows import PositionColumns, Rows
from sqlalchemy_public_id.migrations.session import MigrationSession, no_replica, restore, send, transaction
from sqlalchemy_public_id.migrations.sqlite.create_table import read_event
from sqlalchemy_public_id.migrations.state import Demand, IndexFacts, State, StoredTable
from sqlalchemy_public_id.migrations.table import LiveTable, indexes_from
from sqlalchemy_public_id.stored_ids import as_bits_format

_COLUMNS = text("""
SELECT name, lower(name) = lower(:column) AS is_ours, "notnull" AS not_null, dflt_value AS "default", type AS type,
       hidden = 0 AS is_stored
FROM pragma_table_xinfo(:table, :database)
""")
_INDEXES = text("""
SELECT l.name AS name, l."unique" AS "unique", l.partial AS partial, l.origin <> 'c' AS "constraint",
       l.origin = 'pk' AS "primary", i.name AS "column",
       lower(i.name) = lower(:column) AND upper(i.coll) IN ('NOCASE', 'RTRIM') AS is_coarse
FROM pragma_index_list(:table, :database) l, pragma_index_xinfo(l.name, :database) i
WHERE i."key"
ORDER BY l.seq, i.seqno
""")

_TEMPORARY = "temp."
"""The schema of the temporary tables and triggers of a connection, as it precedes a name."""


class SQLiteTable(LiveTable):
    """A table of SQLite."""

    can_skip_triggers = True
    ignores_case = True

    @property
    def _schema(self) -> str:
        return f"{quoted(self.target.schema or 'main', self.connection.dialect)}."

    def _read_master(
        self, columns: str, condition: str, name: str | None = None, schema: str | None = None
    ) -> list[tuple[str, ...]]:
        master = "sqlite_temp_master" if schema == _TEMPORARY else f"{self._schema}sqlite_master"
        query = f"SELECT {columns} FROM {master} WHERE {condition}"
        return [tuple(row) for row in self.connection.exec_driver_sql(query, (name or self.target.table,))]

    def _read_state(self) -> tuple[str, State, Iterable[IndexFacts]] | None:
        found = self._read_master("type, sql", "type IN ('table', 'view') AND lower(name) = lower(?)")
        if not found:
            return None
        (kind, sql), (module, is_strict) = found[0], self._read_kind()
        columns = self.connection.execute(_COLUMNS, self.names).all()
        stored = self._read_stored(sql, [column.name for column in columns if column.is_stored], is_strict)
        state = State(stored=stored, misfit=self._misfit(module))
        for column in columns:
            if column.is_ours:
                state = State(
                    exists=True,
                    type=column.type,
                    exact=self._is_exact(),
                    nullable=not column.not_null,
                    default=None if str(column.default).upper() == "NULL" else column.default,  # DEFAULT NULL
                    stored=stored,
                    misfit=state.misfit,
                )
        parts = groupby(self.connection.execute(_INDEXES, self.names).mappings(), lambda part: part["name"])
        return kind, state, indexes_from(_index(list(group), state) for _, group in parts)

    def _read_stored(self, sql: str, columns: list[str], is_strict: bool) -> StoredTable:
        of_table = "lower(tbl_name) = lower(?) AND sql IS NOT NULL AND type IN ('index', 'trigger')"
        return StoredTable(
            sql=sql,
            others=tuple(row[0] for row in self._read_master("sql", of_table)),
            columns=tuple(columns),
            counter=self._read_counter(),
            is_referred_to=self._is_referred_to(),
            is_strict=is_strict,
            legacy=send(self.connection, "PRAGMA legacy_alter_table").scalar(),
        )

    def _read_counter(self) -> int | None:
        if not self._read_master("1", "name = ?", "sqlite_sequence"):
            return None
        query = f"SELECT seq FROM {self._schema}sqlite_sequence WHERE lower(name) = lower(?)"
        return self.connection.exec_driver_sql(query, (self.target.table,)).scalar()

    def _is_referred_to(self) -> bool:
        if not send(self.connection, "PRAGMA foreign_keys").scalar():
            return False
        query = (
            f"SELECT EXISTS (SELECT 1 FROM {self._schema}sqlite_master m, pragma_foreign_key_list(m.name, ?) k "
            f"WHERE m.type = 'table' AND lower(k.\"table\") = lower(?))"
        )
        names = (self.names["database"], self.target.table)
        return bool(self.connection.exec_driver_sql(query, names).scalar())

    def _read_kind(self) -> tuple[str, bool]:
        """Return "table", "view", "shadow" or "virtual", and whether it is STRICT; both came with SQLite 3.37."""
        name = quoted(self.target.table, self.connection.dialect)
        found = send(self.connection, f"PRAGMA {self._schema}table_list({name})")
        row = found.first() if found.returns_rows else None
        return ("table", False) if row is None else (row.type, bool(row.strict))

    def obstacle_of_a_temporary_table(self) -> Obstacle | None:
        in_front = "type IN ('table', 'view') AND lower(name) = lower(?)"
        hiding = [] if self.target.schema else self._read_master("type, name", in_front, schema=_TEMPORARY)
        for type_, name in hiding:
            drop = f"DROP {type_.upper()} {_TEMPORARY}{quoted(name, self.connection.dialect)}"
            return self.hidden_by(type_, drop)
        return None

    def _misfit(self, kind: str) -> Obstacle | None:
        if kind not in ("virtual", "shadow"):
            return None
        problem = f"{self.target.table} is a {kind} table, whose columns are those of a module of SQLite"
        return Obstacle("virtual", problem, "keep the ids in a separate table that refers to its rows")

    def _is_exact(self) -> bool:
        # the catalogs do not contain the collation of a column, but a UNION compares by that of its first SELECT
        column, dialect = quoted(self.target.column, self.connection.dialect), self.connection.dialect
        name = quoted_table(self.target.table, self.target.schema, dialect)
        spellings = f"SELECT {column} FROM {name} WHERE 0 UNION SELECT column1 FROM (VALUES ('a'), ('A'), ('a '))"
        return len(send(self.connection, spellings).all()) == 3

    def estimate_rows(self) -> int | None:
        return send(self.connection, f"SELECT count(*) FROM {self.name}").scalar() or None

    def read_largest_key(self, key: str, type_: Integer) -> int:
        return 2**63 - 1  # whatever the type of the column is called

    def read_constraints(self) -> Iterator[Demand]:
        target = self.target
        own = self._read_own_name()
        names = [name.replace('"', '""').lower() for name in self.read_other_columns()]
        others = [f'"{name}"' for name in names]
        for check in inspect(self.connection).get_check_constraints(own, schema=target.schema):
            name = f"the CHECK constraint {check['name']}" if check.get("name") else "a CHECK constraint"
            # SQLite reads a name in double quotes that it does not know as a string, so the database cannot tell
            sql = check["sqltext"].lower()
            why_not = "it also needs other columns" if any(other in sql for other in others) else ""
            if target.column.lower() in sql:
                yield Demand(name, f"({check['sqltext']})", is_ours=True, why_not=why_not)
        yield from self.generated_columns(table=own)
        column = target.column.lower()
        yield from self.demands_of_triggers(
            name for _, name, sql in self._read_triggers() if read_event(sql)[0] == "insert" and column in sql.lower()
        )

    def _read_own_name(self) -> str:
        """Return the name of the table as it was created: SQLAlchemy's reflection does not find another case."""
        return self._read_master("name", "type = 'table' AND lower(name) = lower(?)")[0][0]

    def read_references(self) -> Sequence[tuple[str | None, str, str]]:
        # a foreign key without columns refers to the primary key
        query = f"""
            SELECT m.name AS name, k."from" AS "column"
            FROM {self._schema}sqlite_master m, pragma_foreign_key_list(m.name, :database) k
            WHERE m.type = 'table' AND lower(k."table") = lower(:table) AND lower(:column) = lower(COALESCE(
                k."to", (SELECT name FROM pragma_table_xinfo(:table, :database) WHERE pk = k.seq + 1)))
        """
        found = self.connection.exec_driver_sql(query, self.names)
        return [(self.target.schema, row.name, row.column) for row in found]

    def columns_changed_by_updates(self) -> list[str]:
        return []

    def update_triggers(self) -> list[str]:
        column = self.target.column.lower()
        found = [(name, *read_event(sql)) for _, name, sql in self._read_triggers()]
        return [name for name, event, columns in found if event == "update" and (not columns or column in columns)]

    def _read_triggers(self) -> list[tuple[str, str, str]]:
        """Return the schema, the name and the statement of each trigger, also of temporary ones of this connection."""
        found = "name, sql", "type = 'trigger' AND lower(tbl_name) = lower(?)"
        return [
            (schema, name, sql)
            for schema in (self._schema, _TEMPORARY)
            for name, sql in self._read_master(*found, schema=schema)
        ]

    def restore_settings(self, state: State) -> None:
        if state.stored is not None:
            restore(self.connection, f"PRAGMA legacy_alter_table={state.stored.legacy}")

    @contextmanager
    def without_triggers(self) -> Generator[None]:
        # no other session can write meanwhile, so no trigger is missed
        triggers = self._read_triggers()
        for schema, name, _ in triggers:
            send(self.connection, f"DROP TRIGGER {schema}{quoted(name, self.connection.dialect)}")
        yield
        for schema, _, sql in triggers:
            send(self.connection, in_schema(sql, schema))


def _index(parts: Sequence[Mapping[Any, Any]], state: State) -> dict[str, Any]:
    """Return the facts of an index, from its *parts* in their order."""
    own = ("column", "is_coarse")
    facts: dict[str, Any] = {str(name): value for name, value in parts[0].items() if name not in own}
    # the catalogs do not contain the collation of the column, but it is another one if it tells all ids apart
    facts["by_other_collation"] = state.exact and any(part["is_coarse"] for part in parts)
    return {**facts, "columns": [part["column"] for part in parts]}


def in_schema(sql: str, schema: str) -> str:
    """Return a stored CREATE TABLE, INDEX or TRIGGER statement, which names no schema, with *schema* (``archive.``)."""
    if schema == "main.":
        return sql
    return re.sub(
        r"^(CREATE\s+(?:UNIQUE\s+)?(?:TABLE|INDEX|TRIGGER)\s+)",
        lambda match: f"{match[1]}{schema}",
        sql,
        flags=re.IGNORECASE,
    )


# --- the rows

# SQLite describes a table WITHOUT ROWID as an index of the same name
_WITHOUT_ROWID = text("SELECT name FROM pragma_index_info(:table, :database) ORDER BY seqno")
# unlike the Inspector, which compares the name of a table case-sensitively
_KEY = text("SELECT name FROM pragma_table_xinfo(:table, :database) WHERE pk > 0 ORDER BY pk")
_NAMES = text("SELECT lower(name) FROM pragma_table_xinfo(:table, :database)")


class SQLiteRows(Rows):
    """The rows of a table of SQLite."""

    @classmethod
    def read_position_columns(cls, live: LiveTable) -> PositionColumns:
        key = list(live.connection.execute(_WITHOUT_ROWID, live.names).scalars())
        columns = {*live.connection.execute(_NAMES, live.names).scalars()}  # which may hide the row id
        free = [name for name in ("rowid", "_rowid_", "oid") if name not in columns]
        names = key or free[:1] or live.connection.execute(_KEY, live.names).scalars()
        return dict.fromkeys(names, NullType())

    @classmethod
    def read_key(cls, live: LiveTable) -> list[str]:
        return list(live.connection.execute(_KEY, live.names).scalars())

    def is_well_formed(self) -> ColumnElement[bool]:
        format, column = self.target.format, self.column
        kind, digits = "text", func.lower(func.hex(column))
        is_id: ColumnElement[bool]
        if not format.is_native:
            lengths = [form.max_length for form in format.forms]  # "$" matches before a newline, too
            is_id = func.length(column).in_(lengths) & column.regexp_match(format.stored_pattern)
        elif as_bits_format(format).bits == 64:
            kind, is_id = "integer", column >= 0
        else:
            kind, is_id = "blob", digits.regexp_match(as_bits_format(format).hex_pattern)
        # a column may have values of any kind: no lookup finds them, and every text and blob is larger than all numbers
        return case((func.typeof(column) == kind, is_id), else_=false())


# --- the session


class SQLiteSession(MigrationSession):
    """The session of a connection to SQLite."""

    is_exclusive = True
    has_turns = False

    @property
    def read_only(self) -> str | None:
        is_set = send(self.connection, "PRAGMA query_only").scalar()
        return "the connection is read-only (PRAGMA query_only)" if is_set else None

    @property
    def lock_setting(self) -> str:
        return "busy_timeout"

    def read_settings(self) -> dict[str, str]:
        return {}

    def wanted_settings(self, current: Mapping[str, str]) -> dict[str, object]:
        return {}

    @contextmanager
    def begin_step(self, lock: Lock, seconds: float) -> Generator[None]:
        with transaction(self.connection, "BEGIN IMMEDIATE"):
            yield

    def has_written(self, versions: Callable[[], str | None], *, transactional_ddl: bool) -> bool:
        # the driver begins a transaction at the first INSERT, UPDATE or DELETE, and Alembic commits each version
        return not transactional_ddl and traits_for(self.connection.dialect).in_transaction(
            self.connection.connection.dbapi_connection
        )

    def count_running(self) -> int:
        raise ConfigurationError("sqlite does not report its load; expected PostgreSQL, MySQL or MariaDB")

    def read_lag(self, primary: Connection, written: deque[tuple[float, int]]) -> float | None:
        raise no_replica(self.connection)

    def try_to_take_turn(self, table: str | None, schema: str | None) -> None:
        return None

    def read_holder(self) -> None:
        return None

    def end_turn(self) -> None:
        return None
