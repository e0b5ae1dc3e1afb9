"""``kill -9`` in the middle of each step, and of what waits for others: the next run goes on, and the way down works.

The steps are those of the plans themselves: a new step is tested when it is written, and a step that no variant reaches
fails its test. ``faults`` ends the connection after each statement.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import make_url
from support import killed
from support.connections import kill, monitor, processes
from support.marks import on
from support.people import People, send

from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.databases import plan_for

pytestmark = [pytest.mark.backend, pytest.mark.slow]

ROWS = 60
VARIANTS: list[dict[str, Any]] = [
    {"server_default": "drop"},
    {"server_default": "keep"},
    {"collation": "bytes"},
]
DIALECTS = {name: make_url(f"{name}://").get_dialect() for name in ("sqlite", "postgresql", "mysql", "mariadb")}
PAIRS = [{}, {"server_default": "drop"}]


def variants(database: str) -> list[dict[str, Any]]:
    return VARIANTS[:2] if database == "sqlite" else VARIANTS  # SQLite changes no collation


def steps(database: str, options: dict[str, Any]) -> list[str]:
    dialect = DIALECTS[database]()
    dialect.name = database
    plan = plan_for(PublicIdColumn.of("person", **options), dialect)
    return [step.name for _, step in plan.steps_of(["expand", "contract"])]


@pytest.fixture
def new_people(engine: Engine) -> Iterator[Callable[..., People]]:
    """Make the table, as it is before *operation* comes to *step*."""
    made: list[People] = []

    def make(operation: str, options: dict[str, Any], step: str = "") -> People:
        people = People(engine, **options)
        made.append(people)
        people.create(ROWS)
        if operation != "add_public_id":
            people.add()
        if step == "change the collation":
            people.execute("ALTER TABLE person ADD COLUMN public_id varchar(20)")  # with that of the server
        engine.dispose()  # SQLite: no connection is left open that the child would have to wait for
        return people

    yield make
    for people in made:
        people.drop()


def finish(people: People, operation: str) -> None:
    """Run the operation again, and look at the end."""
    people.run(operation)
    if operation == "drop_public_id":
        people.check_gone()
    else:
        people.check_complete(ROWS)


def kill_at(make: Callable[..., People], step: str) -> People:
    """Kill a migration in the middle of *step*, with options with which it comes there."""
    for options in VARIANTS:
        if any(step in steps(database, options) for database in DIALECTS if options in variants(database)):
            people = make("add_public_id", options, step)
            if not killed.survives(people.engine.url, "add_public_id", options, killed.amid, step):
                return people
    pytest.fail(f"no variant comes to {step!r}: add one to VARIANTS")


def kill_again(people: People, operation: str, moment: Callable[..., None], *arguments: Any, **options: Any) -> None:
    assert not killed.survives(people.engine.url, operation, people.options, moment, *arguments, **options)


# --- at each step


@pytest.mark.parametrize(
    ("database", "step"),
    [
        pytest.param(database, step, id=f"{database}-{step}")
        for database in DIALECTS
        for step in dict.fromkeys(name for options in variants(database) for name in steps(database, options))
    ],
    indirect=["database"],
)
def test_killed_and_dropped(new_people: Callable[..., People], step: str) -> None:
    """Killed in any step on the way up, the way down takes away what there is, and the way up works again."""
    people = kill_at(new_people, step)

    people.run("drop_public_id")

    people.check_gone()
    people.add()
    people.check_complete(ROWS)


def test_killed_in_the_backfill(new_people: Callable[..., People]) -> None:
    """Killed before, in and after batches, the backfill goes on with the rows that are left, and leaves the others."""
    people = new_people("add_public_id", {})
    ends = 1 if people.engine.name == "sqlite" else 0  # elsewhere a batch commits by itself

    filled: dict[int, str | None] = {}
    for moment, number, batches in (
        (killed.before_batch, 1, [0]),
        (killed.amid_batch, 1, [1 - ends]),
        (killed.after_batch, 1, [2 - ends]),
        (killed.before_batch, 2, [3 - ends]),
        (killed.amid_batch, 2, [5 - 2 * ends]),
    ):
        kill_again(people, "add_public_id", moment, number, batch=5)
        now = {key: id for key, id in enumerate(people.ids()) if id is not None}
        assert filled.items() <= now.items()
        assert [len(now)] == [number * 5 for number in batches], moment
        filled = now
        people.engine.dispose()

    finish(people, "add_public_id")
    assert filled.items() <= dict(enumerate(people.ids())).items()


# --- really in the middle, while the server waits for others


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
    people = new_people("add_public_id", options)
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
    people = new_people(operation, {})
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
