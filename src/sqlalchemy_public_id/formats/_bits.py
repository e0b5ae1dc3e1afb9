"""Formats whose ids stand for a number of fixed width: what they share, whatever the number is made of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import ClassVar

from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, safe_repr
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats.codec import Codec, Mark, codec_of

__all__ = ["STORAGES", "BitsFormat", "TimedFormat"]

STORAGES = ("native", "text")
"""How a column may store a number: as itself, or as the text that people see."""

_1970 = datetime(1970, 1, 1, tzinfo=timezone.utc)


class BitsFormat(Format):
    """An id that stands for a number of ``bits`` bits.

    Subclasses are frozen dataclasses with the settings ``encoding`` and ``storage``; they say what is below as class
    attributes, call :meth:`_describe_number` once, and implement :meth:`_number`.
    """

    encoding: str
    """How the number is written, see :mod:`~sqlalchemy_public_id.formats.codec`."""
    storage: str
    """``"native"``, the number itself; or ``"text"``."""

    _bits: ClassVar[int] = 128
    """How many bits a column stores."""
    _used: ClassVar[int] = 128
    """How many of them can be 1: a ``BIGINT`` has a sign."""
    _mark: ClassVar[Mark] = (0, 0)
    """What all numbers of the format have in common."""
    _encodings: ClassVar[tuple[str, ...]]
    """What :attr:`encoding` may be."""
    _stands_for: ClassVar[str]
    """The number in words, for error messages."""

    @abstractmethod
    def _number(self) -> int:
        """A new number. Safe in threads, and in forked children."""

    _codec: Codec
    _encode: Callable[[int], str]
    _decode: Callable[[str], int]
    _is_exact: bool
    _marks: tuple[Mark, ...]

    # --- numbers

    @property
    def bits(self) -> int:
        return self._bits

    @property
    def is_native(self) -> bool:
        return self.storage == "native"

    def to_int(self, text: object, field: str | None = None) -> int:
        """The number that *text* stands for, checked like ``validate()``.

        >>> from sqlalchemy_public_id.formats import TypeIdFormat
        >>> TypeIdFormat("user").to_int("user_0000000000000000000000000a")
        10

        :raises InvalidPublicId: where *text* is not an id of this format, or of an older one that it accepts.
        """
        if isinstance(text, str):
            if self._accepts(text):
                return self._decode(text[len(self._lead) :])
            for format in self._chain():
                if isinstance(format, BitsFormat) and format._accepts(text):
                    return format._decode(text[len(format._lead) :])
        self.validate(text, field)
        raise InvalidPublicId(text, expected=self.expected, reason="it stands for no number", field=field)

    def from_int(self, number: int) -> str:
        """The text of *number*, which a column has stored: whether it is one that this format makes is not checked.

        >>> from sqlalchemy_public_id.formats import TypeIdFormat
        >>> TypeIdFormat("user").from_int(10)
        'user_0000000000000000000000000a'

        :raises InvalidPublicId: where *number* is negative or too large.
        """
        if number >> self._used:  # of a negative number, all bits above are 1
            raise InvalidPublicId(number, expected=f"a number of {self._used} bits", reason="it is out of range")
        return self._lead + self._encode(number)

    # --- making ids

    def generate(self) -> str:
        if self._pool:  # of ids fixed by a test: this is the time at which an id is made
            return super().generate()
        return self._lead + self._encode(self._number())

    def _make(self, count: int) -> list[str]:
        lead, encode, number = self._lead, self._encode, self._number
        return [lead + encode(number()) for _ in range(count)]

    # --- checking ids

    def accepting(self, *older: Format) -> Self:
        """The same format, which also accepts the ids of *older* formats.

        Where numbers are stored, an older id is found by its number, and comes back in the form of this format, prefix
        included. So the older formats must be of as many bits.

        :raises ConfigurationError: where they are not; ``storage="text"`` keeps each id as it was written.
        """
        made = super().accepting(*older)
        strangers = [format for format in made._chain() if format.bits != self.bits]
        if self.is_native and strangers:
            raise ConfigurationError(
                f"{self!r} stores {self.bits} bits, and ids of {strangers[0]!r} are none: "
                f'write storage="text", which stores ids as they are written'
            )
        return made

    def _canonical(self, text: str) -> str | None:
        if self._accepts(text):
            return self._lead + self._codec.canonical(str.__str__(text)[len(self._lead) :])
        for older in self._accepted:
            canonical = older._canonical(text)
            if canonical is not None:
                return self.from_int(self.to_int(text)) if self.is_native else canonical
        return None

    def _fault(self, body: str) -> str | None:
        return None if self._is_exact else self._flaw(self._decode(body))

    def _misfit(self, body: str) -> str:
        number = self._codec.decoded(body)
        return (None if number is None else self._flaw(number)) or super()._misfit(body)

    def _flaw(self, number: int) -> str | None:
        """What is wrong with *number*; this is asked for every id that is checked."""
        for mask, value in self._marks:
            if number & mask == value:
                return None
        return f"it is too large for {self._used} bits" if number >> self._used else f"it is not {self._stands_for}"

    # --- inside

    def _with_accepted(self, older: tuple[Format, ...]) -> Self:
        copy = super()._with_accepted(older)
        copy._describe_number()
        return copy

    def _describe_number(self) -> None:
        """Keep what every check needs.

        :raises ConfigurationError: where a setting cannot work.
        """
        codec = codec_of(self.encoding, self._used, self._encodings)
        if self.storage not in STORAGES:
            raise ConfigurationError(f"storage is {safe_repr(self.storage)}, expected 'native' or 'text'")
        if self.prefix is not None and set(str(self.separator)) & set(codec.characters):
            raise ConfigurationError(
                f"the encoding {self.encoding!r} contains the separator {self.separator!r}, so the prefix could not be "
                f"told: use a separator such as '_' or '.'"
            )
        marks = [self._mark]
        if self.is_native:  # they are seen in the form of this format
            marks += [format._mark for format in self._chain() if isinstance(format, BitsFormat)]
        keep = object.__setattr__
        keep(self, "_codec", codec)
        keep(self, "_encode", codec.encode)
        keep(self, "_decode", codec.decode)
        keep(self, "_is_exact", codec.is_exact)
        too_large = -1 << self._used
        keep(self, "_marks", tuple(dict.fromkeys((mask | too_large, value) for mask, value in marks)))
        self._describe(_pattern(codec, tuple(marks)), codec.width, f"{codec.expected}, {self._stands_for}")


class TimedFormat(BitsFormat):
    """An id that begins with the time at which it was made, and tells it to everyone."""

    ordered: ClassVar[bool] = True

    @abstractmethod
    def _milliseconds(self, number: int) -> int | None:
        """The time in *number*, since 1970; ``None`` where there is none."""

    def timestamp(self, text: object) -> datetime:
        """When the id *text* was made, in UTC.

        >>> from sqlalchemy_public_id.formats import Ulid
        >>> Ulid().timestamp("01ARZ3NDEKTSV4RRFFQ69G5FAV").isoformat()
        '2016-07-30T23:54:10.259000+00:00'

        :raises InvalidPublicId: where *text* is not an id of this format, or one that tells no time.
        """
        canonical = self.validate(text)
        for format in self._chain():
            if isinstance(format, TimedFormat) and (self.is_native or format._accepts(canonical)):
                milliseconds = format._milliseconds(self.to_int(canonical))
                if milliseconds is not None:
                    try:
                        return _1970 + timedelta(milliseconds=milliseconds)
                    except OverflowError:
                        raise InvalidPublicId(
                            text, expected=self.expected, reason="its time is after the year 9999"
                        ) from None
        raise InvalidPublicId(text, expected=self.expected, reason="it tells no time")


@cache  # it costs up to a millisecond, and depends on the encoding and the kinds of numbers alone
def _pattern(codec: Codec, marks: tuple[Mark, ...]) -> str:
    """Return a regular expression for the texts of the numbers that bear one of *marks*."""
    patterns = list(dict.fromkeys(map(codec.pattern, marks)))
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"
