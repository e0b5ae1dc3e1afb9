"""While another session holds a lock that a step needs, the operation gives up; after the release, it completes."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from migrations.faults.faults import EVERY_FAULT, meet
from migrations.faults.histories import Table
from sqlalchemy import Engine
from sqlalchemy.pool import NullPool
from support.marks import on
from support.people import send

from conftest import url_of

pytestmark = [pytest.mark.backend, pytest.mark.slow]

PATIENCE = {"lock_timeout": 0.05, "index_timeout": 0.2}
"""Short timeouts; MySQL and MariaDB count in whole seconds, and wait for one."""

LONG = 10.0
"""Seconds after which the lock is released in any case; an operation that still waits for it has no limit."""

_SNAPSHOT = ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM pg_class"]
_BY_TRANSACTIONS = {"reader": ["SELECT count(*) FROM person"], "writer": ["UPDATE person SET age = 7 WHERE id = 1"]}
_OF_MYSQL = {**_BY_TRANSACTIONS, "read lock": ["LOCK TABLES person READ"]}
_EXCLUSIVE = {
    "postgresql": ["LOCK TABLE person"],
    "mysql": ["LOCK TABLES person WRITE"],
    "mariadb": ["LOCK TABLES person WRITE"],
}
"""Statements after which no other session can read the table."""
LOCKS: dict[str, dict[str, list[str]]] = {
    "sqlite": {"reader": ["SELECT id FROM person"], "writer": ["BEGIN IMMEDIATE"]},
    "postgresql": {
        **_BY_TRANSACTIONS,
        "vacuum": ["LOCK TABLE person IN SHARE UPDATE EXCLUSIVE MODE"],
        "index build": ["LOCK TABLE person IN SHARE MODE"],
        "snapshot": _SNAPSHOT,
    },
    "mysql": _OF_MYSQL,
    "mariadb": _OF_MYSQL,
}
"""What another session executes in a transaction that stays open."""

NEEDS_LOCK = re.compile(r"ALTER|CREATE UNIQUE INDEX|DROP INDEX")
"""The statements of servers that need a lock on the table."""


class Holder:
    """Another session, which holds a lock for a while."""

    def __init__(self, engine: Engine) -> None:
        self.connection = engine.connect()
        self.was_waited_for = False

    @contextmanager
    def until_given_up(self) -> Iterator[None]:
        """Release the lock after the block, or after :data:`LONG` if the block waits for the lock."""

        def give_way() -> None:
            self.was_waited_for = True
            self.release()

        self.was_waited_for = False
        timer = threading.Timer(LONG, give_way)
        timer.start()
        yield
        timer.cancel()
        timer.join()
        self.release()

    def take(self, lock: str) -> None:
        name = self.connection.dialect.name
        for statement in _EXCLUSIVE[name] if lock == "exclusive" else LOCKS[name][lock]:
            self.result = send(self.connection, statement)
        if self.result.returns_rows:
            self.result.fetchone()  # SQLite: rows are left to fetch, so the connection keeps its lock

    def release(self) -> None:
        if self.connection.dialect.name in ("mysql", "mariadb"):
            send(self.connection, "UNLOCK TABLES")
        self.result.close()
        self.connection.rollback()


@pytest.fixture
def new_quick_engine(database: str, new_engine: Callable[..., Engine]) -> Callable[..., Engine]:
    """Return a function that creates engines whose connections wait only briefly for locks of SQLite."""
    own = {"timeout": 0.05, "check_same_thread": False} if database == "sqlite" else {}
    return lambda url: new_engine(database, url, poolclass=NullPool, connect_args=own)


@pytest.fixture
def engine(database: str, new_quick_engine: Callable[..., Engine]) -> Engine:
    return new_quick_engine(url_of(database))


@pytest.fixture
def table(engine: Engine) -> Iterator[Table]:
    made = Table(engine)
    yield made
    made.people.drop()


@pytest.fixture
def holder(engine: Engine, new_quick_engine: Callable[..., Engine]) -> Iterator[Holder]:
    made = Holder(new_quick_engine(engine.url))
    yield made
    made.connection.close()


def drawn(places: list[int], few: int, seed: str) -> list[int]:
    """Return a *few* of *places*, or all of them."""
    return places if EVERY_FAULT or len(places) <= few else sorted(random.Random(seed).sample(places, few))


def places(statements: list[str], pattern: str | re.Pattern[str]) -> list[int]:
    """Return the numbers of the statements that begin with *pattern*."""
    return [number for number, statement in enumerate(statements, 1) if re.match(pattern, statement)]


def lock_requests(statements: list[str]) -> list[int]:
    """Return the numbers of the statements that need a lock on the table that their transaction does not hold yet."""
    numbers: list[int] = []
    is_inside = has_lock = False
    for number, statement in enumerate(statements, 1):
        if re.match("BEGIN|COMMIT", statement):
            is_inside, has_lock = statement.startswith("BEGIN"), False
        elif NEEDS_LOCK.match(statement) and not has_lock:
            numbers.append(number)
            has_lock = is_inside
    return numbers


def problems_behind(table: Table, holder: Holder, lock: str, operation: str, number: int) -> list[str]:
    """Run *operation* behind a lock taken before statement *number*, and again without it; return the problems."""
    statement = (table.up if operation == "add_public_id" else table.down)[number - 1]
    rows, problems = table.rows(), list[str]()
    during = meet(table.engine, number, "before", lambda cursor: holder.take(lock))
    with holder.until_given_up():
        sent, told = table.try_to(operation, during, attempts=2 if table.engine.name == "sqlite" else 1, **PATIENCE)
        given = table.ids() if lock != "exclusive" else {}
        if lock == "snapshot":
            table.write()  # no request of the operation is queued ahead of the writers
            rows = table.rows()
    if holder.was_waited_for:
        problems.append("it waited until the lock was gone")
    if told and not told.startswith("LockNotAvailable"):
        problems.append(told)
    if not sent.is_hit:
        problems.append("the operation did not come to it")
    table.run(operation)
    is_back = operation == "drop_public_id"
    problems += table.problems_at_beginning(rows) if is_back else table.problems_at_goal(given, rows)
    return [f"{lock} at {statement[:60]!r}: {problem}" for problem in problems]


def problems_everywhere(table: Table, holder: Holder, lock: str, operation: str, numbers: list[int]) -> list[str]:
    """Run *operation* behind a lock taken at each of *numbers*; return the problems."""
    problems: list[str] = []
    for number in numbers:
        if operation == "drop_public_id":
            table.run("add_public_id")
        problems += problems_behind(table, holder, lock, operation, number)
        if operation == "add_public_id":
            table.run("drop_public_id")
    return problems


on_servers = pytest.mark.parametrize(
    ("database", "lock"),
    [pytest.param(name, lock, id=f"{name}-{lock}") for name in LOCKS if name != "sqlite" for lock in LOCKS[name]],
    indirect=["database"],
)


@on_servers
def test_locked_table(table: Table, holder: Holder, lock: str) -> None:
    """A step that does not get its lock gives up, and a later run completes the operation or the way back."""
    few = 3 if table.engine.name == "postgresql" else 1
    up, down = lock_requests(table.up), lock_requests(table.down)

    problems = problems_everywhere(table, holder, lock, "add_public_id", drawn(up, few, lock))
    problems += problems_everywhere(table, holder, lock, "drop_public_id", drawn(down, 1, lock))

    assert problems == []


@on("postgresql", "mysql", "mariadb")
def test_table_that_nobody_can_read(table: Table, holder: Holder) -> None:
    """While another session locks the table exclusively, the operation gives up after its limit."""
    problems = problems_everywhere(table, holder, "exclusive", "add_public_id", [1])

    assert problems == []


def batches(statements: list[str]) -> list[int]:
    """Return the numbers of the statements that begin the transaction of a batch on SQLite."""
    return [number for number in places(statements, "BEGIN") if re.match("UPDATE|COMMIT", statements[number])]


@on("sqlite")
@pytest.mark.parametrize("operation", ["add_public_id", "drop_public_id"])
def test_writer_of_sqlite(table: Table, holder: Holder, operation: str) -> None:
    """While another connection writes, a step gives up; a later run completes the operation."""
    statements = table.up if operation == "add_public_id" else table.down
    numbers = [number for number in places(statements, "BEGIN") if number not in batches(statements)]

    problems = problems_everywhere(table, holder, "writer", operation, numbers)

    assert problems == []


@on("sqlite")
def test_writer_beside_the_backfill_of_sqlite(table: Table, holder: Holder) -> None:
    """While another connection writes, the backfill gives up after some time; a later run completes it."""
    problems = problems_everywhere(table, holder, "writer", "add_public_id", batches(table.up)[:1])

    assert problems == []


@on("sqlite")
@pytest.mark.parametrize("operation", ["add_public_id", "drop_public_id"])
def test_reader_of_sqlite(table: Table, holder: Holder, operation: str) -> None:
    """While another connection reads, SQLite refuses a COMMIT, and the step gives up."""
    numbers = places(table.up if operation == "add_public_id" else table.down, "COMMIT")

    problems = problems_everywhere(table, holder, "reader", operation, numbers)

    assert problems == []


@on("postgresql")
def test_locked_row(table: Table, holder: Holder) -> None:
    """While another session locks a row, the other rows get ids, and the operation raises BackfillIncomplete."""
    (batch,) = places(table.up, "WITH")
    rows = table.rows()

    sent, told = table.try_to("add_public_id", meet(table.engine, batch, "before", lambda _: holder.take("writer")))
    given = table.ids()
    holder.release()
    table.run("add_public_id")

    assert (sent.is_hit, told.partition(":")[0]) == (True, "BackfillIncomplete"), told
    assert given.keys() == rows.keys() - {1}
    assert table.problems_at_goal(given, rows) == []
