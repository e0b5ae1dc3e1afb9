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
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.formats._base import MAX_LENGTH, Format, character_class, in_words, is_printable
from sqlalchemy_public_id.formats.alphabets import BASE36
from sqlalchemy_public_id.formats.check_digit import check_character, is_checked
from sqlalchemy_public_id.formats.entropy import RandomText

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
        if not isinstance(length, int) or isinstance(length, bool) or length < 1 or length > MAX_LENGTH:
            raise ConfigurationError(f"length is {shown(length)}, expected a whole number from 1 to {MAX_LENGTH}")
        if not isinstance(alphabet, str) or not is_printable(alphabet):
            raise ConfigurationError(f"the alphabet {alphabet!r} is not allowed: expected printable ASCII characters")
        if len(set(alphabet)) != len(alphabet):
            twice = sorted({character for character in alphabet if alphabet.count(character) > 1})
            raise ConfigurationError(f"the alphabet {alphabet!r} is not allowed: it repeats {' '.join(twice)}")
        if self.prefix is not None and set(str(self.separator)) & set(alphabet):
            raise ConfigurationError(
                f"the alphabet contains the separator {self.separator!r}, so the prefix could not be told: "
                f"use a separator such as '.' or '~', or another alphabet"
            )
        if not isinstance(self.check_digit, bool):
            raise ConfigurationError(f"check_digit is {shown(self.check_digit)}, expected True or False")
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

    def prefixed(self, prefix: str | None) -> Self:
        return type(self)(**dict(self._settings(), prefix=prefix))._with_accepted(self._accepted)

    def _with_accepted(self, older: tuple[Format, ...]) -> Self:
        copy = type(self)(*self._settings().values())
        object.__setattr__(copy, "_accepted", older)
        return copy

    def _settings(self) -> dict[str, Any]:
        return {setting.name: getattr(self, setting.name) for setting in fields(self) if setting.init}

    def __repr__(self) -> str:
        """A constructor call, which :func:`eval` turns back into an equal format."""
        defaults = {setting.name: setting.default for setting in fields(self)}
        given = ", ".join(f"{name}={value!r}" for name, value in self._settings().items() if value != defaults[name])
        older = f".accepting({', '.join(map(repr, self._accepted))})" if self._accepted else ""
        return f"{type(self).__name__}({given}){older}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the settings; ids made ahead stay where they are, or two processes would share them."""
        return _rebuild, (type(self), tuple(self._settings().values()), self._accepted)


def _rebuild(cls: type[NanoId], settings: tuple[Any, ...], older: tuple[Format, ...]) -> NanoId:
    return cls(*settings).accepting(*older)
