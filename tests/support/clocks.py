"""A clock for the formats whose ids have a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy_public_id.formats import clock


class Hands(clock.Clock):
    """A clock that is set by hand, and goes on by itself only while someone sleeps."""

    def __init__(self, at: datetime) -> None:
        super().__init__()
        self.now = round(at.timestamp() * 1000)
        """The milliseconds since 1970 that it shows."""
        self.slept = 0

    def time_ns(self) -> int:
        return self.now * 10**6

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.now += round(seconds * 1000)


@contextmanager
def clock_at(at: datetime) -> Iterator[Hands]:
    """Put a clock that shows *at* in the place of that of the machine."""
    with clock.using(hands := Hands(at)):
        yield hands
