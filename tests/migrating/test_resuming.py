"""``kill -9`` at every step boundary and in the middle of each step: the next run goes on from there.

The steps are those of the plans themselves: a new step is tested when it is written, and a step that no variant reaches
fails its test.
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
PHASES = {
    "add_public_id": ["expand", "contract"],
    "loosen_public_id": ["relax"],
    "drop_public_id": ["drop"],
}
DIALECTS = {name: make_url(f"{name}://").get_dialect() for name in ("sqlite", "postgresql", "mysql", "mariadb")}
PAIRS = [{}, {"server_default": "drop"}]


def variants(database: str) -> list[dict[str, Any]]:
    return VARIANTS[:2] if database == "sqlite" else VARIANTS  # SQLite changes no collation


def steps(database: str, operation: str, options: dict[str, Any]) -> list[str]:
    dialect = DIALECTS[database]()
    dialect.name = database
    plan = plan_for(PublicIdColumn.of("person", **options), dialect)
    return [step.name for phase in PHASES[operation] for step in getattr(plan, phase)()]


EVERY_STEP = [
    pytest.param(database, operation, step, id=f"{database}-{operation}-{step}")
    for database in DIALECTS
    for operation in PHASES
    for step in dict.fromkeys(name for options in variants(database) for name in steps(database, operation, options))
]
every_step = pytest.mark.parametrize(("database", "operation", "step"), EVERY_STEP, indirect=["database"])


# --- what must be there for a step to be needed


def wrong_collation(people: People) -> None:
    """The column is there, with the collation of the server."""
    people.execute("ALTER TABLE person ADD COLUMN public_id varchar(20)")


def changed_collation(people: People) -> None:
    """The column has got the collation of the server again."""
    verb = "ALTER COLUMN public_id TYPE" if people.engine.name == "postgresql" else "MODIFY COLUMN public_id"
    collate = 'COLLATE "default"' if people.engine.name == "postgresql" else "NOT NULL"
    people.execute(f"ALTER TABLE person {verb} varchar(20) {collate}")


def no_default(people: People) -> None:
    """The column allows NULL already, and nothing makes ids."""
    if people.engine.name in {"mysql", "mariadb"}:
        people.execute("ALTER TABLE person MODIFY COLUMN public_id varchar(20) CHARACTER SET ascii COLLATE ascii_bin")


def constraint(people: People) -> None:
    """The column is unique by a constraint, as another program has made it."""
    if people.engine.name == "postgresql":
        name = "uq_person_public_id"
        people.execute(f"ALTER TABLE person ADD CONSTRAINT {name} UNIQUE USING INDEX {name}")
    else:
        people.drop()
        people.create(ROWS, ", public_id varchar(20) UNIQUE")


BEFORE_STEP = {
    ("add_public_id", "change the collation"): wrong_collation,
    ("loosen_public_id", "set the default"): no_default,
    ("loosen_public_id", "change the collation"): changed_collation,
    ("loosen_public_id", "drop the unique constraint"): constraint,
    ("drop_public_id", "drop the unique constraint"): constraint,
    ("drop_public_id", "copy the table, without the UNIQUE constraint"): constraint,
}


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
        BEFORE_STEP.get((operation, step), lambda people: None)(people)
        engine.dispose()  # SQLite: no connection is left open that the child would have to wait for
        return people

    yield make
    for people in made:
        people.drop()


def finish(people: People, operation: str) -> None:
    """Run the operation again, and look at the end."""
    people.run(operation)
    {
        "add_public_id": lambda: people.check_complete(ROWS),
        "loosen_public_id": people.check_expanded,
        "drop_public_id": people.check_gone,
    }[operation]()
    if operation != "drop_public_id":
        assert len(set(people.ids())) == ROWS


def kill_at(make: Callable[..., People], operation: str, step: str, moment: Callable[..., None]) -> People:
    """Kill *operation* at *step*, with options with which it comes there."""
    for options in VARIANTS:
        if any(step in steps(database, operation, options) for database in DIALECTS if options in variants(database)):
            people = make(operation, options, step)
            if not killed.survives(people.engine.url, operation, options, moment, step):
                return people
    pytest.fail(f"no variant comes to {step!r}: add one to VARIANTS, or what it needs to BEFORE_STEP")


def kill_again(people: People, operation: str, moment: Callable[..., None], *arguments: Any, **options: Any) -> None:
    assert not killed.survives(people.engine.url, operation, people.options, moment, *arguments, **options)


# --- at each step


@every_step
def test_killed_at_a_step(new_people: Callable[..., People], operation: str, step: str) -> None:
    """Killed in a step when the server has done its first statement, then after the step, it goes on from there."""
    people = kill_at(new_people, operation, step, killed.amid)
    kill_again(people, operation, killed.after, step)

    finish(people, operation)


@pytest.mark.parametrize(
    ("database", "operation", "step"),
    [case for case in EVERY_STEP if case.values[0] != "mariadb" and case.values[1] == "add_public_id"],
    indirect=["database"],
)
def test_killed_and_dropped(new_people: Callable[..., People], operation: str, step: str) -> None:
    """Killed in any step on the way up, the way down takes away what there is, and the way up works again."""
    people = kill_at(new_people, operation, step, killed.amid)

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
