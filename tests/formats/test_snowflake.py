"""Snowflakes: layout, the clock, machine ids."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from sqlalchemy_public_id import ConfigurationError, Snowflake
from sqlalchemy_public_id.errors import ClockMovedBack, KeySpaceExhausted
from sqlalchemy_public_id.formats import clock
from sqlalchemy_public_id.formats.snowflake import EPOCH

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Hands(clock.Clock):
    """A clock that is set by hand, and goes on by itself only while someone sleeps."""

    def __init__(self, at: datetime = START) -> None:
        super().__init__()
        self.now = round(at.timestamp() * 1000)
        self.slept = 0

    def time_ns(self) -> int:
        return self.now * 10**6

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.now += round(seconds * 1000)


def parts(text: str) -> tuple[int, int, int]:
    """Time, machine and count."""
    number = int(text)
    return number >> 22, number >> 12 & 1023, number & 4095


def test_layout() -> None:
    """41 bits of milliseconds since the epoch, 10 of the machine, 12 that count from zero."""
    with clock.using(Hands()) as hands:
        ids = Snowflake(machine_id=1023).generate_many(3)

    assert [parts(id) for id in ids] == [(hands.milliseconds() - EPOCH, 1023, count) for count in range(3)]


def test_twitters_layout() -> None:
    """With Twitter's epoch, the time of one of its ids is right."""
    twitter = Snowflake(machine_id=0, epoch=1288834974657)

    assert twitter.timestamp("1541815603606036480".zfill(19)) == datetime(
        2022, 6, 28, 16, 7, 40, 105_000, tzinfo=timezone.utc
    )


@pytest.mark.parametrize("text", ["0000000000000000000", "9223372036854775807", "0911979869129158656"])
def test_texts_for_ever(text: str) -> None:
    """Ids are 19 digits with zeros in front, and those of all machines are accepted."""
    assert Snowflake(machine_id=5).validate(text) == text


def test_epoch() -> None:
    """A datetime and its milliseconds are one epoch."""
    twin = Snowflake(1, datetime(2024, 1, 1, tzinfo=timezone.utc))

    assert (
        twin
        == Snowflake(1, 1_704_067_200_000)
        == Snowflake(1, datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    )
    assert repr(twin) == "Snowflake(machine_id=1, epoch=1704067200000)"
    assert Snowflake(1) == Snowflake(1, datetime(2020, 1, 1, tzinfo=timezone.utc))


@pytest.mark.parametrize("epoch", [datetime(2024, 1, 1), -1, 1.5, True, None, "2024-01-01", 2**50])
def test_refused_epochs(epoch: object) -> None:
    """A time without a zone, or none at all, is refused."""
    with pytest.raises(ConfigurationError, match="expected a datetime with a time zone, or milliseconds since 1970"):
        Snowflake(1, epoch)  # type: ignore[arg-type]


@pytest.mark.parametrize("machine_id", [-1, 1024, True, None, "1", 1.0])
def test_refused_machine_ids(machine_id: object) -> None:
    """A machine id is a number from 0 to 1023, also where a function answers it."""
    with pytest.raises(ConfigurationError, match="expected a whole number from 0 to 1023"):
        Snowflake(machine_id)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="expected a whole number from 0 to 1023"):
        Snowflake(lambda: machine_id).generate()  # type: ignore[arg-type,return-value]


def test_used_up() -> None:
    """After 4096 ids of one millisecond, the next one is waited for."""
    with clock.using(Hands()) as hands:
        assert isinstance(hands, Hands)
        ids = Snowflake(2).generate_many(3 * 4096)

        assert hands.slept == 2
    assert set(Counter(parts(id)[0] for id in ids).values()) == {4096}
    assert ids == sorted(set(ids))


def test_really_used_up() -> None:
    """The same with the clock of this machine: no more than 4096 in any millisecond."""
    ids = Snowflake(2).generate_many(30_000)

    assert max(Counter(parts(id)[0] for id in ids).values()) <= 4096
    assert ids == sorted(set(ids))


def test_a_little_back() -> None:
    """While the clock is a little behind, ids go on, and wait for it when the count is used up."""
    with clock.using(Hands()) as hands:
        assert isinstance(hands, Hands)
        first = Snowflake(2).generate()
        hands.now -= 100
        rest = Snowflake(2).generate_many(5000)

        assert hands.slept >= 1
        assert hands.now == round(START.timestamp() * 1000) + 1
    assert [first, *rest] == sorted({first, *rest})


def test_far_back() -> None:
    """Where the clock is further behind, there is no id until it has caught up."""
    format = Snowflake(2)
    with clock.using(Hands()) as hands:
        assert isinstance(hands, Hands)
        first = format.generate()
        hands.now -= 101
        with pytest.raises(ClockMovedBack) as raised:
            format.generate()
        hands.now += 101

        assert format.generate() > first
    assert (raised.value.behind, raised.value.tolerance) == (0.101, 0.1)


def test_the_last_day() -> None:
    """The last of 2**41 milliseconds has ids, and after it there are none."""
    format = Snowflake(2)
    with clock.using(Hands()) as hands:
        assert isinstance(hands, Hands)
        hands.now = EPOCH + 2**41 - 1
        assert len({format.generate() for _ in range(4096)}) == 4096
        assert format.timestamp(format.from_int(2**63 - 1)).year == 2089
        with pytest.raises(KeySpaceExhausted, match=r"used up since 2089-09-06"):
            format.generate()


def test_before_the_epoch() -> None:
    """Before the epoch there are no ids."""
    with (
        clock.using(Hands()),
        pytest.raises(ConfigurationError, match="is 86400000 ms before the epoch"),
    ):
        Snowflake(2, START + timedelta(days=1)).generate()


def test_two_formats_of_one_machine() -> None:
    """Formats with the same machine id and epoch count together: copies, other prefixes, other encodings."""
    formats = [Snowflake(9), Snowflake(9, prefix="a"), Snowflake(9, encoding="base36").accepting(Snowflake(9))]
    numbers = [format.to_int(format.generate()) for _ in range(2000) for format in formats]

    assert numbers == sorted(set(numbers))


asked: list[int] = []


def take() -> int:
    """A machine id for this process."""
    asked.append(os.getpid())
    return os.getpid() % 1024


def in_child(path: Path, format: Snowflake) -> str:
    """What a forked child says when it makes an id."""
    child = os.fork()
    if child == 0:
        path.with_suffix(".pid").write_text(str(os.getpid()))
        try:
            path.write_text(format.generate())
        except ConfigurationError as error:
            path.write_text(str(error))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return path.read_text()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_function_is_asked_in_each_process(tmp_path: Path) -> None:
    """A function is asked once in a process, at the first id, and again in a child."""
    asked.clear()
    format = Snowflake(take)
    assert asked == []
    format.generate_many(10)
    mine = format.prefixed("a").generate()
    childs = in_child(tmp_path / "id", format)
    pid = int((tmp_path / "id.pid").read_text())

    assert pid != os.getpid()
    assert asked == [os.getpid()]
    assert parts(mine.removeprefix("a_"))[1] == os.getpid() % 1024
    assert parts(childs)[1] == pid % 1024


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_number_belongs_to_one_process(tmp_path: Path) -> None:
    """A child that was forked with a plain machine id is refused, whether or not its parent has made an id yet."""
    for format in (Snowflake(77), Snowflake(78)):
        if format.machine_id == 78:
            format.generate()
        said = in_child(tmp_path / "id", format)

        assert re.match(rf"machine_id={format.machine_id} belongs to process {os.getpid()}", said)
        assert "pass a function that returns one" in said
        assert format.is_valid(format.generate())


def test_a_real_wait() -> None:
    """Sleeping for the next millisecond takes about that long."""
    began = time.perf_counter()
    Snowflake(3).generate_many(4096 * 5)

    assert time.perf_counter() - began > 0.003


def test_another_epoch() -> None:
    """Stored numbers do not tell their epoch, so ids of another one are refused; text keeps them apart."""
    other = Snowflake(1, epoch=1_288_834_974_657, prefix="old")

    with pytest.raises(ConfigurationError, match='keep the epoch, or write storage="text"'):
        Snowflake(1).accepting(other)
    assert Snowflake(1).accepting(Snowflake(2, prefix="old")).is_valid(Snowflake(1, prefix="old").generate())
    assert Snowflake(1, storage="text").accepting(other).is_valid(other.generate())
