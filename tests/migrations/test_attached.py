"""A migration of a table in an attached SQLite database ignores the table of the same name in the main one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, MetaData, String, Table, UniqueConstraint, event
from support.attached_databases import OTHER, attach, contents, in_both
from support.people import People

from sqlalchemy_public_id import NanoId, audit, backfill
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table

ID = "izkpm55j334u"


@pytest.fixture
def engine(new_engine: Callable[..., Engine], tmp_path: Path) -> Engine:
    """Two tables ``person``: two rows in the main database, three in the attached one, whose counter is at 41.

    The table in the main database, the namesake, has one more column.
    """
    engine = new_engine("sqlite")
    attach(engine, tmp_path / "other.db")
    in_both(
        engine,
        "CREATE TABLE {schema}.person (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT)",
        "CREATE TABLE {schema}.log (what TEXT)",
        "CREATE INDEX {schema}.by_name ON person (name)",
        "INSERT INTO {schema}.person (name) VALUES ('Ada'), ('Grace')",
    )
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO other.person VALUES (3, 'Emmy'), (41, 'gone')")
        connection.exec_driver_sql("DELETE FROM other.person WHERE id = 41")
        connection.exec_driver_sql("CREATE TABLE main.visit (person INT)")
        connection.exec_driver_sql("ALTER TABLE main.person ADD COLUMN age INT")
    return engine


@pytest.fixture
def people(engine: Engine) -> People:
    return People(engine, schema=OTHER)


def execute(engine: Engine, *statements: str) -> Any:
    with engine.begin() as connection:
        return [connection.exec_driver_sql(statement) for statement in statements]


def main(engine: Engine) -> dict[str, list[Any]]:
    with engine.connect() as connection:
        return contents(connection, "main")


def other(engine: Engine) -> dict[str, list[Any]]:
    with engine.connect() as connection:
        return contents(connection, OTHER)


TRIGGER = "CREATE TRIGGER other.log_it AFTER UPDATE ON person BEGIN INSERT INTO log VALUES ('updated'); END"


def test_operations(people: People, engine: Engine) -> None:
    """Each operation leaves the namesake alone, and keeps index, trigger and counter of its own table."""
    execute(engine, TRIGGER)
    People(engine).add()
    untouched, before = main(engine), other(engine)

    people.add(update_triggers="skip")
    people.check_complete(3)
    people.run("loosen_public_id")
    people.check_expanded()
    people.run("contract_public_id")
    people.check_complete(3)
    people.run("drop_public_id")

    assert main(engine) == untouched
    after = other(engine)
    assert {name for _, name, _ in after["definitions"]} == {name for _, name, _ in before["definitions"]}
    assert (after["person"], after["log"], after["sqlite_sequence"]) == (before["person"], [], [("person", 41)])


def test_batch(people: People, engine: Engine) -> None:
    """The operations of a batch work on the table of the batch, in its schema."""
    untouched = main(engine)

    with people.migrating() as op, op.batch_alter_table("person", schema=OTHER) as batch:
        batch.add_public_id(format=NanoId())
    people.check_complete(3)
    with people.migrating() as op, op.batch_alter_table("person", schema=OTHER) as batch:
        batch.drop_public_id()

    people.check_gone()
    assert main(engine) == untouched


@pytest.mark.parametrize("triggers", ["fire", "skip"])
def test_triggers_of_a_backfill(people: People, engine: Engine, triggers: str) -> None:
    """Triggers that a backfill skips are restored in the database of their table."""
    execute(engine, TRIGGER)
    people.run("expand_public_id")
    untouched = main(engine)

    progress = backfill.run(engine, "person", schema=OTHER, update_triggers=triggers)

    assert (progress.filled, progress.total) == (3, 3)
    assert main(engine) == untouched
    after = other(engine)
    assert after["log"] == [("updated",)] * (3 if triggers == "fire" else 0)
    assert [name for kind, name, _ in after["definitions"] if kind == "trigger"] == ["log_it"]


COLUMN = "ALTER TABLE {schema}.person ADD COLUMN public_id"
OBSTACLES = {
    "name-taken": ["CREATE INDEX {schema}.uq_person_public_id ON log (what)"],
    "wrong-index": [COLUMN, "CREATE INDEX {schema}.uq_person_public_id ON person (public_id)"],
    "constant-default": [f"{COLUMN} VARCHAR(12) DEFAULT 'x'"],
    "duplicates": [COLUMN, f"UPDATE {{schema}}.person SET public_id = '{ID}'"],
    "invalid-ids": [COLUMN, "UPDATE {schema}.person SET public_id = 'no id' WHERE id = 1"],
    "update-triggers": ["CREATE TRIGGER {schema}.t AFTER UPDATE ON person BEGIN SELECT 1; END"],
    "foreign-keys": [
        "DROP TABLE IF EXISTS {schema}.visit",
        "CREATE TABLE {schema}.visit (person INT REFERENCES person (id))",
    ],
}


@pytest.fixture
def foreign_keys(engine: Engine) -> None:
    """Turn on foreign keys for each connection."""
    engine.dispose()
    event.listen(engine, "connect", lambda driver, record: driver.execute("PRAGMA foreign_keys=ON"))


@pytest.mark.usefixtures("foreign_keys")
@pytest.mark.parametrize("code", OBSTACLES)
def test_obstacles(people: People, engine: Engine, code: str) -> None:
    """An obstacle in the attached database stops its table, and not the namesake."""
    execute(engine, *(statement.format(schema=OTHER) for statement in OBSTACLES[code]))

    with pytest.raises(MigrationRefused) as caught:
        people.add()
    assert {obstacle.code for obstacle in caught.value.obstacles} == {code}
    People(engine).add()


@pytest.mark.usefixtures("foreign_keys")
@pytest.mark.parametrize("code", OBSTACLES)
def test_obstacles_of_the_namesake(people: People, engine: Engine, code: str) -> None:
    """An obstacle in the main database does not stop the table of the attached one."""
    execute(engine, *(statement.format(schema="main") for statement in OBSTACLES[code]))

    people.add()

    people.check_complete(3)


def test_ids_that_are_replaced(people: People, engine: Engine) -> None:
    """Duplicates and malformed ids are replaced only in the database of the table."""
    in_both(
        engine,
        "ALTER TABLE {schema}.person ADD COLUMN public_id VARCHAR(12)",
        f"UPDATE {{schema}}.person SET public_id = CASE id WHEN 3 THEN 'no id' ELSE '{ID}' END",
    )
    untouched = main(engine)

    people.add(on_duplicate="replace", on_invalid="replace")

    people.check_complete(3)
    assert people.ids()[0] == ID
    assert main(engine) == untouched


@pytest.mark.parametrize(
    ("complete", "found"), [(OTHER, set()), ("main", {"missing-ids", "nullable", "unique-missing"})]
)
def test_audit(engine: Engine, complete: str, found: set[str]) -> None:
    """An audit of the attached database reads its tables, its rows and its indexes."""
    in_both(engine, "ALTER TABLE {schema}.person ADD COLUMN public_id VARCHAR(12)")
    People(engine, schema=complete).add()

    with engine.connect() as connection:
        report = audit.run(connection, schema=OTHER, formats={"person": NanoId()})

    assert {finding.problem for finding in report.at_least("warning")} == found


def test_name_of_a_constraint(engine: Engine) -> None:
    """A unique constraint of a table that exists only in the attached database is found by its name."""
    execute(
        engine,
        "CREATE TABLE other.user (id INTEGER PRIMARY KEY, public_id VARCHAR(12), CONSTRAINT old UNIQUE (public_id))",
    )
    target = PublicIdColumn.of("user", schema=OTHER, unique_name="old")

    with engine.connect() as connection:
        assert live_table(connection, target).read_state().constraint


def test_name_in_the_models(people: People) -> None:
    """The unique index has the name that the model of the same schema declares."""
    metadata = MetaData()
    for schema, name in ((None, "of_the_namesake"), (OTHER, "one_person")):
        Table(
            "person", metadata, Column("public_id", String(12)), UniqueConstraint("public_id", name=name), schema=schema
        )

    with people.migrating(target_metadata=metadata) as op:
        people.say(op, "add_public_id")

    unique = people.state().unique
    assert unique is not None
    assert unique.name == "one_person"
