"""Integers as text of fixed width, and back: the encodings of :class:`~.Uuid7` and similar formats.

>>> codec = codec_of("base36", 128)
>>> codec.encode(2**128 - 1), codec.decode("000000000000000000000000z")
('f5lxx1zz5pnorynqglhzmsp33', 35)

Each number has exactly one text, padded with zeros. The digits of each encoding are in the order of ASCII, so texts
sort like their numbers.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import groupby

from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.formats._base import character_class, in_words
from sqlalchemy_public_id.formats.alphabets import BASE36, BASE58, CROCKFORD32
from sqlalchemy_public_id.formats.digits import reader_of, table_of, width_for, writer_of

__all__ = ["ENCODINGS", "Codec", "BitPattern", "codec_of"]

BitPattern = tuple[int, int]
"""A mask and a value: the numbers whose bits under the mask are the value."""

_LARGEST_TABLE = 50_000
"""Room for the 36**3 texts of three digits, which take 3 MB; the 58**3 of base 58 would take 10 MB."""
_writer_of = partial(writer_of, largest=_LARGEST_TABLE)
_HYPHENS = (8, 13, 18, 23)


@dataclass(frozen=True)
class Codec:
    """One encoding, for numbers of ``bits`` bits."""

    encoding: str
    bits: int
    digits: str
    """The digits, in the order of their values."""
    width: int
    """The number of characters of each text."""
    folds: bool
    """True if capitals and small letters are the same, by the specification of the encoding."""
    encode: Callable[[int], str]
    """Return the text of a number from 0 to ``2**bits - 1``."""
    decode: Callable[[str], int]
    """Return the number of a text that :meth:`pattern` matches. It may be too large unless :attr:`is_exact`."""

    @property
    def is_exact(self) -> bool:
        """True if each digit encodes a fixed number of bits, so the pattern matches valid texts only."""
        return len(self.digits).bit_count() == 1

    @cached_property
    def characters(self) -> str:
        """All characters that a text may contain."""
        return "".join(sorted({*self._cases(self.digits), *("-" if self._hyphens else "")}))

    @cached_property
    def expected(self) -> str:
        """The description of the texts in error messages."""
        length = "8-4-4-4-12" if self._hyphens else self.width
        return f"{length} of {in_words(self.digits)}"

    def canonical(self, text: str) -> str:
        """Return *text* in the case that :attr:`encode` writes."""
        if not self.folds:
            return text
        return text.upper() if self.digits[-1].isupper() else text.lower()

    def decoded(self, text: str) -> int | None:
        """Return the number of *text*, even if too large; ``None`` for other characters or misplaced hyphens."""
        digits = set(self._cases(self.digits))
        if any((character == "-") != (at in self._hyphens) for at, character in enumerate(text)):
            return None
        return self.decode(text) if set(text) - {"-"} <= digits else None

    def pattern(self, bits: BitPattern) -> str:
        """Return a regular expression for the texts of the numbers with the bit pattern *bits*.

        Unless :attr:`is_exact`, only the first digit is restricted.
        """
        choices = self._matching_digits(bits) if self.is_exact else self._any_digits()
        ends = [at - before for before, at in enumerate(self._hyphens)]
        groups: list[str] = []
        for _, digits in groupby(enumerate(choices), key=lambda place: bisect(ends, place[0])):
            parts: list[str] = []
            for choice, run in groupby(self._cases(choice) for _, choice in digits):
                length = len(list(run))
                times = f"{{{length}}}" if length > 1 else ""
                parts.append(f"{choice if len(choice) == 1 else character_class(choice)}{times}")
            groups.append("".join(parts))
        return "-".join(groups)

    def _matching_digits(self, bits: BitPattern) -> Iterator[str]:
        """Yield the digits that are possible at each place, from the first to the last."""
        mask, value = bits
        step = len(self.digits).bit_length() - 1
        mask |= -1 << self.bits  # the bits above the highest one are zero
        places = self.width - len(self._hyphens)
        for shift in range(step * (places - 1), -1, -step):
            yield "".join(
                digit
                for number, digit in enumerate(self.digits)
                if (number << shift) & mask == value & mask & (len(self.digits) - 1 << shift)
            )

    def _any_digits(self) -> Iterator[str]:
        highest = self.digits.index(self.encode(2**self.bits - 1)[0])
        yield self.digits[: highest + 1]
        yield from [self.digits] * (self.width - 1)

    @property
    def _hyphens(self) -> tuple[int, ...]:
        return _HYPHENS if self.encoding == "hyphenated" else ()

    def _cases(self, digits: str) -> str:
        return "".join(dict.fromkeys(digits.lower() + digits.upper())) if self.folds else digits


def codec_of(encoding: str, bits: int, allowed: tuple[str, ...] = ()) -> Codec:
    """Return the codec for *encoding* and numbers of *bits* bits.

    :raises ConfigurationError: if *encoding* is unknown, or not one of those *allowed*.
    """
    if not isinstance(encoding, str) or encoding not in (allowed or _MAKERS):
        names = ", ".join(map(repr, allowed or _MAKERS))
        raise ConfigurationError(f"encoding is {safe_repr(encoding)}, expected one of {names}")
    return _codec(encoding, bits)


@cache
def _codec(encoding: str, bits: int) -> Codec:
    digits, folds, writer, decode = _MAKERS[encoding]
    encode = writer(width_for(len(digits), 2**bits))
    return Codec(encoding, bits, digits, len(encode(0)), folds, encode, decode)


# --- encoding


def _base36_writer(width: int) -> Callable[[int], str]:
    """Return the encoder; that of the default encoding writes 25 digits, five at a time and without a loop."""
    if width != 25:
        return _writer_of(BASE36, width)
    pair, five = 36**2, 36**5
    high, low = table_of(BASE36, 3), table_of(BASE36, 2)

    def encode(number: int) -> str:
        number, e = divmod(number, five)
        number, d = divmod(number, five)
        number, c = divmod(number, five)
        a, b = divmod(number, five)
        return (
            f"{high[a // pair]}{low[a % pair]}{high[b // pair]}{low[b % pair]}{high[c // pair]}{low[c % pair]}"
            f"{high[d // pair]}{low[d % pair]}{high[e // pair]}{low[e % pair]}"
        )

    return encode


def _to_hyphenated(number: int) -> str:
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# --- decoding

_CROCKFORD_TO_32 = str.maketrans(CROCKFORD32 + CROCKFORD32[10:].lower(), BASE36[:32] + BASE36[10:32])


def _from_hex(text: str) -> int:
    return int(text, 16)


def _from_hyphenated(text: str) -> int:
    return int(text.replace("-", ""), 16)


def _from_base36(text: str) -> int:
    return int(text, 36)


def _from_crockford(text: str) -> int:
    return int(text.translate(_CROCKFORD_TO_32), 32)


_MAKERS: dict[str, tuple[str, bool, Callable[[int], Callable[[int], str]], Callable[[str], int]]] = {
    "hyphenated": (BASE36[:16], True, lambda width: _to_hyphenated, _from_hyphenated),
    "hex": (BASE36[:16], True, lambda width: f"%0{width}x".__mod__, _from_hex),
    "decimal": (BASE36[:10], False, lambda width: f"%0{width}d".__mod__, int),
    "base36": (BASE36, False, _base36_writer, _from_base36),
    "base58": (BASE58, False, partial(_writer_of, BASE58), reader_of(BASE58)),
    "crockford32": (CROCKFORD32, True, partial(_writer_of, CROCKFORD32), _from_crockford),
    "typeid": (CROCKFORD32.lower(), False, partial(_writer_of, CROCKFORD32.lower()), _from_crockford),
}
"""Encoding → its digits, whether capitals and small letters are the same, the writer of a width, and the reader."""

ENCODINGS = tuple(_MAKERS)
"""The names of all encodings."""
