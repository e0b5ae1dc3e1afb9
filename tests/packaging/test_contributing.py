"""A new format, option or framework has all the places that CONTRIBUTING.md lists: a test names each forgotten one."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.public_modules import SOURCE, modules_of

import sqlalchemy_public_id
from sqlalchemy_public_id import ConfigurationError, Format, backfill, formats
from sqlalchemy_public_id.alembic import AddPublicIdOp
from sqlalchemy_public_id.formats.parse import known_formats
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import HOLDERS, Pace, describe_options

ROOT = Path(__file__).parents[2]
PACKAGE = "src/sqlalchemy_public_id"
DRIVERS = {"aiomysql", "aiosqlite", "asyncmy", "asyncpg", "mysql", "postgresql"}
"""Extras that install a driver, which SQLAlchemy imports."""
PLACES_OF_A_FORMAT = {
    f"{PACKAGE}/__init__.py": r'^    from \S+ import .*\b<name>\b[\s\S]*^    "<name>",$[\s\S]*^_NAMES[\s\S]*"<name>"',
    f"{PACKAGE}/formats/__init__.py": r'^    from \S+ import .*\b<name>\b[\s\S]*^    "<name>",$[\s\S]*^    "<name>": ',
    "docs/guides/choosing-a-format.md": r"^\| `<name>\(",
    "docs/databases.md": r"`<name>`",
    "CHANGELOG.md": r"^- Formats: [^.]*`<name>`",
    "examples/helpdesk/formats.py": r"^    .*: <name>\(",
    "tests/browser/test_calculator.py": r"^    \(<name>\(",
    "tests/formats/test_issued_ids.py": r"^    \(<name>\(",
    "tests/migrations/test_server_defaults.py": r"^    <name>\(",
    "tests/types/test_storage.py": r"^    .*: <name>\(",
}
"""File → what it contains about a format. The test of the calculator needs ``docs/_static/calculator.js``."""
LEFT_OUT = {
    (f"{PACKAGE}/__init__.py", "NanoId"),  # is imported at once
    (f"{PACKAGE}/formats/__init__.py", "NanoId"),
    ("tests/migrations/test_server_defaults.py", "NanoId"),  # has a test of its own
    ("tests/types/test_storage.py", "NanoId"),  # is in every other test
    ("docs/databases.md", "Uuid4"),  # is called a UUID
    ("docs/databases.md", "Uuid7"),
    ("tests/browser/test_calculator.py", "Snowflake"),  # whose times depend on the epoch
    ("README.md", "pydantic"),  # which fastapi and sqlmodel install
    ("tests/ext/test_strangers.py", "pydantic"),  # answers no request
    ("tests/ext/test_strangers.py", "sqlmodel"),  # FastAPI answers
}
PLACES_OF_A_FRAMEWORK = {
    ".github/SECURITY.md": "`ext.<name>`",
    "docs/reference/web.md": r"^\.\. automodule:: sqlalchemy_public_id\.ext\.<name>$",
    "docs/reference/index.md": "`ext.<name>`",
    "CHANGELOG.md": "(?i)^- .*<name>",
    "README.md": "^pip install .*<name>",
    "tests/support/shop_services.py": r"sqlalchemy_public_id\.ext(\.| import )<name>\b",
    "tests/ext/test_strangers.py": r"sqlalchemy_public_id\.ext(\.| import )<name>\b",
}


def forgotten(places: dict[str, str], name: str) -> list[str]:
    """Return the files of *places* that do not contain *name*."""
    missing = [
        path
        for path, pattern in places.items()
        if not re.search(pattern.replace("<name>", name), (ROOT / path).read_text(), re.MULTILINE)
    ]
    return [f"add {name} to {path}: see CONTRIBUTING.md" for path in missing if (path, name) not in LEFT_OUT]


def pyproject() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11")
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings


def package_in(requirement: str) -> str:
    """Return the name of the package that a *requirement* asks for."""
    return re.split(r"[^\w.-]", requirement)[0].lower()


def calls_in(path: Path) -> dict[str, str]:
    """Return package → extra of the calls in *path* that tell a user what to install."""
    told = {}
    for call in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id in ("require", "MissingExtra")
        ):
            values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "extra")]
            names = [str(value.value) for value in values if isinstance(value, ast.Constant)]
            if names:
                told[names[0]] = names[-1]
    return told


def test_places_are_listed() -> None:
    """CONTRIBUTING.md names each place of a format and of a framework, and only files that exist."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    lists = dict(re.findall(r"(?ms)^## Add an? (\w+)$(.*?)(?=^## |\Z)", text))
    named = {name: {*re.findall(r"`([\w./-]+\.\w+)`", lists[name])} for name in ("format", "option", "framework")}
    known = {path.removeprefix("src/sqlalchemy_public_id/") for path in PLACES_OF_A_FORMAT}

    assert known - {path.removeprefix("src/sqlalchemy_public_id/") for path in named["format"]} == set()
    assert PLACES_OF_A_FRAMEWORK.keys() - named["framework"] == set()
    files = sorted(path for paths in named.values() for path in paths)
    assert [path for path in files if not (ROOT / path).exists() and not (SOURCE / path).exists()] == []


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

    missing = sorted(made - {"SingleId"} - known_formats().keys())
    assert not missing, f"add {missing} to __all__ of {PACKAGE}/formats/__init__.py: see CONTRIBUTING.md"


@pytest.mark.parametrize("name", known_formats())
def test_places_of_a_format(name: str) -> None:
    """The packages, the documentation, its calculator and the demo know each format."""
    missing = forgotten(PLACES_OF_A_FORMAT, name)

    assert not missing, "\n".join(missing)
    assert getattr(sqlalchemy_public_id, name) is getattr(formats, name)


# --- an option


DATABASES = sorted(path.parent.name for path in SOURCE.glob("migrations/*/__init__.py"))


@cache
def attributes_read() -> dict[str, set[str]]:
    """Return the names of the attributes that the code of migrations reads, but for the module of the options.

    The key is the folder of a database, and ``""`` for what all databases share.
    """
    shared = [*SOURCE.glob("migrations/*.py"), *SOURCE.glob("alembic/**/*.py"), SOURCE / "backfill.py"]
    places = {"": shared, **{name: [*SOURCE.glob(f"migrations/{name}/*.py")] for name in DATABASES}}
    return {place: set().union(*map(_read_in, paths)) for place, paths in places.items()}


def _read_in(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text())) if path.name != "consent.py" else ()
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


@pytest.mark.parametrize("name", describe_options())
def test_option_is_used(name: str) -> None:
    """Each option of the operations is a field of a dataclass, or of the operation itself, and some module reads it."""
    held = {field.name for holder in (PublicIdColumn, *HOLDERS) for field in fields(holder)}

    assert name in held, f"add {name} to a dataclass of HOLDERS in {PACKAGE}/migrations/consent.py"
    assert name in set.union(*attributes_read().values()), f"{name} has no effect: no module of migrations reads it"


def test_option_is_used_on_each_database() -> None:
    """What one database reads, every other one reads or refuses, or the modules of all databases do."""
    read = attributes_read()
    partly = describe_options().keys() & set.union(*read.values()) - read[""]
    silent = {folder: missing for folder in DATABASES if (missing := sorted(partly - read[folder]))}

    assert not silent, (
        f"these options have no effect, and say nothing: {silent}; read them in the folder of each database, or in a "
        f"module of {PACKAGE}/migrations that refuses them there"
    )


@pytest.mark.parametrize("name", describe_options())
def test_option_is_checked(name: str) -> None:
    """Each option refuses an object that nobody can mean, and the error names the option."""
    given: Any = {name: object()}
    with pytest.raises(ConfigurationError) as caught:
        AddPublicIdOp("invoice", **given)

    assert name in str(caught.value), f"check {name} where {PACKAGE}/migrations/consent.py holds it"


@pytest.mark.parametrize("holder", HOLDERS)
def test_fields_are_options(holder: type[Any]) -> None:
    """Each field of the dataclasses that hold options is an option."""
    missing = {field.name for field in fields(holder)} - describe_options().keys()

    assert not missing, f"add {missing} to Options in {PACKAGE}/migrations/consent.py"


@pytest.mark.parametrize("holder", HOLDERS)
def test_flags_are_checked(holder: type[Any]) -> None:
    """Each option that is True or False refuses the text ``"false"``, which would count as true."""
    flags = [field.name for field in fields(holder) if describe_options()[field.name].type is bool]
    for name in flags:
        with pytest.raises(ConfigurationError, match=f"{name} is 'false', expected True or False"):
            holder(**{name: "false"})


def test_backfill_takes_its_options() -> None:
    """``backfill.run()`` takes each option of the speed of a backfill, as the operations do."""
    missing = {field.name for field in fields(Pace)} - inspect.signature(backfill.run).parameters.keys()

    assert not missing, f"add {missing} to run() in {PACKAGE}/migrations/backfill.py"


# --- a framework


def test_extras() -> None:
    """Each extra that an error tells a user to install is in pyproject.toml, and each extra there is in an error."""
    told = {extra for path in SOURCE.rglob("*.py") for extra in calls_in(path).values()}
    extras = pyproject()["project"]["optional-dependencies"].keys()

    assert not told - extras, f"add {sorted(told - extras)} to [project.optional-dependencies] of pyproject.toml"
    untold = sorted(extras - told - DRIVERS)
    assert not untold, f"no module has require() for the extras {untold} of pyproject.toml: see CONTRIBUTING.md"


def test_extras_are_installed_by_the_gate() -> None:
    """The group ``gate``, with which no test is skipped, has each package that an extra installs."""
    settings = pyproject()
    groups, extras = settings["dependency-groups"], settings["project"]["optional-dependencies"]

    def packages_of(group: str) -> set[str]:
        parts = groups[group]
        included = [packages_of(part["include-group"]) for part in parts if isinstance(part, dict)]
        return {package_in(part) for part in parts if isinstance(part, str)}.union(*included)

    needed = {package_in(line): name for name, lines in extras.items() for line in lines}
    missing = sorted(needed.keys() - packages_of("gate") - {"sqlalchemy-public-id"})
    assert not missing, f"add {missing} to the group gate of pyproject.toml: its tests would be skipped"


@pytest.mark.parametrize("module", modules_of("ext"))
def test_places_of_a_framework(module: str) -> None:
    """The import contract, the policy, the documentation and the changelog know each module for a framework."""
    name = module.rpartition(".")[2]
    required = calls_in(SOURCE / "ext" / f"{name}.py").keys()
    contracts = {each["name"]: each for each in pyproject()["tool"]["importlinter"]["contracts"]}
    contracted = {*contracts["the library needs no extra"]["forbidden_modules"]}
    guides = "".join(page.read_text() for page in (ROOT / "docs/guides").glob("*.md"))
    missing = forgotten(PLACES_OF_A_FRAMEWORK, name)
    missing += [f"add {each} to 'the library needs no extra' in pyproject.toml" for each in required - contracted]
    if f"sqlalchemy_public_id.ext.{name} import" not in guides:
        missing.append(f"add an example with ext.{name} to a page of docs/guides")

    assert required, f"import the framework under require() in {PACKAGE}/ext/{name}.py"
    assert not missing, "\n".join(missing)


def test_modules_for_an_async_session() -> None:
    """Each module of ``asyncio`` is in the reference."""
    reference = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    missing = [each for each in modules_of("asyncio") if f":: sqlalchemy_public_id{each}\n" not in reference]

    assert not missing, f"add an automodule of {missing} to docs/reference/sessions.md"
