"""Numbers as digits, and back, for codecs, key spaces and the checksums of tokens.

Several digits are looked up in a table at a time: one division by 46 656 costs no more than one by 36.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

LARGEST_TABLE = 10_000
"""The texts of a table: so many short ones fit into the cache of a processor, and take 1 MB at most."""


def width_for(base: int, numbers: int) -> int:
    """Return how many digits write so many *numbers*, from 0 on."""
    width = 1
    while base**width < numbers:
        width += 1
    return width


@cache
def table_of(digits: str, length: int) -> list[str]:
    """Return all texts of *length* digits, in order."""
    if length == 1:
        return list(digits)
    return [start + digit for start in table_of(digits, length - 1) for digit in digits]


@cache
def digits_at_once(digits: str, largest: int = LARGEST_TABLE) -> int:
    """Return how many digits are looked up in one table of *largest* texts or fewer; 1 at least."""
    length = 1
    while len(digits) ** (length + 1) <= largest:
        length += 1
    return length


@cache
def writer_of(digits: str, width: int, largest: int = LARGEST_TABLE) -> Callable[[int], str]:
    """Return the function that writes a number with *width* digits. Of a larger number, it writes the last ones."""
    length = min(width, digits_at_once(digits, largest))
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
