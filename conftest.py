"""Every example of the README, the documentation and the docstrings is a test (collected by Sybil)."""

from __future__ import annotations

import gc
from doctest import ELLIPSIS
from importlib.util import find_spec
from typing import Any

import pytest
from sqlalchemy import Engine, String, create_engine
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column
from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers import markdown, rest
from sybil.sybil import SybilCollection

from sqlalchemy_public_id import PublicIdMixin


def as_a_program(names: dict[str, Any]) -> None:
    """Let a page be one program, which a reader may copy into a file and run."""
    names["__name__"] = "__main__"


def with_a_stored_user(names: dict[str, Any]) -> None:
    """Provide docstrings with a model ``User``, and a ``session`` on a database that holds one user."""

    class Base(DeclarativeBase): ...

    class User(PublicIdMixin, Base):
        __tablename__ = "user"
        name = mapped_column(String(50))  # no annotation: SQLAlchemy would look its names up in tests/conftest.py

    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    session = Session(engine)
    session.add(User(public_id="izkpm55j334u", name="Ada"))
    session.commit()
    names.update(
        User=User, session=session, engine=engine, _session=session, _engine=engine
    )  # again, because an example may say "engine = ..."


def close(names: dict[str, Any]) -> None:
    """Close what the examples of a file have left open, and release their types: two pages may use the same prefix."""
    for session in [value for value in names.values() if isinstance(value, Session)]:
        session.close()
    for engine in [value for value in names.values() if isinstance(value, Engine)]:
        engine.dispose()
    names.clear()
    while gc.collect():  # a class may become garbage only after another one is collected
        pass


FENCES = [markdown.PythonCodeBlockParser(doctest_optionflags=ELLIPSIS)]
DOCSTRINGS = [rest.DocTestParser(optionflags=ELLIPSIS), rest.PythonCodeBlockParser()]

APART = ["guides/history-and-listeners.md", "guides/graphql.md", "tutorial/a-service.md"]
"""Pages that change SQLAlchemy for the whole process, consist of several files, or need more packages;
tests/packaging and tests/neighbours run them."""

EXAMPLES = SybilCollection(
    (
        Sybil(FENCES, pattern="*.md", exclude="*/*", setup=as_a_program, teardown=close),
        Sybil(FENCES, path="docs", pattern="*.md", excludes=APART, setup=as_a_program, teardown=close),
        Sybil(DOCSTRINGS, path="src", pattern="*.py", setup=with_a_stored_user, teardown=close),
    )
)

pytest_collect_file = EXAMPLES.pytest()
collect_ignore = ["docs/_build"]

NEEDS = {"litestar": "litestar", "keyed.py": "ffx", "KeyedStep(": "ffx"}
"""A word in an example, or in the name of its file → the module of another package that the example imports."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the examples that need an extra that is not installed."""
    missing = {word: module for word, module in NEEDS.items() if find_spec(module) is None}
    for item in items if missing else ():
        if isinstance(item, SybilItem):
            example = item.example
            text = f"{item.nodeid}\n{example.document.text[example.start : example.end]}"
            for module in {module for word, module in missing.items() if word in text}:
                item.add_marker(pytest.mark.skip(reason=f"could not import {module!r}"))
