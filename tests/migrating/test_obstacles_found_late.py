"""What stands in the way of a migration is reported before the first change of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine
from support import command
from support.marks import on
from support.people import People, people

from sqlalchemy_public_id.errors import MigrationRefused

pytestmark = pytest.mark.backend

CREATE_TRIGGER = """
CREATE FUNCTION pass_on() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER shown BEFORE INSERT ON person FOR EACH ROW WHEN (NEW.public_id = 'x') EXECUTE FUNCTION pass_on()
"""
KEYS = ", ".join(f"KEY of_name_{number} (name)" for number in range(63))
"""With the primary key, as many as a table can have."""


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    with people(engine, 0) as made:
        yield made
        if engine.name == "postgresql":
            made.execute(f"DROP TABLE {made.name} CASCADE")
            made.execute("DROP FUNCTION IF EXISTS pass_on")


@on("postgresql")
@pytest.mark.parametrize(
    ("more", "dependant"),
    [
        ("", "CREATE VIEW shown AS SELECT id, public_id FROM person"),
        ("", "CREATE POLICY shown ON person USING (public_id <> 'izkpm55j334u')"),
        ("", "CREATE RULE shown AS ON INSERT TO person WHERE NEW.public_id = 'x' DO INSTEAD NOTHING"),
        ("", CREATE_TRIGGER),
        (", shown text GENERATED ALWAYS AS (upper(public_id)) STORED", "SELECT"),
    ],
    ids=["view", "policy", "rule", "trigger", "generated column"],
)
def test_dependants_of_a_column(table: People, more: str, dependant: str) -> None:
    """A column whose collation has to change, and on which something depends, is refused before its rows get ids."""
    table.create(2, more=f", public_id varchar(12){more}")
    table.execute(dependant)

    with pytest.raises(MigrationRefused):
        table.add(collation="bytes")

    assert table.ids() == [None, None]
    table.add()
    assert table.state().complete


@on("mysql", "mariadb")
def test_table_with_all_indexes(table: People) -> None:
    """A table that cannot have one more index is refused before it gets the column."""
    table.create(1, more=f", {KEYS}")

    with pytest.raises(MigrationRefused):
        table.add()

    assert "public_id" not in table.columns()


@on("postgresql")
def test_table_with_all_columns_of_postgresql(table: People) -> None:
    """A table that had so many columns that it cannot have one more is refused; those that are gone count as well."""
    table.create(1, more="".join(f", c{number} boolean" for number in range(1598)))
    table.execute("ALTER TABLE person DROP COLUMN c7")

    with pytest.raises(MigrationRefused, match="has had 1600 columns"):
        table.add()


@on("postgresql")
def test_table_of_a_type(table: People) -> None:
    """A table that has the columns of its type is refused."""
    table.drop()
    table.execute('CREATE TYPE "Human" AS (id int, name text)')
    table.execute('CREATE TABLE person OF "Human" (PRIMARY KEY (id))')
    try:
        with pytest.raises(MigrationRefused, match="ALTER TABLE person NOT OF"):
            table.add()
    finally:
        table.execute('DROP TYPE "Human" CASCADE')
        table.create(0)


@on("sqlite")
@pytest.mark.parametrize("name", ["note", "note_data"])
def test_table_of_a_module(table: People, name: str) -> None:
    """A virtual table and the tables in which its module keeps the rows are refused, also without rows."""
    table.execute("CREATE VIRTUAL TABLE note USING fts5 (body)")

    with pytest.raises(MigrationRefused, match="of a module of SQLite"):
        People(table.engine, name).add()
    assert command.run("plan", table.engine.url, name).exit_code == 1


@on("mysql", "mariadb")
@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("contract_public_id", "needs the type of the column"),
        ("loosen_public_id", "needs the unique index"),
        ("drop_public_id", "needs the column"),
    ],
)
def test_foreign_keys_to_the_column(table: People, operation: str, words: str) -> None:
    """A foreign key that refers to the column, which refuses an ALTER of it, is named before the first one."""
    charset = "latin1" if operation == "contract_public_id" else "ascii COLLATE ascii_bin"
    column = f"varchar(12) CHARACTER SET {charset}"
    table.create(0, more=f", public_id {column} NOT NULL, UNIQUE INDEX uq_person_public_id (public_id)")
    table.execute(
        f"CREATE TABLE visit (visitor {column}, CONSTRAINT visited FOREIGN KEY (visitor) REFERENCES person (public_id))"
    )
    try:
        with pytest.raises(MigrationRefused, match=f"the foreign key visited of visit {words}"):
            table.run(operation, collation="bytes")
    finally:
        table.execute("DROP TABLE visit")


@on("mysql", "mariadb")
def test_foreign_key_that_sets_the_column_to_null(table: People) -> None:
    """A column that a foreign key of its own sets to NULL is refused before its rows get ids."""
    column = "public_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin"
    table.execute(f"CREATE TABLE issued ({column} PRIMARY KEY)")
    table.create(1, more=f", {column}, FOREIGN KEY (public_id) REFERENCES issued (public_id) ON DELETE SET NULL")
    try:
        with pytest.raises(MigrationRefused, match="sets the column to NULL"):
            table.add()
        assert table.ids() == [None]
    finally:
        table.drop()
        table.execute("DROP TABLE issued")


@on("postgresql")
def test_foreign_keys_to_the_index(table: People) -> None:
    """A foreign key that needs the unique index is named before the column is loosened."""
    table.add()
    table.execute("CREATE TABLE visit (visitor varchar(12) REFERENCES person (public_id))")
    try:
        with pytest.raises(MigrationRefused, match="needs the unique index of the column"):
            table.run("loosen_public_id")
        assert table.state().complete
    finally:
        table.execute("DROP TABLE visit")


@on("postgresql", "mysql", "mariadb")
def test_collation_that_is_not_there(table: People) -> None:
    """A collation that the database does not know is refused before the column is added."""
    table.create(1, more=", public_id varchar(12)")

    with pytest.raises(MigrationRefused, match="no_such"):
        table.add(collation="no_such")

    assert table.ids() == [None]
