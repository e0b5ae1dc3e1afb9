"""What ``python -m tools.adoptions`` measures is what the statements of a program see."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.adoptions.__main__ import HERE, fill, measure, tomllib
from tools.benchmarks.live_load import Work

pytestmark = pytest.mark.housekeeping

WORK = Work(
    {"write": "INSERT INTO word (text) VALUES (:new)", "read": "SELECT text FROM word WHERE id = :id"},
    [({"write": 1, "read": 1}, 50)],
)


@pytest.fixture(name="database")
def _database(tmp_path: Path) -> Path:
    path = tmp_path / "words.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE word (id INTEGER PRIMARY KEY, text VARCHAR)")
    return path


def while_running(database: Path, sql: str) -> dict[str, Any]:
    """Measure a process that executes *sql*, and ends half a second afterwards."""
    program = f"import sqlite3, time; c = sqlite3.connect({str(database)!r}, isolation_level=None); {sql}"
    return measure(f"sqlite:///{database}", 3, WORK, [sys.executable, "-c", program])


@pytest.mark.parametrize("name", sorted(file.stem for file in HERE.glob("*.toml")))
def test_programs_are_complete(name: str) -> None:
    """Each program has rows, and processes whose statements exist."""
    program = tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))

    assert program["rows"] > 0
    assert program["fill"]
    assert {kind for each in program["processes"] for kind in each["weights"]} == program["statements"].keys()


@pytest.mark.slow
def test_a_lock_is_a_stall(database: Path) -> None:
    """Statements that wait for the command are counted with the time that they waited, and have not failed."""
    fill(f"sqlite:///{database}", ["INSERT INTO word (text) VALUES ('one'), ('two'), ('three')"])

    found = while_running(database, "c.execute('BEGIN EXCLUSIVE'); time.sleep(0.7); c.execute('COMMIT')")

    assert (found["exit code"], found["failed"]) == (0, {})
    assert found["longest_stall_ms"] > 500
    assert found["statements"].keys() == {"write", "read"}


@pytest.mark.slow
def test_a_failed_statement_is_counted(database: Path) -> None:
    """Statements that fail because of the command are counted by their message."""
    found = while_running(database, "c.execute('ALTER TABLE word RENAME TO words'); raise SystemExit(3)")

    assert found["exit code"] == 3
    assert found["failed"].keys() == {f"{kind}: OperationalError: no such table: word" for kind in ("read", "write")}
