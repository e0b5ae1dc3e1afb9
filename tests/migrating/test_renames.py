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


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("column", ["public_id", "slug"])
def test_default(renamed: Callable[..., People], column: str) -> None:
    """After a rename of the table, and of the column, the default is recognized as one of this library, and dropped."""
    people = renamed()
    if column != "public_id":
        people.execute(f"ALTER TABLE human RENAME COLUMN public_id TO {column}")
        people.column = column

    people.add(server_default="drop")

    assert people.state().default is None
    assert people.state().complete


def test_drop(renamed: Callable[..., People], engine: Engine) -> None:
    """After a rename, the way down removes column, index, default and what it calls."""
    people = renamed()

    people.run("drop_public_id")

    assert people.columns() == ["id", "name"]
    assert generators(engine) == []
    people.write(1)
    people.add()
    assert people.state().nullable is False


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
