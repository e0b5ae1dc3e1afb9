"""SQLite: the table is copied in one transaction, because its ALTER TABLE adds neither NOT NULL nor such a default.

The procedure is that of SQLite's documentation ("Making Other Kinds Of Table Schema Changes"). Rows, triggers, indexes
on expressions, views and the counter of AUTOINCREMENT are kept. To foreign keys, dropping the old table deletes its
rows: with ``PRAGMA foreign_keys=ON``, it would delete the rows of other tables that refer to it, or fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from sqlalchemy import Connection

from sqlalchemy_public_id.dialects.quoting import quoted
from sqlalchemy_public_id.errors import ConfigurationError, Obstacle
from sqlalchemy_public_id.migrating.catalog import read_indexes
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.migrating.create_table import (
    with_clause,
    with_column,
    with_constraint,
    without_clause,
    without_unique,
)
from sqlalchemy_public_id.migrating.plan import Plan, Scene, Step, always
from sqlalchemy_public_id.migrating.server_defaults import can_generate, expression, is_generated
from sqlalchemy_public_id.migrating.structure import obstacles_of_structure


class SQLitePlan(Plan):
    """The steps for SQLite."""

    def expand(self) -> list[Step]:
        add = f"ALTER TABLE {self.table} ADD COLUMN {self.column}"
        return [Step("add the column", lambda _, state: [f"{add} {self._type(state)}"], lambda state: not state.exists)]

    def contract(self) -> list[Step]:
        keeps = self.target.server_default == "keep"
        is_constraint = self.target.unique == "constraint"

        def edit(sql: str, state: State) -> str:
            sql = self._with_default(sql, state, generates_ids=keeps)
            if state.nullable:
                sql = with_clause(sql, self.target.column, "NOT NULL")
            if is_constraint and not state.index:
                sql = with_constraint(sql, f"CONSTRAINT {self.unique} UNIQUE ({self.column})")
            return sql

        table = self.quoted(self.target.table)  # without its schema, which stands before the name of the index
        create = f"CREATE UNIQUE INDEX {self.schema}{self.unique} ON {table} ({self.column})"
        build = Step("build the unique index", always(create), lambda state: not state.index)
        copy = self._rebuild(
            "copy the table, with NOT NULL",
            edit,
            lambda state: state.nullable or not state.index,
            fills_stragglers=self.can_fill_stragglers,
        )
        return [copy] if is_constraint else [build, copy]

    def relax(self) -> list[Step]:
        target = self.target

        def edit(sql: str, state: State) -> str:
            sql = self._with_default(sql, state, generates_ids=self.generates_ids)
            if not target.keeps_not_null:
                sql = without_clause(sql, target.column, "NOT NULL")
            return sql if target.keeps_unique else without_unique(sql, target.column)

        def differs(state: State) -> bool:
            return (
                (not target.keeps_not_null and not state.nullable)
                or (not target.keeps_unique and state.constrained)
                or (not self.generates_ids and self.has_own_default(state))
            )

        copy = self._rebuild("copy the table, as it was before", edit, differs)
        return [copy] if target.keeps_unique else [self._drop_index(), copy]

    def drop(self) -> list[Step]:
        def sql(connection: Connection, state: State) -> list[str]:
            # in one transaction: SQLite refuses to drop a column that a view or another index needs
            indexes = read_indexes(connection, self.target.table, self.target.schema)
            names = [
                index.name for index in indexes if index.only_column == self.target.column and not index.constraint
            ]
            drops = [f"DROP INDEX {self.schema}{self.quoted(name)}" for name in names]
            return [*drops, f"ALTER TABLE {self.table} DROP COLUMN {self.column}"]

        return [
            self._rebuild(
                "copy the table, without the UNIQUE constraint",
                lambda sql, state: without_unique(sql, self.target.column),
                lambda state: state.constrained,
            ),
            Step("drop the column", sql, lambda state: state.exists),
        ]

    def rights(self, scene: Scene) -> list[str]:
        return ["the right to write the file"]

    def obstacles(self, scene: Scene) -> Iterator[Obstacle]:
        target = scene.target
        table, connection = target.table, scene.connection
        yield from obstacles_of_structure(connection, table, target.schema)
        copies = {"contract", "relax"} & {*scene.phases} or ("drop" in scene.phases and scene.state.constrained)
        if copies and foreign_keys_would_fire(connection, table, target.schema):
            problem = f"PRAGMA foreign_keys is ON, and other tables refer to {table!r}, whose rows a copy would orphan"
            remedy = 'execute "PRAGMA foreign_keys=OFF" in env.py, before context.begin_transaction()'
            yield Obstacle("foreign-keys", problem, remedy)
        if "contract" not in scene.phases or scene.state.index:
            return
        master = scene.plan.quoted(target.schema or "main")
        others = "lower(name) = lower(?) AND lower(tbl_name) <> lower(?)"
        query = f"SELECT type, tbl_name FROM {master}.sqlite_master WHERE {others}"
        row = scene.connection.exec_driver_sql(query, (target.unique_name, target.table)).first()
        if row is not None:
            problem = f"the name {target.unique_name} belongs to the {row.type} of {row.tbl_name}"
            yield Obstacle("name-taken", problem, "pass unique_name= with another name")

    # --- parts

    def has_own_default(self, state: State) -> bool:
        return state.default is not None and is_generated(state.default, self.target.format, "sqlite")

    def _drop_index(self) -> Step:
        def sql(connection: Connection, state: State) -> list[str]:
            return [f"DROP INDEX IF EXISTS {self.schema}{self.unique_of(state)}"]

        return Step("drop the unique index", sql, lambda state: state.index and not state.constraint)

    def _type(self, state: State) -> str:
        if state.type is not None:
            return state.type
        if not state.strict:
            return self.type
        return {"BIGINT": "INTEGER", "BLOB": "BLOB"}.get(self.type, "TEXT")  # a STRICT table takes no VARCHAR

    def _with_default(self, sql: str, state: State, *, generates_ids: bool) -> str:
        if state.default is not None and not self.has_own_default(state):
            return sql
        sql = without_clause(sql, self.target.column, "DEFAULT")
        if not generates_ids:
            return sql
        return with_clause(sql, self.target.column, f"DEFAULT ({expression(self.target.format, 'sqlite')})")

    @property
    def can_fill_stragglers(self) -> bool:
        return self.generates_ids and can_generate(self.target.format, "sqlite")

    def _rebuild(
        self,
        name: str,
        edit: Callable[[str, State], str],
        needed: Callable[[State], bool],
        *,
        fills_stragglers: bool = False,
    ) -> Step:
        """Build the step that replaces the table by a copy, whose statement *edit* makes from the old one."""

        def sql(connection: Connection, state: State) -> Sequence[str]:
            return list(self._copy(connection, state, edit, fills_stragglers))

        return Step(name, sql, needed)

    def _copy(
        self, connection: Connection, state: State, edit: Callable[[str, State], str], fills_stragglers: bool
    ) -> Iterator[str]:
        name, schema = self.target.table, self.schema or "main."
        database = self.target.schema or "main"
        if foreign_keys_would_fire(connection, name, self.target.schema):
            raise ConfigurationError(
                f"PRAGMA foreign_keys is ON, and other tables refer to {name!r}: copying it would delete or orphan "
                f'their rows; execute "PRAGMA foreign_keys=OFF" in env.py, before context.begin_transaction()'
            )
        master = f"{schema}sqlite_master"
        query = f"SELECT sql FROM {master} WHERE lower(tbl_name) = lower(?) AND sql IS NOT NULL AND type"
        (created,) = connection.exec_driver_sql(f"{query} = 'table'", (name,)).scalars()
        others = list(connection.exec_driver_sql(f"{query} IN ('index', 'trigger')", (name,)).scalars())
        old = self.quoted(f"_copy_of_{name}")
        stored = _stored_columns(connection, database, name)
        if not state.exists:  # the plan is asked before the column is added
            created = with_column(created, f"{self.column} {self._type(state)}")
            stored.append(self.target.column)
        columns = ", ".join(map(self.quoted, stored))
        values = columns
        if fills_stragglers:
            # the transaction has the only lock for writers, so rows of the moment before it get their ids here
            filled = f"COALESCE({self.column}, {expression(self.target.format, 'sqlite')})"
            ours = self.target.column.lower()
            values = ", ".join(filled if it.lower() == ours else self.quoted(it) for it in stored)
        legacy = connection.exec_driver_sql("PRAGMA legacy_alter_table").scalar()
        counter = _autoincrement_value(connection, schema, name)
        # otherwise the foreign keys, views and triggers of others would follow the old table to its new name
        yield "PRAGMA legacy_alter_table=ON"
        yield f"ALTER TABLE {self.table} RENAME TO {old}"
        yield in_schema(edit(created, state), schema)
        yield f"INSERT INTO {self.table} ({columns}) SELECT {values} FROM {schema}{old}"
        yield f"DROP TABLE {schema}{old}"
        if counter is not None:
            yield f"UPDATE {schema}sqlite_sequence SET seq = {counter} WHERE lower(name) = lower({self.literal(name)})"
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
    query = f"SELECT seq FROM {schema}sqlite_sequence WHERE lower(name) = lower(?)"
    return connection.exec_driver_sql(query, (name,)).scalar()


def in_schema(sql: str, schema: str) -> str:
    """Return a stored CREATE TABLE, INDEX or TRIGGER, which has no schema, for *schema*."""
    if schema == "main.":
        return sql
    return re.sub(
        r"^(CREATE\s+(?:UNIQUE\s+)?(?:TABLE|INDEX|TRIGGER)\s+)",
        lambda match: f"{match[1]}{schema}",
        sql,
        flags=re.IGNORECASE,
    )


# --- what stands in the way
