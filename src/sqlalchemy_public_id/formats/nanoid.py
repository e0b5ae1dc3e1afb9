"""NanoID: random text over an alphabet, with an optional check digit.

>>> format = NanoId(prefix="cus")
>>> text = format.generate()
>>> text.startswith("cus_"), len(text), format.is_valid(text)
(True, 16, True)

The default, 12 characters of base 36, has 62 bits. At 1,000 ids an hour, a duplicate is 1 % likely after 35 years;
:meth:`~sqlalchemy_public_id.formats.Format.budget` computes this for any format.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats._settings import named_settings
from sqlalchemy_public_id.formats.alphabets import (
    BASE36,
    both_cases,
    case_of,
    character_class,
    check_separator,
    check_texts,
    in_words,
)
from sqlalchemy_public_id.formats.pool import RandomText
from sqlalchemy_public_id.messages import safe_repr

__all__ = ["NanoId"]


@named_settings
@dataclass(frozen=True, eq=False, repr=False)
class NanoId(Format):
    """Random ids of *length* characters of *alphabet*, with an optional *prefix* and check digit.

    All ids are equally likely. An id reveals nothing about other ids or about its row.

    :raises ConfigurationError: for invalid settings, such as a separator that the alphabet contains.
    """

    length: int = 12
    """The number of random characters, without prefix, separator and check digit."""
    _: KW_ONLY
    alphabet: str = BASE36
    """The characters of the random part."""
    prefix: str | None = None
    separator: str = "_"
    check_digit: bool = False
    """True to append an ISO 7064 MOD 37,36 character, which distinguishes a mistyped id from an unknown one."""
    ignore_case: bool = False
    """True to accept ids, prefix included, in either case. They are stored and shown in the case of the alphabet."""
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        length, alphabet = self.length, self.alphabet
        check_texts(length, alphabet)
        case = case_of(alphabet, self.ignore_case)
        accepted = alphabet if case is None else both_cases(alphabet)
        check_separator(self.prefix, self.separator, accepted, "alphabet", "'.' or '~', or another alphabet")
        if not isinstance(self.check_digit, bool):
            raise ConfigurationError(f"check_digit is {safe_repr(self.check_digit)}, expected True or False")
        if self.check_digit and alphabet not in (BASE36, BASE36.upper()):
            raise ConfigurationError(
                f"check_digit is defined (ISO 7064 MOD 37,36) for the 36 digits and letters, not for {alphabet!r}; "
                f"use alphabet=BASE36"
            )
        total = length + self.check_digit
        words = [in_words(alphabet), "in either case" if case else "", "with a check digit" if self.check_digit else ""]
        expected = f"{total} of {' '.join(filter(None, words))}"
        pattern = f"{character_class(accepted)}{{{total}}}"
        self._describe(pattern, total, expected, case, ignore_case=self.ignore_case)
        object.__setattr__(self, "_random", RandomText(alphabet, length))

    _random: ClassVar[RandomText]  # each format has its own, set above; a ClassVar is not a field

    @property
    def capacity(self) -> int:
        capacity: int = len(self.alphabet) ** self.length
        return capacity

    @property
    def entropy_bits(self) -> float:
        return self.length * math.log2(len(self.alphabet))

    @property
    def _has_exact_pattern(self) -> bool:
        return not self.check_digit and type(self)._accepts is NanoId._accepts

    def _body_spec(self) -> dict[str, Any]:
        check = "ISO 7064 MOD 37,36" if self.check_digit else None
        return {"kind": "text", "alphabet": self.alphabet, "length": self.length, "check_digit": check}

    def _make(self, count: int) -> list[str]:
        texts = self._random(count)
        if self.check_digit:
            alphabet = self.alphabet
            texts = [text + check_character(text, alphabet) for text in texts]
        lead = self._lead
        return [lead + text for text in texts] if lead else texts

    def _accepts(self, text: str) -> bool:
        if not self._own_regex.fullmatch(text):
            return False
        return not self.check_digit or is_checked(text[len(self._lead) :])

    def _explain(self, body: str) -> str:
        is_mistyped = self.check_digit and set(self._case(body) if self._case else body) <= set(self.alphabet)
        return "its check digit is wrong, so it is mistyped" if is_mistyped else super()._explain(body)


# --- the check digit

_VALUES = {digit: value for digits in (BASE36, BASE36.upper()) for value, digit in enumerate(digits)}


def check_character(text: str, alphabet: str = BASE36) -> str:
    """Return the ISO/IEC 7064:2003 MOD 37,36 check character of *text*, for the 36 digits and letters of one case.

    It detects every single mistyped character and nearly all swaps of adjacent characters, without the database.

    >>> check_character("a12425gabc1234002")
    'm'
    >>> is_checked("a12425gabc1234002m"), is_checked("a12425gabc1234020m")
    (True, False)
    """
    return alphabet[(37 - _product(text)) % 36]


def is_checked(text: str) -> bool:
    """Return True if the last character of *text* is the check character of the others."""
    return (_product(text[:-1]) + _VALUES[text[-1]]) % 36 == 1


def _product(text: str) -> int:
    """Return the product of the hybrid system: each character is added MOD 36, and the sum doubled MOD 37."""
    product = 36
    values = _VALUES
    for character in text:
        total = (product + values[character]) % 36 or 36
        product = 2 * total % 37
    return product
