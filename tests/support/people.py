"""A table of people without public ids, the applications that write to it, and its migrations."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import IntegrityError

import sqlalchemy_public_id.alembic
import sqlalchemy_public_id.alembic.toimpl  # noqa: F401  registers the operations for Alembic before 1.18
from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table
from sqlalchemy_public_id.migrations.state import State

OF_TARGET = {"format", "unique_name", "collation", "keeps", "server_default"}


class People:
    """The table of one test. *options* are passed to each operation."""

    def __init__(
        self,
        engine: Engine,
        table: str = "person",
        column: str = "public_id",
        schema: str | None = None,
        **options: Any,
    ) -> None:
        self.engine = engine
        self.table, self.column, self.schema = table, column, schema
        self.options = options
        preparer = type(engine.dialect)(paramstyle="named").identifier_preparer  # does not double percent signs
        self.name = f"{preparer.quote_schema(schema)}.{preparer.quote(table)}" if schema else preparer.quote(table)
        self.quoted_column = preparer.quote(column)

    @property
    def format(self) -> Format:
        return self.options.get("format") or NanoId()

    @property
    def target(self) -> PublicIdColumn:
        said = {name: value for name, value in self.options.items() if name in OF_TARGET}
        return PublicIdColumn.of(self.table, self.column, schema=self.schema, **said)

    # --- the table

    def create(self, rows: int = 100, more: str = "", after: str = "") -> None:
        """Create the table with *rows* people, and *more* columns and constraints."""
        key = {"postgresql": "bigserial PRIMARY KEY", "sqlite": "integer PRIMARY KEY AUTOINCREMENT"}.get(
            self.engine.name, "bigint AUTO_INCREMENT PRIMARY KEY"
        )
        self.drop()
        self.execute(f"CREATE TABLE {self.name} (id {key}, name varchar(50){more}) {after}")
        self.write(rows)

    def drop(self) -> None:
        """Drop the table, and everything that operations may have left beside it."""
        with self.engine.begin() as connection:
            send(connection, f"DROP TABLE IF EXISTS {self.name}")

    def write(self, rows: int) -> None:
        """Insert people, like an application that does not know public ids."""
        values = ", ".join(f"('p{number}')" for number in range(rows))
        if values:
            self.execute(f"INSERT INTO {self.name} (name) VALUES {values}")

    def written(self, name: str = "old writer") -> str | None:
        """Insert a row as an old application does, return its public id, and roll back."""
        with self.engine.connect() as connection:
            for left in reversed(range(50)):  # the default of a narrow format may draw an id that is taken
                try:
                    send(connection, f"INSERT INTO {self.name} (name) VALUES ('{name}')")
                    break
                except IntegrityError:
                    if not left:
                        raise
                    connection.rollback()
            found: str | None = send(
                connection, f"SELECT {self.quoted_column} FROM {self.name} WHERE name = '{name}'"
            ).scalar()
            connection.rollback()
        return found

    def execute(self, statement: str) -> None:
        with self.engine.begin() as connection:
            send(connection, statement)

    def ids(self) -> list[str | None]:
        with self.engine.connect() as connection:
            return list(send(connection, f"SELECT {self.quoted_column} FROM {self.name} ORDER BY id").scalars())

    def columns(self) -> list[str]:
        with self.engine.connect() as connection:
            return [column["name"] for column in inspect(connection).get_columns(self.table, schema=self.schema)]

    def state(self) -> State:
        with self.engine.connect() as connection:
            return live_table(connection, self.target).read_state()

    # --- migrations

    @contextmanager
    def migrating(self, **context: Any) -> Iterator[Operations]:
        """Provide the ``op`` of one migration, on a separate connection, as in Alembic's env.py."""
        with self.engine.connect() as connection, migrating(connection, **context) as op:
            yield op

    def run(self, operation: str, **options: Any) -> None:
        """Run one migration that calls ``op.<operation>(...)``."""
        with self.migrating() as op:
            self.say(op, operation, **options)

    def say(self, op: Any, operation: str, **options: Any) -> None:
        getattr(op, operation)(self.table, self.column, **{"schema": self.schema, **self.options, **options})

    def add(self, **options: Any) -> None:
        self.run("add_public_id", **options)

    def script(self, *operations: str, **options: Any) -> str:
        """Return the script that ``alembic upgrade --sql`` writes, with one migration for each of *operations*."""
        output = io.StringIO()
        context = MigrationContext.configure(
            dialect_name=self.engine.dialect.name,
            opts={"as_sql": True, "output_buffer": output, "transaction_per_migration": True},
        )
        for operation in operations:
            with context.begin_transaction(_per_migration=True):
                self.say(Operations(context), operation, **options)
        return output.getvalue()

    # --- the state after the migrations

    def check_complete(self, rows: int | None = None) -> None:
        """Check that all ids are valid and distinct, NULL and duplicates are refused, and nothing is left over."""
        ids = self.ids()
        state = self.state()

        assert rows is None or len(ids) == rows
        assert all(map(self.format.is_valid, ids)), [id for id in ids if not self.format.is_valid(id)][:3]
        assert len(set(ids)) == len(ids)
        assert state.complete, state
        self.check_leftovers(makes_ids=self.target.server_default == "keep")
        if self.target.server_default == "keep":
            assert self.format.is_valid(self.written())

    def check_expanded(self) -> None:
        """Check that the column allows NULL and is not unique, and that old writers fill it."""
        state = self.state()

        assert state.exists
        assert state.nullable
        assert not state.index
        self.check_leftovers(makes_ids=self.target.server_default != "none" and self.engine.name != "sqlite")

    def check_gone(self) -> None:
        """Check that no trace of the public id is left."""
        assert self.column not in self.columns()
        self.check_leftovers(makes_ids=False)

    def check_leftovers(self, *, makes_ids: bool) -> None:
        """Check that no unexpected constraint, default, index or copy is left."""
        state = self.state()
        with self.engine.connect() as connection:
            assert not state.check
            if self.engine.name == "postgresql":
                assert "ccnew" not in str(inspect(connection).get_indexes(self.table, schema=self.schema))
            if self.engine.name == "sqlite":
                names = send(connection, "SELECT name FROM sqlite_master WHERE name LIKE '%copy%'").all()
                assert names == []
            else:
                assert (state.default is not None) == makes_ids, state


@contextmanager
def migrating(connection: Connection, **context: Any) -> Iterator[Operations]:
    """Provide the ``op`` of one migration on *connection*, as Alembic runs it."""
    migration = MigrationContext.configure(connection, opts={"transaction_per_migration": True, **context})
    with migration.begin_transaction(_per_migration=True):
        yield Operations(migration)


def send(connection: Connection, statement: str) -> Any:
    """Send a statement unchanged, including percent signs and colons."""
    return connection.execution_options(no_parameters=True).exec_driver_sql(statement)


@contextmanager
def people(engine: Engine, rows: int = 100, **options: Any) -> Iterator[People]:
    """Create a table that is dropped after the test."""
    table = People(engine, **options)
    table.create(rows)
    try:
        yield table
    finally:
        table.drop()
