"""``kill -9`` at random moments of a migration: inside steps, batches and the build of the index."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine
from support import killed
from support.connections import monitor, processes
from support.marks import on
from support.people import People, send

# The number of kills is fixed: on a busy machine, twenty rounds on MySQL took five minutes.
pytestmark = [pytest.mark.backend, pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS, ROUNDS = 20_000, 20
DOUBLINGS, BUILD_ROUNDS = 3, 6
BUILDS = """
SELECT 1 FROM pg_stat_activity
WHERE query LIKE 'CREATE UNIQUE INDEX %' AND state = 'active' AND datname = current_database()
"""


def is_building(connection: Connection) -> bool:
    """Return True while the server builds the index, or on MySQL and MariaDB copies the table."""
    if connection.dialect.name == "postgresql":
        return send(connection, BUILDS).first() is not None
    return any("alter" in (process.State or "") for process in processes(connection))


@pytest.fixture
def people(engine: Engine) -> Iterator[People]:
    made = People(engine)
    made.create(ROWS)
    yield made
    made.drop()


def seconds(people: People, operation: str) -> float:
    """Return how long an undisturbed run in a child process takes."""
    began = time.monotonic()
    assert killed.survives(people.engine.url, operation, {})
    return time.monotonic() - began


def kill_within(people: People, operation: str, longest: float, **options: Any) -> None:
    """Begin *operation* in a child process, and kill the process at a random moment."""
    child = killed.start(people.engine.url, operation, options, batch=1000)
    time.sleep(random.uniform(0, longest))
    child.kill()  # it may have ended already
    child.join()
    people.engine.dispose()


def test_there_and_back(people: People) -> None:
    """After each kill, old programs can write, and the next run of the operation, or of the way back, completes."""
    longest = {operation: seconds(people, operation) for operation in ("add_public_id", "drop_public_id")}
    for number in range(1, ROUNDS + 1):
        kill_within(people, "add_public_id", longest["add_public_id"])
        people.write(1)
        if number % 2:
            people.run("drop_public_id")
            people.check_gone()
        people.add()
        people.check_complete(ROWS + number)
        kill_within(people, "drop_public_id", longest["drop_public_id"])
        people.run("drop_public_id")
        people.check_gone()


@on("postgresql", "mysql", "mariadb")
def test_long_builds(people: People) -> None:
    """After a kill during the build of a large index, which the server may continue, the next run completes it."""
    for _ in range(DOUBLINGS):
        people.execute("INSERT INTO person (name) SELECT name FROM person")
    people.add()
    longest, killed_builds = 0.1, 0
    with monitor(people.engine) as connection:
        for _ in range(BUILD_ROUNDS):
            people.run("loosen_public_id")
            child = killed.start(people.engine.url, "contract_public_id", {})
            while child.is_alive() and not is_building(connection):
                time.sleep(0.002)
            time.sleep(random.uniform(0, longest))
            child.kill()
            killed_builds += is_building(connection)  # the server continues for a moment
            child.join()
            people.write(1)
            began = time.monotonic()
            people.run("contract_public_id")
            longest = max(longest, (time.monotonic() - began) / 2)
            assert people.state().complete
    people.check_complete(ROWS * 2**DOUBLINGS + BUILD_ROUNDS)
    assert killed_builds
