"""A copy of a schema of SQLite in memory, without rows, on which statements can be tried."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Connection, create_engine

from sqlalchemy_public_id.migrations.plan import Migration
from sqlalchemy_public_id.migrations.session import send
from sqlalchemy_public_id.migrations.steps import is_accepted


@contextmanager
def copied_schema(migration: Migration) -> Generator[Connection]:
    """Copy the schema of the table, without what needs functions or modules of the application."""
    master = migration.plan.quoted(migration.target.schema or "main")
    query = f"SELECT sql FROM {master}.sqlite_master WHERE sql IS NOT NULL ORDER BY type <> 'table', rowid"
    # EXPLAIN of a statement that was compiled before a change would show what it did before
    connect_args = {"cached_statements": 0}
    engine = create_engine("sqlite://", isolation_level="AUTOCOMMIT", connect_args=connect_args)
    with engine.connect() as copy:
        send(copy, "PRAGMA foreign_keys=OFF")  # which listeners of the application may switch on
        for sql in send(migration.table.connection, query).scalars():
            is_accepted(copy, sql)
        yield copy
    engine.dispose()
