"""ObjectIds: MongoDB's layout, and its own implementation."""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import pairwise

import pytest
from support.clocks import clock_at
from support.forks import ignore_fork_warning, in_child

from sqlalchemy_public_id import ObjectId

MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def test_another_implementation() -> None:
    """MongoDB's driver reads the same bytes and time, and what it makes is accepted, in capitals too."""
    format = ObjectId()
    bson = pytest.importorskip("bson")
    for text in [*format.generate_many(200), *(str(bson.ObjectId()) for _ in range(200))]:
        other = bson.ObjectId(text)

        assert format.validate(text.upper()) == str(other) == text
        assert int.from_bytes(other.binary, "big") == format.to_int(text)
        assert other.generation_time == format.timestamp(text)


def test_example() -> None:
    """An ObjectId of MongoDB's documentation is accepted for ever."""
    made = ObjectId().timestamp("507f1f77bcf86cd799439011")

    assert made == datetime(2012, 10, 17, 21, 13, 27, tzinfo=timezone.utc)


def test_layout() -> None:
    """Four bytes of seconds, five of the process, three that count."""
    with clock_at(MOMENT):
        numbers = [ObjectId().to_int(text) for text in ObjectId().generate_many(1000)]

    assert numbers[0] >> 64 == int(MOMENT.timestamp())
    assert len({number >> 24 & 2**40 - 1 for number in numbers}) == 1
    counts = [number & 2**24 - 1 for number in numbers]
    assert {(later - sooner) % 2**24 for sooner, later in pairwise(counts)} == {1}


def test_random_start() -> None:
    """Process and counter begin at random."""
    first = []
    for _ in range(50):
        with clock_at(MOMENT):
            first.append(ObjectId().to_int(ObjectId().generate()))

    assert len({number >> 24 & 2**40 - 1 for number in first}) == 50
    assert len({number & 2**24 - 1 for number in first}) > 45


def test_overflow() -> None:
    """When the counter begins again in the same second, the next second begins early, and order is kept."""
    with clock_at(MOMENT) as now:
        ObjectId().generate()
        [sequence] = now._sequences.values()
        sequence._last = (sequence._last | 2**24 - 1) - 2  # type: ignore[attr-defined]
        texts = ObjectId().generate_many(5)

    late = [(ObjectId().timestamp(text) - MOMENT).total_seconds() for text in texts]
    assert late == [0, 0, 1, 1, 1]
    assert texts == sorted(set(texts))


@ignore_fork_warning
def test_a_child_is_another_process() -> None:
    """A forked child draws its own five bytes."""
    mine = ObjectId().generate()
    [of_child] = in_child(lambda: [ObjectId().generate()])

    assert of_child[8:18] != mine[8:18] == ObjectId().generate()[8:18]
