"""MongoDB's ObjectIds: 4 bytes of seconds, 5 of the process, a counter of 3.

The layout is that of https://github.com/mongodb/specifications, "ObjectID".

>>> ObjectId().timestamp("507f1f77bcf86cd799439011").isoformat()
'2012-10-17T21:13:27+00:00'
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar

from sqlalchemy_public_id.errors import ConfigurationError, KeySpaceExhausted
from sqlalchemy_public_id.formats import clock
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats._bits import TimedFormat
from sqlalchemy_public_id.formats.budget import Budget

__all__ = ["ObjectId"]

_PROCESS, _COUNT = 40, 24


@dataclass(frozen=True, repr=False)
class ObjectId(TimedFormat):
    """ObjectIds as MongoDB's drivers generate them. Hexadecimal digits are accepted in both cases.

    The ids of one process sort in the order of their generation, in all threads; those of several processes to the
    second. A process has 16 777 216 ids a second; if they are used up, the next second begins early.

    **An id reveals** when its row was created, to the second; which ids come from the same process; and how many ids
    this process generated between two of them. It has no random part of its own: others can be guessed from it.

    :raises ConfigurationError: for settings that cannot work.
    """

    prefix: str | None = None
    separator: str = "_"
    encoding: str = "hex"
    """One of ``"hex"`` (24 characters), ``"base36"`` (19), ``"base58"`` (17), ``"crockford32"`` (20)."""
    storage: str = "native"
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    _bits: ClassVar[int] = 96
    _used: ClassVar[int] = 96
    _encodings: ClassVar[tuple[str, ...]] = ("hex", "base36", "base58", "crockford32")
    _kind: ClassVar[str] = "an ObjectId"

    @property
    def entropy_bits(self) -> float:
        """0: all ids of a process have the same five random bytes."""
        return 0.0

    def budget(self) -> Budget:
        """Return the budget *of one second*, in processes that generate one id each.

        The ids of one process never collide.
        """
        return Budget(2 ** (_PROCESS + _COUNT))

    def _number(self) -> int:
        return clock.current.sequence(_Sequence)()

    def _milliseconds(self, number: int) -> int:
        return (number >> _PROCESS + _COUNT) * 1000


class _Sequence(clock.Sequence):
    def __init__(self, clock: clock.Clock) -> None:
        process, count = os.urandom(_PROCESS // 8), os.urandom(_COUNT // 8)
        self._process = int.from_bytes(process, "big") << _COUNT
        super().__init__(clock, -1 << _PROCESS + _COUNT | int.from_bytes(count, "big"))

    def _after(self, last: int) -> int:
        time, count = last >> _PROCESS + _COUNT, (last + 1) % (1 << _COUNT)
        now = self._clock.time_ns() // 1_000_000_000
        if now < 0:
            raise ConfigurationError("the clock of this machine is before 1970, which ids cannot contain; set it")
        if now <= time:
            now = time if count else time + 1  # the counter has wrapped: zero sorts last only in the next second
        if now >> 32:
            raise KeySpaceExhausted("the 32 bits for the time of an ObjectId are used up since 2106-02-07")
        return now << _PROCESS + _COUNT | self._process | count
