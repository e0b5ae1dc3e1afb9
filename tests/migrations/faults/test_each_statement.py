"""A fault at each statement: the same operation, run again, completes, and so does the way back.

On servers, the faults are drawn with a fixed seed; see :mod:`migrations.faults.faults` for how to run them all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle, islice

import pytest
from migrations.faults.faults import EVERY_FAULT, Fault, Kind, failing, faults_at, is_change
from migrations.faults.histories import VARIANTS, Table
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

pytestmark = [pytest.mark.backend(variant=list(VARIANTS) if EVERY_FAULT else ["index"]), pytest.mark.slow]

FEW = 5
"""The number of faults of each kind that are drawn where not all of them run."""


@pytest.fixture
def variant() -> str:
    return "index"


@pytest.fixture
def table(engine: Engine, variant: str) -> Iterator[Table]:
    made = Table(engine, variant)
    yield made
    made.people.drop()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["lost", "interrupted", "lock timeout", "deadlock"])
def test_fault_at_a_statement(table: Table, kind: Kind, variant: str) -> None:
    """After a fault at any statement, old programs can write, and the next run completes the operation, both ways."""
    is_fast = table.engine.name == "sqlite" and variant == "index"
    ups = faults_at(table.up, kind, every=is_fast and kind == "lost", few=50 if is_fast else FEW)
    downs = faults_at(table.down, kind, every=True)

    problems = [
        problem
        for up, down in zip(ups, islice(cycle(downs), len(ups)), strict=True)
        for problem in table.there_and_back(up, down)
    ]

    assert problems == []


@pytest.mark.parametrize("kind", ["lock timeout", "deadlock"])
def test_step_is_tried_again(table: Table, kind: Kind) -> None:
    """A step that meets a lock timeout or a deadlock is tried again, and the operation completes."""
    words = ("ALTER", "CREATE", "DROP INDEX")
    steps = [number for number, statement in enumerate(table.up, 1) if statement.startswith(words)]
    rows = table.rows()

    for number in steps if EVERY_FAULT else random.Random(kind).sample(steps, 2):
        sent = table.run("add_public_id", failing(table.engine, Fault(kind, number)), attempts=2)

        assert (sent.is_hit, table.problems_at_goal({}, rows)) == (True, []), table.up[number - 1]
        table.run("drop_public_id")


def first_change(table: Table) -> int:
    return next(number for number, statement in enumerate(table.up, 1) if is_change(statement))


def test_lost_connection_is_reported(table: Table) -> None:
    """A lost connection raises a DBAPIError with ``connection_invalidated``."""
    with pytest.raises(DBAPIError) as caught:
        table.run("add_public_id", failing(table.engine, Fault("lost", first_change(table))))

    assert caught.value.connection_invalidated


def test_interruption_is_reported(table: Table) -> None:
    """Ctrl-C raises KeyboardInterrupt in the program that runs the migration, past any ``except Exception``."""
    with pytest.raises(KeyboardInterrupt):
        table.run("add_public_id", failing(table.engine, Fault("interrupted", first_change(table))))
