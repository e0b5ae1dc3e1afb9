"""Imports point downwards: the contract in ``pyproject.toml`` is kept, and it detects violations."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sqlalchemy_public_id

pytest.importorskip("importlinter")

CONFIGURATION = Path(__file__).parents[2] / "pyproject.toml"
PACKAGE = Path(sqlalchemy_public_id.__file__).parent

MISTAKES = {
    "formats/alphabets": "from sqlalchemy_public_id.types import IdColumnType",
    "formats/uuids": "import sqlalchemy_public_id.registry",
    "formats/budget": "import sqlalchemy",
    "lookup/__init__": "from sqlalchemy_public_id import bulk",
    "references/__init__": "from sqlalchemy_public_id import declare",
    "typed": "if TYPE_CHECKING:\n    from sqlalchemy_public_id.declare import PublicIdMixin",
    "types": "def late():\n    from sqlalchemy_public_id import guard",
    "_private": "from sqlalchemy_public_id.types import IdColumnType",
    "__init__": "from sqlalchemy_public_id import testing",
    "guard/statement": "from sqlalchemy_public_id.guard import collision",
    "a_new_module": "",
}
"""Module → the code that violates the contract when it is appended to the module."""


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the imports of the package in *folder*."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    return subprocess.run(
        [*command, "--no-cache", "--config", str(CONFIGURATION)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_point_downwards() -> None:
    """Modules import only from lower layers, and import no package that they must not need."""
    done = lint(PACKAGE.parent)

    assert done.returncode == 0, done.stdout
    assert " 0 broken" in done.stdout


def test_upward_imports_are_found(tmp_path: Path) -> None:
    """An import upwards or sideways is found however it is written, and so is a module that has no layer."""
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name)
    unnoticed = {}
    for path, source in MISTAKES.items():
        module = tmp_path / PACKAGE.name / f"{path}.py"
        before = module.read_text() if module.exists() else None
        module.write_text(f"{before or ''}\n{source}\n")
        done = lint(tmp_path)
        if done.returncode == 0 or module.parent.name not in done.stdout:
            unnoticed[path] = done.stdout
        if before is None:
            module.unlink()
        else:
            module.write_text(before)

    assert unnoticed == {}
