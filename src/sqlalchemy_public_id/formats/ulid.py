"""ULIDs: 48 bits of milliseconds and 80 random ones, in 26 characters of Crockford's base 32.

The specification is that of https://github.com/ulid/spec.

>>> format = Ulid(prefix="evt")
>>> format.validate("evt_01arz3ndektsv4rrffq69g5fav")
'evt_01ARZ3NDEKTSV4RRFFQ69G5FAV'
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from sqlalchemy_public_id.formats import clock
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats._bits import TimedFormat

__all__ = ["Ulid"]

_RANDOM = 80


@dataclass(frozen=True, repr=False)
class Ulid(TimedFormat):
    """ULIDs, written in capitals; small letters are accepted too, as the specification demands.

    The ids of one process sort in the order of their generation, in all threads. Within a millisecond, the random part
    grows by a random step, so the next id cannot be guessed; the specification suggests 1. If a millisecond is full,
    the next one begins early, instead of an error as in the specification.

    **An id reveals** when its row was created, to the millisecond; and which of two ids came first.

    :raises ConfigurationError: for settings that cannot work.
    """

    prefix: str | None = None
    separator: str = "_"
    storage: str = "native"
    encoding: str = field(default="crockford32", init=False)
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    _encodings: ClassVar[tuple[str, ...]] = ("crockford32",)
    _kind: ClassVar[str] = "a ULID"

    @property
    def entropy_bits(self) -> float:
        return float(_RANDOM)

    def _number(self) -> int:
        return clock.ascending(_RANDOM)

    def _milliseconds(self, number: int) -> int | None:
        return number >> _RANDOM
