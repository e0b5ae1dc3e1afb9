"""UUIDs (RFC 9562) as public ids: random ones of version 4, and those of version 7, which begin with the time.

>>> format = Uuid7(prefix="post")
>>> format.from_int(0x017F22E279B07CC398C4DC0C0C07398F)
'post_036twi214qwj7mgsvq83nm8wf'
>>> format.timestamp("post_036twi214qwj7mgsvq83nm8wf").isoformat()
'2022-02-22T19:22:22+00:00'
>>> Uuid4(encoding="hyphenated").is_valid("919108f7-52d1-4320-9bac-f847db4148a8")
True

The text is short and of fixed width. By default, a column stores the 128 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import uuid_utils

from sqlalchemy_public_id.formats import clock
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats._bits import BitsFormat, TimedFormat
from sqlalchemy_public_id.formats.codec import BitPattern

__all__ = ["Uuid4", "Uuid7", "milliseconds_of_uuid7", "next_uuid7"]

_ENCODINGS = ("base36", "hyphenated", "hex", "base58", "crockford32")
_RANDOM_OF_7 = 74
_LOW = 62
"""The bits below the variant."""


def _pattern_of(version: int) -> BitPattern:
    """Return the bit pattern of *version* (RFC 9562, 4.1 and 4.2): its four bits, and ``10`` for the variant."""
    return 0xF << 76 | 0b11 << _LOW, version << 76 | 0b10 << _LOW


@dataclass(frozen=True, repr=False)
class Uuid4(BitsFormat):
    """Random UUIDs, of version 4: 122 random bits.

    They reveal nothing, and have no order. Capitals and small letters are the same in the encodings ``"hyphenated"``
    and ``"hex"`` (RFC 9562), and ``"crockford32"``.

    :raises ConfigurationError: for settings that cannot work.
    """

    prefix: str | None = None
    separator: str = "_"
    encoding: str = "base36"
    """One of ``"base36"`` (25 characters), ``"hyphenated"`` (36), ``"hex"`` (32), ``"base58"`` (22), ``"crockford32"``
    (26)."""
    storage: str = "native"
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    _bit_pattern: ClassVar[BitPattern] = _pattern_of(4)
    _encodings: ClassVar[tuple[str, ...]] = _ENCODINGS
    _kind: ClassVar[str] = "a UUID of version 4"

    @property
    def entropy_bits(self) -> float:
        return 122.0

    def generate(self) -> str:
        if self.encoding == "hyphenated" and not self._pool:  # the text is made without the number
            return self._lead + str(uuid_utils.uuid4())
        return super().generate()

    def _make(self, count: int) -> list[str]:
        if self.encoding == "hyphenated":
            return _hyphenated(self._lead, uuid_utils.uuid4, count)
        return super()._make(count)

    def _number(self) -> int:
        number: int = uuid_utils.uuid4().int
        return number


@dataclass(frozen=True, repr=False)
class Uuid7(TimedFormat):
    """UUIDs of version 7: 48 bits of milliseconds, then 74 random ones.

    The ids of one process sort in the order of their generation, in all threads; those of several processes to the
    millisecond. New rows go to the end of the index.

    **An id reveals** when its row was created, to the millisecond; and which of two ids came first.

    :raises ConfigurationError: for settings that cannot work.
    """

    prefix: str | None = None
    separator: str = "_"
    encoding: str = "base36"
    """One of ``"base36"`` (25 characters), ``"hyphenated"`` (36), ``"hex"`` (32), ``"base58"`` (22), ``"crockford32"``
    (26). The texts sort by time in each."""
    storage: str = "native"
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    _bit_pattern: ClassVar[BitPattern] = _pattern_of(7)
    _encodings: ClassVar[tuple[str, ...]] = _ENCODINGS
    _kind: ClassVar[str] = "a UUID of version 7"

    @property
    def entropy_bits(self) -> float:
        return float(_RANDOM_OF_7)

    def generate(self) -> str:
        if self.encoding == "hyphenated" and not self._pool and clock.current is clock.MACHINE:
            return self._lead + str(uuid_utils.uuid7())
        return super().generate()

    def _make(self, count: int) -> list[str]:
        if self.encoding == "hyphenated" and clock.current is clock.MACHINE:
            return _hyphenated(self._lead, uuid_utils.uuid7, count)
        return super()._make(count)

    def _number(self) -> int:
        return next_uuid7()

    def _milliseconds(self, number: int) -> int | None:
        return milliseconds_of_uuid7(number)


def _hyphenated(lead: str, make: Callable[[], uuid_utils.UUID], count: int) -> list[str]:
    # the text is made without the number
    if not lead:
        return [str(make()) for _ in range(count)]
    return [lead + str(make()) for _ in range(count)]


def next_uuid7() -> int:
    """Return a new UUID of version 7."""
    # uuid_utils keeps the order too, but reads only the time of the machine, which tests replace
    if clock.current is clock.MACHINE:
        number: int = uuid_utils.uuid7().int
        return number
    high, low = divmod(clock.ascending(_RANDOM_OF_7), 1 << _LOW)
    milliseconds, middle = divmod(high, 1 << _RANDOM_OF_7 - _LOW)
    return milliseconds << 80 | middle << 64 | low | _pattern_of(7)[1]


def milliseconds_of_uuid7(number: int) -> int | None:
    """Return the time in a UUID of version 7, in milliseconds since 1970; ``None`` for other versions."""
    mask, value = _pattern_of(7)
    return number >> 80 if number & mask == value else None
