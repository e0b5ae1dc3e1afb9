"""Snowflakes: layout, the clock, and machine ids; and the ObjectIds of MongoDB."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.clocks import clock_at
from support.forks import LONGEST, ignore_fork_warning, in_child, in_threads, machine

from sqlalchemy_public_id import ConfigurationError, NanoId, ObjectId, Snowflake, Ulid
from sqlalchemy_public_id.errors import ClockMovedBack, KeySpaceExhausted
from sqlalchemy_public_id.formats.snowflake import EPOCH, no_machine

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
TWITTER = 1_288_834_974_657


def parts(text: str) -> tuple[int, int, int]:
    """Time, machine and count."""
    number = int(text)
    return number >> 22, number >> 12 & 1023, number & 4095


def test_layout() -> None:
    """41 bits of milliseconds since the epoch, 10 of the machine, 12 that count from zero, as Twitter's have them."""
    with clock_at(START) as hands:
        ids = Snowflake(machine_id=1023).generate_many(3)
    made = Snowflake(machine_id=0, epoch=TWITTER).timestamp("1541815603606036480")

    assert [parts(id) for id in ids] == [(hands.milliseconds() - EPOCH, 1023, count) for count in range(3)]
    assert made == datetime(2022, 6, 28, 16, 7, 40, 105_000, tzinfo=timezone.utc)


@pytest.mark.parametrize("text", ["0000000000000000000", "9223372036854775807", "0911979869129158656"])
def test_texts_for_ever(text: str) -> None:
    """Ids are 19 digits with zeros in front, and those of all machines are accepted."""
    assert Snowflake(machine_id=5).validate(text) == text


# --- settings


def test_epoch() -> None:
    """A datetime and its milliseconds are one epoch."""
    twin = Snowflake(1, datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))

    assert twin == Snowflake(1, 1_704_067_200_000)
    assert repr(twin) == "Snowflake(machine_id=1, epoch=1704067200000)"
    assert Snowflake(1) == Snowflake(1, datetime(2020, 1, 1, tzinfo=timezone.utc))


@pytest.mark.parametrize("epoch", [datetime(2024, 1, 1), -1, 1.5, True, None, 2**50])
def test_refused_epochs(epoch: Any) -> None:
    """A time without a zone, or none at all, is refused."""
    with pytest.raises(ConfigurationError, match="expected a datetime with a time zone, or milliseconds since 1970"):
        Snowflake(1, epoch)


@pytest.mark.parametrize("machine_id", [-1, 1024, True, None, "1"])
def test_refused_machine_ids(machine_id: Any) -> None:
    """A machine id is a number from 0 to 1023, also where a function answers it."""
    with pytest.raises(ConfigurationError, match="expected a whole number from 0 to 1023"):
        Snowflake(machine_id)
    with pytest.raises(ConfigurationError, match="expected a whole number from 0 to 1023"):
        Snowflake(lambda: machine_id).generate()


@pytest.mark.parametrize("epoch", [TWITTER, EPOCH + 1])
def test_another_epoch(epoch: int) -> None:
    """Stored numbers do not tell their epoch, so ids of another one are refused; text keeps them apart."""
    other = Snowflake(1, epoch=epoch, prefix="old")

    with pytest.raises(ConfigurationError, match='keep the epoch, or write storage="text"'):
        Snowflake(1).accepting(other)
    assert Snowflake(1).accepting(Snowflake(2, prefix="old")).is_valid(Snowflake(1, prefix="old").generate())
    assert Snowflake(1, storage="text").accepting(other).is_valid(other.generate())


# --- the clock


def test_used_up() -> None:
    """After 4096 ids of one millisecond, the next one is waited for."""
    with clock_at(START) as hands:
        ids = Snowflake(2).generate_many(3 * 4096)

    assert hands.slept == 2
    assert set(Counter(parts(id)[0] for id in ids).values()) == {4096}
    assert ids == sorted(set(ids))


def test_a_little_back() -> None:
    """While the clock is a little behind, ids go on, and wait for it when the count is used up."""
    with clock_at(START) as hands:
        first = Snowflake(2).generate()
        hands.now -= 100
        ids = [first, *Snowflake(2).generate_many(4095)]
        assert hands.slept == 0
        ids += Snowflake(2).generate_many(1000)

    assert hands.now == round(START.timestamp() * 1000) + 1
    assert ids == sorted(set(ids))


def test_far_back() -> None:
    """Where the clock is further behind, there is no id until it has caught up."""
    format = Snowflake(2)
    with clock_at(START) as hands:
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
    with clock_at(START) as hands:
        hands.now = EPOCH + 2**41 - 1
        assert len({format.generate() for _ in range(4096)}) == 4096
        assert format.timestamp(format.from_int(2**63 - 1)).year == 2089
        with pytest.raises(KeySpaceExhausted, match=r"used up since 2089-09-06"):
            format.generate()


def test_before_the_epoch() -> None:
    """Before the epoch there are no ids."""
    with clock_at(START), pytest.raises(ConfigurationError, match="is 86400000 ms before the epoch"):
        Snowflake(2, START + timedelta(days=1)).generate()


def test_two_formats_of_one_machine() -> None:
    """Formats with the same machine id and epoch count together: copies, other prefixes, other encodings."""
    formats = [Snowflake(9), Snowflake(9, prefix="a"), Snowflake(9, encoding="base36").accepting(Snowflake(9))]
    numbers = [format.to_int(format.generate()) for _ in range(2000) for format in formats]

    assert numbers == sorted(set(numbers))


# --- the function that gives the machine id


@ignore_fork_warning
def test_a_function_is_asked_in_each_process() -> None:
    """A function is asked once in a process, at the first id, also by many threads at once, and again in a child."""
    asked: list[int] = []

    def take() -> int:
        asked.append(os.getpid())
        threading.Event().wait(0.05)
        return os.getpid() % 1024

    format = Snowflake(take)
    assert asked == []
    [mine, *others] = [id for ids in in_threads(8, lambda: [format.generate()]) for id in ids]
    again = format.prefixed("a").generate().removeprefix("a_")
    of_child, pid = in_child(lambda: [format.generate(), str(os.getpid())])

    assert asked == [os.getpid()]
    assert len({mine, again, *others}) == 9
    assert [parts(id)[1] for id in (mine, again, of_child)] == [machine(), machine(), int(pid) % 1024]


@ignore_fork_warning
@pytest.mark.parametrize("machine_id", [77, 78])
def test_a_number_belongs_to_one_process(machine_id: int) -> None:
    """A child that was forked with a plain machine id is refused, whether or not its parent has made an id yet."""
    format = Snowflake(machine_id)
    if machine_id == 78:
        format.generate()

    def refused() -> list[str]:
        Snowflake(machine_id)  # does not make it the child's
        try:
            return [format.generate()]
        except ConfigurationError as error:
            return [str(error)]

    [said] = in_child(refused)
    assert re.match(rf"machine_id={machine_id} belongs to process {os.getpid()}", said)
    assert "pass a function that returns one" in said
    assert format.is_valid(format.generate())


@ignore_fork_warning
def test_others_do_not_wait() -> None:
    """While the function is at work, it may make other ids, other formats make theirs, and a child asks itself."""
    began, goes_on, parent = threading.Event(), threading.Event(), os.getpid()
    made: list[str] = []

    def take() -> int:
        if os.getpid() == parent:
            made.append(Ulid().generate())
            began.set()
            assert goes_on.wait(LONGEST)
        return 13

    format = Snowflake(take)
    thread = threading.Thread(target=format.generate)
    thread.start()
    assert began.wait(LONGEST)
    other = threading.Thread(target=lambda: made.append(Snowflake(lambda: 14).generate()))
    other.start()
    other.join(10)
    [of_child] = in_child(lambda: [format.generate()])
    was_made = len(made)
    goes_on.set()
    thread.join(LONGEST)

    assert was_made == 2
    assert parts(of_child)[1] == 13


def test_asked_again_after_a_failure() -> None:
    """Where the function fails, the next id asks it again, in another thread, too."""
    answers = [15, 1024]
    format = Snowflake(lambda: answers.pop())
    with pytest.raises(ConfigurationError, match="machine_id is 1024"):
        format.generate()

    [[text]] = in_threads(1, lambda: [format.generate()])
    assert parts(text)[1] == 15


class Leases:
    """What gives machine ids, as its own."""

    @staticmethod
    def take() -> int:
        return 11

    def held(self) -> int:
        return 12


@pytest.mark.parametrize("function", [machine, Leases.take], ids=["function", "static method"])
def test_shown_by_name(function: Callable[[], int]) -> None:
    """A function that can be imported is shown by its name, which eval reads where its module was imported."""
    format = NanoId().accepting(Snowflake(function, prefix="s").accepting(Snowflake(1)))
    name = f"{function.__module__}.{function.__qualname__}"

    shown = f"Snowflake(machine_id={name}, prefix='s').accepting(Snowflake(machine_id=1))"
    assert repr(format) == f"NanoId().accepting({shown})"
    package = name.split(".")[0]
    assert eval(repr(format), {"NanoId": NanoId, "Snowflake": Snowflake, package: __import__(package)}) == format


@pytest.mark.parametrize("function", [lambda: 5, Leases().held], ids=["lambda", "method"])
def test_shown_as_it_is(function: Callable[[], int]) -> None:
    """What cannot be imported by its name is shown as Python shows it."""
    assert repr(Snowflake(function)) == f"Snowflake(machine_id={function!r})"


def test_no_machine() -> None:
    """A format without a machine checks ids, and makes none."""
    format = Snowflake(no_machine)

    assert format.is_valid(Snowflake(3).generate())
    with pytest.raises(ConfigurationError, match="it has no machine id; pass machine_id=<int unique to this process>"):
        format.generate()


# --- ObjectIds


def test_another_implementation_of_object_ids() -> None:
    """MongoDB's driver reads the same bytes and time, and what it makes is accepted, in capitals too."""
    format = ObjectId()
    bson = pytest.importorskip("bson")
    for text in [*format.generate_many(200), *(str(bson.ObjectId()) for _ in range(200))]:
        other = bson.ObjectId(text)

        assert format.validate(text.upper()) == str(other) == text
        assert int.from_bytes(other.binary, "big") == format.to_int(text)
        assert other.generation_time == format.timestamp(text)


def test_example_of_an_object_id() -> None:
    """An ObjectId of MongoDB's documentation is accepted for ever."""
    made = ObjectId().timestamp("507f1f77bcf86cd799439011")

    assert made == datetime(2012, 10, 17, 21, 13, 27, tzinfo=timezone.utc)


def test_layout_of_object_ids() -> None:
    """Four bytes of seconds, five of the process, three that count; process and counter begin at random."""
    processes, starts = set[int](), set[int]()
    for _ in range(50):
        with clock_at(START):
            numbers = [ObjectId().to_int(text) for text in ObjectId().generate_many(20)]
        [process] = {number >> 24 & 2**40 - 1 for number in numbers}
        counts = [number & 2**24 - 1 for number in numbers]
        assert counts == [(counts[0] + passed) % 2**24 for passed in range(20)]
        assert numbers[0] >> 64 == int(START.timestamp())
        processes.add(process)
        starts.add(counts[0])

    assert len(processes) == 50
    assert len(starts) > 45


def test_full_second() -> None:
    """When the counter begins again in the same second, the next second begins early, and order is kept."""
    with clock_at(START) as now:
        ObjectId().generate()
        [sequence] = now._sequences.values()
        sequence._last = (sequence._last | 2**24 - 1) - 2
        texts = ObjectId().generate_many(5)

    late = [(ObjectId().timestamp(text) - START).total_seconds() for text in texts]
    assert late == [0, 0, 1, 1, 1]
    assert texts == sorted(set(texts))


@ignore_fork_warning
def test_a_child_has_object_ids_of_another_process() -> None:
    """A forked child draws its own five bytes."""
    mine = ObjectId().generate()
    [of_child] = in_child(lambda: [ObjectId().generate()])

    assert of_child[8:18] != mine[8:18] == ObjectId().generate()[8:18]
