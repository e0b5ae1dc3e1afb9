"""Two migrations of one table: the second one begins just before a step of the first one.

The second migration runs inside a statement of the first one, so that their order is always the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from migrations.faults.faults import meet
from migrations.faults.histories import Table, catalog
from sqlalchemy import Engine
from sqlalchemy.pool import NullPool
from support.people import People

from sqlalchemy_public_id.errors import LockNotAvailable

pytestmark = [pytest.mark.backend, pytest.mark.slow]

STEPS = {
    "sqlite": re.compile("BEGIN"),
    "postgresql": re.compile(r"BEGIN|SET lock_timeout = \d|WITH"),
    "mysql": re.compile("ALTER"),
    "mariadb": re.compile("ALTER"),
}
"""The beginnings of statements before which a migration has read the state of the table, but holds no lock yet."""


@pytest.fixture
def table(engine: Engine) -> Iterator[Table]:
    made = Table(engine)
    yield made
    made.people.drop()


@pytest.fixture
def second(table: Table, new_engine: Callable[..., Engine]) -> People:
    """The table as a second program sees it, whose statements wait for locks only briefly."""
    options: dict[str, Any] = {"sqlite": {"timeout": 0.05}, "postgresql": {"options": "-c lock_timeout=300"}}
    own = options.get(table.engine.name, {})
    return People(new_engine(table.engine.name, table.engine.url, poolclass=NullPool, connect_args=own))


@pytest.mark.parametrize("operation", ["add_public_id", "drop_public_id"])
def test_second_one_between_two_statements(table: Table, second: People, operation: str) -> None:
    """On a server, the second migration waits and changes nothing; on SQLite, it runs between two transactions.

    The first migration completes, and keeps the ids that the second one has given.
    """
    is_back, problems = operation == "drop_public_id", list[str]()
    for number, statement in enumerate(table.down if is_back else table.up, 1):
        if not STEPS[table.engine.name].match(statement):
            continue
        rows, given, errors = table.rows(), dict[int, str](), list[str]()
        if is_back:
            table.run("add_public_id")

        def migrate(cursor: Any, given: dict[int, str] = given, errors: list[str] = errors) -> None:
            before = catalog(table.engine) if table.engine.name != "sqlite" else ""
            try:
                second.run(operation, lock_timeout=0.05, index_timeout=0.1, attempts=1)
                given.update(table.ids())
            except LockNotAvailable as error:
                if error.holder is None or catalog(table.engine) != before:
                    errors.append(str(error))
            else:
                errors += [] if table.engine.name == "sqlite" else ["the second one has not waited"]

        sent, told = table.try_to(operation, meet(table.engine, number, "before", migrate), attempts=3)
        errors += [told] if told else []

        if not sent.is_hit or errors:
            problems.append(f"{number} {statement[:60]!r}: {errors or 'not reached'}")
        problems += table.problems_at_beginning(rows) if is_back else table.problems_at_goal(given, rows)
        if not is_back:
            table.run("drop_public_id")

    assert problems == []
