"""Base classes of formats whose ids encode a number of fixed width."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any, ClassVar, TypeAlias

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats.alphabets import check_separator
from sqlalchemy_public_id.formats.budget import Budget
from sqlalchemy_public_id.formats.codec import BitPattern, Codec, codec_of
from sqlalchemy_public_id.messages import safe_repr

Classes: TypeAlias = tuple[tuple[str, str], ...]
"""The module and the name of each class."""

_1970 = datetime(1970, 1, 1, tzinfo=timezone.utc)


class BitsFormat(Format):
    """A format whose ids encode a number of ``bits`` bits.

    Subclasses are frozen dataclasses with the settings ``encoding`` and ``storage``. They set the class attributes
    below, and implement :meth:`_number`.
    """

    encoding: str
    """The name of the encoding, see :mod:`~sqlalchemy_public_id.formats.codec`."""
    storage: str
    """What a column stores: ``"native"`` for the number, or ``"text"``."""

    _bits: ClassVar[int] = 128
    """The number of bits that a column stores."""
    _used: ClassVar[int] = 128
    """The number of bits that can be 1: the sign of a ``BIGINT`` is 0."""
    _bit_pattern: ClassVar[BitPattern] = (0, 0)
    """The bits that all numbers of the format share."""
    _random_bits: ClassVar[int]
    """The number of bits that are random in each id."""
    _encodings: ClassVar[tuple[str, ...]]
    """The allowed values of :attr:`encoding`."""
    _kind: ClassVar[str]
    """The kind of number in error messages: ``a UUID of version 7``."""
    _classes: ClassVar[Classes] = ()
    """The classes of other libraries whose objects are such numbers."""
    _written: ClassVar[str]
    """The encoding that ``str()`` of these objects writes."""

    @abstractmethod
    def _number(self) -> int:
        """Return a new number. Safe in threads, and in forked children."""

    _codec: Codec
    _encode: Callable[[int], str]
    _decode: Callable[[str], int]
    _checked: tuple[BitPattern, ...]
    """A number must have one of these bit patterns. Empty if the regular expression ensures that."""

    def __post_init__(self) -> None:
        codec = codec_of(self.encoding, self._used, self._encodings)
        if self.storage not in ("native", "text"):
            raise ConfigurationError(f"storage is {safe_repr(self.storage)}, expected 'native' or 'text'")
        check_separator(self.prefix, self.separator, codec.characters, f"encoding {self.encoding!r}", "'_' or '.'")
        # a column of numbers returns older ids in the form of this format
        forms = self._chain() if self.is_native else (self,)
        patterns = tuple(form._bit_pattern for form in forms if isinstance(form, BitsFormat))
        keep = object.__setattr__
        keep(self, "_codec", codec)
        checked = () if codec.is_exact else tuple((mask | -1 << self._used, value) for mask, value in patterns)
        keep(self, "_encode", codec.encode)
        keep(self, "_decode", codec.decode)
        keep(self, "_checked", checked)
        self._describe(_pattern(codec, patterns), codec.width, f"{codec.expected}, {self._kind}", codec.case)
        for older in self._chain():
            if self.is_native and older.bits != self.bits:
                raise ConfigurationError(
                    f"{self.forms[0]!r} stores {self.bits} bits, but ids of {older!r} are not numbers of {self.bits} "
                    f'bits; write storage="text", which stores ids as text'
                )
            if self._misreads(older):
                raise ConfigurationError(
                    f"{self.forms[0]!r} and {older!r} write ids of equal length with other digits, so ids of one would "
                    f"be read as other numbers of the other; keep the encoding, or write another prefix"
                )

    def _misreads(self, older: Format) -> bool:
        """Return True if a text of *older* may be a text of this format, too, which encodes another number."""
        if not isinstance(older, BitsFormat) or older._lead != self._lead:
            return False
        mine, theirs = self._codec, older._codec
        return mine.width == theirs.width and mine.digits.upper() != theirs.digits.upper()

    # --- numbers

    @property
    def capacity(self) -> int:
        return 1 << self._used - self._bit_pattern[0].bit_count()

    @property
    def entropy_bits(self) -> float:
        return float(self._random_bits)

    @property
    def bits(self) -> int:
        return self._bits

    @property
    def is_native(self) -> bool:
        return self.storage == "native"

    @property
    def hex_pattern(self) -> str:
        """An anchored regular expression for the hexadecimal digits, in lower case, of all accepted numbers."""
        forms = [form for form in self._chain() if isinstance(form, BitsFormat)]
        patterns = {form._bit_pattern: codec_of("hex", form._bits).pattern(form._bit_pattern) for form in forms}
        return f"^(?:{'|'.join(patterns.values())})$"

    @property
    def _has_exact_pattern(self) -> bool:
        return not self._checked and type(self)._accepts is BitsFormat._accepts

    def to_int(self, text: object, field: str | None = None) -> int:
        """Validate *text* and return the number that it encodes.

        >>> from sqlalchemy_public_id.formats import JetifyTypeId
        >>> JetifyTypeId("user").to_int("user_0000000000000000000000000a")
        10

        :raises InvalidPublicId: if *text* is not an id of this format, or of an older one that it accepts.
        """
        if not isinstance(text, str):
            text = self.validate(text, field)
        number = self._read(text)
        if number is None:
            numbers = (form._read(text) for older in self._accepted for form in older._chain())
            number = next((number for number in numbers if number is not None), None)
        if number is not None:
            return number
        self.validate(text, field)
        raise InvalidPublicId(text, expected=self.expected, reason="it has no number", field=field)

    def from_int(self, number: int) -> str:
        """Return the id that encodes *number*. Only the range is checked, because numbers come from a column.

        >>> from sqlalchemy_public_id.formats import JetifyTypeId
        >>> JetifyTypeId("user").from_int(10)
        'user_0000000000000000000000000a'

        :raises InvalidPublicId: if *number* is negative or too large.
        """
        if number >> self._used:  # the higher bits of a negative number are all 1
            raise InvalidPublicId(number, expected=f"a number of {self._used} bits", reason="it is out of range")
        return self._lead + self._encode(number)

    def _body_spec(self) -> dict[str, Any]:
        mask, value = self._bit_pattern
        return {
            "kind": "number",
            "number": self._kind,
            "encoding": self.encoding,
            "digits": self._codec.digits,
            "length": self._codec.width,
            "hyphens": list(self._codec.hyphens),
            "bits": self._used,
            "fixed_bits": {"mask": f"{mask:#x}", "value": f"{value:#x}"},
        }

    # --- generating ids

    def generate(self) -> str:
        if self._pool:  # ids fixed by a test; otherwise the pool is empty, because an id contains its time
            return super().generate()
        return self._lead + self._encode(self._number())

    def _make(self, count: int) -> list[str]:
        lead, encode, number = self._lead, self._encode, self._number
        return [lead + encode(number()) for _ in range(count)]

    # --- validating ids

    def _read(self, text: str) -> int | None:
        """Return the number of *text*; ``None`` if it is not an id of this format itself."""
        if not self._own_regex.fullmatch(text):
            return None
        number = self._decode(text[len(self._lead) :])
        if not self._checked:
            return number
        for mask, value in self._checked:
            if number & mask == value:
                return number
        return None

    def _accepts(self, text: str) -> bool:
        if self._checked:
            return self._read(text) is not None
        return self._own_regex.fullmatch(text) is not None

    def _text_of(self, value: object) -> str | None:
        for module, name in self._classes:
            class_ = getattr(sys.modules.get(module), name, None)  # if it is not imported, there is no such object
            if isinstance(class_, type) and isinstance(value, class_):
                number = codec_of(self._written, self._used).decoded(str(value))
                return None if number is None else self._lead + self._encode(number)
        return None

    def _adopt(self, text: str) -> str:
        return self.from_int(self.to_int(text)) if self.is_native else text

    def _explain(self, body: str) -> str:
        number = self._codec.decoded(body)
        if number is None:
            return super()._explain(body)
        return f"it is too large for {self._used} bits" if number >> self._used else f"it is not {self._kind}"


class TimedFormat(BitsFormat):
    """A format whose ids begin with the time at which they were generated, which everyone can read."""

    ordered: ClassVar[bool] = True

    @abstractmethod
    def _milliseconds(self, number: int) -> int | None:
        """Return the time in *number*, in milliseconds since 1970; ``None`` if it contains no time."""

    def budget(self) -> Budget:
        """Return the budget *of one millisecond*: ids of different milliseconds never collide."""
        return Budget(2**self._random_bits)

    def timestamp(self, text: object) -> datetime:
        """Return the time at which the id *text* was generated, in UTC.

        >>> from sqlalchemy_public_id.formats import Ulid
        >>> Ulid().timestamp("01ARZ3NDEKTSV4RRFFQ69G5FAV").isoformat()
        '2016-07-30T23:54:10.259000+00:00'

        :raises InvalidPublicId: if *text* is not an id of this format, or contains no time.
        """
        canonical = self.validate(text)
        times = (
            format._milliseconds(self.to_int(canonical))
            for format in self._chain()
            if isinstance(format, TimedFormat) and (self.is_native or format._accepts(canonical))
        )
        try:
            return _1970 + timedelta(milliseconds=next(time for time in times if time is not None))
        except StopIteration:
            reason = "it has no time"
        except OverflowError:
            reason = "its time is after the year 9999"
        raise InvalidPublicId(text, expected=self.expected, reason=reason)


@dataclass(frozen=True, eq=False, repr=False)
class PrefixedBits(BitsFormat):
    """The settings of a format whose ids are a prefix and the text of a number. A subclass sets what differs."""

    prefix: str | None = None
    _: KW_ONLY
    separator: str = "_"
    encoding: str = ""
    storage: str = "native"
    _accepted: tuple[Format, ...] = field(default=(), init=False)


@cache  # takes up to a millisecond, and depends on the encoding and the kinds of numbers alone
def _pattern(codec: Codec, bit_patterns: tuple[BitPattern, ...]) -> str:
    patterns = list(dict.fromkeys(map(codec.pattern, bit_patterns)))
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"
