"""Alphabets for random ids, as named constants.

Each is a plain string. Any other string of distinct printable ASCII characters is an alphabet, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby, product
from typing import Final, TypeAlias

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import safe_repr

__all__ = ["BASE36", "BASE58", "BASE62", "CROCKFORD32", "UNAMBIGUOUS", "URLSAFE64"]

BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
"""Digits and lowercase letters, the default. A double click selects the whole id, and ignoring case does no harm."""

BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""Bitcoin's alphabet: digits and letters without ``0 O I l``."""

BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""Digits and letters of both cases."""

URLSAFE64: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""The URL-safe alphabet of RFC 4648. As it contains ``-`` and ``_``, a double click may select only part of an id, and
a prefix needs another separator."""

CROCKFORD32: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32, without ``I L O U``. NanoIds with it accept lowercase letters with ``ignore_case=True``."""

UNAMBIGUOUS: Final = "6789bcdfghjkmnpqrtwz"
"""No vowels and no look-alikes (``0 O 1 I l 2 Z 5 S`` …), so ids spell no words and can be read out on the phone. If
people type them, add ``ignore_case=True``."""

Case: TypeAlias = Callable[[str], str]
"""Returns a text in one case: ``str.lower`` or ``str.upper``."""

MAX_LENGTH = 255
"""The maximum length of a public id, which fits into a unique index on every database."""

_LARGEST_TABLE = 50_000
"""The most texts in a table: 36**3 texts of three digits take 3 MB, but 58**3 texts of base 58 would take 10 MB."""


def is_printable(text: str) -> bool:
    """Return True if *text* is one or more visible ASCII characters."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def check_texts(length: object, alphabet: object) -> None:
    """Check the settings of ids of *length* characters of *alphabet*.

    :raises ConfigurationError: if no such id exists, or the alphabet repeats a character.
    """
    if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MAX_LENGTH:
        raise ConfigurationError(f"length is {safe_repr(length)}, expected a whole number from 1 to {MAX_LENGTH}")
    if not isinstance(alphabet, str) or not is_printable(alphabet):
        raise ConfigurationError(f"the alphabet {alphabet!r} is not allowed: expected printable ASCII characters")
    if len(set(alphabet)) != len(alphabet):
        repeated = sorted({character for character in alphabet if alphabet.count(character) > 1})
        raise ConfigurationError(f"the alphabet {alphabet!r} is not allowed: it repeats {' '.join(repeated)}")


def check_separator(prefix: object, separator: object, characters: str, what: str, advice: str) -> None:
    """Check that no body of an id, made of *characters*, contains the *separator* after its *prefix*.

    :raises ConfigurationError: if the end of the prefix would be ambiguous.
    """
    if prefix is not None and isinstance(separator, str) and set(separator) & set(characters):
        raise ConfigurationError(
            f"the {what} contains the separator {separator!r}, so the end of the prefix would be ambiguous; "
            f"use a separator such as {advice}"
        )


# --- as a regular expression, and in words


def escaped(text: str, special: str = r"^$\.*+?()[]{}|/") -> str:
    """Escape *text* for regular expressions of Python and, unlike :func:`re.escape`, of ECMAScript (JSON schemas)."""
    return "".join(f"\\{character}" if character in special else character for character in text)


@cache
def character_class(alphabet: str) -> str:
    """Return a regular expression for one character of *alphabet*."""
    parts: list[str] = []
    for first, last in _runs(alphabet):
        between = "-" if ord(last) - ord(first) > 1 else ""
        parts.append(between.join(escaped(end, "\\]^-[") for end in dict.fromkeys((first, last))))
    return f"[{''.join(parts)}]"


def anchored(patterns: Iterable[str]) -> str:
    """Return an anchored regular expression for the texts that one of *patterns* matches."""
    first, *others = dict.fromkeys(patterns)
    return f"^(?:{'|'.join([first, *others])})$" if others else f"^{first}$"


def both_cases(alphabet: str) -> str:
    """Return the letters of *alphabet* in both cases, and its other characters."""
    return "".join(dict.fromkeys(alphabet.lower() + alphabet.upper()))


def in_either_case(text: str) -> str:
    """Return a regular expression for *text* with each of its letters in either case."""
    return "".join(character_class(both_cases(each)) if each.isalpha() else escaped(each) for each in text)


def case_of(alphabet: str, ignore_case: object) -> Case | None:
    """Return the function that writes a text in the case of *alphabet*; ``None`` unless *ignore_case* is True.

    :raises ConfigurationError: if *alphabet* has letters of both cases, or *ignore_case* is neither True nor False.
    """
    if not isinstance(ignore_case, bool):
        raise ConfigurationError(f"ignore_case is {safe_repr(ignore_case)}, expected True or False")
    if not ignore_case:
        return None
    for case in (str.lower, str.upper):
        if case(alphabet) == alphabet:
            return case
    raise ConfigurationError(
        f"ignore_case=True needs letters of one case, but the alphabet {alphabet!r} has both, so two ids could differ "
        f"only in case; use an alphabet such as BASE36, CROCKFORD32 or UNAMBIGUOUS"
    )


@cache
def in_words(alphabet: str) -> str:
    """Return *alphabet* in words: ``0-9 a-z``."""
    return " ".join(first if first == last else f"{first}-{last}" for first, last in _runs(alphabet))


def _runs(alphabet: str) -> Iterator[tuple[str, str]]:
    """Yield the first and last character of each run of consecutive characters in *alphabet*."""
    for _, run in groupby(enumerate(sorted(alphabet)), key=lambda place: ord(place[1]) - place[0]):
        characters = [character for _, character in run]
        yield characters[0], characters[-1]


# --- numbers as digits; one division by 46,656, for three digits in a table, costs no more than one by 36


def width_for(base: int, numbers: int) -> int:
    """Return how many digits write *numbers* numbers, from 0 on."""
    width = 1
    while base**width < numbers:
        width += 1
    return width


@cache
def table_of(digits: str, length: int) -> list[str]:
    """Return all texts of *length* digits, in order."""
    return ["".join(text) for text in product(digits, repeat=length)]


def digits_at_once(digits: str) -> int:
    """Return how many digits are looked up in one table."""
    return width_for(len(digits), _LARGEST_TABLE + 1) - 1


@cache
def writer_of(digits: str, width: int) -> Callable[[int], str]:
    """Return the function that writes a number with *width* digits. Of a larger number, it writes the last digits."""
    length = min(width, digits_at_once(digits))
    table = table_of(digits, length)
    size: int = len(digits) ** length
    pieces = -(-width // length)
    surplus = pieces * length - width

    def write(number: int) -> str:
        text = ""
        for _ in range(pieces):
            number, piece = divmod(number, size)
            text = table[piece] + text
        return text[surplus:]

    return write


@cache
def reader_of(digits: str) -> Callable[[str], int]:
    """Return the function that reads a number written with *digits*."""
    values = {digit: value for value, digit in enumerate(digits)}
    base = len(digits)

    def read(text: str) -> int:
        number = 0
        for digit in text:
            number = number * base + values[digit]
        return number

    return read
