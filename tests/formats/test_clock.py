"""The clock of ids that have a time: a test puts another one in its place, for as long as it lasts."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from sqlalchemy_public_id.formats import ObjectId, Snowflake, Ulid, Uuid7, clock
from sqlalchemy_public_id.formats._bits import BitsFormat


class Stopped(clock.Clock):
    """Shows the beginning of a year."""

    def __init__(self, year: int) -> None:
        super().__init__()
        self.year = year

    def time_ns(self) -> int:
        return int(datetime(self.year, 1, 1, tzinfo=timezone.utc).timestamp()) * 10**9


def year_of_ids() -> set[int]:
    formats: list[BitsFormat] = [Ulid(), Uuid7(), Snowflake(1), ObjectId()]
    return {format.timestamp(format.generate()).year for format in formats}


def this_year() -> set[int]:
    return {datetime.now(timezone.utc).year}


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_error_inside(error: type[BaseException]) -> None:
    """A test that fails leaves the clock of the machine to the next one."""
    with pytest.raises(error), clock.using(Stopped(2060)):
        assert year_of_ids() == {2060}
        raise error

    assert year_of_ids() == this_year()


def test_clock_inside_a_clock() -> None:
    """The end of the inner clock, also by an error, brings back the outer one."""
    with clock.using(Stopped(2060)):
        with pytest.raises(ZeroDivisionError), clock.using(Stopped(2050)):
            assert year_of_ids() == {2050}
            raise ZeroDivisionError
        assert year_of_ids() == {2060}

    assert year_of_ids() == this_year()
