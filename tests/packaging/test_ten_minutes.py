"""The tutorial of a service, followed in an empty folder: its files, its commands and their output."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/tutorial/a-service.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EDITED = {"sqlalchemy.url": "alembic.ini", "target_metadata": "migrations/env.py"}
"""The files in which the page replaces a line."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def run(commands: str, folder: Path) -> str:
    """Return the output of the commands of a fence; processes left in the background end with the test."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))}
    with (folder / "output").open("w+") as output:
        ended = subprocess.run(
            ["bash", "-ec", commands],
            cwd=folder,
            env=environment | {"PATH": path},
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


@pytest.mark.slow
def test_every_step(tmp_path: Path) -> None:
    """The tutorial leads from an empty folder to a service that responds, and whose tests pass."""
    port = str(free_port())
    outputs: list[str] = []
    servers = tmp_path / "pids"
    try:
        for language, text in FENCE.findall(PAGE.read_text()):
            if language == "python":
                name = text.partition("\n")[0].removeprefix("# ")
                (tmp_path / name).write_text(text)
            elif language == "sh" and not text.startswith("python -m pip"):
                commands = text.replace("8000", port).replace("&\n", f"> uvicorn.log 2>&1 &\necho $! > {servers}\n")
                outputs.append(run(commands, tmp_path))
            elif language == "text" and text.splitlines()[-1].partition(" =")[0] in EDITED:
                edit(tmp_path, text)
            elif language == "text":
                assert without_ids(outputs[-1]) == without_ids(text)
    finally:
        if servers.exists():
            os.kill(int(servers.read_text()), signal.SIGTERM)

    assert "No new upgrade operations detected." in outputs[1]
    assert "4 passed" in outputs[-1]
