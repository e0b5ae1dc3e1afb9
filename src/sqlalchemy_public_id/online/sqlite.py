"""SQLite: the table is copied, in one transaction, because its ALTER TABLE knows neither NOT NULL nor a made default.

The procedure is that of SQLite's documentation ("Making Other Kinds Of Table Schema Changes"). Rows, triggers, indexes
on expressions, views and the counter of AUTOINCREMENT are kept. Dropping the old table deletes its rows as far as
foreign keys are concerned: with ``PRAGMA foreign_keys=ON``, the rows of other tables that refer to it would go, or stop
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from sqlalchemy import Connection

from sqlalchemy_public_id.advice import about
from sqlalchemy_public_id.dialects.quoting import quoted
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.online.create_table import (
    renamed,
    with_column,
    with_constraint,
    without_constraint,
)
from sqlalchemy_public_id.online.making import expression, is_made_here
from sqlalchemy_public_id.online.state import State
from sqlalchemy_public_id.online.steps import Plan, Step, statements

__all__ = ["SQLitePlan"]


class SQLitePlan(Plan):
    """The steps for SQLite. There is no script: each one has to see the table."""

    def expand(self) -> list[Step]:
        add = f"ALTER TABLE {self.table} ADD COLUMN {self.column}"
        return [
            Step(
                "add the column",
                lambda connection, state: [f"{add} {self._type(state)}"],
                lambda state: not state.exists,
            )
        ]

    def contract(self) -> list[Step]:
        keeps = self.target.server_default == "keep"
        steps = [
            self._rebuild(
                "copy the table, with NOT NULL",
                lambda state: self._definition(state, not_null=True, makes_ids=keeps),
                lambda state: state.nullable or (self.target.unique == "constraint" and not state.constraint),
            )
        ]
        if self.target.unique == "index":
            create = f"CREATE UNIQUE INDEX {self.schema}{self.unique} ON {self._local_table} ({self.column})"
            steps.insert(0, Step("build the unique index", statements(create), lambda state: not state.index))
        return steps

    def loosen(self) -> list[Step]:
        allow = self._rebuild(
            "copy the table, with NULL allowed",
            lambda state: self._definition(state, not_null=False, makes_ids=self.makes_ids),
            lambda state: not state.nullable,
        )
        return [self._drop_index(), allow]

    def drop(self) -> list[Step]:
        drop = f"ALTER TABLE {self.table} DROP COLUMN {self.column}"
        if self.target.unique == "constraint":
            return [*self.loosen(), Step("drop the column", statements(drop), lambda state: state.exists)]
        return [self._drop_index(), Step("drop the column", statements(drop), lambda state: state.exists)]

    def fill(self) -> list[str]:
        raise ConfigurationError(
            "a script cannot see the table that SQLite has to copy; run the migration with a connection, without --sql"
        )

    # --- parts

    @property
    def _local_table(self) -> str:
        """The name of the table without its schema, as indexes refer to it."""
        return self.quoted(self.target.table)

    def _drop_index(self) -> Step:
        drop = f"DROP INDEX IF EXISTS {self.schema}{self.unique}"
        return Step("drop the unique index", statements(drop), lambda state: state.index and not state.constraint)

    def _type(self, state: State) -> str:
        if not state.strict:
            return self.type
        return {"BIGINT": "INTEGER", "BLOB": "BLOB"}.get(self.type, "TEXT")  # a STRICT table takes no VARCHAR

    def _definition(self, state: State, *, not_null: bool, makes_ids: bool) -> str:
        made = expression(self.target.format, "sqlite") if makes_ids else None
        if state.default is not None and not is_made_here(state.default, "sqlite"):
            made = state.default  # someone else's
        default = f" DEFAULT ({made})" if made is not None else ""
        return f"{self.column} {self._type(state)}{default}{' NOT NULL' if not_null else ''}"

    def _rebuild(self, name: str, definition: Callable[[State], str], needed: Callable[[State], bool]) -> Step:
        def sql(connection: Connection | None, state: State) -> Sequence[str]:
            if connection is None:
                return self.fill()
            return list(self._copy(connection, definition(state)))

        return Step(name, sql, needed)

    def _copy(self, connection: Connection, definition: str) -> Iterator[str]:
        """The statements that put a copy with another *definition* of the column into the place of the table."""
        name, schema = self.target.table, self.schema or "main."
        of = self.target.schema or "main"
        if connection.exec_driver_sql("PRAGMA foreign_keys").scalar() and _is_referred_to(connection, of, name):
            advice = about("sqlite-copy", table=name, column=self.target.column)
            raise ConfigurationError(
                f"PRAGMA foreign_keys is ON, and other tables refer to {name!r}: copying it would delete or orphan "
                f"their rows. Write:\n{advice.good}"
            )
        master = f"{schema}sqlite_master"
        (old,) = connection.exec_driver_sql(
            f"SELECT sql FROM {master} WHERE type = 'table' AND name = ?", (name,)
        ).scalars()
        others = list(
            connection.exec_driver_sql(
                f"SELECT sql FROM {master} WHERE type IN ('index', 'trigger') AND tbl_name = ? AND sql IS NOT NULL",
                (name,),
            ).scalars()
        )
        quote = self.quoted
        copy = f"{schema}{quote(f'_copy_of_{name}')}"
        new = with_column(without_constraint(old, self.target.unique_name), self.target.column, definition)
        if self.target.unique == "constraint" and definition.endswith("NOT NULL"):
            new = with_constraint(new, f"CONSTRAINT {self.unique} UNIQUE ({self.column})")
        columns = ", ".join(map(quote, _stored_columns(connection, of, name)))
        legacy = connection.exec_driver_sql("PRAGMA legacy_alter_table").scalar()
        yield "PRAGMA legacy_alter_table=ON"  # views and triggers are not looked at while the table is away
        yield renamed(new, copy)
        yield f"INSERT INTO {copy} ({columns}) SELECT {columns} FROM {self.table}"
        counter = _counter(connection, schema, name)
        yield f"DROP TABLE {self.table}"
        yield f"ALTER TABLE {copy} RENAME TO {quote(name)}"
        if counter is not None:
            yield f"UPDATE {schema}sqlite_sequence SET seq = {counter} WHERE name = {self.literal(name)}"
        yield from (_in_schema(sql, schema) for sql in others)
        yield f"PRAGMA legacy_alter_table={legacy}"


def _is_referred_to(connection: Connection, schema: str, name: str) -> bool:
    master = f"{quoted(schema, connection.dialect)}.sqlite_master"
    tables = connection.exec_driver_sql(f"SELECT name FROM {master} WHERE type = 'table'").scalars().all()
    return any(
        row[0].lower() == name.lower()
        for table in tables
        for row in connection.exec_driver_sql('SELECT "table" FROM pragma_foreign_key_list(?, ?)', (table, schema))
    )


def _stored_columns(connection: Connection, schema: str, name: str) -> list[str]:
    """All columns that are not computed."""
    rows = connection.exec_driver_sql("SELECT name FROM pragma_table_xinfo(?, ?) WHERE hidden = 0", (name, schema))
    return list(rows.scalars())


def _counter(connection: Connection, schema: str, name: str) -> int | None:
    """How far AUTOINCREMENT has counted."""
    has = f"SELECT 1 FROM {schema}sqlite_master WHERE name = 'sqlite_sequence'"
    if connection.exec_driver_sql(has).scalar() is None:
        return None
    return connection.exec_driver_sql(f"SELECT seq FROM {schema}sqlite_sequence WHERE name = ?", (name,)).scalar()


def _in_schema(sql: str, schema: str) -> str:
    """A CREATE INDEX or CREATE TRIGGER of SQLite, which keeps no schema, with the one it is in."""
    if schema == "main.":
        return sql
    return re.sub(
        r"^(CREATE\s+(?:UNIQUE\s+)?(?:INDEX|TRIGGER)\s+)", lambda found: f"{found[1]}{schema}", sql, flags=re.IGNORECASE
    )
