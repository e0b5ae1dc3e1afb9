"""Foreign keys from and to a column of public ids on MySQL and MariaDB: which of them stop which operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.marks import on
from support.people import People

from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table, plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine

pytestmark = [pytest.mark.backend, on("mysql", "mariadb")]

TYPE = "varchar(12) CHARACTER SET ascii COLLATE ascii_bin"
UNIQUE = ", CONSTRAINT uq_person_public_id UNIQUE (public_id)"


@pytest.fixture
def new_tables(new_people: Callable[..., People]) -> Iterator[Callable[..., People]]:
    """Make the table of people between two others: one that it refers to, and one that refers to it."""
    made: list[People] = []

    def make(column: str, more: str = "", action: str = "", *, referred: bool = True) -> People:
        people = new_people(0)
        people.drop()
        for name in ("note", "issued"):
            people.execute(f"DROP TABLE IF EXISTS {name}")
        people.execute(f"CREATE TABLE issued (id {TYPE} NOT NULL PRIMARY KEY)")
        people.execute(f"CREATE TABLE person (id bigint PRIMARY KEY, public_id {TYPE} {column}{more})")
        if referred:
            key = f"CONSTRAINT fk_note FOREIGN KEY (person_id) REFERENCES person (public_id) {action}"
            people.execute(f"CREATE TABLE note (id bigint PRIMARY KEY, person_id {TYPE}, {key})")
        made.append(people)
        return people

    yield make
    for people in made:
        for name in ("note", "person", "issued"):
            people.execute(f"DROP TABLE IF EXISTS {name}")


def dependants(people: People, operation: str, **options: Any) -> list[str]:
    """Return the problems with what depends on the column."""
    with people.engine.connect() as connection:
        plan = plan_for(PublicIdColumn.of("person", **options), connection.dialect)
        obstacles = examine(connection, plan, PHASES[operation]).obstacles
    return [obstacle.problem for obstacle in obstacles if obstacle.code == "dependants"]


@pytest.mark.parametrize("action", ["", "ON DELETE SET NULL"])
def test_keys_to_the_ids(new_tables: Callable[..., People], action: str) -> None:
    """A foreign key to the ids needs the column, its unique index and its type, and nothing else."""
    people, name = new_tables("NOT NULL", UNIQUE, action), "the foreign key fk_note of note"
    other = {"collation": "utf8mb4_bin"}

    assert dependants(people, "drop") == [f"{name} needs the column"]
    assert dependants(people, "loosen") == [f"{name} needs the unique index of the column"]
    assert dependants(people, "loosen", keeps="not null") == [f"{name} needs the unique index of the column"]
    assert dependants(people, "loosen", keeps="unique") == dependants(people, "loosen", keeps="all") == []
    assert dependants(people, "contract") == dependants(people, "expand") == []
    [problem] = dependants(people, "contract", **other)
    assert problem == f"{name} needs the type of the column, whose collation has to change"
    assert dependants(people, "loosen", keeps="unique", **other) == [problem]
    assert dependants(people, "expand", **other) == []


def test_keys_that_another_index_serves(new_tables: Callable[..., People]) -> None:
    """A foreign key does not need the unique index of the library if the column has another one."""
    people = new_tables("NOT NULL", UNIQUE + ", CONSTRAINT their_own UNIQUE (public_id)")

    assert dependants(people, "loosen") == []
    assert dependants(people, "drop") == ["the foreign key fk_note of note needs the column"]


@pytest.mark.parametrize(
    ("action", "sets_null"),
    [("ON DELETE SET NULL", True), ("ON UPDATE SET NULL", True), ("ON DELETE CASCADE", False), ("", False)],
)
def test_keys_of_the_ids(new_tables: Callable[..., People], action: str, sets_null: bool) -> None:
    """A foreign key of the column itself must not set it to NULL, and needs the column, but no unique index."""
    key = f", CONSTRAINT fk_issued FOREIGN KEY (public_id) REFERENCES issued (id) {action}"
    people, name = new_tables("NULL", UNIQUE + key, referred=False), "the foreign key fk_issued of person"

    assert dependants(people, "contract") == (
        [f"{name} sets the column to NULL, which the migration forbids"] if sets_null else []
    )
    assert dependants(people, "expand") == dependants(people, "loosen") == []
    assert dependants(people, "drop") == [f"{name} needs the column"]


def test_wider_indexes(new_tables: Callable[..., People]) -> None:
    """An index with other columns would lose the dropped column; the unique index of the ids is dropped before it."""
    people = new_tables("NOT NULL", ", UNIQUE wide (id, public_id), KEY other (id, id_2), id_2 int", referred=False)
    with_others = PublicIdColumn.of("person", unique_with=("id_2",)).unique_name
    people.execute(f"CREATE UNIQUE INDEX {with_others} ON person (public_id, id_2)")
    lost = "the index {} also contains other columns, and would silently lose this one"

    assert dependants(people, "drop", unique_with=("id_2",)) == [lost.format("wide")]
    assert dependants(people, "drop") == [lost.format(with_others), lost.format("wide")]
    assert dependants(people, "loosen") == dependants(people, "contract") == []


def test_reference_from_another_database(new_people: Callable[..., People]) -> None:
    """A foreign key of a table in another database is found as a reference to the column."""
    people = new_people(0, f", public_id {TYPE} NOT NULL{UNIQUE}")
    own, other = people.engine.url.database, f"{people.engine.url.database}_apart"
    people.execute(f"CREATE DATABASE {other}")
    try:
        refers = f"FOREIGN KEY (person) REFERENCES {own}.person (public_id)"
        people.execute(f"CREATE TABLE {other}.visit (person {TYPE}, {refers})")
        with people.engine.connect() as connection:
            found = live_table(connection, people.target).read_references()
    finally:
        people.execute(f"DROP DATABASE {other}")

    assert found == [(other, "visit", "person")]
