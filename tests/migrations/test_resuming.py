"""``kill -9`` while the server waits for a lock: the next run completes, whether or not the server's session goes on.

``faults`` ends the connection after each statement, and ``test_killed_at_random.py`` kills at any moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Engine
from support import killed
from support.connections import kill, monitor, processes
from support.people import People, send
from support.private_servers import wait_until

pytestmark = [pytest.mark.backend, pytest.mark.slow]

ROWS = 60
STEPS = {"expand": "ALTER TABLE", "index": "CREATE UNIQUE INDEX", "contract": "ALTER TABLE", "drop": "ALTER TABLE"}
"""The statement with which the server waits for a lock when the process is killed."""
CASES = [
    ("postgresql", "index"),
    *((database, step) for database in ("postgresql", "mysql", "mariadb") for step in STEPS if step != "index"),
]


def waiting(people: People, statement: str) -> list[int]:
    """Return the ids of the connections whose *statement* waits for a lock."""
    with monitor(people.engine) as connection:
        if people.engine.name == "postgresql":
            query = (
                f"SELECT pid FROM pg_stat_activity WHERE query ~ '^({statement}|DROP)' AND state = 'active' "
                f"AND wait_event_type = 'Lock' AND datname = current_database()"
            )
            return list(send(connection, query).scalars())
        return [
            process.Id
            for process in processes(connection)
            if (process.Info or "").startswith((statement, "DROP")) and (process.State or "").startswith("Waiting for")
        ]


@pytest.mark.parametrize("ended", [True, False], ids=["session ends", "session goes on"])
@pytest.mark.parametrize(("database", "step"), CASES, indirect=["database"])
def test_killed_while_it_waits(new_people: Callable[..., People], engine: Engine, step: str, ended: bool) -> None:
    """After a kill in ALTER or CREATE INDEX, the next run completes, whether or not the server goes on with it."""
    people = new_people(ROWS)
    operation = "drop_public_id" if step == "drop" else "add_public_id"
    if step == "drop":
        people.add()
    elif step != "expand":
        people.run("expand_public_id")
        people.run("backfill_public_id")
    with engine.connect() as other:
        if step == "contract" and engine.name == "postgresql":  # ALTER does not build the index there
            send(other, "CREATE UNIQUE INDEX uq_person_public_id ON person (public_id)")
            other.commit()
        send(other, "UPDATE person SET name = 'x' WHERE id = 1" if step == "index" else "SELECT * FROM person")
        child = killed.start(engine.url, operation, {"lock_timeout": 20})
        wait_until(lambda: bool(waiting(people, STEPS[step])), "the statement")
        sessions = waiting(people, STEPS[step])
        child.kill()
        child.join()
        for session in sessions if ended else ():
            kill(engine, session)
        if step == "index":
            assert (people.state().index, people.state().valid) == (True, False)
        timer = threading.Timer(0.6, other.rollback)
        timer.start()
        people.run(operation)
        timer.join()

    if step == "drop":
        people.check_gone()
    else:
        people.check_complete(ROWS)
