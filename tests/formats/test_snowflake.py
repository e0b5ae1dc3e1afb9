"""Snowflakes: layout, clock and machine ids; and the ObjectIds of MongoDB."""

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

from sqlalchemy_public_id import ConfigurationError, Format, NanoId, ObjectId, Snowflake, Ulid
from sqlalchemy_public_id.errors import ClockMovedBack, KeySpaceExhausted
from sqlalchemy_public_id.formats.snowflake import EPOCH, no_machine

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
TWITTER = 1_288_834_974_657


def parts(text: str) -> tuple[int, int, int]:
    """Return the time, the machine id and the counter of a Snowflake."""
    number = int(text)
    return number >> 22, number >> 12 & 1023, number & 4095


def test_layout() -> None:
    """Like Twitter's, Snowflakes have 41 bits of milliseconds, 10 bits of machine id and 12 bits of counter."""
    with clock_at(START) as hands:
        ids = Snowflake(machine_id=1023).generate_many(3)
    made = Snowflake(machine_id=0, epoch=TWITTER).timestamp("1541815603606036480")

    assert [parts(id) for id in ids] == [(hands.milliseconds() - EPOCH, 1023, count) for count in range(3)]
    assert made == datetime(2022, 6, 28, 16, 7, 40, 105_000, tzinfo=timezone.utc)


@pytest.mark.parametrize("text", ["0000000000000000000", "9223372036854775807", "0911979869129158656"])
def test_texts_for_ever(text: str) -> None:
    """Ids are 19 digits with leading zeros, and ids of all machines are accepted."""
    assert Snowflake(machine_id=5).validate(text) == text


# --- settings


def test_epoch() -> None:
    """An epoch may be given as a datetime or in milliseconds."""
    twin = Snowflake(1, epoch=datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))

    assert twin == Snowflake(1, epoch=1_704_067_200_000)
    assert repr(twin) == "Snowflake(machine_id=1, epoch=1704067200000)"
    assert Snowflake(1) == Snowflake(1, epoch=datetime(2020, 1, 1, tzinfo=timezone.utc))


@pytest.mark.parametrize("epoch", [datetime(2024, 1, 1), -1, 1.5, True, None, 2**50])
def test_refused_epochs(epoch: Any) -> None:
    """A datetime without a time zone, or anything but a datetime or valid milliseconds, is refused."""
    with pytest.raises(ConfigurationError, match="expected a datetime with a time zone, or milliseconds since 1970"):
        Snowflake(1, epoch=epoch)


@pytest.mark.parametrize("machine_id", [-1, 1024, True, None, "1"])
def test_refused_machine_ids(machine_id: Any) -> None:
    """A machine id must be an integer from 0 to 1023, even if a function returns it."""
    with pytest.raises(ConfigurationError, match="expected a whole number from 0 to 1023"):
        Snowflake(machine_id)
    with pytest.raises(ConfigurationError, match="expected a whole number from 0 to 1023"):
        Snowflake(lambda: machine_id).generate()


@pytest.mark.parametrize("epoch", [TWITTER, EPOCH + 1])
def test_another_epoch(epoch: int) -> None:
    """Stored numbers do not show their epoch, so ids of another epoch are refused unless stored as text."""
    other = Snowflake(1, epoch=epoch, prefix="old")

    with pytest.raises(ConfigurationError, match='keep the epoch, or write storage="text"'):
        Snowflake(1).accepting(other)
    assert Snowflake(1).accepting(Snowflake(2, prefix="old")).is_valid(Snowflake(1, prefix="old").generate())
    assert Snowflake(1, storage="text").accepting(other).is_valid(other.generate())


@pytest.mark.parametrize("epoch", [TWITTER, EPOCH + 1])
@pytest.mark.parametrize("between", [False, True], ids=["direct", "through another format"])
def test_another_epoch_in_texts(epoch: int, between: bool) -> None:
    """Texts do not show their epoch, either: ids of another epoch need another prefix or encoding."""
    other: Format = Snowflake(1, epoch=epoch, storage="text")
    older = NanoId(30).accepting(other) if between else other

    with pytest.raises(ConfigurationError, match="could repeat them; keep the epoch, or write another prefix"):
        Snowflake(1, storage="text").accepting(older)
    for right in (Snowflake(1, prefix="new", storage="text"), Snowflake(1, encoding="hex", storage="text")):
        assert right.accepting(older).timestamp(other.generate()).year >= 2026


# --- the clock


def test_used_up() -> None:
    """After 4096 ids in one millisecond, the next id waits for the next millisecond."""
    with clock_at(START) as hands:
        ids = Snowflake(2).generate_many(3 * 4096)

    assert hands.slept == 2
    assert set(Counter(parts(id)[0] for id in ids).values()) == {4096}
    assert ids == sorted(set(ids))


def test_a_little_back() -> None:
    """While the clock is a little behind, ids are generated until the counter is used up, and then wait."""
    with clock_at(START) as hands:
        first = Snowflake(2).generate()
        hands.now -= 100
        ids = [first, *Snowflake(2).generate_many(4095)]
        assert hands.slept == 0
        ids += Snowflake(2).generate_many(1000)

    assert hands.now == round(START.timestamp() * 1000) + 1
    assert ids == sorted(set(ids))


def test_far_back() -> None:
    """If the clock is further behind, generating raises until the clock has caught up."""
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
    """Ids are generated until the last of 2**41 milliseconds, and generating raises afterwards."""
    format = Snowflake(2)
    with clock_at(START) as hands:
        hands.now = EPOCH + 2**41 - 1
        assert len({format.generate() for _ in range(4096)}) == 4096
        assert format.timestamp(format.from_int(2**63 - 1)).year == 2089
        with pytest.raises(KeySpaceExhausted, match=r"used up since 2089-09-06"):
            format.generate()


def test_before_the_epoch() -> None:
    """Generating before the epoch raises."""
    with clock_at(START), pytest.raises(ConfigurationError, match="is 86400000 ms before the epoch"):
        Snowflake(2, epoch=START + timedelta(days=1)).generate()


def test_two_formats_of_one_machine() -> None:
    """Formats with the same machine id and epoch share a counter, whatever their prefix or encoding."""
    formats = [Snowflake(9), Snowflake(9, prefix="a"), Snowflake(9, encoding="base36").accepting(Snowflake(9))]
    numbers = [format.to_int(format.generate()) for _ in range(2000) for format in formats]

    assert numbers == sorted(set(numbers))


# --- the function that returns the machine id


@ignore_fork_warning
def test_a_function_is_asked_in_each_process() -> None:
    """The function is called once per process, at the first id, even by many threads, and in a child again."""
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
    """A forked child cannot use a plain machine id, whether or not its parent has generated an id yet."""
    format = Snowflake(machine_id)
    if machine_id == 78:
        format.generate()

    def refused() -> list[str]:
        Snowflake(machine_id)  # does not assign the machine id to the child
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
    """While the function runs, it and other formats can generate ids, and a forked child calls it itself."""
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
    """If the function fails, the next id calls it again, even in another thread."""
    answers = [15, 1024]
    format = Snowflake(lambda: answers.pop())
    with pytest.raises(ConfigurationError, match="machine_id is 1024"):
        format.generate()

    [[text]] = in_threads(1, lambda: [format.generate()])
    assert parts(text)[1] == 15


class Leases:
    """A source of machine ids, with a static and an ordinary method."""

    @staticmethod
    def take() -> int:
        return 11

    def held(self) -> int:
        return 12


@pytest.mark.parametrize("function", [machine, Leases.take], ids=["function", "static method"])
def test_shown_by_name(function: Callable[[], int]) -> None:
    """``repr`` shows an importable function by its name, which ``eval`` finds if its package is imported."""
    format = NanoId().accepting(Snowflake(function, prefix="s").accepting(Snowflake(1)))
    name = f"{function.__module__}.{function.__qualname__}"

    shown = f"Snowflake(machine_id={name}, prefix='s').accepting(Snowflake(machine_id=1))"
    assert repr(format) == f"NanoId().accepting({shown})"
    package = name.split(".")[0]
    assert eval(repr(format), {"NanoId": NanoId, "Snowflake": Snowflake, package: __import__(package)}) == format


@pytest.mark.parametrize("function", [lambda: 5, Leases().held], ids=["lambda", "method"])
def test_shown_as_it_is(function: Callable[[], int]) -> None:
    """``repr`` shows a function that cannot be imported by its name as Python does."""
    assert repr(Snowflake(function)) == f"Snowflake(machine_id={function!r})"


def test_no_machine() -> None:
    """A format without a machine id validates ids, and raises when it should generate one."""
    format = Snowflake(no_machine)

    assert format.is_valid(Snowflake(3).generate())
    with pytest.raises(ConfigurationError, match="it has no machine id; pass machine_id=<int unique to this process>"):
        format.generate()


# --- ObjectIds


def test_another_implementation_of_object_ids() -> None:
    """MongoDB's driver reads the same bytes and time, and its ids are accepted, even in capitals."""
    format = ObjectId()
    bson = pytest.importorskip("bson")
    for text in [*format.generate_many(200), *(str(bson.ObjectId()) for _ in range(200))]:
        other = bson.ObjectId(text)

        assert format.validate(text.upper()) == str(other) == text
        assert int.from_bytes(other.binary, "big") == format.to_int(text)
        assert other.generation_time == format.timestamp(text)


def test_example_of_an_object_id() -> None:
    """An ObjectId from MongoDB's documentation is always accepted."""
    made = ObjectId().timestamp("507f1f77bcf86cd799439011")

    assert made == datetime(2012, 10, 17, 21, 13, 27, tzinfo=timezone.utc)


def test_layout_of_object_ids() -> None:
    """An ObjectId has 4 bytes of seconds, 5 random ones per process, and a 3-byte counter with a random start."""
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
    """If the counter overflows within a second, ids use the next second ahead of the clock, and stay in order."""
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
    """A forked child draws its own five process bytes."""
    mine = ObjectId().generate()
    [of_child] = in_child(lambda: [ObjectId().generate()])

    assert of_child[8:18] != mine[8:18] == ObjectId().generate()[8:18]
