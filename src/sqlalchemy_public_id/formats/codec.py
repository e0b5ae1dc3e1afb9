"""Integers as text of fixed width, and back: the encodings of :class:`~.Uuid7` and similar formats.

>>> codec = codec_of("base36", 128)
>>> codec.encode(2**128 - 1), codec.decode("000000000000000000000000z")
('f5lxx1zz5pnorynqglhzmsp33', 35)

Each number has exactly one text, padded with zeros. The digits of each encoding are in the order of ASCII, so texts
sort like their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import groupby

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats.alphabets import (
    BASE36,
    BASE58,
    BASE62,
    CROCKFORD32,
    Case,
    both_cases,
    character_class,
    in_words,
    reader_of,
    width_for,
    writer_of,
)
from sqlalchemy_public_id.messages import safe_repr

__all__ = ["ENCODINGS", "Codec", "BitPattern", "codec_of"]

BitPattern = tuple[int, int]
"""A mask and a value, for the numbers with ``number & mask == value``."""


@dataclass(frozen=True, eq=False)
class Codec:
    """One encoding, for numbers of ``bits`` bits. :func:`codec_of` returns the same object for the same arguments."""

    encoding: str
    bits: int
    digits: str
    """The digits, in the order of their values."""
    case: Case | None
    """Return a text in the case that :attr:`encode` writes; ``None`` unless the specification ignores case."""
    encode: Callable[[int], str]
    """Return the text of a number from 0 to ``2**bits - 1``."""
    decode: Callable[[str], int]
    """Return the number of a text that :meth:`pattern` matches. It may be too large unless :attr:`is_exact`."""

    @property
    def is_exact(self) -> bool:
        """True if each digit encodes a fixed number of bits, so the pattern matches valid texts only."""
        return len(self.digits).bit_count() == 1

    @cached_property
    def width(self) -> int:
        """The number of characters of each text."""
        return len(self.encode(0))

    @cached_property
    def characters(self) -> str:
        """All characters that a text may contain."""
        return "".join(sorted({*self._cases(self.digits), *("-" if self.hyphens else "")}))

    @cached_property
    def expected(self) -> str:
        """The description of the texts in error messages."""
        return f"{'8-4-4-4-12' if self.hyphens else self.width} of {in_words(self.digits)}"

    def decoded(self, text: str) -> int | None:
        """Return the number of *text*, even if too large; ``None`` for other characters or misplaced hyphens."""
        any_digits = [self.digits] * (self.width - len(self.hyphens))
        return self.decode(text) if re.fullmatch(self._pattern(any_digits), text) else None

    def pattern(self, bits: BitPattern) -> str:
        """Return a regular expression for the texts of the numbers with the bit pattern *bits*.

        Unless :attr:`is_exact`, only the first digit is restricted.
        """
        if not self.is_exact:
            highest = self.encode(2**self.bits - 1)[0]
            return self._pattern([self.digits.partition(highest)[0] + highest, *[self.digits] * (self.width - 1)])
        base, (mask, value) = len(self.digits), bits
        mask |= -1 << self.bits  # the bits above the highest one are zero
        step = base.bit_length() - 1
        shifts = range(step * (self.width - len(self.hyphens) - 1), -1, -step)
        return self._pattern(
            "".join(
                digit
                for number, digit in enumerate(self.digits)
                if not (number << at ^ value) & mask & ((base - 1) << at)
            )
            for at in shifts
        )

    def _pattern(self, choices: Iterable[str]) -> str:
        """Return a regular expression for the texts with one of these digits at each place."""
        classes = [digits if len(digits) == 1 else character_class(digits) for digits in map(self._cases, choices)]
        for at in self.hyphens:
            classes.insert(at, "-")
        runs = ((each, len(list(run))) for each, run in groupby(classes))
        return "".join(each if length == 1 else f"{each}{{{length}}}" for each, length in runs)

    @property
    def hyphens(self) -> tuple[int, ...]:
        """The places of the hyphens in a text."""
        return (8, 13, 18, 23) if self.encoding == "hyphenated" else ()

    def _cases(self, digits: str) -> str:
        return digits if self.case is None else both_cases(digits)


def codec_of(encoding: str, bits: int, allowed: tuple[str, ...] = ()) -> Codec:
    """Return the codec for *encoding* and numbers of *bits* bits.

    :raises ConfigurationError: if *encoding* is unknown, or not one of those *allowed*.
    """
    if not isinstance(encoding, str) or encoding not in (allowed or ENCODINGS):
        names = ", ".join(map(repr, allowed or ENCODINGS))
        raise ConfigurationError(f"encoding is {safe_repr(encoding)}, expected one of {names}")
    return _codec(encoding, bits)


@cache
def _codec(encoding: str, bits: int) -> Codec:
    digits, case, writer, decode = _PARTS[encoding]
    return Codec(encoding, bits, digits, case, writer(width_for(len(digits), 2**bits)), decode)


def _to_hyphenated(number: int) -> str:
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_CROCKFORD_TO_32 = str.maketrans(CROCKFORD32 + CROCKFORD32[10:].lower(), BASE36[:32] + BASE36[10:32])


def _from_crockford(text: str) -> int:
    return int(text.translate(_CROCKFORD_TO_32), 32)


_PARTS: dict[str, tuple[str, Case | None, Callable[[int], Callable[[int], str]], Callable[[str], int]]] = {
    "hyphenated": (BASE36[:16], str.lower, lambda width: _to_hyphenated, lambda text: int(text.replace("-", ""), 16)),
    "hex": (BASE36[:16], str.lower, lambda width: f"%0{width}x".__mod__, lambda text: int(text, 16)),
    "decimal": (BASE36[:10], None, lambda width: f"%0{width}d".__mod__, int),
    "base36": (BASE36, None, partial(writer_of, BASE36), lambda text: int(text, 36)),
    "base58": (BASE58, None, partial(writer_of, BASE58), reader_of(BASE58)),
    "base62": (BASE62, None, partial(writer_of, BASE62), reader_of(BASE62)),
    "crockford32": (CROCKFORD32, str.upper, partial(writer_of, CROCKFORD32), _from_crockford),
    "typeid": (CROCKFORD32.lower(), None, partial(writer_of, CROCKFORD32.lower()), _from_crockford),
}
"""Encoding → its digits, the case of new texts if it is ignored, the writer of a width, and the reader."""

ENCODINGS = tuple(_PARTS)
"""The names of all encodings."""
