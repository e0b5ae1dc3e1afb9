"""The clock of time-based formats, and the order of ids that are generated at one moment.

A :class:`Clock` returns the time, and keeps the last number of each format that continues from it. Tests replace the
clock temporarily with :func:`using`.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import ClassVar, TypeVar, cast

import uuid_utils

from sqlalchemy_public_id.errors import ConfigurationError, KeySpaceExhausted
from sqlalchemy_public_id.formats.pool import reset_in_child

__all__ = ["Clock", "FixedClock", "MACHINE", "Sequence", "ascending", "current", "using"]

T = TypeVar("T")


class Clock:
    """The time, and the sequences of numbers that begin with it. Safe in threads; reset in a forked child."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def time_ns(self) -> int:
        """Return the time in nanoseconds since 1970, to the millisecond.

        ``uuid_utils`` reads the time, because freezegun and time-machine replace Python's clock. After a test in the
        future, that clock moves back by years, and Snowflakes would raise an error.
        """
        return uuid_utils.uuid6().timestamp * 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait for *seconds*."""
        time.sleep(seconds)

    def milliseconds(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self.time_ns() // 1_000_000

    def sequence(self, make: Callable[..., T], *settings: Hashable) -> T:
        """Return the sequence for these settings, created by ``make(clock, *settings)`` on first use.

        All formats of the process share it. Other threads wait only if they need the same sequence.
        """
        key = make, settings
        sequence = self._sequences.get(key)
        if sequence is None:
            # one lock for each sequence: *make* may query a database whose connections are held by threads that
            # generate ids of another sequence
            with self._making.setdefault(key, threading.RLock()):
                sequence = self._sequences.get(key)
                if sequence is None:
                    sequence = self._sequences.setdefault(key, make(self, *settings))
        return cast("T", sequence)

    def reset(self) -> None:
        """Discard the parent's sequences, and its locks, which may never be released."""
        self._sequences: dict[Hashable, object] = {}
        self._making: dict[Hashable, threading.RLock] = {}


class FixedClock(Clock):
    """A clock that is stopped at *time_ns*, and advances only while a caller sleeps."""

    def __init__(self, time_ns: int) -> None:
        super().__init__()
        self._time_ns = time_ns

    def time_ns(self) -> int:
        return self._time_ns

    def sleep(self, seconds: float) -> None:
        self._time_ns += int(seconds * 1e9)


MACHINE = Clock()
"""The clock of this machine."""

current: Clock = MACHINE
"""The clock that formats use."""


@contextmanager
def using(clock: Clock) -> Generator[Clock]:
    """Replace :data:`current` by *clock*, in all threads."""
    global current
    before, current = current, clock
    try:
        yield clock
    finally:
        current = before


class Sequence(ABC):
    """Increasing numbers, in all threads of a process."""

    def __init__(self, clock: Clock, first: int = -1) -> None:
        self._clock = clock
        self._last = first
        self._lock = threading.RLock()

    def __call__(self) -> int:
        """Return the next number."""
        with self._lock:
            while True:
                last = self._last
                number = self._after(last)
                if self._last == last:  # a signal handler may have taken one: the lock is reentrant
                    self._last = number
                    return number

    @abstractmethod
    def _after(self, last: int) -> int:
        """Return a number larger than *last*."""


class Ascending(Sequence):
    """Numbers that consist of a time, by default 48 bits of milliseconds, and *random_bits* random bits.

    The first number of a millisecond has new random bits. Each further one adds a random step of 56 bits (RFC 9562,
    6.2, method 2), so an id does not reveal its neighbors. If the clock moves back, numbers continue from the last
    time. If a millisecond is full, the next one begins early. A subclass may count a longer tick than a millisecond.
    """

    _STEP_BITS = 56
    _tick: ClassVar[int] = 10**6
    """The unit of the time, in nanoseconds."""
    _epoch: ClassVar[int] = 0
    """The time of the number 0, in ticks since 1970."""
    _time_bits: ClassVar[int] = 48
    _years: ClassVar[tuple[int, int]] = (1970, 10889)
    """The years in which the time begins and ends."""

    def __init__(self, clock: Clock, random_bits: int) -> None:
        super().__init__(clock)
        self._random_bits = random_bits
        self._steps: list[int] = []

    def _after(self, last: int) -> int:
        now = self._clock.time_ns() // self._tick - self._epoch
        if now < 0:
            raise ConfigurationError(
                f"the clock of this machine is set before {self._years[0]}, and ids cannot contain such a time; set "
                f"the clock"
            )
        size = self._random_bits
        time = last >> size
        if now <= time:
            number = last + self._step()
            if number >> size == time:
                return number
            now = time + 1
        if now >> self._time_bits:
            raise KeySpaceExhausted(
                f"the {self._time_bits} bits for the time of an id are used up: they end in {self._years[1]}"
            )
        return now << size | int.from_bytes(os.urandom((size + 7) // 8), "big") >> -size % 8

    def _step(self) -> int:
        try:
            step = self._steps.pop()
        except IndexError:
            steps = array("Q", os.urandom(4096)).tolist()
            step = steps.pop()
            self._steps = steps
        return 1 + (step >> 64 - self._STEP_BITS)


def ascending(random_bits: int) -> int:
    """Return the next number of 48 bits of milliseconds and *random_bits* in this process."""
    return current.sequence(Ascending, random_bits)()
