"""SQLite: the table is copied in one transaction, because its ALTER TABLE adds neither NOT NULL nor such a default.

The procedure is that of SQLite's documentation ("Making Other Kinds Of Table Schema Changes"). Rows, triggers, indexes
on expressions, views and the counter of AUTOINCREMENT are kept. To foreign keys, dropping the old table deletes its
rows: with ``PRAGMA foreign_keys=ON``, it would delete the rows of other tables that refer to it, or fail.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import SAWarning

from sqlalchemy_public_id.advice import about
from sqlalchemy_public_id.dialects.quoting import quoted
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.migrating.indexes import read_indexes
from sqlalchemy_public_id.online.create_table import renamed, with_column, with_constraint, without_constraint
from sqlalchemy_public_id.online.plan import Plan, Step, always
from sqlalchemy_public_id.online.server_defaults import can_generate, expression, is_generated


class SQLitePlan(Plan):
    """The steps for SQLite. There is no script, because the copy depends on the table."""

    def expand(self) -> list[Step]:
        add = f"ALTER TABLE {self.table} ADD COLUMN {self.column}"
        return [Step("add the column", lambda _, state: [f"{add} {self._type(state)}"], lambda state: not state.exists)]

    def contract(self) -> list[Step]:
        keeps = self.target.server_default == "keep"
        steps = [
            self._rebuild(
                "copy the table, with NOT NULL",
                lambda state: self._definition(state, not_null=True, generates_ids=keeps),
                lambda state: state.nullable or self._constraint_differs(state),
            )
        ]
        if self.target.unique == "index":
            table = self.quoted(self.target.table)  # without its schema, which stands before the name of the index
            create = f"CREATE UNIQUE INDEX {self.schema}{self.unique} ON {table} ({self.column})"
            steps.insert(0, Step("build the unique index", always(create), lambda state: not state.index))
        return [*steps, *self._drop_replaced()]

    def relax(self) -> list[Step]:
        allow = self._rebuild(
            "copy the table, with NULL allowed",
            lambda state: self._definition(state, not_null=False, generates_ids=self.generates_ids),
            lambda state: not state.nullable,
        )
        if self.target.replaces:
            return [*self.contract(), allow]
        return [self._drop_index(), allow]

    def drop(self) -> list[Step]:
        def sql(connection: Connection | None, state: State) -> list[str]:
            if connection is None:
                return self.backfill_sql()
            # in one transaction: SQLite refuses to drop a column that a view or another index needs
            indexes = read_indexes(connection, self.target.table, self.target.schema)
            names = [
                index.name for index in indexes if index.only_column == self.target.column and not index.constraint
            ]
            drops = [f"DROP INDEX {self.schema}{self.quoted(name)}" for name in names]
            return [*drops, f"ALTER TABLE {self.table} DROP COLUMN {self.column}"]

        step = Step("drop the column", sql, lambda state: state.exists)
        return [self.relax()[-1], step] if self.target.unique == "constraint" else [step]  # a copy without it

    def refuse_structure_sql(self) -> list[str]:
        return self.backfill_sql()

    def refuse_triggers_sql(self, *, skip: bool) -> list[str]:
        return self.backfill_sql()

    def backfill_sql(self, *, skip_triggers: bool = False) -> list[str]:
        raise ConfigurationError(
            "a script cannot read the table that SQLite has to copy; run the migration with a connection, without --sql"
        )

    # --- parts

    def has_own_default(self, state: State) -> bool:
        return state.default is not None and is_generated(state.default, "sqlite")

    def _constraint_differs(self, state: State) -> bool:
        if self.target.unique == "constraint":
            return not state.constraint
        return state.replaced is not None and state.replaced.constraint

    def _drop_replaced(self) -> list[Step]:
        if self.target.replaces is None:
            return []
        drop = f"DROP INDEX IF EXISTS {self.schema}{self.replaced}"
        return [
            Step(
                "drop the unique index that is replaced",
                always(drop),
                lambda state: state.valid and state.replaced is not None and not state.replaced.constraint,
            )
        ]

    def _drop_index(self) -> Step:
        drop = f"DROP INDEX IF EXISTS {self.schema}{self.unique}"
        return Step("drop the unique index", always(drop), lambda state: state.index and not state.constraint)

    def _type(self, state: State) -> str:
        if state.type is not None:
            return state.type
        if not state.strict:
            return self.type
        return {"BIGINT": "INTEGER", "BLOB": "BLOB"}.get(self.type, "TEXT")  # a STRICT table takes no VARCHAR

    def _definition(self, state: State, *, not_null: bool, generates_ids: bool) -> str:
        default = expression(self.target.format, "sqlite") if generates_ids else None
        if state.default is not None and not self.has_own_default(state):
            default = state.default  # not from this library
        default = f" DEFAULT ({default})" if default is not None else ""
        return f"{self.column} {self._type(state)}{default}{' NOT NULL' if not_null else ''}"

    def _names_of_constraints(self, connection: Connection) -> set[str]:
        names = {self.target.unique_name, self.target.replaces}
        if self.target.unique == "constraint":  # a renamed table keeps the name of its constraint
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SAWarning)  # indexes on expressions
                constraints = inspect(connection).get_unique_constraints(self.target.table, schema=self.target.schema)
            names |= {item["name"] for item in constraints if item["column_names"] == [self.target.column]}
        return {name for name in names if name}

    def _straggler(self, definition: str) -> str:
        # the transaction has the only lock for writers, so rows of the moment before it get their ids here
        if self.can_fill_stragglers and definition.endswith("NOT NULL"):
            return f"COALESCE({self.column}, {expression(self.target.format, 'sqlite')})"
        return self.column

    @property
    def can_fill_stragglers(self) -> bool:
        return self.generates_ids and can_generate(self.target.format, "sqlite")

    def _rebuild(self, name: str, definition: Callable[[State], str], needed: Callable[[State], bool]) -> Step:
        def sql(connection: Connection | None, state: State) -> Sequence[str]:
            if connection is None:
                return self.backfill_sql()
            return list(self._copy(connection, definition(state)))

        return Step(name, sql, needed)

    def _copy(self, connection: Connection, definition: str) -> Iterator[str]:
        """Yield the statements that replace the table by a copy with another *definition* of the column."""
        name, schema = self.target.table, self.schema or "main."
        database = self.target.schema or "main"
        if foreign_keys_would_fire(connection, name, self.target.schema):
            advice = about("sqlite-copy", table=name, column=self.target.column)
            raise ConfigurationError(
                f"PRAGMA foreign_keys is ON, and other tables refer to {name!r}: copying it would delete or orphan "
                f"their rows. Write:\n{advice.good}"
            )
        master = f"{schema}sqlite_master"
        query = f"SELECT sql FROM {master} WHERE tbl_name = ? AND sql IS NOT NULL AND type"
        (old,) = connection.exec_driver_sql(f"{query} = 'table'", (name,)).scalars()
        others = list(connection.exec_driver_sql(f"{query} IN ('index', 'trigger')", (name,)).scalars())
        quote = self.quoted
        copy = f"{schema}{quote(f'_copy_of_{name}')}"
        for unique_name in self._names_of_constraints(connection):
            old = without_constraint(old, unique_name)
        new = with_column(old, self.target.column, definition)
        is_unique = definition.endswith("NOT NULL") or self.target.replaces is not None
        if self.target.unique == "constraint" and is_unique:
            new = with_constraint(new, f"CONSTRAINT {self.unique} UNIQUE ({self.column})")
        stored = _stored_columns(connection, database, name)
        columns = ", ".join(map(quote, stored))
        values = ", ".join(self._straggler(definition) if it == self.target.column else quote(it) for it in stored)
        legacy = connection.exec_driver_sql("PRAGMA legacy_alter_table").scalar()
        yield "PRAGMA legacy_alter_table=ON"  # SQLite does not check views and triggers while the table is missing
        yield renamed(new, copy)
        yield f"INSERT INTO {copy} ({columns}) SELECT {values} FROM {self.table}"
        counter = _autoincrement_value(connection, schema, name)
        yield f"DROP TABLE {self.table}"
        yield f"ALTER TABLE {copy} RENAME TO {quote(name)}"
        if counter is not None:
            yield f"UPDATE {schema}sqlite_sequence SET seq = {counter} WHERE name = {self.literal(name)}"
        yield from (in_schema(sql, schema) for sql in others)
        yield f"PRAGMA legacy_alter_table={legacy}"


def foreign_keys_would_fire(connection: Connection, name: str, schema: str | None) -> bool:
    """Return True if dropping the table would delete rows of others, or fail, because of their foreign keys."""
    if not connection.exec_driver_sql("PRAGMA foreign_keys").scalar():
        return False
    schema = schema or "main"
    master = f"{quoted(schema, connection.dialect)}.sqlite_master"
    tables = connection.exec_driver_sql(f"SELECT name FROM {master} WHERE type = 'table'").scalars().all()
    return any(
        row[0].lower() == name.lower()
        for table in tables
        for row in connection.exec_driver_sql('SELECT "table" FROM pragma_foreign_key_list(?, ?)', (table, schema))
    )


def _stored_columns(connection: Connection, schema: str, name: str) -> list[str]:
    # without computed ones
    rows = connection.exec_driver_sql("SELECT name FROM pragma_table_xinfo(?, ?) WHERE hidden = 0", (name, schema))
    return list(rows.scalars())


def _autoincrement_value(connection: Connection, schema: str, name: str) -> int | None:
    has = f"SELECT 1 FROM {schema}sqlite_master WHERE name = 'sqlite_sequence'"
    if connection.exec_driver_sql(has).scalar() is None:
        return None
    return connection.exec_driver_sql(f"SELECT seq FROM {schema}sqlite_sequence WHERE name = ?", (name,)).scalar()


def in_schema(sql: str, schema: str) -> str:
    """Return a stored CREATE INDEX or CREATE TRIGGER, which has no schema, for *schema*."""
    if schema == "main.":
        return sql
    return re.sub(
        r"^(CREATE\s+(?:UNIQUE\s+)?(?:INDEX|TRIGGER)\s+)", lambda match: f"{match[1]}{schema}", sql, flags=re.IGNORECASE
    )
