"""Obstacles are all counted, and found whatever case a name is written in and whatever is complete already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import inspect
from support.marks import on
from support.people import People, migrating, send

from sqlalchemy_public_id.errors import MigrationRefused

pytestmark = pytest.mark.backend


@pytest.fixture
def people(new_people: Callable[..., People]) -> People:
    return new_people(6)


def obstacles(people: People, operation: str = "add_public_id", *pragmas: str, **options: Any) -> dict[str, str]:
    """Return the obstacles of an operation that is refused: code → sentence."""
    with people.engine.connect() as connection:
        for pragma in pragmas:
            send(connection, pragma)
        connection.commit()
        with pytest.raises(MigrationRefused) as caught, migrating(connection) as op:
            people.say(op, operation, **options)
        connection.invalidate()  # with its settings
    return {obstacle.code: str(obstacle) for obstacle in caught.value.obstacles}


# --- counted


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "1 id is not of the format "), (3, "3 ids are not of the format "), (5, "5 ids are not of the format ")],
)
def test_number_of_malformed_ids(people: People, number: int, words: str) -> None:
    """The message has the number of all malformed ids, and the first three of them."""
    people.run("expand_public_id")
    for key in range(1, number + 1):
        people.execute(f"UPDATE person SET public_id = 'bad{key}' WHERE id = {key}")

    sentence = obstacles(people)["invalid-ids"]

    assert words in sentence
    assert [key for key in range(1, 7) if f"'bad{key}'" in sentence] == [*range(1, min(number, 3) + 1)]


@pytest.mark.parametrize(
    ("keys", "words"),
    [([(1, 2, 3)], "1 id is in several rows"), ([(1, 2), (3, 4), (5, 6)], "3 ids are in several rows")],
    ids=["one", "three"],
)
def test_number_of_duplicates(people: People, keys: list[tuple[int, ...]], words: str) -> None:
    """The message has the number of ids that rows share, and not that of the rows."""
    people.run("expand_public_id")
    for letter, group in zip("abc", keys, strict=False):
        people.execute(f"UPDATE person SET public_id = '{letter * 12}' WHERE id IN {group}")

    assert words in obstacles(people)["duplicates"]


# --- in other letters


@on("sqlite", "mysql", "mariadb")
def test_index_in_other_letters(people: People) -> None:
    """An index whose name differs from the wanted one in the case of letters alone has this name."""
    people.execute("ALTER TABLE person ADD COLUMN public_id varchar(12)")
    people.execute("CREATE INDEX UQ_Person_Public_Id ON person (public_id)")

    found = obstacles(people, collation="bytes")

    assert found.keys() == {"wrong-index"}
    assert "UQ_Person_Public_Id, which is not unique" in found["wrong-index"]


@on("sqlite")
@pytest.mark.parametrize("create", ["INDEX UQ_Person_Public_Id ON shelf (place)", "TABLE UQ_PERSON_PUBLIC_ID (place)"])
def test_name_in_other_letters(people: People, create: str) -> None:
    """On SQLite, whose names are those of the whole file, the name in other letters is taken as well."""
    people.execute("CREATE TABLE shelf (place)")
    people.execute(f"CREATE {create}")

    assert obstacles(people).keys() == {"name-taken"}


@on("sqlite")
def test_trigger_in_other_letters(people: People) -> None:
    """A trigger of the table counts if its statement writes the names in other letters."""
    people.execute("CREATE TRIGGER t AFTER UPDATE OF Public_ID ON PERSON BEGIN SELECT 1; END")

    assert obstacles(people).keys() == {"update-triggers"}


# --- of a column that is complete


@on("sqlite")
def test_loosen_with_foreign_keys(people: People) -> None:
    """A complete column has obstacles on its way back: the copy of the table would delete the rows of another one."""
    people.add()
    people.execute("CREATE TABLE card (owner INT REFERENCES person (id) ON DELETE CASCADE)")

    assert obstacles(people, "loosen_public_id", "PRAGMA foreign_keys=ON").keys() == {"foreign-keys"}


@on("postgresql")
def test_check_of_the_name(people: People) -> None:
    """A CHECK of the project with the name of the temporary one is an obstacle, and stays if none is needed."""
    people.execute("ALTER TABLE person ADD CONSTRAINT ck_person_public_id_not_null CHECK (id > 0)")

    assert "RENAME CONSTRAINT ck_person_public_id_not_null" in obstacles(people)["name-taken"]
    people.add(online=False)
    with people.engine.connect() as connection:
        checks = inspect(connection).get_check_constraints("person")
    assert [check["name"] for check in checks] == ["ck_person_public_id_not_null"]
