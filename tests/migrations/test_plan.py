"""The report of a migration before it begins: ``dry_run=True``, and ``public-id plan`` on the command line."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from sqlalchemy import MetaData, inspect
from support import command
from support.marks import on
from support.people import People
from support.projects import Project

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.errors import DryRun, MigrationRefused

pytestmark = pytest.mark.backend


@pytest.fixture
def people(new_people: Callable[..., People]) -> People:
    return new_people(100)


def changes(statements: list[str]) -> list[str]:
    """Return the statements that change the database; the temporary table of a rehearsal does not count."""
    words = ("CREATE", "ALTER", "UPDATE", "INSERT", "DROP", "DELETE", "COMMENT", "GRANT")
    found = [statement for statement in statements if statement.lstrip().upper().startswith(words)]
    return [statement for statement in found if "public_id_rehearsal" not in statement]


def plan(people: People, *arguments: str) -> Result:
    return command.run("plan", people.engine.url.render_as_string(hide_password=False), "person", *arguments)


@on("sqlite")
def test_writers_wait_for_a_copy(people: People) -> None:
    """On SQLite the plan says that the index and the copy keep other writers waiting until they end."""
    output = plan(people).output

    assert "add the column (lock: all others wait for milliseconds)" in output
    assert output.count("(lock: writers wait until it ends)") == 2


def test_steps_in_the_log(people: People, caplog: pytest.LogCaptureFixture) -> None:
    """Each step is logged once, although databases without transactional DDL try the steps on a copy first."""
    with caplog.at_level(logging.INFO, "sqlalchemy_public_id"):
        people.add()

    steps = [message for message in caplog.messages if message.startswith("person.public_id: ")]
    assert len(steps) == len(set(steps)) >= 2


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
    """A dry run does not mark its revision as executed: the next upgrade runs it."""
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
    """The command prints steps, triggers and rights, and exits with 0; after the migration, nothing is left to do."""
    body = {"postgresql": "EXECUTE FUNCTION suppress_redundant_updates_trigger()"}.get(
        people.engine.name, "BEGIN SELECT 1; END" if people.engine.name == "sqlite" else "SET @x = 1"
    )
    people.execute(f"CREATE TRIGGER note_change BEFORE UPDATE ON person FOR EACH ROW {body}")
    options = ["--format", "NanoId(prefix='per')", "--server-default", "none", "--update-triggers", "fire"]
    result = plan(people, *options)
    rights = {"postgresql": "SELECT and UPDATE on person", "sqlite": "the right to write the file"}

    assert result.exit_code == 0, result.output
    assert "1. expand: " in result.stdout
    assert "VARCHAR(16)" in result.stdout
    assert "random" not in result.stdout.lower()
    assert "set the ids of rows without one, in batches" in result.stdout
    assert "trigger: note_change fires for an UPDATE" in result.stdout
    assert rights.get(people.engine.name, "UPDATE") in result.stdout.partition("\nrights: ")[2]
    people.add(format=NanoId(prefix="per"), server_default="none", update_triggers="fire")
    again = plan(people, *options).stdout
    assert "nothing is left to do" in again
    assert "trigger:" not in again


def test_obstacles_of_the_command(people: People) -> None:
    """Each output format reports the obstacles, and the command exits with 1; with consent, it exits with 0."""
    assert re.search(r"person\.public_id .* nothing\b", plan(people, "--output", "table").stdout)
    people.run("expand_public_id")
    people.execute("UPDATE person SET public_id = 'izkpm55j334u' WHERE id < 3")
    people.execute("UPDATE person SET public_id = 'odd' WHERE id = 3")
    text, table, facts = plan(people), plan(people, "--output", "table"), plan(people, "--output", "json")
    report = json.loads(facts.stdout)

    assert [each.exit_code for each in (text, table, facts)] == [1] * 3
    assert "obstacle: 1 id is in several rows, such as 'izkpm55j334u'" in text.stdout
    assert re.search(r"person\.public_id .* duplicates, invalid-ids\b", table.stdout)
    assert "1 id is in several rows" in table.stdout
    assert report["target"] == "person.public_id"
    assert [obstacle["code"] for obstacle in report["obstacles"]] == ["duplicates", "invalid-ids"]
    consented = plan(people, "--on-duplicate", "replace", "--on-invalid", "keep", "--output", "json")
    assert consented.exit_code == 0
    report = json.loads(consented.stdout)
    assert report["steps"]
    assert len(report["warnings"]) == (people.engine.name in {"mysql", "mariadb"})
    assert all("error 1213" in warning for warning in report["warnings"])
    if people.engine.name == "sqlite":  # its file contains no other table
        every = command.run("plan", people.engine.url, "--all", "--output", "json").stdout
        assert [each["target"] for each in json.loads(every)] == ["person.public_id"]


DUPLICATES = "UPDATE person SET public_id = 'izkpm55j334u'"
INVALID = "UPDATE person SET public_id = 'odd' WHERE id = 1"
VIEW = "CREATE VIEW shown AS SELECT public_id FROM person"
TRIGGER = "CREATE TRIGGER named BEFORE INSERT ON person FOR EACH ROW SET NEW.name = NEW.public_id"


@pytest.mark.parametrize(
    ("before", "operation", "said"),
    [
        ([], "add", "steps"),
        (["expand"], "add", "steps"),
        (["expand"], "expand", "nothing"),
        (["expand", "backfill"], "add", "steps"),
        (["expand", "backfill"], "backfill", "nothing"),
        (["add"], "add", "nothing"),
        (["add"], "contract", "nothing"),
        (["add"], "loosen", "steps"),
        (["add", "loosen"], "loosen", "nothing"),
        (["add"], "drop", "steps"),
        ([], "drop", "nothing"),
        (["expand", "backfill", DUPLICATES], "contract", "obstacles"),
        (["expand", "backfill", DUPLICATES], "add", "obstacles"),
        (["expand", "backfill", INVALID], "contract", "obstacles"),
        (["expand", "backfill", INVALID, DUPLICATES], "expand", "nothing"),
        (["add", VIEW], "drop", "obstacles"),
    ],
    ids=lambda value: "+".join(part.split()[0] for part in value) if isinstance(value, list) else value,
)
def test_what_is_left(people: People, before: list[str], operation: str, said: str) -> None:
    """A report has steps or obstacles, or else it says that nothing is left to do; never two of these."""
    for each in before:
        if each == VIEW and people.engine.name in ("mysql", "mariadb"):  # they do not report views
            people.execute(TRIGGER)
        elif " " in each:
            people.execute(each)
        else:
            people.run(f"{each}_public_id")
    with pytest.raises(DryRun) as caught:
        people.run(f"{operation}_public_id", dry_run=True)
    people.execute("DROP VIEW IF EXISTS shown")
    report = caught.value.report
    lines = str(report).splitlines()

    assert lines.count("nothing is left to do") == (said == "nothing")
    assert any(line.startswith("1. ") for line in lines) == bool(report.steps) == (said == "steps")
    assert any(line.startswith("obstacle: ") for line in lines) == bool(report.obstacles) == (said == "obstacles")


def test_sample(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan compares only the ids of the first rows with the format, and says so; the contract checks all of them."""
    for module in ("obstacles", "report"):
        monkeypatch.setattr(f"sqlalchemy_public_id.migrations.{module}.SAMPLE", 100)
    people.write(2_000)
    for operation in ("expand_public_id", "backfill_public_id"):
        people.run(operation)
    people.execute("UPDATE person SET public_id = 'odd' WHERE id = 2000")
    people.execute("ANALYZE TABLE person" if people.engine.name in ("mysql", "mariadb") else "ANALYZE person")
    result = plan(people)

    assert result.exit_code == 0, result.stdout
    assert "warning: the ids of the first 100 rows were compared with the format" in result.stdout
    with pytest.raises(MigrationRefused, match="1 id is not of the format NanoId"):
        people.run("contract_public_id")
