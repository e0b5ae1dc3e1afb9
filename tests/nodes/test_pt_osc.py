"""pt-online-schema-change on a table that is to get ids, has half of them, or has them all."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from support import command
from support.marks import on
from support.people import People, send

from sqlalchemy_public_id import backfill
from sqlalchemy_public_id.errors import MigrationRefused

pytestmark = [pytest.mark.backend, on("mysql", "mariadb")]

PATIENCE = 60
UNIQUE = "ADD UNIQUE KEY uq_person_public_id (public_id)"
UNCHECKED = "--no-check-unique-key-change"
TRIGGERS = (
    "SELECT count(*) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()"
    " AND EVENT_OBJECT_TABLE = 'person' AND LEFT(TRIGGER_NAME, 7) = 'pt_osc_'"
)
PLUGIN = """package pt_online_schema_change_plugin;
sub new { my ($class, %arguments) = @_; return bless {}, $class }
sub before_copy_rows { while (-e $ENV{PAUSE}) { select(undef, undef, undef, 0.05) } }
1;
"""
"""A plugin that pauses the tool, because its ``--pause-file`` sleeps for a minute at a time."""

Tool: TypeAlias = Callable[..., list[str]]


@pytest.fixture
def people(engine: Engine) -> Iterator[People]:
    """The table, which is dropped together with what a killed run of the tool leaves."""
    made = People(engine)
    made.create(300)
    yield made
    made.drop()
    made.execute("DROP TABLE IF EXISTS _person_new")


@pytest.fixture
def tool(engine: Engine, pytestconfig: pytest.Config) -> Tool:
    """Return a function that builds the command line of the tool for an ALTER."""
    program = shutil.which("pt-online-schema-change")
    if program is None:
        missing = "pt-online-schema-change not found: run tools/nodes up"
        pytest.fail(missing) if pytestconfig.getoption("--require-all-databases") else pytest.skip(missing)
    url = engine.url
    parts = {"h": url.host, "P": url.port or 3306, "u": url.username, "p": url.password, "D": url.database}
    place = ",".join(f"{name}={value}" for name, value in parts.items() if value)

    def line(alter: str, *options: str) -> list[str]:
        return [program, f"{place},t=person", "--alter", alter, "--execute", "--recursion-method=none", *options]

    return line


def run(line: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)


def change(line: list[str]) -> None:
    """Run the tool, and assert that it succeeds."""
    done = run(line)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def copying(people: People, line: list[str], folder: Path) -> Generator[None, None, None]:
    """Pause the tool between creating its triggers and copying the first row; it completes after the block."""
    plugin, pause, output = folder / "plugin.pm", folder / "pause", folder / "output"
    plugin.write_text(PLUGIN)
    pause.touch()
    with output.open("w") as file:
        process = subprocess.Popen(
            [*line, "--plugin", str(plugin)], env=os.environ | {"PAUSE": str(pause)}, stdout=file, stderr=file
        )
        try:
            until = time.monotonic() + PATIENCE
            while scalar(people, TRIGGERS) < 3:
                assert process.poll() is None, output.read_text()
                assert time.monotonic() < until
                time.sleep(0.05)  # between two checks
            yield
        finally:
            pause.unlink()
            ended = process.wait(PATIENCE)
    assert ended == 0, output.read_text()


def scalar(people: People, query: str) -> int:
    with people.engine.connect() as connection:
        return int(send(connection, query).scalar_one())


def rows(people: People) -> list[Any]:
    with people.engine.connect() as connection:
        return list(send(connection, "SELECT id, name, public_id FROM person ORDER BY id").all())


def fill_half(people: People) -> None:
    people.run("expand_public_id")
    people.write(20)
    people.execute("UPDATE person SET public_id = concat('half', lpad(id, 8, '0')) WHERE id <= 150")


def test_before(people: People, tool: Tool) -> None:
    """A table that the tool has changed can get its ids."""
    change(tool("ADD COLUMN note INT"))

    people.add()

    people.check_complete(300)


def test_half(people: People, tool: Tool) -> None:
    """The tool keeps ids, missing ids and the default, and the migration continues."""
    fill_half(people)
    before = rows(people)

    change(tool("ADD COLUMN note INT"))

    assert rows(people) == before
    people.check_expanded()
    people.run("backfill_public_id")
    people.run("contract_public_id")
    people.check_complete(320)
    assert [row for row in rows(people) if row.public_id.startswith("half")] == before[:150]


def test_complete(people: People, tool: Tool) -> None:
    """The tool keeps ids, default and index; the audit has no finding, and the way back works."""
    people.add()
    before = rows(people)

    change(tool("ADD COLUMN note INT"))

    assert rows(people) == before
    people.check_complete(300)
    audit = command.run("audit", people.engine.url.render_as_string(hide_password=False))
    assert audit.exit_code == 0, audit.output
    people.run("drop_public_id")
    people.check_gone()


def test_writers(people: People, tool: Tool, tmp_path: Path) -> None:
    """Rows that old programs and a backfill write during the copy keep their ids."""
    fill_half(people)
    stop = threading.Event()

    def write() -> int:
        written = 0
        while not stop.is_set():
            try:
                people.write(1)
                written += 1
            except OperationalError as error:  # a deadlock, which MariaDB reports now and then
                if "1213" not in str(error.orig):
                    raise
        return written

    with ThreadPoolExecutor(1) as threads:
        writer = threads.submit(write)
        try:
            with copying(people, tool("ADD COLUMN note INT"), tmp_path):
                backfill.run(people.engine, "person", update_triggers="fire", pause=0)
                filled = {row.id: row.public_id for row in rows(people)}
        finally:
            stop.set()

    after = {row.id: row.public_id for row in rows(people)}
    assert None not in filled.values()
    assert filled.items() <= after.items()
    assert len(after) == 320 + writer.result()
    people.run("contract_public_id")
    people.check_complete(len(after))


@pytest.mark.parametrize(
    "operation", ["add_public_id", "expand_public_id", "contract_public_id", "drop_public_id", "backfill_public_id"]
)
def test_operations_meanwhile(people: People, tool: Tool, tmp_path: Path, operation: str) -> None:
    """While the tool copies, operations are refused, as the copy would lack their changes; the next run succeeds."""
    if operation.startswith(("contract", "backfill")):
        fill_half(people)
    if operation.startswith("contract"):
        people.run("backfill_public_id")
    if operation.startswith("drop"):
        people.add()
    columns = people.columns()

    with copying(people, tool("ADD COLUMN note INT"), tmp_path):
        with pytest.raises(MigrationRefused, match="pt_osc_") as refused:
            people.run(operation)
        assert people.columns() == columns

    copied = "table-copied" in [obstacle.code for obstacle in refused.value.obstacles]
    assert copied == (operation != "backfill_public_id")
    assert people.columns() == [*columns, "note"]
    people.run(operation)


@pytest.mark.parametrize(
    ("prepare", "alter", "options", "left"),
    [
        ("", f"ADD COLUMN public_id varchar(12) NOT NULL DEFAULT '', {UNIQUE}", [UNCHECKED], 1),
        ("", "ADD COLUMN public_id varchar(12) NOT NULL DEFAULT '' UNIQUE", [], 1),
        ("NULL", f"MODIFY public_id varchar(12) NOT NULL, {UNIQUE}", [UNCHECKED, "--null-to-not-null"], 1),
        ("IF(id < 300, 'a', 'B')", UNIQUE, [UNCHECKED], 2),
    ],
    ids=["default", "of-column", "null", "equal"],
)
def test_lost_rows(people: People, tool: Tool, prepare: str, alter: str, options: list[str], left: int) -> None:
    """The warning of the guide holds: with a UNIQUE key, rows are lost, and the tool reports success."""
    if prepare:
        people.execute("ALTER TABLE person ADD COLUMN public_id varchar(12)")
        people.execute(f"UPDATE person SET public_id = {prepare}")

    change(tool(alter, *options))

    assert len(rows(people)) == left


@pytest.mark.parametrize(
    ("options", "message"),
    [([], "You are trying to add an unique key"), ([UNCHECKED], "doesn't have a default value")],
    ids=["checked", "unchecked"],
)
def test_refused_by_the_tool(people: People, tool: Tool, options: list[str], message: str) -> None:
    """The tool refuses a UNIQUE key; without this check, a missing id stops the tool, and nothing is changed."""
    done = run(tool(f"ADD COLUMN public_id varchar(12) NOT NULL, {UNIQUE}", *options))

    assert done.returncode
    assert message in done.stdout + done.stderr
    assert "public_id" not in people.columns()
    assert scalar(people, "SELECT count(*) FROM person") == 300
