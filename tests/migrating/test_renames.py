"""Renamed tables and columns: function, trigger and index are recognized by what they are, not by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from support.marks import on
from support.people import People, send

pytestmark = pytest.mark.backend


@pytest.fixture
def renamed(engine: Engine, database: str) -> Iterator[Callable[..., People]]:
    """Make a table with public ids, rename it, and return it under its new name."""
    made: list[People] = []

    def make(**options: Any) -> People:
        before, after = People(engine, **options), People(engine, table="human", **options)
        made.extend((before, after))
        after.drop()
        before.create(10)
        before.add()
        before.execute("ALTER TABLE person RENAME TO human")
        return after

    yield make
    for people in reversed(made):
        people.drop()


def generators(engine: Engine) -> list[str]:
    """The names of functions and triggers that generate ids."""
    queries = {
        "postgresql": "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    }
    with engine.connect() as connection:
        query = queries.get(
            engine.name, "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()"
        )
        return [name for name in send(connection, query).scalars() if "public_id" in name]


def test_drop(renamed: Callable[..., People], engine: Engine) -> None:
    """After a rename, the way down removes column, index, default and what it calls."""
    people = renamed()

    people.run("drop_public_id")

    assert people.columns() == ["id", "name"]
    assert generators(engine) == []
    people.write(1)
    people.add()
    assert people.state().nullable is False


@on("postgresql", "mysql", "mariadb")
def test_drop_of_the_default(renamed: Callable[..., People], engine: Engine) -> None:
    """After a rename, the default is recognized as one of this library, and dropped with what it calls."""
    people = renamed()

    people.add(server_default="drop")

    state = people.state()
    assert state.default is None
    assert state.complete
    assert generators(engine) == []


@on("postgresql")
def test_renamed_column(renamed: Callable[..., People], engine: Engine) -> None:
    """A renamed column keeps its default, and is dropped with the function."""
    people = renamed()
    people.execute("ALTER TABLE human RENAME COLUMN public_id TO slug")
    people.column = "slug"

    people.run("drop_public_id")

    assert people.columns() == ["id", "name"]
    assert generators(engine) == []


@on("sqlite")
def test_view_on_sqlite(renamed: Callable[..., People]) -> None:
    """A view that needs the column ends the drop, and the index stays."""
    people = renamed()
    people.execute("CREATE VIEW shown AS SELECT public_id FROM human")
    with pytest.raises(Exception, match="shown"):
        people.run("drop_public_id")

    with people.engine.connect() as connection:
        assert send(connection, "SELECT name FROM sqlite_master WHERE name = 'uq_person_public_id'").scalar()
    people.execute("DROP VIEW shown")
    people.run("drop_public_id")
    assert people.columns() == ["id", "name"]
