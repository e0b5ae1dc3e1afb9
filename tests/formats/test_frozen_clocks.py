"""Ids while a test has frozen the time of Python, and afterwards; and ids of a fixed time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from typing import Any

import pytest

from sqlalchemy_public_id import ConfigurationError, Format, NanoId, ObjectId, Snowflake, Ulid, Uuid4, Uuid7, testing
from sqlalchemy_public_id.formats import JetifyTypeId

freezegun = pytest.importorskip("freezegun")
time_machine = pytest.importorskip("time_machine")

FROZEN: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "freezegun": freezegun.freeze_time,
    "time-machine": lambda at: time_machine.travel(at, tick=False),
}
TIMED: list[Any] = [Uuid7(), Uuid7(encoding="hyphenated"), JetifyTypeId("frozen"), Ulid(), Snowflake(77), ObjectId()]


@pytest.mark.parametrize("format", [*TIMED, NanoId(), Uuid4()], ids=repr)
@pytest.mark.parametrize("freeze", FROZEN.values(), ids=FROZEN)
@pytest.mark.parametrize("year", [1960, 2020, 2040])
def test_frozen_clock(freeze: Callable[[str], AbstractContextManager[Any]], format: Format, year: int) -> None:
    """Formats work in a frozen time, more ids than a Snowflake has for a millisecond, and after it."""
    before = format.generate()
    with freeze(f"{year}-01-01"):
        ids = format.generate_many(5000)
    after = format.generate()

    assert len({before, *ids, after}) == 5002
    if format.ordered:
        assert [before, *ids, after] == sorted([before, *ids, after])


@pytest.mark.parametrize("format", TIMED, ids=repr)
def test_time_of_the_machine(format: Any) -> None:
    """The time in an id is that of the machine, whatever Python's clock shows."""
    now = datetime.now(timezone.utc)
    with freezegun.freeze_time("2040-01-01"):
        text = format.generate()

    assert abs((format.timestamp(text) - now).total_seconds()) < 60


@pytest.mark.parametrize("format", TIMED, ids=repr)
def test_fixed_time(format: Any) -> None:
    """With a fixed time, ids have it, in the order of their generation; a full millisecond is followed by the next."""
    at = datetime(2031, 2, 3, 4, 5, 6, 789_000, tzinfo=timezone.utc)
    before = format.generate()
    with testing.fixed_time(at):
        ids = format.generate_many(5000)
    shown = at.replace(microsecond=0) if isinstance(format, ObjectId) else at

    assert format.timestamp(ids[0]) == shown
    assert 0 <= (format.timestamp(ids[-1]) - shown).total_seconds() < 0.01
    assert ids == sorted(set(ids))
    assert before < format.generate() < ids[0]


@pytest.mark.parametrize("at", [datetime(2030, 1, 1), "2030-01-01", None, 0], ids=repr)
def test_time_without_a_zone(at: Any) -> None:
    """A time without a zone is refused: it is another moment on another machine."""
    with pytest.raises(ConfigurationError, match="expected a datetime with a time zone"), testing.fixed_time(at):
        pass
