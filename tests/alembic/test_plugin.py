"""The library registers with Alembic, and does not disturb projects that do not want it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib.metadata import entry_points

import pytest
from alembic.runtime.plugins import Plugin
from alembic.util import PriorityDispatcher
from support.marks import on
from support.projects import Project, upgrade_of
from support.shops import shop

from sqlalchemy_public_id.alembic.compare import PLUGIN as NAME
from sqlalchemy_public_id.alembic.compare import register_comparators

FIRST = [
    "import alembic",
    "from alembic import op",
    "import alembic.autogenerate.api",
    "import sqlalchemy_public_id",
    "import sqlalchemy_public_id._alembic_plugin",
    "import sqlalchemy_public_id.alembic",
    "import sqlalchemy_public_id.alembic.ops",
    "import sqlalchemy_public_id.alembic.revisions",
    "import sqlalchemy_public_id.alembic.toimpl",
]
"""What a program may import first."""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)


def test_entry_point() -> None:
    """The installed package has the entry point that Alembic looks for."""
    (found,) = [each for each in entry_points(group="alembic.plugins") if each.name == "sqlalchemy_public_id"]

    assert found.value == "sqlalchemy_public_id._alembic_plugin"


@pytest.mark.slow
@pytest.mark.parametrize("first", FIRST)
def test_order_of_imports(first: str) -> None:
    """Whatever module is imported first, ``op`` has the operations, and nothing is printed."""
    done = run(f"{first}\nfrom alembic import op\nop.add_public_id")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


BREAK = {
    "the package": (
        "sys.modules['sqlalchemy_public_id.alembic'] = None",
        "import of sqlalchemy_public_id.alembic halted",
    ),
    "a part": (
        "sys.modules['sqlalchemy_public_id.migrations'] = None",
        "import of sqlalchemy_public_id.migrations halted",
    ),
    "a call": ("sqlalchemy_public_id.errors.require = None", "TypeError: 'NoneType' object is not callable"),
}
"""What fails when the library is loaded → the code that makes it fail, and the words of the error."""


@pytest.mark.slow
@pytest.mark.parametrize("broken", BREAK)
def test_broken_library(broken: str) -> None:
    """If the library cannot be loaded, Alembic still works, and the log says why."""
    breaks, error = BREAK[broken]
    done = run(
        f"import sys, sqlalchemy_public_id.errors\n{breaks}\n"
        "import alembic.command\nfrom alembic import op\nop.add_column"
    )

    assert done.returncode == 0, done.stderr
    assert "sqlalchemy-public-id does not work with this Alembic" in done.stderr
    assert error in done.stderr


def test_alembic_is_not_loaded_by_the_library() -> None:
    """A program that has no migrations does not load Alembic."""
    done = run("import sys, sqlalchemy_public_id\nassert 'alembic' not in sys.modules")

    assert done.returncode == 0, done.stderr


def comparators() -> Counter[tuple[str, str]]:
    """Count the comparison functions of the library that Alembic calls, by kind and by what they compare."""
    ours = PriorityDispatcher()
    Plugin.populate_autogenerate_priority_dispatch(ours, [NAME])
    return Counter((kind, what) for (kind, *_), functions in ours._registry.items() for _, what in functions)


def test_registered_once() -> None:
    """Registering the plugin again changes nothing: each function compares once."""
    once = comparators()
    register_comparators()
    register_comparators()

    assert comparators() == once
    assert once == {
        ("schema", "public_id"): 1,
        ("schema", "public_id_revisions"): 1,
        ("schema", "cluster_key"): 1,
        ("schema", "public_id_left"): 1,
        ("schema", "public_id_structure"): 1,
        ("schema", "public_id_references"): 1,
        ("column", "types"): 1,
        ("column", "server_default"): 1,
        ("table", "public_id"): 1,
    }


@on("sqlite")
def test_off(project: Project) -> None:
    """A project can turn the plugin off: Alembic then finds a column and an index."""
    project.configure(f'autogenerate_plugins=["alembic.autogenerate.*", "~{NAME}"],')
    found = str(project.check(shop()))

    assert "'add_column'" in found
    assert "add_public_id" not in found


@on("sqlite")
@pytest.mark.parametrize("name", ["sqlalchemy_public_id", NAME])
def test_named(project: Project, name: str) -> None:
    """A project may name the plugin in ``autogenerate_plugins``, but does not need to."""
    project.configure(f'autogenerate_plugins=["alembic.autogenerate.*", "{name}"],')

    assert upgrade_of(project.revision(shop())) == ["op.add_public_id('customer')"]
