"""A minute of the simulation: ``make simulate`` runs all of it. The page "How it is proven" tells what it simulates."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace

import pytest
from simulation.exploring import faults_of, pair_histories, plain_histories, random_history, shrink, with_every_order
from simulation.histories import History
from simulation.known import RARE
from simulation.running import Result, run
from simulation.storage import FAMILIES

ONE_OF = 25
"""So many faults are left to ``make simulate`` for each that runs here; which ones, the history decides."""


def new_defects(results: Iterable[Result]) -> dict[str, str]:
    """Return each kind of defect that is not known, and a small history that shows it."""
    found: dict[str, History] = {}
    for result in results:
        for kind in result.kinds - RARE.keys() - found.keys():
            found[kind] = shrink(result.history, kind)
    return {kind: history.to_text() for kind, history in found.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_without_errors(family: str) -> None:
    """Every way to write rows keeps all rules while no call fails."""
    assert new_defects(run(history) for _, history in plain_histories(family)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_an_error_at_a_call(family: str) -> None:
    """A call that fails, with any error, before or after its effect, breaks no rule."""

    def results() -> Iterable[Result]:
        for _, history in plain_histories(family):
            for fault in faults_of(run(history)):
                failing = replace(history, faults=(fault,))
                if zlib.crc32(failing.to_text().encode()) % ONE_OF == 0:
                    yield run(failing)

    assert new_defects(results()) == {}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_orders_of_two_sessions(family: str) -> None:
    """Two sessions that draw the same ids break no rule, whoever goes on at their first calls."""
    assert new_defects(result for pair in pair_histories(family) for result in with_every_order(pair, free=3)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_random_histories(first: int) -> None:
    """Random programs, orders and errors break no rule."""
    assert new_defects(run(random_history(seed)) for seed in range(first, first + 250)) == {}


def test_histories_can_be_repeated() -> None:
    """A history makes the same calls again, also if it was written down and read."""
    for seed in range(40):
        history = random_history(seed)
        assert str(run(history).stage) == str(run(History.from_text(history.to_text())).stage)
