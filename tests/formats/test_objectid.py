"""ObjectIds: MongoDB's layout, and its own implementation."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest

from sqlalchemy_public_id import ObjectId
from sqlalchemy_public_id.formats import clock

MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Still(clock.Clock):
    """A clock that stands still."""

    def time_ns(self) -> int:
        return int(MOMENT.timestamp()) * 10**9


def test_ours_to_others() -> None:
    """MongoDB's driver reads the same bytes and time."""
    bson = pytest.importorskip("bson")
    for text in ObjectId().generate_many(200):
        other = bson.ObjectId(text)

        assert str(other) == text
        assert int.from_bytes(other.binary, "big") == ObjectId().to_int(text)
        assert other.generation_time == ObjectId().timestamp(text)


def test_others_to_ours() -> None:
    """What MongoDB's driver makes is accepted."""
    bson = pytest.importorskip("bson")
    for _ in range(200):
        other = bson.ObjectId()

        assert ObjectId().validate(str(other)) == str(other)
        assert ObjectId().timestamp(str(other).upper()) == other.generation_time


def test_layout() -> None:
    """Four bytes of seconds, five of the process, three that count."""
    with clock.using(Still()):
        numbers = [ObjectId().to_int(text) for text in ObjectId().generate_many(1000)]

    assert numbers[0] >> 64 == int(MOMENT.timestamp())
    assert len({number >> 24 & 2**40 - 1 for number in numbers}) == 1
    counts = [number & 2**24 - 1 for number in numbers]
    assert {(later - sooner) % 2**24 for sooner, later in pairwise(counts)} == {1}


def test_random_start() -> None:
    """Process and counter begin at random."""
    first = []
    for _ in range(50):
        with clock.using(Still()):
            first.append(ObjectId().to_int(ObjectId().generate()))

    assert len({number >> 24 & 2**40 - 1 for number in first}) == 50
    assert len({number & 2**24 - 1 for number in first}) > 45


def test_overflow() -> None:
    """When the counter begins again in the same second, the next second begins early, and order is kept."""
    with clock.using(Still()) as now:
        ObjectId().generate()
        [sequence] = now._sequences.values()
        sequence._last = (sequence._last | 2**24 - 1) - 2  # type: ignore[attr-defined]
        texts = ObjectId().generate_many(5)

    late = [(ObjectId().timestamp(text) - MOMENT).total_seconds() for text in texts]
    assert late == [0, 0, 1, 1, 1]
    assert texts == sorted(set(texts))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_is_another_process(tmp_path: Path) -> None:
    """A forked child draws its own five bytes."""
    mine = ObjectId().generate()
    child = os.fork()
    if child == 0:
        (tmp_path / "id").write_text(ObjectId().generate())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

    assert (tmp_path / "id").read_text()[8:18] != mine[8:18]
    assert ObjectId().generate()[8:18] == mine[8:18]


def test_example() -> None:
    """An ObjectId of MongoDB's documentation is accepted for ever."""
    made = ObjectId().timestamp("507f1f77bcf86cd799439011")

    assert made == datetime(2012, 10, 17, 21, 13, 27, tzinfo=timezone.utc)
    assert timedelta(0) == made.utcoffset()
