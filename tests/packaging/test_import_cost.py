"""What ``import sqlalchemy_public_id`` loads, counted in modules, because milliseconds differ between machines."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType

import pytest

import sqlalchemy_public_id
from sqlalchemy_public_id import formats

PROGRAM = """
import json, sys, sqlalchemy.orm
before = set(sys.modules)
import sqlalchemy_public_id
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """Return the modules that our package loads and ``sqlalchemy.orm`` does not."""
    command = [sys.executable, "-I", "-c", PROGRAM]
    return list(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def test_few_modules_are_loaded(loaded: list[str]) -> None:
    """The package loads less than a sixth of the 303 modules of sqlalchemy.orm; built-in modules do not count."""
    assert len([name for name in loaded if name not in sys.builtin_module_names]) <= 50


def test_no_other_package_is_loaded(loaded: list[str]) -> None:
    """Besides SQLAlchemy's ORM, only our package is loaded: no driver, no extra, and not ``uuid_utils``."""
    packages = {name.partition(".")[0] for name in loaded}

    assert packages - sys.stdlib_module_names - {"sqlalchemy"} == {"sqlalchemy_public_id"}


def test_little_of_sqlalchemy_is_loaded(loaded: list[str]) -> None:
    """SQLAlchemy's dialects are not loaded before a model is declared or an engine is created.

    The type of keys needs ``sqlalchemy.ext.compiler``, a module of 600 lines, which compiles custom types.
    """
    assert [name for name in loaded if name.startswith("sqlalchemy.")] == ["sqlalchemy.ext", "sqlalchemy.ext.compiler"]


def test_special_parts_are_left_out(loaded: list[str]) -> None:
    """Modules that only some programs need are loaded only when they are imported."""
    parts = {"asyncio", "bulk", "idempotency", "lookup", "references", "testing", "tokens"}

    parts |= {"formats.clock", "formats.snowflake", "formats.uuids"}

    assert {name for name in loaded if name.removeprefix("sqlalchemy_public_id.") in parts} == set()


@pytest.mark.parametrize("module", [sqlalchemy_public_id, formats])
def test_what_is_loaded_on_first_use(module: ModuleType) -> None:
    """Names that are loaded on first use are those of ``__all__``, and a name that does not exist says so."""
    assert {name for name in module.__all__ if not hasattr(module, name)} == set()
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"'{module.__name__}' has no attribute 'Uuid9'"):
        _ = module.Uuid9


MODEL = """
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy_public_id import PublicIdMixin, ImmutablePublicId
class Base(DeclarativeBase): ...
class User(PublicIdMixin, Base): __tablename__ = "user"
engine = create_engine("sqlite://")
Base.metadata.create_all(engine)
assert len(User().public_id) == 12
with Session(engine) as session:
    early, late = User(), User()
    given = early.public_id
    session.add_all([early, late])
    session.flush()
    assert early.public_id == given != late.public_id
    try:
        early.public_id = late.public_id
    except ImmutablePublicId:
        print("works")
"""


def test_a_model_needs_nothing_else() -> None:
    """Importing the mixin is enough for all listeners: ids on first access, ids at the flush, and immutable ids."""
    done = subprocess.run([sys.executable, "-I", "-c", MODEL], check=False, capture_output=True, text=True)

    assert done.stdout.strip() == "works", done.stderr
