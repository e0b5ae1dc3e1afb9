"""A fault at any call of the write path loses no row, id or error: a sample; ``make simulate`` runs all faults."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

import pytest
from faults.driver import Fault
from faults.histories import histories
from faults.models import Item
from faults.running import Place, Result
from sqlalchemy import Engine, MetaData
from support.marks import before_sqlalchemy, on

EVERY = bool(os.environ.get("PUBLIC_ID_EVERY_FAULT"))
PARTS = 16 if EVERY else 1
"""The number of parts of a simulation, which processes share."""
pytestmark = pytest.mark.backend


@pytest.fixture
def place(
    new_engine: Callable[..., Engine], create_on: Callable[[Engine, MetaData], None], database: str
) -> Iterator[Place]:
    engine = new_engine(database)
    options = {"connect_args": {"timeout": 0}} if database == "sqlite" else {}  # no other connection holds a lock
    create_on(engine, Item.metadata)
    made = Place(lambda: new_engine(database, engine.url, **options), engine)
    yield made
    made.close()


def check(results: Iterable[Result]) -> None:
    """Fail with the first histories that break a rule, and their calls."""
    broken = [str(result) for result in islice((each for each in results if each.violations), 3)]
    assert not broken, "\n\n".join(broken)


def test_without_errors(place: Place) -> None:
    """Every way to write rows keeps all rules if no call fails, and makes the same calls each time."""
    every = [*histories(place.name)]
    check(map(place.run, every))
    assert all(str(place.run(history)) == str(place.run(history)) for history in every[:10])


def test_connection_that_is_lost_after_a_refusal(place: Place) -> None:
    """If the ROLLBACK to the guard's savepoint fails, its error is raised, and not one of closing the cursor."""
    history = next(each for each in histories(place.name) if each.program == "bulk_save - -")
    calls = place.run(history).calls
    insert = next(number for number, call in enumerate(calls) if call.text.startswith("INSERT"))
    faults = Fault(insert, "other unique"), Fault(insert + 1, "lost")
    check([place.run(replace(history, faults=faults))])


@on("mysql", "mariadb")
@pytest.mark.parametrize("trouble", ["limit", "interrupt"])
def test_lock_that_cannot_be_released(place: Place, trouble: str) -> None:
    """If both attempts of ``insert_once()`` to release its lock are interrupted, nobody else gets the connection."""
    history = next(each for each in histories(place.name) if each.program == "once a1")
    release = next(at for at, call in enumerate(place.run(history).calls) if call.text.startswith("DO RELEASE_LOCK"))
    faults = Fault(release, "limit"), Fault(release + 1, trouble)
    check([place.run(replace(history, faults=faults))])


@pytest.mark.parametrize("part", range(PARTS))
def test_an_error_at_a_call(place: Place, part: int) -> None:
    """A call that fails, with any error, before or after its effect, breaks no rule."""

    def results() -> Iterator[Result]:
        for history in islice(histories(place.name), part, None, PARTS):
            one_of = 1 if EVERY else 16 if place.name == "sqlite" or "once" in history.program else 200
            for failing in place.with_a_fault(place.run(history)):
                if zlib.crc32(str(failing).encode()) % one_of == 0:
                    yield place.run(failing)

    check(results())


@pytest.mark.skipif(before_sqlalchemy(2, 0, 58), reason="the error of a connection it has closed hides interruptions")
@pytest.mark.parametrize("part", range(PARTS))
def test_two_errors(place: Place, part: int) -> None:
    """A second error soon after the first one, mostly in a cleanup, breaks no rule."""
    one_of = 50 if EVERY else 1500 if place.name == "sqlite" else 20_000
    chance = random.Random(part)

    def results() -> Iterator[Result]:
        for history in islice(histories(place.name), part, None, PARTS):
            for failing in place.with_a_fault(place.run(history)):
                if chance.randrange(one_of) < 20:
                    result, call = place.run(failing), failing.faults[-1].call
                    for worse in place.with_a_fault(result, call + 1, call + 5):
                        if chance.randrange(20) == 0:
                            yield place.run(worse)

    check(results())
