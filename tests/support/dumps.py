"""Dump tables with ``mysqldump`` or ``mariadb-dump``, and restore the dumps."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine
from support.clients import run_script

_PRIVATE = Path("~/.cache/sqlalchemy-public-id/mysql/mysqldump").expanduser()
"""MySQL's own program, where ``tools/databases up`` unpacks it."""


class Dumps:
    """Dumps of the tables of *engine*, which *program* makes."""

    def __init__(self, engine: Engine, program: str) -> None:
        self.engine, self.program = engine, program

    def take(self, table: str, *options: str) -> str:
        """Return the SQL of a dump of one table."""
        url = self.engine.url
        at = ["-h", str(url.host), "-P", str(url.port or 3306), "-u", str(url.username), "--protocol=tcp"]
        own = ["--set-gtid-purged=OFF"] if self.engine.name == "mysql" else []
        command = [self.program, "--no-defaults", *at, *own, *options, str(url.database), table]
        secret = {**os.environ, "MYSQL_PWD": url.password or ""}
        done = subprocess.run(command, capture_output=True, text=True, env=secret, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def restore(self, dump: str) -> None:
        """Run the SQL of a dump."""
        run_script(self.engine, dump)


@pytest.fixture
def dumps(engine: Engine, pytestconfig: pytest.Config) -> Dumps:
    """Dumps by the program of the server; without it, a test is skipped, or fails with ``--require-all-databases``."""
    program = _mysqldump() if engine.name == "mysql" else _first("mariadb-dump", "mysqldump", is_right=_is_mariadbs)
    if program is None:
        missing = f"no program that dumps {engine.name} was found: run tools/databases up"
        pytest.fail(missing) if pytestconfig.getoption("--require-all-databases") else pytest.skip(missing)
    return Dumps(engine, program)


def _mysqldump() -> str | None:
    on_path = _first("mysqldump", is_right=lambda program: not _is_mariadbs(program))
    return on_path or (str(_PRIVATE) if _PRIVATE.exists() else None)


def _first(*names: str, is_right: Callable[[str], bool]) -> str | None:
    return next((path for name in names if (path := shutil.which(name)) and is_right(path)), None)


def _is_mariadbs(program: str) -> bool:
    return "MariaDB" in subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60).stdout
