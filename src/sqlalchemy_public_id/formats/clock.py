"""The time at which ids are made, and how ids of the same moment stay in order.

A :class:`Clock` is the time of this machine, together with all that was made of it: every format that needs the last
number made before keeps it there. Tests put another clock in its place for a while, see :func:`using`.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import TypeVar, cast

from sqlalchemy_public_id.errors import ConfigurationError, KeySpaceExhausted
from sqlalchemy_public_id.formats.pool import reset_in_child

__all__ = ["Clock", "MACHINE", "Sequence", "ascending", "current", "using"]

T = TypeVar("T")


class Clock:
    """The time, and what has been made of it so far. Safe in threads; a forked child begins anew."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def time_ns(self) -> int:
        """Nanoseconds since 1970."""
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        """Let *seconds* go by."""
        time.sleep(seconds)

    def milliseconds(self) -> int:
        """Milliseconds since 1970."""
        return self.time_ns() // 1_000_000

    def sequence(self, make: Callable[..., T], *settings: Hashable) -> T:
        """What ``make(clock, *settings)`` answered the first time: one for all formats in this process.

        Threads that come while it is made wait for it. Whoever wants another sequence does not: *make* may ask a
        database, whose connections others hold meanwhile.
        """
        key = make, settings
        found = self._sequences.get(key)
        if found is None:
            with self._making.setdefault(key, threading.RLock()):
                found = self._sequences.get(key)
                if found is None:
                    found = self._sequences.setdefault(key, make(self, *settings))
        return cast("T", found)

    def reset(self) -> None:
        """Leave the sequences, and the locks that are held, to the parent."""
        self._sequences: dict[Hashable, object] = {}
        self._making: dict[Hashable, threading.RLock] = {}


MACHINE = Clock()
"""The clock of this machine."""

current = MACHINE
"""The clock to ask."""


@contextmanager
def using(clock: Clock) -> Generator[Clock]:
    """Ask *clock* for the time, in all threads."""
    global current
    before, current = current, clock
    try:
        yield clock
    finally:
        current = before


class Sequence(ABC):
    """Numbers of which each is larger than the one before, in all threads of a process."""

    def __init__(self, clock: Clock, first: int = -1) -> None:
        self._clock = clock
        self._last = first
        self._lock = threading.RLock()

    def __call__(self) -> int:
        """The next number."""
        with self._lock:
            while True:
                last = self._last
                number = self._after(last)
                if self._last == last:  # no signal handler has taken one meanwhile; a lock does not keep them out
                    self._last = number
                    return number

    @abstractmethod
    def _after(self, last: int) -> int:
        """A number that is larger than *last*."""


class Ascending(Sequence):
    """Numbers of 48 bits of milliseconds and so many random ones.

    In a new millisecond all bits behind the time are drawn; in the same one, a random step of 56 bits is added, which
    RFC 9562 (6.2, method 2) has for UUIDs: whoever knows an id does not know its neighbours. Where the clock goes back,
    the last time goes on; where a millisecond is full, the next one begins early.
    """

    _STEP_BITS = 56

    def __init__(self, clock: Clock, random_bits: int) -> None:
        super().__init__(clock)
        self._random_bits = random_bits
        self._steps: list[int] = []

    def _after(self, last: int) -> int:
        now = self._clock.milliseconds()
        if now < 0:
            raise ConfigurationError("the clock of this machine is before 1970: ids with a time begin there; set it")
        size = self._random_bits
        time = last >> size
        if now <= time:
            number = last + self._step()
            if number >> size == time:
                return number
            now = time + 1
        if now >> 48:
            raise KeySpaceExhausted("48 bits of milliseconds since 1970 are used up: ids with a time end in 10889")
        return now << size | int.from_bytes(os.urandom((size + 7) // 8), "big") >> -size % 8

    def _step(self) -> int:
        try:
            step = self._steps.pop()
        except IndexError:
            drawn = array("Q", os.urandom(4096)).tolist()
            step = drawn.pop()
            self._steps = drawn
        return 1 + (step >> 64 - self._STEP_BITS)


def ascending(random_bits: int) -> int:
    """The next number of 48 bits of milliseconds and *random_bits*, in this process."""
    return current.sequence(Ascending, random_bits)()
