"""The shape of the house: imports point downwards only, modules are small, and each has a name that says what it is."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sqlalchemy_public_id

PACKAGE = "sqlalchemy_public_id"
ROOT = Path(sqlalchemy_public_id.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if "alembic_templates" not in path.parts)

LAYERS = (
    {"testing", "cli"},
    {"alembic", "ext"},
    {"asyncio"},
    {"bulk", "idempotency", "tokens", "backfill", "audit", "merging"},
    {"online"},
    {"lookup", "mixins", "references", "keys"},
    {"events"},
    {"guard"},
    {"orm", "transactions"},
    {"types"},
    {"comparisons"},
    {"typed"},
    {"pydantic_schema"},
    {"registry", "dialects", "naming"},
    {"formats"},
    {"advice"},
    {"errors"},
)
"""From the top to the bottom. A module imports from lower layers; modules of one layer do not import each other."""

FOR_ALL = {"_version"}
FOR_GUARD_AND_ABOVE = {"_compat"}
FRONT_DOOR = "__init__"
BACK_DOOR = "_alembic_plugin"
"""What Alembic looks for; it imports the rest by name, late, so that nothing of it can break Alembic."""

PURE = {"formats", "errors", "advice", "naming"}
DEPENDENCIES = {"sqlalchemy", "typing_extensions", "uuid_utils"}
EXTRAS = {
    "alembic": {"alembic"},
    "cli": {"click", "matplotlib", "rich"},
    "keys": {"ffx"},
    "ext": {"fastapi", "flask", "pydantic", "pydantic_core", "sqlmodel", "starlette", "werkzeug"},
    "pydantic_schema": {"pydantic_core"},
}
"""Parts of the package, and what they may import beside the dependencies."""


def part_of(path: Path) -> str:
    """The module or subpackage of the package that *path* belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(source: str, path: str = "") -> Iterator[tuple[str, ...]]:
    """The dotted names that *source* imports, inside functions and for type checkers too."""
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            for alias in node.names:
                yield (*str(node.module).split("."), alias.name)


def allowed(part: str) -> set[str]:
    """The parts of the package that *part* may import."""
    layers = iter(LAYERS)
    above_types = part in {name for layer in LAYERS[: LAYERS.index({"types"})] for name in layer}
    own = {part} | FOR_ALL | (FOR_GUARD_AND_ABOVE if above_types else set())
    if part == FRONT_DOOR:
        return own.union(*LAYERS[LAYERS.index({"online"}) + 1 :]) | {"bulk", "idempotency", "merging", "tokens"}
    if part == BACK_DOOR:
        return own
    if part in FOR_ALL | FOR_GUARD_AND_ABOVE:
        return own
    next(layer for layer in layers if part in layer)
    return own.union(*layers)


def forbidden(part: str, source: str) -> list[str]:
    """The imports in *source*, a module of *part*, that do not point downwards."""
    inside = [name for name in imports(source) if name[0] == PACKAGE]
    return [".".join(name) for name in inside if len(name) == 1 or name[1] not in allowed(part)]


def outside(source: str) -> set[str]:
    """The packages of others that *source* imports."""
    return {name[0] for name in imports(source)} - sys.stdlib_module_names - {PACKAGE}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    """A module imports only from layers below its own, and never through the front door."""
    assert forbidden(part_of(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("formats", "from sqlalchemy_public_id.types import PublicIdType"),
        ("formats", "import sqlalchemy_public_id.registry"),
        ("lookup", "from sqlalchemy_public_id import mixins"),
        ("types", "from sqlalchemy_public_id._compat import quiet"),
        ("typed", "if TYPE_CHECKING:\n    from sqlalchemy_public_id.mixins import PublicIdMixin"),
        ("types", "def late():\n    from sqlalchemy_public_id import guard"),
        ("events", "import sqlalchemy_public_id"),
        ("events", "from sqlalchemy_public_id import NanoId"),
        ("_compat", "from sqlalchemy_public_id.errors import PublicIdError"),
        (FRONT_DOOR, "from sqlalchemy_public_id import testing"),
    ],
)
def test_upward_imports_are_found(part: str, source: str) -> None:
    """The test above sees an import that points upwards, sideways or at the front door, however it is written."""
    assert len(forbidden(part, source)) == 1


def test_every_module_has_a_layer() -> None:
    """A new module is given its place."""
    placed = {FRONT_DOOR, BACK_DOOR} | FOR_ALL | FOR_GUARD_AND_ABOVE

    assert placed.union(*LAYERS) == {part_of(path) for path in FILES}


@pytest.mark.parametrize("path", [path for path in FILES if part_of(path) in PURE], ids=lambda path: path.name)
def test_formats_and_errors_are_pure(path: Path) -> None:
    """Formats and errors know no database: they import no SQLAlchemy."""
    assert outside(path.read_text()) <= DEPENDENCIES - {"sqlalchemy"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_dependencies_are_imported(path: Path) -> None:
    """No module imports what the distribution does not require; what an extra brings is for its own part alone."""
    also = {"pytest"} if path == ROOT / "testing" / "fixtures.py" else EXTRAS.get(part_of(path), set())

    assert outside(path.read_text()) <= DEPENDENCIES | also


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_small(path: Path) -> None:
    """No module is longer than 400 lines, docstring included."""
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_say_what_they_are(path: Path) -> None:
    """Each module begins with a docstring, and has a name that means something."""
    source = ast.parse(path.read_text())

    assert path == ROOT / "_version.py" or ast.get_docstring(source)
    assert not {"util", "utils", "helper", "helpers", "common", "core"} & set(
        path.relative_to(ROOT).with_suffix("").parts
    )


def test_the_package_was_found() -> None:
    """The tests of this module look at the whole package."""
    assert {"__init__.py", "errors.py", "guard"} <= {path.name for path in ROOT.iterdir()}
    assert len(FILES) > 25
