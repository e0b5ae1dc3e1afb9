"""Run the scripts of migrations with the command-line client of a database."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest
from sqlalchemy import Engine


def run_script(engine: Engine, sql: str) -> None:
    """Run *sql* with the client of the database, which stops at the first error."""
    done = give_script(engine, sql, "-v", "ON_ERROR_STOP=1")
    assert done.returncode == 0, f"{done.stderr}\n{sql}"


def command_in(sql: str) -> list[str]:
    """Return the words of the ``public-id`` command in the comments of a script."""
    lines = [line.removeprefix("-- ") for line in sql.split("\n") if line.startswith("-- ")]
    return shlex.split("\n".join(lines).partition("in use:\n")[2])


def give_script(engine: Engine, sql: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run *sql* with the client of the database; *options* are additional options for psql."""
    url = engine.url
    if engine.name == "postgresql":
        command = ["psql", "-X", "-q", *options, "-h", url.host, "-p", str(url.port or 5432)]
        command += ["-U", url.username, "-d", url.database, "-f", "-"]
    else:
        name = "mariadb" if shutil.which("mariadb") else "mysql"
        command = [name, "-h", url.host, "-P", str(url.port or 3306), "-u", url.username, "--protocol=tcp"]
        command += ["-D", url.database, "--default-character-set=utf8mb4"]
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    password = {"PGPASSWORD": url.password or "", "MYSQL_PWD": url.password or ""}
    return subprocess.run(
        [part for part in command if part],
        input=sql,
        text=True,
        capture_output=True,
        env={**os.environ, **password},
        timeout=120,
    )
