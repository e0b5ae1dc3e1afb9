"""ULIDs: the specification, and another implementation."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from sqlalchemy_public_id import Ulid
from sqlalchemy_public_id.formats import clock

MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Still(clock.Clock):
    """A clock that stands still."""

    def time_ns(self) -> int:
        return int(MOMENT.timestamp()) * 10**9


def test_example() -> None:
    """The example of the specification is accepted; capitals and small letters are one."""
    assert Ulid().validate("01ARZ3NDEKTSV4RRFFQ69G5FAV") == "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert Ulid().validate("01arz3ndektsv4rrffq69g5fav") == "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_largest() -> None:
    """The largest ULID of the specification is accepted, and the next text is not."""
    assert Ulid().to_int("7ZZZZZZZZZZZZZZZZZZZZZZZZZ") == 2**128 - 1
    assert not Ulid().is_valid("80000000000000000000000000")


def test_ours_to_others() -> None:
    """Another implementation reads the same number and time."""
    ulid, format = pytest.importorskip("ulid"), Ulid()
    for text in format.generate_many(200):
        other = ulid.ULID.from_str(text)

        assert int(other) == format.to_int(text)
        assert abs(other.datetime - format.timestamp(text)) < timedelta(milliseconds=1)


def test_others_to_ours() -> None:
    """What another implementation makes is accepted as it is."""
    ulid, format = pytest.importorskip("ulid"), Ulid()
    for _ in range(200):
        other = ulid.ULID()

        assert format.validate(str(other)) == str(other)
        assert format.from_int(int(other)) == str(other)


def test_a_moment() -> None:
    """Within a millisecond ids ascend by steps that cannot be guessed, and tell that millisecond."""
    format = Ulid()
    with clock.using(Still()):
        texts = format.generate_many(10_000)
    numbers = [format.to_int(text) for text in texts]
    steps = {later - sooner for sooner, later in pairwise(numbers)}

    assert min(steps) > 0
    assert len(steps) == 9_999
    assert {format.timestamp(text) for text in texts} == {MOMENT}


@pytest.mark.parametrize("random_bits", [57, 58])
def test_overflow(random_bits: int) -> None:
    """A millisecond that is full is followed by the next one, ahead of the clock, and order is kept."""
    with clock.using(Still()):
        numbers = [clock.ascending(random_bits) for _ in range(1000)]
    times = {number >> random_bits for number in numbers}

    assert numbers == sorted(set(numbers))
    assert len(times) > 100
    assert max(times) - min(times) == len(times) - 1
