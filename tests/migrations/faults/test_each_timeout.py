"""An operation completes for a role whose statements and waits are limited; if need be, it lifts the limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from migrations.faults.faults import meet
from migrations.faults.histories import Table, operations
from sqlalchemy import Connection, Engine
from support.people import People, send

pytestmark = [pytest.mark.backend, pytest.mark.slow]

BUSY = 0.6
"""Seconds for which another session keeps its lock: longer than each limit that can be below one second."""

LIMITS: dict[str, dict[str, str]] = {
    "postgresql": {
        "statement_timeout": "300",
        "lock_timeout": "300",
        "idle_in_transaction_session_timeout": "100",
        "idle_session_timeout": "5000",
    },
    "mysql": {"max_execution_time": "300", "lock_wait_timeout": "1", "innodb_lock_wait_timeout": "1"},
    "mariadb": {"max_statement_time": "0.3", "lock_wait_timeout": "1", "innodb_lock_wait_timeout": "1"},
}
"""Settings that a role can have, and small values of them."""


@pytest.fixture
def table(engine: Engine) -> Iterator[Table]:
    made = Table(engine)
    yield made
    made.people.drop()


def value(connection: Connection, name: str) -> Any:
    is_postgresql = connection.dialect.name == "postgresql"
    return send(connection, f"SHOW {name}" if is_postgresql else f"SELECT @@SESSION.{name}").scalar()


@contextmanager
def busy(table: Table) -> Iterator[Callable[[Any], None]]:
    """Yield a function that lets another session change a row, and keep its transaction open for :data:`BUSY`."""
    with table.engine.connect() as other:
        timer = threading.Timer(BUSY, other.rollback)

        def begin(cursor: Any) -> None:
            send(other, "UPDATE person SET age = age + 1 WHERE id = 1")
            timer.start()

        yield begin
        timer.join()


STEPS = {
    "postgresql": ("ALTER TABLE", "CREATE UNIQUE INDEX"),
    "mysql": ("ALTER TABLE person ADD COLUMN", "ALTER TABLE person ADD UNIQUE"),
}
"""The beginnings of the statements that have to wait."""

CASES = [
    pytest.param(database, limit, step, id=f"{database}-{limit}-{step}")
    for database in LIMITS
    for limit in LIMITS[database]
    for step in STEPS.get(database, STEPS["mysql"])
]


@pytest.mark.parametrize(("database", "limit", "step"), CASES, indirect=["database"])
def test_limited_role(table: Table, new_engine: Callable[..., Engine], limit: str, step: str) -> None:
    """The operation waits for its lock, whatever the limit, and completes; afterwards, the limit is unchanged."""
    name = table.engine.name
    setting = f"{limit}={LIMITS[name][limit]}"
    own = {"options": f"-c {setting}"} if name == "postgresql" else {"init_command": f"SET {setting}"}
    limited = new_engine(name, table.engine.url, connect_args=own)
    rows = table.rows()
    place = next(number for number, statement in enumerate(table.up, 1) if statement.startswith(step))

    with limited.connect() as connection:
        before = value(connection, limit)
        connection.rollback()
        with busy(table) as begin, meet(limited, place, "before", begin) as sent, operations(connection) as op:
            People(limited).say(op, "add_public_id", lock_timeout=5)
        after = value(connection, limit)
        connection.rollback()

    assert (sent.is_hit, after) == (True, before)
    assert table.problems_at_goal({}, rows) == []
