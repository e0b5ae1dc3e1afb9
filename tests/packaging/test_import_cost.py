"""What ``import sqlalchemy_public_id`` loads, counted in modules: unlike milliseconds, they are the same everywhere."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys, sqlalchemy.orm
before = set(sys.modules)
import sqlalchemy_public_id
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """The modules that our package loads, and sqlalchemy.orm does not."""
    command = [sys.executable, "-I", "-c", PROGRAM]
    return list(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def test_few_modules_are_loaded(loaded: list[str]) -> None:
    """Less than a fifth of what sqlalchemy.orm loads, 303 modules; built-in modules cost nothing."""
    assert len([name for name in loaded if name not in sys.builtin_module_names]) <= 55


def test_no_other_package_is_loaded(loaded: list[str]) -> None:
    """Beside SQLAlchemy's ORM, our own package is loaded, and what makes UUIDs: no driver, and none of the extras."""
    packages = {name.partition(".")[0] for name in loaded}

    assert {"sqlalchemy_public_id", "uuid_utils"} == packages - sys.stdlib_module_names - {"sqlalchemy"}


def test_little_of_sqlalchemy_is_loaded(loaded: list[str]) -> None:
    """SQLAlchemy's dialects are loaded when a model is declared or an engine made, and not before.

    The type of keys needs one module, of 600 lines, with which an application compiles a type of its own.
    """
    assert [name for name in loaded if name.startswith("sqlalchemy.")] == ["sqlalchemy.ext", "sqlalchemy.ext.compiler"]


def test_special_parts_are_left_out(loaded: list[str]) -> None:
    """What only some programs need is loaded when they import it."""
    parts = {"asyncio", "bulk", "idempotency", "lookup", "references", "testing", "tokens"}

    assert {name for name in loaded if name.removeprefix("sqlalchemy_public_id.") in parts} == set()


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
    """A program that imports the mixin alone has all listeners: ids on first access, at the flush, and immutable."""
    done = subprocess.run([sys.executable, "-I", "-c", MODEL], check=False, capture_output=True, text=True)

    assert done.stdout.strip() == "works", done.stderr
