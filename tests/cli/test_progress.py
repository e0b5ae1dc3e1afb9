"""What the commands show while they work on tables, and what Ctrl-C does meanwhile."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import Engine, String, text
from support.command import run
from support.connections import monitor, processes
from support.invoices import NAME, NewInvoices
from support.marks import on
from support.people import people
from support.private_servers import wait_until

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.migrations.databases import database_of, plan_for
from sqlalchemy_public_id.migrations.operation import examine

pytestmark = pytest.mark.backend

COMMAND = [sys.executable, "-m", "sqlalchemy_public_id.cli"]
SLOWLY = ("--batch-seconds", "0.0001", "--pause", "50")
"""Batches of a few rows, with a pause between them."""


def url(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


@contextmanager
def snapshot(engine: Engine) -> Iterator[None]:
    """Hold a snapshot, for which CREATE INDEX CONCURRENTLY waits."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(text("SELECT 1"))
        yield


def has_unique_index(engine: Engine, table: str) -> bool:
    """Return True if the build of the unique index has begun."""
    with engine.connect() as connection:
        found = connection.scalar(text("SELECT to_regclass(:name)"), {"name": f"uq_{table}_public_id"})
        return found is not None


def is_building(engine: Engine) -> bool:
    """Return True if a connection executes CREATE INDEX."""
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE state = 'active' AND query LIKE 'CREATE UNIQUE INDEX%' AND datname = current_database()"
    )
    with engine.connect() as connection:
        return bool(connection.scalar(text(query)))


# --- Ctrl-C


@pytest.mark.slow
@on("postgresql")
@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupted_build(engine: Engine, jobs: int) -> None:
    """While indexes are built, Ctrl-C names no batch, and stops at once; the server goes on with none of them."""
    with people(engine, 50, table="a") as a, people(engine, 50, table="b") as b, snapshot(engine):
        command = [*COMMAND, "add", url(engine), "a", "b", "--jobs", str(jobs)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
            wait_until(lambda: all(has_unique_index(engine, name) for name in "ab"[:jobs]), "the builds")
            started.send_signal(signal.SIGINT)
            stdout, stderr = started.communicate(timeout=60)
        wait_until(lambda: not is_building(engine), "the end of the builds")

        assert started.returncode == 130
        assert stderr.endswith("interrupted; run the same command again to continue\n")
        assert "batch" not in stderr
        assert stdout == ""
        assert not b.state().complete
        assert not a.state().complete


@pytest.mark.slow
@on("mysql", "mariadb")
@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupted_wait(engine: Engine, jobs: int) -> None:
    """While statements wait for locks, Ctrl-C stops at once, and none of them waits any longer."""

    def waiting() -> int:
        states = [each.State for each in processes(watched)]
        return states.count("Waiting for table metadata lock")

    with (
        people(engine, 50, table="a") as a,
        people(engine, 50, table="b") as b,
        engine.connect() as reader,
        monitor(engine) as watched,
    ):
        reader.execute(text("SELECT * FROM a, b"))
        command = [*COMMAND, "add", url(engine), "a", "b", "--jobs", str(jobs), "--lock-timeout", "300"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
            wait_until(lambda: waiting() == jobs, "the statements")
            started.send_signal(signal.SIGINT)
            stdout, stderr = started.communicate(timeout=60)
        wait_until(lambda: not waiting(), "the end of the statements", seconds=60)

        assert (started.returncode, stdout) == (130, "")
        assert stderr.endswith("interrupted; run the same command again to continue\n")
        reader.rollback()
        assert not a.state().exists
        assert not b.state().exists


@pytest.mark.slow
@on("postgresql")
def test_interrupted_batch_beside_a_build(engine: Engine) -> None:
    """The first Ctrl-C names the table with a batch, and the one that it waits for; the second stops at once."""
    with people(engine, 9000, table="a"), people(engine, 0, table="b") as b, snapshot(engine):
        command = [*COMMAND, "add", url(engine), "a", "b", "--jobs", "2", *SLOWLY]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
            assert started.stderr is not None
            wait_until(lambda: has_unique_index(engine, "b"), "the build")
            while not started.stderr.readline().startswith("a: "):
                assert started.poll() is None  # wait until the first batch is done
            started.send_signal(signal.SIGINT)
            while "Ctrl-C" not in (line := started.stderr.readline()):
                assert started.poll() is None
            started.send_signal(signal.SIGINT)
            stdout, stderr = started.communicate(timeout=60)

        assert line == "finishing the batch of a; waiting for b; Ctrl-C again stops at once\n"
        assert stderr.endswith("interrupted; run the same command again to continue\n")
        assert (started.returncode, stdout) == (130, "")
        assert not b.state().complete


@pytest.mark.slow
@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("jobs", [1, 2])
def test_tables_that_have_not_begun(engine: Engine, jobs: int) -> None:
    """After Ctrl-C, the batches end, and no other table begins; the same command continues."""
    with people(engine, 9000, table="a") as a, people(engine, 9000, table="b"), people(engine, 50, table="c") as c:
        command = [*COMMAND, "add", url(engine), "a", "b", "c", "--jobs", str(jobs), *SLOWLY]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
            assert started.stderr is not None
            while not re.match("[ab]: ", started.stderr.readline()):
                assert started.poll() is None
            started.send_signal(signal.SIGINT)
            stdout, stderr = started.communicate(timeout=60)

        assert (started.returncode, stdout) == (130, "")
        assert "finishing the batch" in stderr
        assert stderr.endswith("stopped; run the same command again to continue\n")
        assert not c.state().exists
        assert run("add", url(engine), "a", "b", "c", "--jobs", jobs).exit_code == 0
        a.check_complete(9000)


@on("postgresql", "mysql", "mariadb")
def test_cancelled_statement(engine: Engine) -> None:
    """Another connection cancels the statement of a session, by the number of its connection."""
    with (
        engine.connect() as connection,
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as other,
        ThreadPoolExecutor(1) as threads,
    ):
        number = database_of(connection.dialect).session(connection).read_number()
        sleep = "pg_sleep" if engine.name == "postgresql" else "sleep"
        began, statement = time.monotonic(), threads.submit(connection.execute, text(f"SELECT {sleep}(50)"))
        while not statement.done():
            database_of(other.dialect).session(other).cancel(number)
            wait([statement], 0.1)

        assert time.monotonic() - began < 40


# --- a terminal, and a pipe


def on_terminal(*arguments: object) -> str:
    """Return what the command writes to a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=theirs, stderr=theirs, stdin=theirs, env=environment
    ) as started:
        os.close(theirs)
        written = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                written += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert started.returncode == 0, written
    return written.decode().replace("\r\n", "\n")


def screen(written: str) -> list[str]:
    """Return the lines that a terminal shows in the end."""
    return [line.rpartition("\r\x1b[K")[2] for line in written.split("\n")]


@pytest.mark.slow
@on("sqlite", "postgresql")
def test_terminal(engine: Engine, new_invoices: NewInvoices) -> None:
    """A terminal shows one line, with rows, rate and the time left; in the end, only steps and results are left."""
    new_invoices(rows=[None] * 9000, nullable=True, type=String(12))
    with engine.begin() as connection:
        connection.execute(text("ANALYZE"))  # which counts the rows
    written = on_terminal("add", url(engine), NAME, "--batch-seconds", "0.01", "--pause", "1")

    frames = re.findall(r"\r\x1b\[K([^\r\n]+)", written)
    assert any(re.fullmatch(rf"{NAME}: [\d,]+ rows, [\d,]+ rows/s, about \d+ s left", frame) for frame in frames)
    assert any(re.fullmatch(rf"{NAME}: examining the table \(0 s\)", frame) for frame in frames)
    assert max(map(len, frames)) < 100
    shown = screen(written)
    assert [line for line in shown if "rows/s" in line] == []
    assert shown[-2].startswith(f"{NAME}.public_id has an id in each row, unique and NOT NULL, after ")
    assert shown[-1] == ""


@pytest.mark.slow
@on("sqlite")
def test_pipe(engine: Engine, new_invoices: NewInvoices) -> None:
    """A pipe gets lines, without anything for a terminal."""
    new_invoices(rows=[None] * 3000, nullable=True, type=String(12))
    command = [*COMMAND, "add", url(engine), NAME]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    assert "\x1b" not in done.stderr + done.stdout
    assert re.search(rf"^{NAME}: 3,000 rows, [\d,]+ rows/s$", done.stderr, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "first"), [("new -n 200000", r"[0-9a-z]{12}"), ("new -n 3", r"[0-9a-z]{12}"), ("budget", r"NanoId.*")]
)
def test_closed_pipe(arguments: str, first: str) -> None:
    """A reader that wants only the first line is no failure."""
    command = f"set -o pipefail; {sys.executable} -W error -m sqlalchemy_public_id.cli {arguments} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)

    assert re.fullmatch(first, done.stdout.strip())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@on("sqlite")
def test_migration_into_a_closed_pipe(engine: Engine) -> None:
    """A migration goes on to its end if nobody reads what it prints."""
    with people(engine, 50, table="a") as a, people(engine, 50, table="b") as b:
        words = " ".join([*COMMAND, "add", url(engine), "a", "b"])
        command = f"set -o pipefail; {words} 2>&1 | true"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)

        assert (done.returncode, done.stderr) == (0, "")
        a.check_complete(50)
        b.check_complete(50)


# --- results


@on("sqlite")
def test_json(engine: Engine, new_invoices: NewInvoices) -> None:
    """``--json`` is ``--output json``."""
    new_invoices()

    for command in (("audit", url(engine)), ("plan", url(engine), NAME)):
        assert json.loads(run(*command, "--json").stdout) == json.loads(run(*command, "--output", "json").stdout)


@on("sqlite", "mysql")
def test_long_defaults(engine: Engine) -> None:
    """The text of a plan cuts long server defaults, and says so; the statements of its JSON are whole."""
    with people(engine, 3) as table, engine.connect() as connection:
        report = examine(connection, plan_for(table.target, connection.dialect), ["expand", "contract"])

    lines = str(report).splitlines()
    assert max(map(len, lines)) < 260
    assert any(" … " in line for line in lines)
    assert "are cut here" in str(report)
    expression = plan_for(table.target, engine.dialect).defaults.expression(NanoId())
    assert any(expression in sql for step in report.as_dict()["steps"] for sql in step["statements"])


@on("sqlite")
@pytest.mark.parametrize(
    ("lines", "is_cut"), [((1, 240), False), ((1, 241), True), ((9, 100), False), ((3, 240), False), ((3, 241), True)]
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_statements_of_several_lines(engine: Engine, lines: tuple[int, int], end: str, is_cut: bool) -> None:
    """The text of a plan says that lines are cut if, and only if, one of them is."""
    count, length = lines
    with people(engine, 3) as table, engine.connect() as connection:
        report = examine(connection, plan_for(table.target, connection.dialect), ["expand"])
    statement = end.join("x" * length for _ in range(count))
    text = str(replace(report, steps=(replace(report.steps[0], statements=(statement,)),)))

    assert (text.count("x" * length) == count) != is_cut
    assert ("are cut here" in text) == is_cut
