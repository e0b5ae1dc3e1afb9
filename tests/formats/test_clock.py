"""The clock of formats with timestamps: tests replace it, and patching Python's own clock has no effect."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import partial
from typing import Any

import pytest
from support.clocks import clock_at
from support.every_format import one_of_each

from sqlalchemy_public_id import ConfigurationError, Format, Ksuid, NanoId, ObjectId, Uuid4, Uuid7, testing
from sqlalchemy_public_id.formats._bits import TimedFormat

TIMED: list[Any] = [Uuid7(encoding="hyphenated")]
TIMED += [each for each in one_of_each(prefix="frozen", machine_id=77) if isinstance(each, TimedFormat)]


def beginning_of(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=timezone.utc)


def years_of_ids() -> set[int]:
    return {each.timestamp(made).year for each in TIMED for made in (each.generate(), *each.generate_many(2))}


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_clock_inside_a_clock(error: type[BaseException]) -> None:
    """When an inner clock ends, even by an error, the outer clock applies again, and then the machine's clock."""
    with clock_at(beginning_of(2060)):
        with pytest.raises(error), clock_at(beginning_of(2050)):
            assert years_of_ids() == {2050}
            raise error
        assert years_of_ids() == {2060}

    assert years_of_ids() == {datetime.now(timezone.utc).year}


@pytest.mark.parametrize("format", [*TIMED, NanoId(), Uuid4()], ids=repr)
@pytest.mark.parametrize(("package", "year"), [("freezegun", 1960), ("freezegun", 2040), ("time_machine", 2020)])
def test_frozen_clock(package: str, format: Format, year: int) -> None:
    """With a frozen clock, formats generate unique ids, more than a Snowflake has for one millisecond."""
    library = pytest.importorskip(package)
    freeze = library.freeze_time if package == "freezegun" else partial(library.travel, tick=False)
    before = format.generate()
    with freeze(f"{year}-01-01"):
        ids = format.generate_many(5000)
    after = format.generate()

    assert len({before, *ids, after}) == 5002
    if format.ordered:
        assert [before, *ids, after] == sorted([before, *ids, after])


@pytest.mark.parametrize("format", TIMED, ids=repr)
def test_fixed_time(format: Any) -> None:
    """With a fixed time, ids ascend and have that time; when a millisecond is full, the next one is used."""
    at = datetime(2031, 2, 3, 4, 5, 6, 789_000, tzinfo=timezone.utc)
    before = format.generate()
    with testing.fixed_time(at):
        ids = format.generate_many(5000)
    shown = at.replace(microsecond=0) if isinstance(format, ObjectId | Ksuid) else at

    assert format.timestamp(ids[0]) == shown
    assert 0 <= (format.timestamp(ids[-1]) - shown).total_seconds() < 0.01
    assert ids == sorted(set(ids))
    assert before < format.generate() < ids[0]


@pytest.mark.parametrize("at", [datetime(2030, 1, 1), "2030-01-01", None, 0], ids=repr)
def test_time_without_a_zone(at: Any) -> None:
    """A datetime without a time zone is refused, because its meaning depends on the machine."""
    with pytest.raises(ConfigurationError, match="expected a datetime with a time zone"), testing.fixed_time(at):
        pass
