"""The structure of the package: modules are small, have meaningful names, and need few dependencies.

The imports between modules are declared in ``pyproject.toml``; ``tests/packaging/test_import_contract.py`` checks them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy_public_id

PACKAGE = "sqlalchemy_public_id"
ROOT = Path(sqlalchemy_public_id.__file__).parent
FILES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted(ROOT.rglob("*.py"))
    if "alembic_templates" not in path.parts
}
"""The modules of the package, by their paths."""
TREES = {path: ast.parse(source) for path, source in FILES.items()}

DEPENDENCIES = {"sqlalchemy", "typing_extensions", "uuid_utils"}
EXTRAS = {
    "alembic": {"alembic"},
    "cli": {"click"},
    "keys": {"ffx"},
    "ext": {"fastapi", "flask", "litestar", "pydantic", "pydantic_core", "sqlmodel", "starlette", "werkzeug"},
    "typed/schema.py": {"pydantic_core"},
    "testing/fixtures.py": {"pytest"},
}
"""Part of the package → the packages that it may import in addition to the dependencies."""
NAMES_OF_DIALECTS = {
    "alembic/render.py": "with_variant() takes the name",
    "cli/plan.py": "a report shows the name",
    "guard/collision.py": "the log shows the name",
    "migrations/databases.py": "the registry of the classes for each database; an unknown name is refused",
    "migrations/report.py": "a report shows the name",
}
"""The modules outside of the dialects' own that use the name of a dialect, and why; in messages, any module may."""
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "core"}


def imports(path: str) -> Iterator[tuple[str, ...]]:
    """Yield the dotted names that a module imports, including those inside functions and for type checkers."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + str(node.module)
            yield from ((*module.split("."), alias.name) for alias in node.names)


def test_the_package_was_found() -> None:
    """The tests of this module check the whole package."""
    assert {"__init__.py", "errors.py", "guard/__init__.py"} <= FILES.keys()
    assert len(FILES) > 100


def test_only_dependencies_are_imported() -> None:
    """Modules import only required packages, and those of an extra only in its own part of the package.
    Imports are absolute."""
    strange = {}
    for path in FILES:
        known = {PACKAGE, *sys.stdlib_module_names, *DEPENDENCIES}
        known |= EXTRAS.get(path, set()) | EXTRAS.get(path.partition("/")[0], set())
        strange[path] = {name[0] for name in imports(path)} - known

    assert {path: names for path, names in strange.items() if names} == {}


def test_no_module_goes_through_the_front_door() -> None:
    """Modules import each other directly, not from the top-level package, which imports most of them."""
    inside = {path.partition("/")[0].removesuffix(".py") for path in FILES}
    through = {
        path: ".".join(name)
        for path in FILES
        for name in imports(path)
        if name[0] == PACKAGE and not inside.intersection(name[1:2])
    }

    assert through == {}


def uses_of_a_name(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that use the name of a dialect or an engine in something else than a message."""
    in_messages = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in {"name", "__dialect__"} and id(node) not in in_messages:
            holder = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if node.attr == "__dialect__" or holder.strip("_") in {"dialect", "engine", "impl"}:
                yield node.lineno


def test_no_module_asks_for_the_name_of_a_dialect() -> None:
    """What differs between databases is in ``dialects`` and in the folders of ``migrations``, where a new dialect has
    to answer: a comparison elsewhere gives it the answer of some other database, without an error."""
    own = ("dialects/", "migrations/mysql/", "migrations/postgresql/", "migrations/sqlite/")
    uses = {path: [*uses_of_a_name(tree)] for path, tree in TREES.items() if not path.startswith(own)}

    assert {path: lines for path, lines in uses.items() if lines and path not in NAMES_OF_DIALECTS} == {}
    assert [path for path in NAMES_OF_DIALECTS if not uses[path]] == []


def test_modules_are_small() -> None:
    """No module is longer than 400 lines, docstring included."""
    lengths = {path: len(source.splitlines()) for path, source in FILES.items()}

    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_modules_say_what_they_are() -> None:
    """Each module begins with a docstring."""
    assert [path for path, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_names_of_modules() -> None:
    """No module or folder has a meaningless name, such as utils."""
    assert [path for path in FILES if EMPTY_NAMES.intersection(Path(path).with_suffix("").parts)] == []
