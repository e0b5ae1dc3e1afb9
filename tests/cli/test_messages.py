"""Messages are in the words of the command line, and say what to do next."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, text
from support.command import run
from support.connections import monitor
from support.marks import on
from support.people import People, people
from support.private_servers import wait_until

from sqlalchemy_public_id.cli._wording import as_typed

COMMAND = [sys.executable, "-m", "sqlalchemy_public_id.cli"]


@pytest.fixture
def person(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[People]:
    """A table of people; DATABASE_URL names its database."""
    monkeypatch.setenv("DATABASE_URL", engine.url.render_as_string(hide_password=False))
    with people(engine, 20) as made:
        yield made


# --- options


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ('pass server_default="none", or invisible=False', "pass --server-default none, or --no-invisible"),
        ("pass allow_lock=True to accept this", "pass --allow-lock to accept this"),
        ("pass unique_name= with another name", "pass --unique-name with another name"),
        (
            "fill it, with op.backfill_public_id('a') in an earlier migration, or with: public-id",
            "fill it, with public-id",
        ),
        ("op.alter_column('a', 'b', server_default=None)", "op.alter_column('a', 'b', server_default=None)"),
        ("SET collation_server = 'x'", "SET collation_server = 'x'"),
    ],
)
def test_options_as_they_are_typed(said: str, typed: str) -> None:
    """Options and operations are named as they are typed; code for Alembic and SQL stay as they are."""
    assert as_typed(said) == typed


@pytest.mark.backend
@on("sqlite", "postgresql", "mysql")
def test_remedies(person: People) -> None:
    """The plan, a refusal, the report of a dry run and the audit name options of the command, which accepts them."""
    person.execute("ALTER TABLE person ADD public_id varchar(12)")
    person.execute("UPDATE person SET public_id = 'izkpm55j334u' WHERE id < 3")
    collation = ("--collation", "bytes") if person.engine.name == "mysql" else ()
    written = [
        run("plan", "person", *collation).stdout,
        run("plan", "--all", *collation).stdout,
        run("add", "person", *collation).stderr,
        run("add", "person", *collation, "--dry-run").stdout,
    ]

    for each in written:
        assert "correct the rows, or pass --on-duplicate replace: all rows but the first get another id" in each
    if collation:
        assert "pass --collation bytes to change it" in run("audit").stdout
    assert run("add", "person", *collation, "--on-duplicate", "replace").exit_code == 0
    person.check_complete(20)


@pytest.mark.backend
@on("sqlite")
def test_switch(person: People) -> None:
    """``--allow-lock`` needs no value, like ``--yes``."""
    assert run("plan", "person", "--allow-lock").exit_code == 0


@pytest.mark.backend
@on("sqlite")
def test_earlier_phase(person: People) -> None:
    """A phase that comes too early names the command that has to run first."""
    assert "add it first, with public-id expand person\n" in run("contract", "person").stderr
    run("expand", "person", "--server-default", "none")
    assert "fill them first, with public-id backfill " in run("contract", "person").stderr


# --- steps


@pytest.mark.backend
@on("postgresql")
def test_default_of_an_existing_column(person: People) -> None:
    """A column that exists gets its default; the step does not say that it is added."""
    person.execute("ALTER TABLE person ADD public_id varchar(12)")
    expanded = run("expand", "person")

    assert expanded.stderr == "person.public_id: set the default\n"
    assert person.written() is not None


@pytest.mark.backend
@on("postgresql")
def test_lock_of_a_build(person: People) -> None:
    """The plan says that readers and writers go on while the index is built."""
    build = "contract: build the unique index (lock: readers and writers go on, other ALTERs of the table wait)"

    assert build in run("plan", "person").stdout


# --- rows and connections


@pytest.mark.slow
@pytest.mark.backend
@on("postgresql")
@pytest.mark.parametrize("command", ["add", "backfill"])
def test_locked_rows(person: People, command: str) -> None:
    """While a transaction keeps rows locked, the backfill says what it waits for; the same command fills them later."""
    run("expand", "person")
    with person.engine.connect() as holder:
        holder.execute(text("UPDATE person SET name = 'held' WHERE id = 1"))
        left = run(command, "person")
    again = run(command, "person")

    assert (left.exit_code, again.exit_code) == (1, 0)
    waits = "person.public_id: rows that others have locked or inserted are left; looking for them again\n"
    assert left.stderr.count(waits) == 1
    assert waits not in again.stderr
    assert "1 row of person has no public_id yet" in left.stderr


@pytest.mark.slow
@pytest.mark.backend
@on("postgresql")
def test_lost_connection(person: People) -> None:
    """If the server ends the connection, the message says that the command continues."""
    person.write(9000)
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%UPDATE%person%' AND {others}"

    def end_the_backfill() -> None:
        with monitor(person.engine) as connection:
            wait_until(lambda: connection.exec_driver_sql(ended.replace("%", "%%")).all(), "the backfill")

    run("expand", "person")
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(end_the_backfill)
        lost = run("backfill", "person", "--batch-seconds", "0.0001", "--pause", "50")
        done.result()

    assert lost.exit_code == 2
    assert lost.stderr.endswith("; run the same command again to continue\n")
    assert run("add", "person").exit_code == 0


# --- Ctrl-C


def in_the_foreground() -> None:
    """Let a process take Ctrl-C, which a shell without job control has it ignore if the tests run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


DURING_IMPORTS = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

from sqlalchemy_public_id.cli import main
sys.meta_path.insert(0, Finder())
main(["budget"])
"""


@pytest.mark.slow
def test_interrupted_imports() -> None:
    """Ctrl-C while Python still reads the modules exits with 130, without a traceback."""
    done = subprocess.run(
        [sys.executable, "-c", DURING_IMPORTS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=in_the_foreground,
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.slow
def test_interrupted_reading() -> None:
    """Ctrl-C exits with 130 in every command, also in one that migrates nothing."""
    command = [*COMMAND, "inspect", "-"]
    options: dict[str, Any] = {"text": True, "env": {**os.environ, "PYTHONUNBUFFERED": "1"}}
    options |= {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **options, preexec_fn=in_the_foreground) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        started.stdin.write("izkpm55j334u\n\n")
        started.stdin.flush()
        assert started.stdout.readline().startswith("id ")  # it has begun to read
        started.send_signal(signal.SIGINT)
        _, stderr = started.communicate(timeout=60)

    assert (started.returncode, stderr) == (130, "interrupted\n")


# --- a terminal


@pytest.mark.slow
@pytest.mark.backend
@on("postgresql", "mysql")
def test_end_of_a_narrow_terminal(person: People) -> None:
    """A line that is too long ends with an ellipsis, and no line stays below the last one after Ctrl-C."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "40", "TERM": "xterm"}
    command = [*COMMAND, "add", "person", "other", "--jobs", "2"]
    with people(person.engine, 5, table="other"), person.engine.connect() as holder:
        holder.execute(text("SELECT count(*) FROM person"))
        with subprocess.Popen(
            command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment, preexec_fn=in_the_foreground
        ) as started:
            os.close(theirs)
            written = b""
            while b"; attempt 2 of 30 in " not in written or b"other.public_id has an id" not in written:
                written += os.read(ours, 65536)
            started.send_signal(signal.SIGINT)
            try:
                while more := os.read(ours, 65536):
                    written += more
            except OSError:  # the other end is closed
                pass
        os.close(ours)

    frames = [line for line in written.decode().replace("\r\n", "\n").split("\r\x1b[K") if "\n" not in line]
    assert started.returncode == 130
    assert {len(line) for line in frames if line.endswith("…")} == {39}
    assert max(map(len, frames)) == 39
    assert written.endswith(b"interrupted; run the same command again to continue\r\n")
