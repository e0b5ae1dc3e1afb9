"""Load the library into another project's suite: models with public ids, all its listeners, a guard on every engine.

Suites remove all ORM listeners between tests, as SQLAlchemy's own fixtures do. So this plugin records the listeners
that the library adds to classes, and restores the missing ones before each test. A run without a working library would
prove nothing, so the plugin flushes a row at the end, and reports the number of lost listeners.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, ForeignKey, create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

import sqlalchemy_public_id
from sqlalchemy_public_id import NanoId, PublicIdMixin, guard, public_ref
from sqlalchemy_public_id.keys import BlockAllocator, block_key

VARIABLE = "PUBLIC_ID_LOADED"
"""The environment variable that names the file for the facts of the run: one line of JSON for each process."""

_listeners: list[tuple[type, str, Callable[..., Any], dict[str, Any]]] = []
_facts: dict[str, object] = {"library": sqlalchemy_public_id.__file__, "engines": 0, "revived": 0, "works": False}


def map_models() -> Any:
    """Map models that need every class-level listener of the library, and return one of them."""

    class Base(DeclarativeBase): ...

    class Author(PublicIdMixin, Base):
        __tablename__ = "public_id_outside_author"
        __public_id__ = NanoId(prefix="outside")

    class Book(PublicIdMixin, Base):
        __tablename__ = "public_id_outside_book"
        author_id: Mapped[int] = mapped_column(BigInteger, ForeignKey(Author.id))
        author: Mapped[Author] = relationship()
        author_public_id: Mapped[str] = public_ref("author")

    class Visit(Base):
        __tablename__ = "public_id_outside_visit"
        id: Mapped[int] = block_key(BlockAllocator(create_engine("sqlite:///visits.db"), "visit"))  # never connected

    Base.registry.configure(cascade=True)  # only this base: suites leave models behind that cannot be configured
    return Author


def activate() -> None:
    """Let the library add its listeners, and record those on SQLAlchemy's own classes."""
    listen = event.listen

    def note(target: Any, name: str, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        listen(target, name, function, *args, **options)
        if isinstance(target, type) and target.__module__.startswith("sqlalchemy."):
            _listeners.append((target, name, function, options))

    event.listen = note
    try:
        map_models()
    finally:
        event.listen = listen


def revive() -> int:
    """Add the removed listeners again, and return their number."""
    gone = [listener for listener in _listeners if not event.contains(*listener[:3])]
    for target, name, function, options in gone:
        event.listen(target, name, function, **options)
    return len(gone)


def guard_engine(dialect: type[DefaultDialect], engine: Engine) -> None:
    """Guard an engine that was just created. This replaces SQLAlchemy's hook for dialects, ``engine_created``."""
    guard.install(engine)
    _facts["engines"] += 1


def flush_row() -> bool:
    """Return True if a new row gets its public id in a flush."""
    author = map_models()
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        author.metadata.create_all(session.connection())
        row = author()
        session.add(row)
        session.flush()
        works = str(row.public_id).startswith("outside_")
    engine.dispose()
    return works


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Restore listeners before the fixtures of the suite run, which may map classes."""
    _facts["revived"] += revive()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report whether the library worked to the end."""
    if path := os.environ.get(VARIABLE):
        revive()
        try:
            _facts["works"] = flush_row()
        except Exception as error:  # the suite left something behind that breaks the library
            _facts["error"] = repr(error)
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(_facts) + "\n")


activate()
DefaultDialect.engine_created = classmethod(guard_engine)
