"""Ids of 128 bits: UUIDs (RFC 9562) of versions 4 and 7, TypeIDs and ULIDs.

>>> format = Uuid7(prefix="post")
>>> format.from_int(0x017F22E279B07CC398C4DC0C0C07398F)
'post_036twi214qwj7mgsvq83nm8wf'
>>> format.timestamp("post_036twi214qwj7mgsvq83nm8wf").isoformat()
'2022-02-22T19:22:22+00:00'
>>> Uuid4(encoding="hyphenated").is_valid("919108f7-52d1-4320-9bac-f847db4148a8")
True
>>> JetifyTypeId("line_item").timestamp("line_item_01h455vb4pex5vsknk084sn02q").isoformat()
'2023-06-30T03:34:18.518000+00:00'
>>> Ulid(prefix="evt").validate("evt_01arz3ndektsv4rrffq69g5fav")
'evt_01ARZ3NDEKTSV4RRFFQ69G5FAV'

The text is short and of fixed width. By default, a column stores the 128 bits.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import uuid_utils

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import clock
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats._bits import Classes, PrefixedBits, TimedFormat
from sqlalchemy_public_id.formats._settings import named_settings
from sqlalchemy_public_id.formats.codec import BitPattern

__all__ = ["JetifyTypeId", "Ulid", "Uuid4", "Uuid7"]

_ENCODINGS = ("base36", "hyphenated", "hex", "base58", "crockford32")
_LOW = 62
"""The bits below the variant of a UUID."""
_UUIDS: Classes = (("uuid", "UUID"), ("uuid_utils", "UUID"))
_TYPEID_PREFIX = re.compile(r"[a-z](?:[a-z_]{0,61}[a-z])?")


def _pattern_of(version: int) -> BitPattern:
    """Return the bit pattern of *version* (RFC 9562, 4.1 and 4.2): its four bits, and ``10`` for the variant."""
    return 0xF << 76 | 0b11 << _LOW, version << 76 | 0b10 << _LOW


class _Version7(TimedFormat):
    """A format whose new ids are UUIDs of version 7."""

    _random_bits: ClassVar[int] = 74
    _classes: ClassVar[Classes] = _UUIDS
    _written: ClassVar[str] = "hyphenated"

    def _number(self) -> int:
        # uuid_utils keeps the order too, but reads only the time of the machine, which tests replace
        if clock.current is clock.MACHINE:
            number: int = uuid_utils.uuid7().int
            return number
        high, low = divmod(clock.ascending(self._random_bits), 1 << _LOW)
        milliseconds, middle = divmod(high, 1 << self._random_bits - _LOW)
        return milliseconds << 80 | middle << 64 | low | _pattern_of(7)[1]

    def _milliseconds(self, number: int) -> int | None:
        mask, value = _pattern_of(7)
        return number >> 80 if number & mask == value else None


@named_settings
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Uuid4(PrefixedBits):
    """UUIDs of version 4 (RFC 9562), with 122 random bits.

    They reveal nothing, and have no order. The encodings ``"hyphenated"``, ``"hex"`` and ``"crockford32"`` accept both
    cases.

    :raises ConfigurationError: for invalid settings.
    """

    encoding: str = "base36"
    """One of ``"base36"`` (25 characters), ``"hyphenated"`` (36), ``"hex"`` (32), ``"base58"`` (22), ``"crockford32"``
    (26)."""

    _bit_pattern: ClassVar[BitPattern] = _pattern_of(4)
    _random_bits: ClassVar[int] = 122
    _encodings: ClassVar[tuple[str, ...]] = _ENCODINGS
    _kind: ClassVar[str] = "a UUID of version 4"
    _classes: ClassVar[Classes] = _UUIDS
    _written: ClassVar[str] = "hyphenated"

    def _number(self) -> int:
        number: int = uuid_utils.uuid4().int
        return number


@named_settings
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Uuid7(PrefixedBits, _Version7):
    """UUIDs of version 7 (RFC 9562): 48 bits of milliseconds, then 74 random bits.

    Ids of one process sort in the order of generation, in all threads; ids of several processes sort by millisecond.
    New rows are appended to the end of the index.

    **An id reveals** when its row was created, to the millisecond; and which of two ids came first.

    :raises ConfigurationError: for invalid settings.
    """

    encoding: str = "base36"
    """One of ``"base36"`` (25 characters), ``"hyphenated"`` (36), ``"hex"`` (32), ``"base58"`` (22), ``"crockford32"``
    (26). All of them sort by time."""

    _bit_pattern: ClassVar[BitPattern] = _pattern_of(7)
    _encodings: ClassVar[tuple[str, ...]] = _ENCODINGS
    _kind: ClassVar[str] = "a UUID of version 7"


@named_settings
@dataclass(frozen=True, eq=False, repr=False)
class JetifyTypeId(_Version7):
    """TypeIDs (https://github.com/jetify-com/typeid, version 0.3): a prefix, and a UUID of version 7 in 26 characters.

    *prefix* has up to 63 lowercase letters, which ``_`` may separate; ``""`` or ``None`` for no prefix. New ids sort as
    with :class:`Uuid7`. UUIDs of all versions are valid, as the specification demands; uppercase letters are not.

    **An id reveals** when its row was created, to the millisecond; and which of two ids came first.

    :raises ConfigurationError: for a prefix that the specification does not allow.
    """

    prefix: str | None = None
    _: KW_ONLY
    storage: str = "native"
    separator: str = field(default="_", init=False)
    encoding: str = field(default="typeid", init=False)
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    _encodings: ClassVar[tuple[str, ...]] = ("typeid",)
    _kind: ClassVar[str] = "a UUID"

    def __post_init__(self) -> None:
        if self.prefix == "":
            object.__setattr__(self, "prefix", None)
        if self.prefix is not None and not (isinstance(self.prefix, str) and _TYPEID_PREFIX.fullmatch(self.prefix)):
            raise ConfigurationError(
                f"the prefix {self.prefix!r} is not allowed in a TypeID: "
                f"expected 1 to 63 of a-z and '_', beginning and ending with a letter"
            )
        super().__post_init__()

    @property
    def capacity(self) -> int:
        return 2**122


@named_settings
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Ulid(PrefixedBits, TimedFormat):
    """ULIDs (https://github.com/ulid/spec): 48 bits of milliseconds and 80 random bits, in 26 characters.

    Ids are written in uppercase; lowercase letters are accepted, too, as the specification demands. Ids of one process
    sort in the order of generation, in all threads. Within a millisecond, the random part grows by a random step, so
    the next id cannot be guessed; the specification suggests a step of 1. If a millisecond is full, the next one begins
    early, where the specification demands an error.

    **An id reveals** when its row was created, to the millisecond; and which of two ids came first.

    :raises ConfigurationError: for invalid settings.
    """

    encoding: str = field(default="crockford32", init=False)

    _encodings: ClassVar[tuple[str, ...]] = ("crockford32",)
    _random_bits: ClassVar[int] = 80
    _kind: ClassVar[str] = "a ULID"
    _classes: ClassVar[Classes] = (("ulid", "ULID"),)
    _written: ClassVar[str] = "crockford32"

    def _number(self) -> int:
        return clock.ascending(self._random_bits)

    def _milliseconds(self, number: int) -> int | None:
        return number >> self._random_bits
