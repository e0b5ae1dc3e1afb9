"""The tutorial of a service, followed in an empty folder: its files, its commands and their output."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from support.marks import on

from conftest import url_of

PAGE = Path(__file__).parents[2] / "docs/tutorial/a-service.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EDITED = {"target_metadata": "migrations/env.py"}
"""The file in which the page replaces a line."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def run(commands: str, folder: Path, settings: dict[str, str]) -> str:
    """Return the output of the commands of a fence; processes left in the background end with the test."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))}
    with (folder / "output").open("w+") as output:
        ended = subprocess.run(
            ["bash", "-ec", commands],
            cwd=folder,
            env=environment | {"PATH": path} | settings,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        output.seek(0)
        text = output.read()
    assert ended.returncode == 0, text
    return text


def edit(folder: Path, lines: str) -> None:
    """Replace the line that assigns the same name as the last of *lines*."""
    name = lines.splitlines()[-1].partition(" =")[0]
    path = folder / EDITED[name]
    text, replaced = re.subn(rf"^{re.escape(name)} = .*\n", lambda _: lines, path.read_text(), flags=re.MULTILINE)
    assert replaced == 1
    path.write_text(text)


def without_ids(text: str) -> str:
    """Return *text* without ids, which differ from run to run, and without line ends, which curl does not print."""
    return re.sub("_[0-9a-z]{12}", "_", text).replace("\n", "")


@pytest.fixture
def settings(database: str) -> Iterator[dict[str, str]]:
    """Yield the variables that the page sets: none for SQLite, and the URL of an empty database for PostgreSQL."""
    if database == "sqlite":
        yield {}
        return
    url = url_of(database, "asyncpg")
    name = f"{url.database}_library"
    engine = create_engine(url_of(database), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield {"DATABASE_URL": url.set(database=name).render_as_string(hide_password=False)}
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@pytest.mark.slow
@on("sqlite", "postgresql")
def test_every_step(tmp_path: Path, settings: dict[str, str]) -> None:
    """The tutorial leads from an empty folder to a service that responds, and whose tests pass."""
    port = str(free_port())
    outputs: list[str] = []
    servers = tmp_path / "pids"
    try:
        for language, fence in FENCE.findall(PAGE.read_text()):
            if language == "python":
                name = fence.partition("\n")[0].removeprefix("# ")
                (tmp_path / name).write_text(fence)
            elif language == "sh" and not fence.startswith("python -m pip"):
                commands = fence.replace("8000", port).replace("&\n", f"> uvicorn.log 2>&1 &\necho $! > {servers}\n")
                outputs.append(run(commands, tmp_path, settings))
            elif language == "text" and fence.splitlines()[-1].partition(" =")[0] in EDITED:
                edit(tmp_path, fence)
            elif language == "text":
                assert without_ids(outputs[-1]) == without_ids(fence)
    finally:
        if servers.exists():
            os.kill(int(servers.read_text()), signal.SIGTERM)

    assert "No new upgrade operations detected." in outputs[1]
    assert "4 passed" in outputs[-1]
