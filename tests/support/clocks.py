"""A clock for the formats whose ids contain a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy_public_id.formats import clock


class Hands(clock.Clock):
    """A clock that is set by hand, and advances by itself only during ``sleep()``."""

    def __init__(self, at: datetime) -> None:
        super().__init__()
        self.now = round(at.timestamp() * 1000)
        """The time that it shows, in milliseconds since 1970."""
        self.slept = 0

    def time_ns(self) -> int:
        return self.now * 10**6

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.now += round(seconds * 1000)


@contextmanager
def clock_at(at: datetime) -> Iterator[Hands]:
    """Replace the system clock with a clock that shows *at*."""
    with clock.using(hands := Hands(at)):
        yield hands
