"""Base classes of formats whose ids encode a number of fixed width."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import ClassVar

from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, safe_repr
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats.budget import Budget
from sqlalchemy_public_id.formats.codec import BitPattern, Codec, codec_of

STORAGES = ("native", "text")
"""The ways to store an id in a column: as its number, or as its text."""

_1970 = datetime(1970, 1, 1, tzinfo=timezone.utc)


class BitsFormat(Format):
    """A format whose ids encode a number of ``bits`` bits.

    Subclasses are frozen dataclasses with the settings ``encoding`` and ``storage``. They set the class attributes
    below, and implement :meth:`_number`. :meth:`_describe_number` is called once, by ``__post_init__``.
    """

    encoding: str
    """The name of the encoding, see :mod:`~sqlalchemy_public_id.formats.codec`."""
    storage: str
    """``"native"`` for the number, or ``"text"``."""

    _bits: ClassVar[int] = 128
    """The number of bits that a column stores."""
    _used: ClassVar[int] = 128
    """The number of bits that can be 1: the sign of a ``BIGINT`` is 0."""
    _bit_pattern: ClassVar[BitPattern] = (0, 0)
    """The bits that are the same in all numbers of the format."""
    _encodings: ClassVar[tuple[str, ...]]
    """The allowed values of :attr:`encoding`."""
    _kind: ClassVar[str]
    """The kind of number in error messages: ``a UUID of version 7``."""

    @abstractmethod
    def _number(self) -> int:
        """Return a new number. Safe in threads, and in forked children."""

    _codec: Codec
    _encode: Callable[[int], str]
    _decode: Callable[[str], int]
    _is_exact: bool
    _bit_patterns: tuple[BitPattern, ...]

    def __post_init__(self) -> None:
        self._describe_number()

    # --- numbers

    @property
    def capacity(self) -> int:
        return 1 << self._used - self._bit_pattern[0].bit_count()

    @property
    def bits(self) -> int:
        return self._bits

    @property
    def is_native(self) -> bool:
        return self.storage == "native"

    def to_int(self, text: object, field: str | None = None) -> int:
        """Return the number of *text*, which is validated first.

        >>> from sqlalchemy_public_id.formats import TypeIdFormat
        >>> TypeIdFormat("user").to_int("user_0000000000000000000000000a")
        10

        :raises InvalidPublicId: if *text* is not an id of this format, or of an older one that it accepts.
        """
        if isinstance(text, str):
            if self._accepts(text):
                return self._decode(text[len(self._lead) :])
            for format in self._chain():
                if isinstance(format, BitsFormat) and format._accepts(text):
                    return format._decode(text[len(format._lead) :])
        self.validate(text, field)
        raise InvalidPublicId(text, expected=self.expected, reason="it has no number", field=field)

    def from_int(self, number: int) -> str:
        """Return the id of *number*. Only its range is checked, because a column has stored it.

        >>> from sqlalchemy_public_id.formats import TypeIdFormat
        >>> TypeIdFormat("user").from_int(10)
        'user_0000000000000000000000000a'

        :raises InvalidPublicId: if *number* is negative or too large.
        """
        if number >> self._used:  # of a negative number, all bits above are 1
            raise InvalidPublicId(number, expected=f"a number of {self._used} bits", reason="it is out of range")
        return self._lead + self._encode(number)

    # --- generating ids

    def generate(self) -> str:
        if self._pool:  # ids fixed by a test; otherwise none waits in the pool, because an id contains its time
            return super().generate()
        return self._lead + self._encode(self._number())

    def _make(self, count: int) -> list[str]:
        lead, encode, number = self._lead, self._encode, self._number
        return [lead + encode(number()) for _ in range(count)]

    # --- validating ids

    def accepting(self, *older: Format) -> Self:
        """Return a copy that also accepts the ids of *older* formats.

        If the column stores numbers, it returns older ids in the form of this format, prefix included. The older
        formats must have as many bits. ``storage="text"`` keeps each id as it was issued.

        :raises ConfigurationError: if numbers are stored, and an older format has none of as many bits.
        """
        copy = super().accepting(*older)
        others = [format for format in copy._chain() if format.bits != self.bits]
        if self.is_native and others:
            raise ConfigurationError(
                f"{self!r} stores {self.bits} bits, but ids of {others[0]!r} are not numbers of {self.bits} bits; "
                f'write storage="text", which stores ids as text'
            )
        return copy

    def _canonical(self, text: str) -> str | None:
        if self._accepts(text):
            return self._lead + self._codec.canonical(str.__str__(text)[len(self._lead) :])
        for older in self._accepted:
            canonical = older._canonical(text)
            if canonical is not None:
                return self.from_int(self.to_int(text)) if self.is_native else canonical
        return None

    def _explain_body(self, body: str) -> str | None:
        return None if self._is_exact else self._explain_number(self._decode(body))

    def _explain_mismatch(self, body: str) -> str:
        number = self._codec.decoded(body)
        return (None if number is None else self._explain_number(number)) or super()._explain_mismatch(body)

    def _explain_number(self, number: int) -> str | None:
        for mask, value in self._bit_patterns:
            if number & mask == value:
                return None
        return f"it is too large for {self._used} bits" if number >> self._used else f"it is not {self._kind}"

    def _with_accepted(self, older: tuple[Format, ...]) -> Self:
        copy = super()._with_accepted(older)
        copy._describe_number()
        return copy

    def _describe_number(self) -> None:
        """Check ``encoding`` and ``storage``, store the codec and the bit patterns, and call ``_describe``.

        :raises ConfigurationError: for settings that cannot work.
        """
        codec = codec_of(self.encoding, self._used, self._encodings)
        if self.storage not in STORAGES:
            raise ConfigurationError(f"storage is {safe_repr(self.storage)}, expected 'native' or 'text'")
        self._refuse_separator_in(codec.characters, f"encoding {self.encoding!r}", "'_' or '.'")
        bit_patterns = [self._bit_pattern]
        if self.is_native:  # a column returns older ids in the form of this format
            bit_patterns += [format._bit_pattern for format in self._chain() if isinstance(format, BitsFormat)]
        keep = object.__setattr__
        keep(self, "_codec", codec)
        keep(self, "_encode", codec.encode)
        keep(self, "_decode", codec.decode)
        keep(self, "_is_exact", codec.is_exact)
        too_large = -1 << self._used
        keep(self, "_bit_patterns", tuple(dict.fromkeys((mask | too_large, value) for mask, value in bit_patterns)))
        self._describe(_pattern(codec, tuple(bit_patterns)), codec.width, f"{codec.expected}, {self._kind}")


class TimedFormat(BitsFormat):
    """A format whose ids begin with the time at which they were generated, which everyone can read."""

    ordered: ClassVar[bool] = True

    @abstractmethod
    def _milliseconds(self, number: int) -> int | None:
        """Return the time in *number*, in milliseconds since 1970; ``None`` if it has none."""

    def budget(self) -> Budget:
        """Return the budget *of one millisecond*: ids of different milliseconds never collide."""
        return Budget(2 ** int(self.entropy_bits))

    def timestamp(self, text: object) -> datetime:
        """Return the time at which the id *text* was generated, in UTC.

        >>> from sqlalchemy_public_id.formats import Ulid
        >>> Ulid().timestamp("01ARZ3NDEKTSV4RRFFQ69G5FAV").isoformat()
        '2016-07-30T23:54:10.259000+00:00'

        :raises InvalidPublicId: if *text* is not an id of this format, or has no time.
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
        raise InvalidPublicId(text, expected=self.expected, reason="it has no time")


@cache  # takes up to a millisecond, and depends on the encoding and the kinds of numbers alone
def _pattern(codec: Codec, bit_patterns: tuple[BitPattern, ...]) -> str:
    patterns = list(dict.fromkeys(map(codec.pattern, bit_patterns)))
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"
