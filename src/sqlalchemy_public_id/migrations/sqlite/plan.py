"""SQLite: the table is copied in one transaction, because ALTER TABLE cannot add NOT NULL or a computed default.

The procedure follows SQLite's documentation ("Making Other Kinds Of Table Schema Changes"). Rows, triggers, indexes
on expressions, views and the counter of AUTOINCREMENT are kept. For foreign keys, dropping the old table deletes its
rows: with ``PRAGMA foreign_keys=ON``, it would also delete the rows of other tables that refer to it, or fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sqlalchemy import Dialect, inspect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.errors import ConfigurationError, Obstacle
from sqlalchemy_public_id.migrations.plan import Lock, Migration, Plan, Step, step_if
from sqlalchemy_public_id.migrations.session import send
from sqlalchemy_public_id.migrations.sqlite.create_table import (
    settles_duplicates,
    with_clause,
    with_column,
    without_clause,
    without_unique,
)
from sqlalchemy_public_id.migrations.sqlite.schema_copy import copied_schema
from sqlalchemy_public_id.migrations.sqlite.server_defaults import SQLiteDefaults
from sqlalchemy_public_id.migrations.sqlite.stored_code import read_stored_code
from sqlalchemy_public_id.migrations.sqlite.table import SQLiteTable, in_schema
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.steps import is_accepted, refused
from sqlalchemy_public_id.migrations.stored_code.programs import StoredCode
from sqlalchemy_public_id.migrations.stored_code.shapes import Change

_SWITCH_OFF = (
    'in env.py, before context.configure(), call connection.exec_driver_sql("PRAGMA foreign_keys=OFF") '
    "and connection.commit()"
)


class SQLitePlan(Plan):
    """The steps for SQLite."""

    stores_any_type = True
    indexes_whole_texts = True
    works_in_a_shell = False  # if a row had no id, a shell would drop the old table and keep an empty copy

    @property
    def bytewise(self) -> str:
        return "BINARY"

    @classmethod
    def defaults_of(cls, dialect: Dialect) -> SQLiteDefaults:
        return SQLiteDefaults(dialect)

    def expand(self) -> list[Step]:
        def statements(state: State) -> list[str]:
            add = f"ALTER TABLE {self.table} ADD COLUMN {self.column} {self._type(state)}"
            return [] if state.exists else [add]

        # the contract copies a column that may be NULL, and sets the default there
        set_default = self._copy(
            "copy the table, with the default",
            lambda sql, state: self._with_default(sql, state, generates_ids=True),
            lambda state: not state.nullable and self.lacks_default(state),
        )
        return [Step("add the column", statements), set_default]

    def contract(self) -> list[Step]:
        keeps = self.target.server_default in ("keep", "replace")

        def edit(sql: str, state: State) -> str:
            return with_clause(self._with_default(sql, state, generates_ids=keeps), self.target.column, "NOT NULL")

        table = self.quoted(self.target.table)  # without its schema, which precedes the name of the index
        create = f"CREATE UNIQUE INDEX {self.schema}{self.unique} ON {table} ({self.unique_columns})"
        return [
            step_if("build the unique index", lambda state: not state.index, create, Lock.WRITERS),
            self._copy(
                "copy the table, with NOT NULL",
                edit,
                lambda state: state.nullable,
                fills_stragglers=self.can_fill_stragglers,
            ),
        ]

    def loosen(self) -> list[Step]:
        target = self.target

        def edit(sql: str, state: State) -> str:
            sql = self._with_default(sql, state, generates_ids=self.generates_ids)
            if not target.keeps_not_null:
                sql = without_clause(sql, target.column, "NOT NULL")
            return sql if target.keeps_unique else without_unique(sql, *target.unique_columns)

        def differs(state: State) -> bool:
            return (
                (not target.keeps_not_null and not state.nullable)
                or (not target.keeps_unique and state.constrained)
                or (not self.generates_ids and self.has_own_default(state))
                or (target.server_default == "replace" and self.lacks_default(state))
            )

        def drop_index(state: State) -> list[str]:
            is_needed = state.index and not state.constraint
            return [f"DROP INDEX IF EXISTS {self.schema}{self.unique_of(state)}"] if is_needed else []

        copy = self._copy("copy the table, as it was before", edit, differs)
        return [copy] if target.keeps_unique else [Step("drop the unique index", drop_index), copy]

    def drop(self) -> list[Step]:
        def statements(state: State) -> list[str]:
            if not state.exists:
                return []
            # in one transaction: SQLite refuses to drop a column that a view or another index needs
            name, columns = self.target.column, self.target.unique_columns
            ours = [it for it in state.indexes if it.columns == (name,) or it.can_be_unique_index_of(*columns)]
            indexes = [it for it in ours if not it.constraint]
            drops = [f"DROP INDEX {self.schema}{self.quoted(index.name)}" for index in indexes]
            return [*drops, f"ALTER TABLE {self.table} DROP COLUMN {self.column}"]

        copy = self._copy(
            "copy the table, without the UNIQUE constraint",
            lambda sql, state: without_unique(sql, *self.target.unique_columns),
            lambda state: state.constrained,
        )
        return [copy, Step("drop the column", statements)]

    def rights(self, migration: Migration) -> list[str]:
        return ["the right to write the file"]

    def obstacles(self, migration: Migration) -> Iterator[Obstacle]:
        target, state = migration.target, migration.state
        copies = {"contract", "loosen"} & {*migration.phases} or ("drop" in migration.phases and state.constrained)
        if copies and state.stored is not None and state.stored.is_referred_to:
            problem = (
                f"PRAGMA foreign_keys is ON, and other tables refer to {target.table!r}, whose rows a copy would orphan"
            )
            yield Obstacle("foreign-keys", problem, _SWITCH_OFF)
        needs_unique = state.constrained and {"expand", "contract"} & {*migration.phases}
        if needs_unique and state.stored is not None and settles_duplicates(state.stored.sql, *target.unique_columns):
            problem = f"the UNIQUE of {target.column} has ON CONFLICT, so a row whose id is taken is deleted or lost"
            yield Obstacle("wrong-index", problem, "copy the table into one without this clause")
        if "contract" not in migration.phases or state.index:
            return
        master = self.quoted(target.schema or "main")
        others = "lower(name) = lower(?) AND lower(tbl_name) <> lower(?)"
        query = f"SELECT type, tbl_name FROM {master}.sqlite_master WHERE {others}"
        row = migration.table.connection.exec_driver_sql(query, (target.unique_name, target.table)).first()
        if row is not None:
            problem = f"the name {target.unique_name} belongs to the {row.type} of {row.tbl_name}"
            yield Obstacle("name-taken", problem, "pass unique_name= with another name")

    def rehearse(self, migration: Migration) -> Iterator[Obstacle]:
        """Use an in-memory copy of the schema, without what needs functions or modules of the application."""
        target = replace(migration.target, schema=None)
        with copied_schema(migration) as copy:
            was_sound = is_accepted(copy, "PRAGMA foreign_key_check")
            table = SQLiteTable(copy, target)
            steps = SQLitePlan(target, copy.dialect).steps_of(migration.phases)
            for _, step in steps if inspect(copy).has_table(target.table) else ():
                try:
                    for sql in step.statements(table.read_state()):
                        send(copy, sql)
                except DBAPIError as error:
                    yield refused(migration, step, error)
                    break
            else:
                if was_sound and not is_accepted(copy, "PRAGMA foreign_key_check"):
                    problem = f"a foreign key of another table needs the unique index of {target.column}"
                    yield Obstacle("dependants", problem, "drop it first")

    def read_stored_code(self, migration: Migration, change: Change) -> StoredCode:
        return read_stored_code(migration, change)

    def how_to_change_collation(self) -> str:
        column, binary = self.target.column, f"type_=sa.String({self.target.format.max_length}, collation='BINARY')"
        batch = f"with op.batch_alter_table({self.target.table!r}) as batch_op: batch_op.alter_column({column!r}"
        return f"change it in an earlier revision: {batch}, {binary})"

    # --- parts

    def _type(self, state: State) -> str:
        if state.type is not None:
            return state.type
        if state.stored is None or not state.stored.is_strict:
            return self.type
        return {"BIGINT": "INTEGER", "BLOB": "BLOB"}.get(self.type, "TEXT")  # a STRICT table accepts no VARCHAR

    def _with_default(self, sql: str, state: State, *, generates_ids: bool) -> str:
        if state.default is not None and not self.has_own_default(state) and not self.lacks_default(state):
            return sql
        sql = without_clause(sql, self.target.column, "DEFAULT")
        if not generates_ids:
            return sql
        return with_clause(sql, self.target.column, f"DEFAULT ({self.defaults.expression(self.target.format)})")

    @property
    def can_fill_stragglers(self) -> bool:
        return self.generates_ids and self.defaults.can_generate(self.target.format)

    def _copy(
        self,
        name: str,
        edit: Callable[[str, State], str],
        is_needed: Callable[[State], bool],
        *,
        fills_stragglers: bool = False,
    ) -> Step:
        """Build the step that replaces the table with a copy; *edit* changes its CREATE TABLE statement."""

        def statements(state: State) -> list[str]:
            return [*self._copied(state, edit, fills_stragglers)] if is_needed(state) else []

        return Step(name, statements, Lock.WRITERS)

    def _copied(self, state: State, edit: Callable[[str, State], str], fills_stragglers: bool) -> Iterator[str]:
        name, schema, stored = self.target.table, self.schema or "main.", state.stored
        assert stored is not None
        if stored.is_referred_to:
            raise ConfigurationError(
                f"PRAGMA foreign_keys is ON, and other tables refer to {name!r}: copying it would delete or orphan "
                f"their rows; {_SWITCH_OFF}"
            )
        created, columns = stored.sql, [*stored.columns]
        old = self.quoted(f"_copy_of_{name}")
        if not state.exists:  # a report lists the statements before the column is added
            created = with_column(created, f"{self.column} {self._type(state)}")
            columns.append(self.target.column)
        values = [*map(self.quoted, columns)]
        inserted = ", ".join(values)
        if fills_stragglers:
            # the transaction holds the only write lock, so rows that were inserted just before it get their ids here
            filled = f"COALESCE({self.column}, {self.defaults.expression(self.target.format)})"
            ours = self.target.column.lower()
            values = [filled if it.lower() == ours else self.quoted(it) for it in columns]
        # otherwise, foreign keys, views and triggers that refer to the old table would follow it to its new name
        yield "PRAGMA legacy_alter_table=ON"
        yield f"ALTER TABLE {self.table} RENAME TO {old}"
        yield in_schema(edit(created, state), schema)
        yield f"INSERT INTO {self.table} ({inserted}) SELECT {', '.join(values)} FROM {schema}{old}"
        yield f"DROP TABLE {schema}{old}"
        if stored.counter is not None:
            counter = f"seq = {stored.counter} WHERE lower(name) = lower({self.literal(name)})"
            yield f"UPDATE {schema}sqlite_sequence SET {counter}"
        yield from (in_schema(sql, schema) for sql in stored.others)
        yield f"PRAGMA legacy_alter_table={stored.legacy}"
