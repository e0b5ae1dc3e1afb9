"""The report of a migration before it begins: ``dry_run=True``, and ``public-id plan`` on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, MetaData, create_engine, inspect
from support.marks import on
from support.people import People, send
from support.projects import Project

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.cli.commands import public_id
from sqlalchemy_public_id.errors import DryRun, MigrationRefused
from sqlalchemy_public_id.migrating import Consent
from sqlalchemy_public_id.migrating.databases import plan_for
from sqlalchemy_public_id.operation import examine

pytestmark = pytest.mark.backend


@pytest.fixture
def people(engine: Engine) -> Iterator[People]:
    made = People(engine)
    made.create(100)
    yield made
    made.drop()


def changes(statements: list[str]) -> list[str]:
    """Return the statements that change something; a temporary table is nothing that anyone else sees."""
    words = ("CREATE", "ALTER", "UPDATE", "INSERT", "DROP", "DELETE", "COMMENT", "GRANT")
    found = [statement for statement in statements if statement.lstrip().upper().startswith(words)]
    return [statement for statement in found if "public_id_rehearsal" not in statement]


def plan(people: People, *arguments: str) -> Result:
    url = people.engine.url.render_as_string(hide_password=False)
    return CliRunner().invoke(public_id, ["plan", url, "person", *arguments])


def test_dry_run(people: People, statements: Any) -> None:
    """A dry run reports the steps, their statements and locks, and changes nothing."""
    statements.clear()
    with pytest.raises(DryRun) as caught:
        people.add(dry_run=True)

    report = caught.value.report
    assert changes(statements) == []
    assert [step.phase for step in report.steps][:1] == ["expand"]
    assert {step.phase for step in report.steps} == {"expand", "backfill", "contract"}
    assert any("ADD COLUMN" in sql for step in report.steps for sql in step.statements)
    assert str(report) == str(caught.value)
    assert "person.public_id on " in str(report)
    assert report.obstacles == ()


def test_dry_run_stores_no_version(new_project: Callable[..., Project]) -> None:
    """A revision with a dry run is not taken for executed."""
    project = new_project()
    project.config.attributes["metadata"] = MetaData()
    project.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name VARCHAR(20))")
    project.write('op.add_public_id("customer", dry_run=True)')

    with pytest.raises(DryRun):
        project.upgrade()
    project.rewrite(", dry_run=True", "")
    project.upgrade()

    assert "public_id" in [column["name"] for column in inspect(project.engine).get_columns("customer")]


def test_command(people: People) -> None:
    """The command prints the steps and ends with 0; after the migration, nothing is left to do."""
    result = plan(people)

    assert result.exit_code == 0, result.output
    assert "1. expand: " in result.stdout
    assert "set the ids of rows without one, in batches" in result.stdout
    people.add()
    assert "nothing is left to do" in plan(people).stdout


def test_obstacles_of_the_command(people: People) -> None:
    """Obstacles are printed with their remedies, and the command ends with 1; consent removes them."""
    people.run("expand_public_id")
    people.execute("UPDATE person SET public_id = 'izkpm55j334u' WHERE id < 3")
    result = plan(people)

    assert result.exit_code == 1
    assert "obstacle: 1 id is in several rows, such as 'izkpm55j334u'" in result.stdout
    assert plan(people, "--on-duplicate", "replace").exit_code == 0


def test_json(people: People) -> None:
    """``--output json`` has the same facts."""
    people.execute("CREATE INDEX uq_person_public_id ON person (name)")
    result = plan(people, "--output", "json")
    report = json.loads(result.stdout)

    assert result.exit_code == 1
    assert report["target"] == "person.public_id"
    assert [obstacle["code"] for obstacle in report["obstacles"]] == ["wrong-index"]
    assert json.loads(plan(people, "--output", "json", "--unique-name", "other").stdout)["steps"]


def test_table(people: People) -> None:
    """``--output table`` has a line for the table, and its obstacles in full."""
    assert re.search(r"person\.public_id .* nothing\b", plan(people, "--output", "table").stdout)
    people.execute("CREATE INDEX uq_person_public_id ON person (name)")
    result = plan(people, "--output", "table")

    assert result.exit_code == 1
    assert re.search(r"person\.public_id .* wrong-index\b", result.stdout)
    assert "which is not unique" in result.stdout


def test_triggers(people: People) -> None:
    """Triggers that fire for each row are named."""
    body = {"postgresql": "EXECUTE FUNCTION suppress_redundant_updates_trigger()"}.get(
        people.engine.name, "BEGIN SELECT 1; END" if people.engine.name == "sqlite" else "SET @x = 1"
    )
    people.execute(f"CREATE TRIGGER note_change BEFORE UPDATE ON person FOR EACH ROW {body}")

    assert "trigger: note_change fires for an UPDATE" in plan(people, "--update-triggers", "fire").stdout


def test_rights(people: People) -> None:
    """The report names the rights that the migration needs."""
    report = json.loads(plan(people, "--output", "json").stdout)
    rights = {"postgresql": "SELECT and UPDATE on person", "sqlite": "the right to write the file"}

    assert rights.get(people.engine.name, "UPDATE") in report["rights"]
    assert f"rights: {', '.join(report['rights'])}" in plan(people).stdout


@on("sqlite")
def test_no_table(people: People) -> None:
    """A table that does not exist is reported in one line."""
    result = CliRunner().invoke(public_id, ["plan", people.engine.url.render_as_string(), "nobody"])

    assert result.exit_code == 2
    assert "there is no table 'nobody'" in result.stderr


@on("sqlite")
def test_other_options(people: People) -> None:
    """Format and server default are those of the operation."""
    options = ["--format", "NanoId(prefix='per')", "--server-default", "none"]
    result = plan(people, *options)

    assert "VARCHAR(16)" in result.stdout
    assert "random()" not in result.stdout


@on("sqlite")
def test_foreign_keys_of_sqlite(database: str, tmp_path: Path) -> None:
    """Foreign keys that would delete rows of others are an obstacle before the column is added."""
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    people = People(engine, format=NanoId())
    people.create(3)
    people.execute("CREATE TABLE visit (id INTEGER PRIMARY KEY, person_id INTEGER REFERENCES person (id))")
    with engine.connect() as connection:
        send(connection, "PRAGMA foreign_keys = ON")
        connection.commit()
        report = examine(connection, plan_for(people.target, engine.dialect), ["expand", "contract"], Consent())

    assert [obstacle.code for obstacle in report.obstacles] == ["foreign-keys"]
    engine.dispose()


def test_sample(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan compares the ids of the first rows with the format, and says so; the contract reads all of them."""
    for module in ("obstacles", "report"):
        monkeypatch.setattr(f"sqlalchemy_public_id.migrating.{module}.SAMPLE", 100)
    people.write(2_000)
    for operation in ("expand_public_id", "backfill_public_id"):
        people.run(operation)
    people.execute("UPDATE person SET public_id = 'odd' WHERE id = 2000")
    people.execute("ANALYZE TABLE person" if people.engine.name in ("mysql", "mariadb") else "ANALYZE person")
    result = plan(people)

    assert result.exit_code == 0, result.stdout
    assert "warning: the ids of the first 100 rows were compared with the format" in result.stdout
    with pytest.raises(MigrationRefused, match="1 id is no NanoId"):
        people.run("contract_public_id")
