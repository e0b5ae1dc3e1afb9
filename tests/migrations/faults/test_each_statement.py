"""A fault at each statement: the same operation, run again, comes to its goal, and back to its beginning.

On servers, the faults are drawn with a fixed seed; see :mod:`migrations.faults.faults` for how to run them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice

import pytest
from migrations.faults.faults import EVERY_FAULT, Kind, faults_at
from migrations.faults.histories import VARIANTS, Table
from people import People
from sqlalchemy import Engine

pytestmark = [pytest.mark.backend(variant=list(VARIANTS) if EVERY_FAULT else ["index"]), pytest.mark.slow]

FEW = 5
"""The faults that are drawn, of each kind, where not all of them run."""


@pytest.fixture
def variant() -> str:
    return "index"


@pytest.fixture
def table(engine: Engine, variant: str) -> Iterator[Table]:
    if engine.name == "sqlite" and variant == "check digit":
        pytest.skip("SQLite cannot make such ids")
    people = People(engine, **VARIANTS[variant])
    yield Table(people)
    people.drop()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["lost", "interrupted", "lock timeout", "deadlock"])
def test_fault_at_a_statement(table: Table, kind: Kind, variant: str) -> None:
    """After a fault at any statement, old programs write, and the same operation reaches its goal, there and back."""
    is_fast = table.engine.name == "sqlite" and variant == "index"
    ups = faults_at(table.up, kind, every=is_fast and kind == "lost", few=50 if is_fast else FEW)
    downs = faults_at(table.down, kind, every=True)

    problems = [
        problem
        for up, down in zip(ups, islice(cycle(downs), len(ups)), strict=True)
        for problem in table.there_and_back(up, down)
    ]

    assert problems == []
