"""``alembic upgrade --sql``: scripts of DDL, which the tests run with the client of the database."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, inspect
from support import command
from support.clients import command_in, give_script, run_script
from support.marks import on
from support.people import People, send
from support.projects import Project

from sqlalchemy_public_id import ConfigurationError, NanoId

ROWS = 300
OPTIONS: list[dict[str, Any]] = [
    {},
    {"server_default": "none"},
    {"format": NanoId(prefix="per", separator="'%", length=30), "comment": "it's 100 % %s"},
    {"format": NanoId(prefix="per", check_digit=True), "server_default": "none"},
]

servers = on("postgresql", "mysql", "mariadb")
with_options = pytest.mark.parametrize("options", OPTIONS, ids=str)


@servers
@with_options
def test_whole_way(new_people: Callable[..., People], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A script adds the column, the command in it fills the rows, and the contract completes it with a connection."""
    people = new_people(ROWS, **options)
    sql = people.script("expand_public_id")
    run_script(people.engine, sql)
    people.check_expanded()
    assert people.state().comment == options.get("comment")

    monkeypatch.setenv("DATABASE_URL", people.engine.url.render_as_string(hide_password=False))
    done = command.run(*command_in(sql)[1:])
    assert done.exit_code == 0, done.stderr
    people.run("contract_public_id")

    people.check_complete(ROWS)


@servers
@with_options
def test_drop(new_people: Callable[..., People], options: dict[str, Any]) -> None:
    """The script of the way back leaves nothing behind, whichever phase was reached."""
    people = new_people(ROWS, **options)
    for operation in ("expand_public_id", "add_public_id"):
        people.run(operation)

        run_script(people.engine, people.script("drop_public_id"))

        people.check_gone()


@servers
def test_backfill(new_people: Callable[..., People]) -> None:
    """The script of a backfill contains only the command, and no statement."""
    lines = new_people(ROWS).script("backfill_public_id").split("\n")

    assert [line for line in lines if line and not line.startswith(("-- ", "BEGIN", "COMMIT"))] == []
    assert command_in("\n".join(lines))[:2] == ["public-id", "backfill"]


@servers
@pytest.mark.parametrize("operation", ["expand_public_id", "backfill_public_id"])
def test_options_of_the_command(engine: Engine, operation: str) -> None:
    """The command names everything that tells its column from others: table, column, schema and format."""
    people = People(engine, "person", "code", "attic", format=NanoId(prefix="per"))
    words = command_in(people.script(operation))

    assert [words[1], words[-1]] == ["backfill", "person"]
    options = dict(zip(words[2:-1:2], words[3:-1:2], strict=True))
    assert options == {"--column": "code", "--schema": "attic", "--format": 'NanoId(prefix="per")'}


@servers
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\n\r", "\n\n"], ids=repr)
def test_ends_of_lines_in_a_name(engine: Engine, end: str) -> None:
    """Each line of the command is commented out, whatever ends a line in the name of a schema."""
    sql = People(engine, schema=f"attic{end}SELECT nobody; --").script("backfill_public_id")

    run_script(engine, sql)
    assert [line for line in re.split("[\r\n]", sql) if "SELECT" in line and not line.startswith("-- ")] == []


@pytest.mark.parametrize(
    ("database", "operation", "options"),
    [
        *((database, "add_public_id", {}) for database in ("postgresql", "mysql", "mariadb")),
        ("postgresql", "contract_public_id", {}),
        ("mysql", "loosen_public_id", {}),
        ("mysql", "expand_public_id", {"dry_run": True}),
        ("sqlite", "expand_public_id", {}),
        ("sqlite", "add_public_id", {}),
    ],
    indirect=["database"],
)
def test_what_needs_a_connection(
    new_people: Callable[..., People], database: str, operation: str, options: dict[str, Any]
) -> None:
    """An operation that depends on the table, such as a copy on SQLite, cannot be a script, and the error says why."""
    message = r"needs a connection, .* rows, indexes and triggers of the table: run this migration without --sql"
    if operation == "add_public_id" and database != "sqlite":
        message += r"; op\.expand_public_id\(\) can be a script"

    with pytest.raises(ConfigurationError, match=message + "$"):
        new_people().script(operation, **options)


@servers
def test_column_that_exists(new_people: Callable[..., People]) -> None:
    """A script fails if the column exists, and the column keeps its default and its comment."""
    people = new_people(ROWS)
    is_postgresql = people.engine.name == "postgresql"
    definition = (
        'varchar(36) COLLATE "C" DEFAULT gen_random_uuid()::text'
        if is_postgresql
        else "varchar(36) CHARACTER SET ascii COLLATE ascii_bin DEFAULT (uuid()) COMMENT 'shown in URLs'"
    )
    people.create(3, f", public_id {definition}")
    before = people.state()

    done = give_script(people.engine, people.script("expand_public_id", comment="another one"))

    assert ("already exists" if is_postgresql else "Duplicate column") in done.stderr
    assert people.state() == before


@servers
def test_locked_table(new_people: Callable[..., People]) -> None:
    """A script gives up after ``lock_timeout`` and changes nothing; run again, it completes."""
    people = new_people(ROWS)
    sql = people.script("expand_public_id")
    with people.engine.connect() as other:
        send(other, f"SELECT count(*) FROM {people.name}")
        done = give_script(people.engine, sql)

    assert re.search("lock timeout|Lock wait timeout", done.stderr)
    assert people.columns() == ["id", "name"]
    run_script(people.engine, sql)
    people.check_expanded()


@on("postgresql")
def test_version(new_project: Callable[..., Project], new_people: Callable[..., People]) -> None:
    """psql continues after an error, but stores no version, because the transaction is rolled back as a whole."""
    project, people = new_project(), new_people(ROWS)
    project.config.attributes["metadata"] = MetaData()
    project.write("op.expand_public_id('person')")
    sql = project.script()
    with people.engine.connect() as other:
        send(other, f"SELECT count(*) FROM {people.name}")
        give_script(people.engine, sql)

    assert inspect(people.engine).get_table_names() == ["person"]
    run_script(people.engine, sql)
    people.check_expanded()
    assert inspect(people.engine).has_table("alembic_version")


@servers
def test_parts_of_a_script(new_people: Callable[..., People]) -> None:
    """A script waits for locks as long as the operation says; only the one that adds a column names the backfill."""
    people = new_people(0)
    limit = "lock_timeout" if people.engine.name == "postgresql" else "lock_wait_timeout"
    added, dropped = (people.script(f"{each}_public_id", lock_timeout=7.0) for each in ("expand", "drop"))

    for script in (added, dropped):
        assert re.search(rf"{limit} ?(=|TO) ?'?7(s|000ms|000)?\b", script), script
    assert "\n-- public-id backfill " in added
    assert "backfill" not in dropped


@servers
def test_settings(new_people: Callable[..., People]) -> None:
    """After a script, the session has the settings of the server again."""
    people = new_people(ROWS)
    question = "SHOW lock_timeout;" if people.engine.name == "postgresql" else "SELECT @@SESSION.lock_wait_timeout;"

    answer = give_script(people.engine, question).stdout
    done = give_script(people.engine, people.script("expand_public_id", "drop_public_id") + question)

    assert (done.stdout, done.stderr) == (answer, "")


@on("mysql", "mariadb")
def test_table_without_instant_changes(new_people: Callable[..., People]) -> None:
    """A script changes a table without INSTANT changes while others write."""
    people = new_people(ROWS)
    people.create(ROWS, after="ROW_FORMAT=COMPRESSED")

    run_script(people.engine, people.script("expand_public_id"))
    people.check_expanded()
    run_script(people.engine, people.script("drop_public_id"))
    people.check_gone()


@on("mysql", "mariadb")
@pytest.mark.parametrize("kind", [{"more": ", FULLTEXT KEY (name)"}, {"after": "ENGINE=MyISAM"}], ids=str)
def test_table_that_is_locked(new_people: Callable[..., People], kind: dict[str, str]) -> None:
    """A script stops at a table whose writers would wait, and changes nothing; ``allow_lock=True`` lets them wait."""
    people = new_people(ROWS)
    people.create(ROWS, **kind)
    if people.engine.name == "mariadb" and (people.engine.dialect.server_version_info or ()) >= (11, 2):
        pytest.skip("MariaDB 11.2 copies a table beside writers")

    done = give_script(people.engine, people.script("expand_public_id"))
    assert "LOCK=NONE is not supported" in done.stderr
    assert people.columns() == ["id", "name"]

    run_script(people.engine, people.script("expand_public_id", allow_lock=True))
    people.check_expanded()
    run_script(people.engine, people.script("drop_public_id", allow_lock=True))
    people.check_gone()


@on("postgresql")
def test_squawk(new_people: Callable[..., People], tmp_path: Path) -> None:
    """The linter squawk reports exactly the rules that are answered here."""
    answered = {
        "prefer-text-field": "VARCHAR(n) is the type that the models declare",
        "ban-drop-column": "this is the purpose of drop, the downgrade",
        "require-statement-timeout": "no statement looks at rows; what takes time is the wait for a lock",
    }
    found: set[str] = set()
    for options in OPTIONS:
        file = tmp_path / "migration.sql"
        file.write_text(new_people(ROWS, **options).script("expand_public_id", "drop_public_id"))
        squawk = [str(Path(sys.executable).with_name("squawk")), "--reporter", "json", "--pg-version", "13"]
        done = subprocess.run([*squawk, str(file)], capture_output=True, text=True, timeout=60)
        found |= {report["rule_name"] for report in json.loads(done.stdout)}

    assert found == answered.keys()
