"""NanoID: random text over an alphabet, short because the alphabet is large.

>>> format = NanoId(prefix="cus")
>>> text = format.generate()
>>> text.startswith("cus_"), len(text), format.is_valid(text)
(True, 16, True)

The default, 12 characters of base 36, holds 62 bits: the first duplicate is 1 % likely after 35 years of 1 000 ids an
hour (:meth:`~sqlalchemy_public_id.formats.Format.budget` does the arithmetic for any format).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.formats._base import Format, character_class, check_texts, in_words
from sqlalchemy_public_id.formats.alphabets import BASE36
from sqlalchemy_public_id.formats.check_digit import check_character, is_checked
from sqlalchemy_public_id.formats.pool import RandomText

__all__ = ["NanoId"]


@dataclass(frozen=True, repr=False)
class NanoId(Format):
    """Random ids of *length* characters of *alphabet*, with an optional *prefix* and check digit.

    Every id is equally likely, and nothing can be learned from one about another or about its row.

    :raises ConfigurationError: where the settings cannot work, such as a separator that the alphabet contains.
    """

    length: int = 12
    """How many random characters an id has; prefix, separator and check digit come on top."""
    alphabet: str = BASE36
    """The characters to draw from."""
    prefix: str | None = None
    separator: str = "_"
    check_digit: bool = False
    """Whether an ISO 7064 MOD 37,36 character is appended, which tells a mistyped id from an unknown one."""
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        length, alphabet = self.length, self.alphabet
        check_texts(length, alphabet)
        if self.prefix is not None and set(str(self.separator)) & set(alphabet):
            raise ConfigurationError(
                f"the alphabet contains the separator {self.separator!r}, so the prefix could not be told: "
                f"use a separator such as '.' or '~', or another alphabet"
            )
        if not isinstance(self.check_digit, bool):
            raise ConfigurationError(f"check_digit is {safe_repr(self.check_digit)}, expected True or False")
        if self.check_digit and alphabet not in (BASE36, BASE36.upper()):
            raise ConfigurationError(
                f"check_digit is defined (ISO 7064 MOD 37,36) for the 36 digits and letters, not for {alphabet!r}: "
                f"use alphabet=BASE36"
            )
        total = length + self.check_digit
        of = f"{total} of {in_words(alphabet)}"
        expected = f"{of} with a check digit" if self.check_digit else of
        self._describe(f"{character_class(alphabet)}{{{total}}}", total, expected)
        object.__setattr__(self, "_random", RandomText(alphabet, length))

    _random: ClassVar[RandomText]  # each format has its own, set above; as a ClassVar it is no field

    @property
    def capacity(self) -> int:
        capacity: int = len(self.alphabet) ** self.length
        return capacity

    @property
    def entropy_bits(self) -> float:
        return self.length * math.log2(len(self.alphabet))

    def _make(self, count: int) -> list[str]:
        texts = self._random(count)
        if self.check_digit:
            alphabet = self.alphabet
            texts = [text + check_character(text, alphabet) for text in texts]
        lead = self._lead
        return [lead + text for text in texts] if lead else texts

    def _fault(self, body: str) -> str | None:
        return "its check digit is wrong, so it is mistyped" if self.check_digit and not is_checked(body) else None
