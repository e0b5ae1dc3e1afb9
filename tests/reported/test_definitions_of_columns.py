"""The definition of a column that exists before the migration, on SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from marks import known_defect
from people import People, people, send
from sqlalchemy import Engine


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    with people(engine, 0) as made:
        yield made


@pytest.mark.parametrize(
    "column",
    [
        "name varchar(50) CHECK (name <> 'x')",
        pytest.param(
            "public_id varchar(12) CHECK (public_id <> 'aaaaaaaaaaaa')",
            marks=known_defect("live tables", "the CHECK of the column is dropped", raises=AssertionError),
        ),
        pytest.param(
            "public_id varchar(12) REFERENCES issued (public_id)",
            marks=known_defect("live tables", "the foreign key of the column is dropped", raises=AssertionError),
        ),
    ],
)
def test_constraints_of_a_column(table: People, column: str) -> None:
    """The constraints that a definition of a column contains are kept, those of the public id as well."""
    id_column = "" if column.startswith("public_id") else ", public_id varchar(12)"
    table.execute("DROP TABLE person")
    table.execute(f"CREATE TABLE person (id integer PRIMARY KEY, {column}{id_column})")

    table.add()
    with table.engine.connect() as connection:
        sql: str = send(connection, "SELECT sql FROM sqlite_master WHERE name = 'person'").scalar()

    assert column.partition(") ")[2] in sql
