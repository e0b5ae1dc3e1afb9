"""The Makefile: what it considers up to date."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"
VENV = Path(".venv/sqlalchemy-2.1")
MARKS = [VENV / f"{name}.done" for name in ("demo", "test", "lint", "docs")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project in which everything is set up, with a uv that does nothing."""
    shutil.copy(MAKEFILE, tmp_path)
    for name in ("pyproject.toml", "README.md", "LICENSE", VENV / "bin" / "python", "dist/built", *MARKS):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    uv = tmp_path / ".venv" / "uv" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.symlink_to(str(shutil.which("true")))
    return tmp_path


def make(project: Path, *arguments: str | Path) -> str:
    """Return the output of ``make``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "SQLALCHEMY=2.1", *map(str, arguments)]  # whatever the outer make was told
    return subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.stem)
def test_the_wheel_is_installed_after_an_editable_installation(project: Path, mark: Path) -> None:
    """A finished setup is not repeated, but after ``make install`` the wheel replaces the editable installation."""
    before = make(project, "--dry-run", mark)
    make(project, "install")

    assert "--reinstall-package" not in before
    assert "--reinstall-package" in make(project, "--dry-run", mark)
