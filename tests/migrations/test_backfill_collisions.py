"""A backfill whose ids collide: the batch is rolled back, and the number of retries is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from support.people import People, send

import sqlalchemy_public_id.migrations.backfill
from sqlalchemy_public_id import NanoId, PublicIdCollision, backfill, testing

pytestmark = pytest.mark.backend

MODULE: Any = sqlalchemy_public_id.migrations.backfill
A, B = "a" * 12, "b" * 12


@pytest.fixture
def people(engine: Engine) -> Iterator[People]:
    """Four rows, the first of which has an id, and a unique index."""
    people = People(engine)
    people.create(4)
    people.execute("ALTER TABLE person ADD COLUMN public_id varchar(12)")
    people.execute("CREATE UNIQUE INDEX uq_person_public_id ON person (public_id)")
    people.execute(f"UPDATE person SET public_id = '{A}' WHERE id = 1")
    yield people
    people.drop()


@pytest.mark.parametrize("begins", [True, False], ids=["BEGIN", "no BEGIN"])
@pytest.mark.parametrize("taken", [1, 5])
def test_collision_in_the_transaction_of_the_caller(people: People, taken: int, begins: bool) -> None:
    """A batch that collides leaves nothing behind, and the caller's transaction continues with its other work."""
    format = NanoId()
    with people.engine.connect() as connection:
        if begins and people.engine.name == "sqlite":
            send(connection, "BEGIN")
        send(connection, "UPDATE person SET name = 'before'")
        with testing.fixed_ids(format, B, *[A] * taken):
            progress = backfill.run(connection, "person", format=format)
        send(connection, "INSERT INTO person (name) VALUES ('after')")
        connection.commit()

    *ids, last = people.ids()
    assert (progress.filled, progress.finished) == (3, True)
    assert (ids[0], last) == (A, None)
    assert len(set(ids)) == 4
    assert None not in ids


def test_collision_and_rollback_of_the_caller(people: People) -> None:
    """The caller can roll back a backfill that has collided, together with everything else."""
    format = NanoId()
    with people.engine.connect() as connection:
        send(connection, "UPDATE person SET name = 'before'")
        with testing.fixed_ids(format, B, A):
            backfill.run(connection, "person", format=format)
        connection.rollback()

    assert people.ids() == [A, None, None, None]


def test_bound_of_the_repetitions(people: People, monkeypatch: pytest.MonkeyPatch, statements: list[str]) -> None:
    """A row for which no id is free is tried once, and then retried ``MAX_RETRIES`` times."""
    monkeypatch.setattr(MODULE, "MAX_RETRIES", 20)
    people.execute("UPDATE person SET public_id = 'a' WHERE id = 1")
    statements.clear()

    with pytest.raises(PublicIdCollision, match=r"person\.public_id: no free public id in 20 attempts"):
        backfill.run(people.engine, "person", format=NanoId(length=1, alphabet="a"))

    assert sum("UPDATE person" in each for each in statements) == 1 + 20


def test_facts_of_a_collision(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the table, the column, the format, the number of retries and that of possible ids as attributes."""
    monkeypatch.setattr(MODULE, "MAX_RETRIES", 3)
    people.execute("ALTER TABLE person ADD COLUMN number varchar(12)")
    people.execute("CREATE UNIQUE INDEX of_number ON person (number)")
    format = NanoId(length=1, alphabet="ab")

    with pytest.raises(PublicIdCollision) as caught:
        backfill.run(people.engine, "person", "number", format=format)

    error = caught.value
    facts = error.model, error.column, error.format, error.attempts, error.capacity
    assert facts == ("person", "number", format, 3, 2)
