"""``kill -9`` at random moments of a migration: inside steps, batches and the build of the index."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from migrations import killed
from people import People
from sqlalchemy import Engine

pytestmark = [pytest.mark.backend, pytest.mark.slow]

ROWS, ROUNDS = 20_000, 20


@pytest.fixture
def people(engine: Engine) -> Iterator[People]:
    made = People(engine)
    made.create(ROWS)
    yield made
    made.drop()


def seconds(people: People, operation: str) -> float:
    """Return how long an undisturbed run in a child takes."""
    began = time.monotonic()
    assert killed.survives(people.engine.url, operation, {})
    return time.monotonic() - began


def kill_within(people: People, operation: str, longest: float, **options: Any) -> None:
    """Begin *operation* in a child, and kill the child at a random moment."""
    child = killed.start(people.engine.url, operation, options, batch=1000)
    time.sleep(random.uniform(0, longest))
    child.kill()  # it may have ended
    child.join()
    people.engine.dispose()


def test_there_and_back(people: People) -> None:
    """After each kill, old programs write, and the same operation comes to its end, there and back."""
    longest = {operation: seconds(people, operation) for operation in ("add_public_id", "drop_public_id")}
    for number in range(1, ROUNDS + 1):
        kill_within(people, "add_public_id", longest["add_public_id"])
        people.write(1)
        people.add()
        people.check_complete(ROWS + number)
        kill_within(people, "drop_public_id", longest["drop_public_id"])
        people.run("drop_public_id")
        people.check_gone()


def test_exchange_of_the_unique_index(people: People) -> None:
    """After each kill, the column is unique, and the exchange of its index comes to its end, there and back."""
    old, new = {"unique": "constraint", "unique_name": "old_name"}, {"unique": "index", "unique_name": "new_name"}
    people.add(**old)
    began = time.monotonic()
    people.run("contract_public_id", **new, replaces="old_name")
    longest = time.monotonic() - began + 0.5  # for the start of the child
    wanted = [{**old, "replaces": "new_name"}, {**new, "replaces": "old_name"}]
    taken = people.ids()[0]
    for number in range(ROUNDS // 2):
        options = wanted[number % 2]
        kill_within(people, "contract_public_id", longest, **options)
        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            people.execute(f"INSERT INTO person (name, public_id) VALUES ('twin', '{taken}')")
        people.run("contract_public_id", **options)
        state = People(people.engine, **options).state()
        assert (state.valid, state.replaced) == (True, None)
