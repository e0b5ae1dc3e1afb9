"""Migrations keep the definition of a column that existed before."""

from __future__ import annotations

import pytest
from support.marks import on
from support.people import People, send


@pytest.mark.parametrize(
    "column",
    [
        "name varchar(50) CHECK (name <> 'x')",
        "public_id varchar(12) CHECK (public_id <> 'aaaaaaaaaaaa')",
        "public_id varchar(12) REFERENCES issued (public_id) ON DELETE SET NULL",
        "public_id varchar(12) /* shown to customers */ COLLATE BINARY",
        "public_id varchar(12) CONSTRAINT given NOT NULL ON CONFLICT FAIL",
        "public_id varchar(12) DEFAULT (lower(hex(random()))) NOT NULL",
    ],
)
def test_definition_of_a_column(table: People, column: str) -> None:
    """Every clause in the definition of a column is kept, even of the column of public ids."""
    id_column = "" if column.startswith("public_id") else ", public_id varchar(12)"
    table.execute("DROP TABLE person")
    table.execute(f"CREATE TABLE person (id integer PRIMARY KEY, {column}{id_column})")

    table.options = {"server_default": "none"}
    table.add()
    table.check_complete(0)
    with table.engine.connect() as connection:
        sql: str = send(connection, "SELECT sql FROM sqlite_master WHERE name = 'person'").scalar()

    assert column in sql


@pytest.mark.backend
@on("mysql", "mariadb")
@pytest.mark.parametrize(
    "more",
    [
        "CHECK (public_id <> 'it''s \\\\ 100%')",
        "DEFAULT (upper('it''s')) COMMENT 'it''s \\\\ shown' INVISIBLE",
        "DEFAULT (concat('it''s', left(uuid(), 9)))",
        ", CONSTRAINT public_id CHECK (name <> 'x')",
    ],
)
def test_definition_that_an_alter_repeats(table: People, more: str) -> None:
    """An ALTER that forbids NULL, or allows it again, keeps the rest of the definition of the column."""
    column = f"public_id varchar(36) CHARACTER SET ascii COLLATE ascii_bin {more}"
    # MySQL ignores the default of a hidden column, which its contract has to accept
    table.options = {"server_default": "none", "on_invalid": "keep", "stored_code": "ignore"}
    table.create(1, more=f", {column}")

    def definition() -> list[str]:
        with table.engine.connect() as connection:
            created: str = send(connection, "SHOW CREATE TABLE person").one()[1]
        # MySQL writes the character set of the column into a CHECK
        plain = created.replace(" NOT NULL", "").replace(" DEFAULT NULL", "").replace("_utf8mb4'", "_ascii'")
        return [line.rstrip(",") for line in plain.splitlines() if "public_id" in line and "UNIQUE" not in line]

    before = definition()
    table.add()

    assert definition() == before
    table.run("loosen_public_id")
    assert definition() == before
