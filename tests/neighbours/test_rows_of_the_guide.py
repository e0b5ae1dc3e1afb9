"""Each package in the table of the guide has a test in this folder."""

from __future__ import annotations

import ast
import re
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from neighbours.guide import section
from packaging.utils import canonicalize_name

ROWS = re.findall(r"^\| (.*?) \|", section("Other packages"), re.MULTILINE)
PACKAGES = re.findall(r"([\w-]+) \d+\.", "\n".join(ROWS))


def imported() -> set[str]:
    """Return the names of the modules that the tests of this folder import, or that processes of theirs load."""
    names = {"pytest_alembic", "flask_migrate"}  # in the processes of test_pytest_alembic.py and test_flask_migrate.py
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_row(package: str) -> None:
    """A test of this folder imports the package."""
    modules = {
        module
        for module, distributions in packages_distributions().items()
        if canonicalize_name(package) in map(canonicalize_name, distributions)
    }

    assert modules & imported()


def test_table_has_packages() -> None:
    """The rows are found."""
    assert len(PACKAGES) > 20
