"""``kill -9`` while the server waits for others: whether its session goes on or not, the next run goes on from there.

``faults`` ends the connection after each statement, and ``test_killed_at_random.py`` kills at any moment.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine
from support import killed
from support.connections import kill, monitor, processes
from support.marks import on
from support.people import People, send

pytestmark = [pytest.mark.backend, pytest.mark.slow]

ROWS = 60
PAIRS = [{}, {"server_default": "drop"}]


def finish(people: People, operation: str) -> None:
    """Run the operation again, and look at the end."""
    people.run(operation)
    if operation == "drop_public_id":
        people.check_gone()
    else:
        people.check_complete(ROWS)


def wait_until(true: Callable[[], Any], seconds: float = 15) -> Any:
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)
    return found


def waiting(people: People, statement: str) -> list[int]:
    """Return the connections of the server whose *statement* waits for a lock."""
    with monitor(people.engine) as connection:
        if people.engine.name == "postgresql":
            query = (
                f"SELECT pid FROM pg_stat_activity WHERE query LIKE '{statement}%' AND state = 'active' "
                f"AND wait_event_type = 'Lock' AND datname = current_database()"
            )
            return list(send(connection, query).scalars())
        return [
            process.Id
            for process in processes(connection)
            if process.db == people.engine.url.database
            and (process.Info or "").startswith(statement)
            and (process.State or "").startswith("Waiting for")
        ]


def end_sessions(people: People, sessions: list[int]) -> None:
    for session in sessions:
        kill(people.engine, session)


@on("postgresql")
@pytest.mark.parametrize("ended", [True, False], ids=["session ends", "session goes on"])
@pytest.mark.parametrize("options", PAIRS, ids=str)
def test_killed_while_the_index_is_built(
    new_people: Callable[..., People], engine: Engine, options: dict[str, Any], ended: bool
) -> None:
    """Killed in CREATE INDEX CONCURRENTLY, whether the server goes on with it or not, there is one good index."""
    people = new_people(ROWS, **options)
    people.run("expand_public_id")
    people.run("backfill_public_id")
    with engine.connect() as other:
        send(other, "UPDATE person SET name = 'x' WHERE id = 1")
        child = killed.start(engine.url, "contract_public_id", options)
        sessions = wait_until(lambda: waiting(people, "CREATE UNIQUE INDEX"))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        if ended:
            end_sessions(people, sessions)
        assert people.state().index
        assert not people.state().valid
        timer = threading.Timer(0.6, other.rollback)
        timer.start()
        finish(people, "add_public_id")
        timer.join()


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("ended", [True, False], ids=["session ends", "session goes on"])
@pytest.mark.parametrize("phases", [0, 1, 2], ids=["expand", "contract", "drop"])
def test_killed_while_it_waits_for_a_lock(
    new_people: Callable[..., People], engine: Engine, phases: int, ended: bool
) -> None:
    """Killed while ALTER waits, whether the server goes on waiting or not, the next run comes to the end."""
    operation = "drop_public_id" if phases == 2 else "add_public_id"
    people = new_people(ROWS)
    if operation == "drop_public_id":
        people.add()
    if phases == 1:
        people.run("expand_public_id")
        people.run("backfill_public_id")
        if engine.name == "postgresql":  # where the index is not built by ALTER
            send_in_autocommit(people, "CREATE UNIQUE INDEX uq_person_public_id ON person (public_id)")
    with engine.connect() as other:
        send(other, "SELECT * FROM person")
        child = killed.start(engine.url, operation, {"lock_timeout": 20})
        sessions = wait_until(lambda: waiting(people, "ALTER TABLE") or waiting(people, "DROP"))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        if ended:
            end_sessions(people, sessions)
        timer = threading.Timer(0.6, other.rollback)
        timer.start()
        finish(people, operation)
        timer.join()


def send_in_autocommit(people: People, statement: str) -> None:
    with people.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        send(connection, statement)
