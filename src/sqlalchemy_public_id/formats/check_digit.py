"""ISO 7064 MOD 37,36: one character that catches mistyped ids.

The check character detects every single mistyped character and nearly every pair of swapped neighbours,
before the database is asked. The method (ISO/IEC 7064:2003, the hybrid system MOD 37,36) is defined for the 36 digits
and letters in their usual order, and for nothing else.

>>> check_character("a12425gabc1234002")
'm'
>>> is_checked("a12425gabc1234002m"), is_checked("a12425gabc1234020m")
(True, False)
"""

from __future__ import annotations

from sqlalchemy_public_id.formats.alphabets import BASE36

__all__ = ["check_character", "is_checked"]

_VALUES = {character: value for value, character in enumerate(BASE36)} | {
    character: value for value, character in enumerate(BASE36.upper())
}


def _product(text: str) -> int:
    """The product after all characters of *text*, each added MOD 36 and doubled MOD 37."""
    product = 36
    values = _VALUES
    for character in text:
        total = (product + values[character]) % 36 or 36
        product = 2 * total % 37
    return product


def check_character(text: str, alphabet: str = BASE36) -> str:
    """The character to append to *text*: a character of *alphabet*, the 36 digits and letters of one case."""
    return alphabet[(37 - _product(text)) % 36]


def is_checked(text: str) -> bool:
    """Whether *text*, its last character included, satisfies the check."""
    return (_product(text[:-1]) + _VALUES[text[-1]]) % 36 == 1
