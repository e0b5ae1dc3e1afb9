"""A new format, option or framework has all the places that CONTRIBUTING.md lists: a test names each forgotten one."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.public_modules import PUBLIC, SOURCE, modules_of

import sqlalchemy_public_id
from sqlalchemy_public_id import Format, formats
from sqlalchemy_public_id.formats.parse import known_formats

ROOT = Path(__file__).parents[2]
DRIVERS = {"aiomysql", "aiosqlite", "asyncmy", "asyncpg", "mysql", "postgresql"}
"""Extras that install a driver, which SQLAlchemy imports."""
LISTS = "(?ms)^## Add an? .*?(?=^## |\\Z)"


def pyproject() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11")
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings


def extras_named(path: Path) -> set[str]:
    """Return the extras that the code in *path* tells a user to install."""
    named = set()
    for call in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id in ("require", "MissingExtra")
        ):
            values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "extra")]
            if isinstance(values[-1], ast.Constant):
                named.add(str(values[-1].value))
    return named


def test_places_exist() -> None:
    """Each file and folder that the lists of CONTRIBUTING.md name exists."""
    lists = re.findall(LISTS, (ROOT / "CONTRIBUTING.md").read_text())
    named = {each for text in lists for each in re.findall(r"`([\w./-]+(?:/|\.\w+))`", text)}
    folders = (ROOT, ROOT / ".github", SOURCE, SOURCE.parent)

    assert named
    assert [each for each in sorted(named) if not any((folder / each).exists() for folder in folders)] == []


# --- a format


def test_formats_are_exported() -> None:
    """Each class of a format that is defined in ``formats/`` is in its ``__all__``."""
    made = set()
    for path in (SOURCE / "formats").glob("[!_]*.py"):
        module = importlib.import_module(f"sqlalchemy_public_id.formats.{path.stem}")
        classes = {value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, Format)}
        made |= {
            value.__name__ for value in classes if value.__module__ == module.__name__ and value.__name__[0] != "_"
        }

    forgotten = sorted(made - {"SingleId"} - known_formats().keys())
    assert not forgotten, f"formats/__init__.py: add {forgotten} to __all__, _MODULES and the imports for type checkers"


@pytest.mark.parametrize("name", known_formats())
def test_places_of_a_format(name: str) -> None:
    """The front door, the type checkers, the documentation and the example of the helpdesk know each format."""
    typed = {path: (SOURCE / path).read_text() for path in ("__init__.py", "formats/__init__.py")}
    wanted = {
        "__init__.py: __all__ and _NAMES": name in sqlalchemy_public_id.__all__,
        **{
            f"{path}: an import": bool(re.search(rf"^ *from .* import .*\b{name}\b", typed[path], re.M))
            for path in typed
        },
        "docs/guides/choosing-a-format.md: a row of the first table": f"\n| `{name}("
        in (ROOT / "docs/guides/choosing-a-format.md").read_text(),
        "docs/databases.md: the table of server defaults": f"`{name}`" in (ROOT / "docs/databases.md").read_text(),
        "CHANGELOG.md: the list of formats": f"`{name}`" in (ROOT / "CHANGELOG.md").read_text(),
        "examples/helpdesk/formats.py: FORMATS": f"{name}(" in (ROOT / "examples/helpdesk/formats.py").read_text(),
        "tests/browser/test_calculator.py: FORMATS (and docs/_static/calculator.js)": name == "Snowflake"
        or f"({name}(" in (ROOT / "tests/browser/test_calculator.py").read_text(),
        "tests/formats/test_issued_ids.py: ISSUED": f"({name}("
        in (ROOT / "tests/formats/test_issued_ids.py").read_text(),
    }

    assert [f"{place} lacks {name}" for place, has in wanted.items() if not has] == []
    assert getattr(sqlalchemy_public_id, name) is getattr(formats, name)


# --- a framework


def test_extras() -> None:
    """Each extra that an error tells a user to install is in pyproject.toml, and each extra there is in an error."""
    named = {extra for path in SOURCE.rglob("*.py") for extra in extras_named(path)}
    extras = pyproject()["project"]["optional-dependencies"].keys()

    assert not named - extras, f"pyproject.toml: add {sorted(named - extras)} to [project.optional-dependencies]"
    unnamed = extras - named - DRIVERS
    assert not unnamed, f"no module is imported under require() of the extras {sorted(unnamed)} of pyproject.toml"


@pytest.mark.parametrize("module", modules_of("ext"))
def test_places_of_a_framework(module: str) -> None:
    """The import contract, the policy, the reference and a guide know each module for a framework."""
    path = SOURCE / f"{module[1:].replace('.', '/')}.py"
    contracts = {each["name"]: each for each in pyproject()["tool"]["importlinter"]["contracts"]}
    forbidden = contracts["the library needs no extra"]["forbidden_modules"]
    guides = "".join(page.read_text() for page in (ROOT / "docs/guides").glob("*.md"))
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    required = extras_named(path)
    wanted = {
        "require() in the module": bool(required),
        "pyproject.toml: forbidden_modules of 'the library needs no extra'": required <= {*forbidden},
        ".github/SECURITY.md: the list of public modules": f"`{module[1:]}`"
        in (ROOT / ".github/SECURITY.md").read_text(),
        "docs/reference/web.md: an automodule": f":: sqlalchemy_public_id{module}\n" in pages,
        "docs/reference/index.md: the table": f"`{module[1:]}`" in pages,
        "docs/guides: a page with an example": f"sqlalchemy_public_id{module} import" in guides,
        "CHANGELOG.md: a line": path.stem in (ROOT / "CHANGELOG.md").read_text().lower(),
    }

    assert [f"{place} lacks {module[1:]}" for place, has in wanted.items() if not has] == []


def test_public_modules_have_all_names() -> None:
    """Each public module says in ``__all__`` which of its names are public."""
    missing = [
        each for each in PUBLIC if not hasattr(importlib.import_module(f"sqlalchemy_public_id{each}"), "__all__")
    ]

    assert missing == [], f"these modules have no __all__, on Python {sys.version_info[:2]}"
