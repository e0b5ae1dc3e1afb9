"""Ids of 160 bits: KSUIDs.

>>> Ksuid().timestamp("0ujtsYcgvSTl8PAuAdqWYSMnLOv").isoformat()
'2017-10-10T04:00:47+00:00'
>>> Ksuid(prefix="evt").to_int("evt_000000000000000000000000010")
62
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from sqlalchemy_public_id.formats import clock
from sqlalchemy_public_id.formats._bits import PrefixedBits, TimedFormat
from sqlalchemy_public_id.formats._settings import named_settings
from sqlalchemy_public_id.formats.budget import Budget

__all__ = ["EPOCH", "Ksuid"]

EPOCH = 1_400_000_000
"""The time of the number 0, 2014-05-13T16:53:20Z, in seconds since 1970."""


@named_settings
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Ksuid(PrefixedBits, TimedFormat):
    """KSUIDs (https://github.com/segmentio/ksuid): 32 bits of seconds and 128 random bits, in 27 characters.

    Upper and lower case differ. A column stores the text, as Segment's library does; ``storage="native"`` stores the 20
    bytes. Both sort by time. Ids of one process sort in the order of generation, in all threads: within a second, the
    random part grows by a random step of up to 56 bits. Ids of several processes sort by second.

    The 32 bits of the time last until 2150, and then raise :class:`~sqlalchemy_public_id.errors.KeySpaceExhausted`.

    **An id reveals** when its row was created, to the second; and which of two ids came first.

    :raises ConfigurationError: for invalid settings.
    """

    storage: str = "text"
    encoding: str = field(default="base62", init=False)

    _bits: ClassVar[int] = 160
    _used: ClassVar[int] = 160
    _encodings: ClassVar[tuple[str, ...]] = ("base62",)
    _random_bits: ClassVar[int] = 128
    _kind: ClassVar[str] = "a KSUID"

    def budget(self) -> Budget:
        """Return the budget *of one second*: ids of different seconds never collide."""
        return super().budget()

    def _number(self) -> int:
        return clock.current.sequence(_Seconds, self._random_bits)()

    def _milliseconds(self, number: int) -> int:
        return (EPOCH + (number >> self._random_bits)) * 1000


class _Seconds(clock.Ascending):
    _tick = 10**9
    _epoch = EPOCH
    _time_bits = 32
    _years = 2014, 2150
