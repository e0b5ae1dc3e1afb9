"""Tables that a migration names in another way than the database does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from marks import known_defect, on
from people import People, people
from sqlalchemy import Column, Engine, Text, inspect
from sqlalchemy.exc import NoSuchTableError, ProgrammingError

pytestmark = pytest.mark.backend


def add_note(table: People) -> None:
    """Add a column by an operation of Alembic."""
    with table.migrating() as op:
        op.add_column(table.table, Column("note", Text))


def migrations(defect: str, error: type[Exception]) -> Any:
    """An operation of Alembic, which works, and one of the library, which fails with *error*."""
    ours = pytest.param(People.add, marks=known_defect("live tables", defect, raises=error), id="add_public_id")
    return pytest.mark.parametrize("migrate", [pytest.param(add_note, id="add_column"), ours])


@migrations("a table whose name has other capital letters is not found", NoSuchTableError)
@on("sqlite")
def test_other_capital_letters(engine: Engine, migrate: Callable[[People], None]) -> None:
    """SQLite finds a table whatever the capital letters of its name are, and an operation does so as well."""
    with people(engine, 1, table="Person") as table:
        migrate(People(engine, "person"))

        assert len(table.columns()) == 3


@pytest.fixture
def schema(engine: Engine) -> Iterator[str]:
    """A schema with a table of people, beside that of the default schema."""
    with people(engine, 1) as table:
        table.execute("CREATE SCHEMA tenant; CREATE TABLE tenant.person (id bigint PRIMARY KEY, name text)")
        table.execute("INSERT INTO tenant.person VALUES (1, 'Ada')")
        yield "tenant"
        table.execute("DROP SCHEMA tenant CASCADE")


@migrations("DDL ignores schema_translate_map, and the backfill does not", ProgrammingError)
@on("postgresql")
def test_translated_schema(
    engine: Engine, schema: str, new_engine: Callable[..., Engine], migrate: Callable[[People], None]
) -> None:
    """An operation ends, and changes one table, on a connection whose ``schema_translate_map`` names a schema."""
    options = {"schema_translate_map": {None: schema}}

    migrate(People(new_engine("postgresql", engine.url, execution_options=options)))
    columns = [len(inspect(engine).get_columns("person", schema=each)) for each in (None, schema)]

    assert sorted(columns) == [2, 3]
