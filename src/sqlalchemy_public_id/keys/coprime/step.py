"""Coprime-step keys: short, all different, and in an order that looks random. They are counted, not drawn.

>>> from sqlalchemy_public_id.formats import BASE62
>>> from sqlalchemy_public_id.keys.coprime.step import CoprimeStep
>>> step = CoprimeStep(BASE62, 6)
>>> step.keys(0, 4)
['cJinsN', 'EdRbkk', 'qxAPd7', 'TGtDVU']
>>> step.index("TGtDVU"), step.remaining(4)
(3, 56800235580)

If *step* and *size* have no common factor, adding *step* again and again, modulo *size*, meets each number below *size*
once before any comes again: multiples of *step* generate the whole group of integers modulo *size*. (D. E. Knuth, The
Art of Computer Programming, volume 2, 3.2.1.2, theorem A, with the multiplier 1.)
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, KeySpaceExhausted, safe_repr
from sqlalchemy_public_id.formats._base import Value
from sqlalchemy_public_id.formats.alphabets import character_class, check_texts, in_words, reader_of, writer_of


class KeySpace(Value, ABC):
    """All strings of *length* characters of *alphabet*, each with an index, in an order that the subclass defines.

    A value: immutable, hashable, equal to another one with the same settings; it has no database and keeps no count.
    Subclasses are frozen dataclasses whose fields are the settings; they call ``_describe()`` once.
    """

    alphabet: str
    """The characters of the keys; the position of each is its value as a digit."""
    length: int
    """The number of characters of a key."""
    size: int
    """The number of keys: ``len(alphabet) ** length``."""
    _write: Callable[[int], str]
    _read: Callable[[str], int]
    _regex: re.Pattern[str]

    # --- for subclasses

    @property
    @abstractmethod
    def entropy_bits(self) -> float:
        """The bits of a guess after other keys are known."""

    @abstractmethod
    def _texts(self, first: int, count: int) -> list[str]:
        """Return *count* keys from the index *first* on."""

    @abstractmethod
    def _index(self, text: str) -> int:
        """Return the index of a well-formed key."""

    def _describe(self) -> None:
        length, alphabet = self.length, self.alphabet
        check_texts(length, alphabet)
        if len(alphabet) == 1:
            raise ConfigurationError(f"the alphabet {alphabet!r} is not allowed: one character alone cannot count")
        keep = object.__setattr__  # a key space is frozen
        keep(self, "size", len(alphabet) ** length)
        keep(self, "_write", writer_of(alphabet, length))
        keep(self, "_read", reader_of(alphabet))
        keep(self, "_regex", re.compile(f"{character_class(alphabet)}{{{length}}}"))

    # --- keys

    def key(self, index: int) -> str:
        """Return the key with the *index*, counted from 0.

        :raises KeySpaceExhausted: if the index is too large; the keys never begin again.
        """
        _check_number("index", index)
        return self.keys(index, 1)[0]

    def keys(self, first: int, count: int) -> list[str]:
        """Return the keys with the indices *first* to ``first + count - 1``.

        :raises KeySpaceExhausted: if an index is too large.
        """
        _check_number("first", first)
        _check_number("count", count)
        if count and first + count > self.size:
            raise KeySpaceExhausted(
                f"{self!r} has {self.size} keys, so there is none with the index {first + count - 1}; go on with keys "
                f"of {self.length + 1} characters"
            )
        return self._texts(first, count)

    def index(self, key: object, field: str | None = None) -> int:
        """Return the index of *key*, issued or not: the counterpart of :meth:`key`.

        :param field: the name of the input, for the error message.
        :raises InvalidPublicId: if *key* is malformed.
        """
        if self.is_valid(key):
            return self._index(str.__str__(cast("str", key)))
        reason = "it contains other characters"
        if not isinstance(key, str):
            reason = f"it is of type {type(key).__name__}"
        elif len(key) != self.length:
            reason = "it has 1 character" if len(key) == 1 else f"it has {len(key)} characters"
        raise InvalidPublicId(key, expected=self.expected, reason=reason, field=field)

    def is_valid(self, key: object) -> bool:
        """Return True if *key*, any object, is well-formed."""
        return isinstance(key, str) and self._regex.fullmatch(key) is not None

    def remaining(self, issued: int) -> int:
        """Return how many keys are left after the first *issued* ones."""
        _check_number("issued", issued)
        return max(self.size - issued, 0)

    @property
    def expected(self) -> str:
        """The keys in words, for error messages."""
        return f"{self.length} of {in_words(self.alphabet)}"

    # --- a value

    def _shown(self) -> dict[str, str]:
        """Return the arguments for :func:`repr`; a subclass leaves its defaults out."""
        return {name: repr(value) for name, value in self._settings().items()}

    def __repr__(self) -> str:
        """Return an expression that evaluates to an equal value; a secret is not shown."""
        alphabet, length, *others = self._shown().items()
        arguments = [alphabet[1], length[1], *(f"{name}={value}" for name, value in others)]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings alone."""
        return type(self), tuple(self._settings().values())


def _check_number(name: str, number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{name} is {safe_repr(number)}, expected a whole number of 0 or more")


@dataclass(frozen=True, repr=False)
class CoprimeStep(KeySpace):
    """The strings of *length* characters of *alphabet*, in steps of *step*: the n-th is ``(start + n·step) mod size``.

    **This is obfuscation, and no secret.** The difference of two consecutive keys is the step, and with it every key
    before and after can be listed. If that matters, use
    :class:`~sqlalchemy_public_id.keys.coprime.keyed.KeyedStep`, or random ids.

    Step, start, alphabet and length must never change after keys have been issued; longer keys never meet them.

    >>> CoprimeStep("01234", 1, step=3, start=0).keys(0, 5)
    ['0', '3', '1', '4', '2']

    :raises ConfigurationError: for settings that cannot work, such as a step that would repeat keys too early.
    """

    alphabet: str
    length: int
    step: int | None = None
    """The distance from one key to the next, modulo *size*. By default *size*
    over the golden ratio, 1.618…, rounded down, or the next number above that has no common factor with *size*: the
    keys issued so far then lie as evenly as they can (Knuth, volume 3, 6.4, theorem S)."""
    start: int | None = None
    """The value of the first key; *step* by default, so that zero is the very last key."""

    def __post_init__(self) -> None:
        self._describe()
        size, step = self.size, self._checked_step()
        start = step if self.start is None else self.start
        if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < size:
            raise ConfigurationError(f"start is {safe_repr(start)}, expected a whole number from 0 to {size - 1}")
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "start", start)

    @property
    def entropy_bits(self) -> float:
        """0: two consecutive keys reveal all others."""
        return 0.0

    @property
    def _line(self) -> tuple[int, int]:
        return cast("tuple[int, int]", (self.start, self.step))

    def _texts(self, first: int, count: int) -> list[str]:
        (start, step), size, write = self._line, self.size, self._write
        return [write((start + index * step) % size) for index in range(first, first + count)]

    def _index(self, text: str) -> int:
        start, step = self._line
        return (self._read(text) - start) * pow(step, -1, self.size) % self.size

    def _checked_step(self) -> int:
        size, base, step = self.size, len(self.alphabet), self.step
        if step is None:
            return _default_step(size, base)
        if not isinstance(step, int) or isinstance(step, bool) or step < 1:
            raise ConfigurationError(f"step is {safe_repr(step)}, expected a whole number of 1 or more")
        factor = math.gcd(step, size)
        if factor > 1:
            raise ConfigurationError(
                f"step is {safe_repr(step)}, which has the factor {factor} in common with the {base}**{self.length} "
                f"keys: they would repeat after {size // factor}; step={_next_coprime(step % size or size, base)} has "
                "none"
            )
        return step % size

    def _shown(self) -> dict[str, str]:
        arguments = super()._shown()
        if self.step == _default_step(self.size, len(self.alphabet)):
            del arguments["step"]
        if self.start == self.step:
            del arguments["start"]
        return arguments


def _default_step(size: int, base: int) -> int:
    # never to be changed: it defines the keys of steps without a step
    return _next_coprime((math.isqrt(5 * size * size) - size) // 2, base)


def _next_coprime(number: int, base: int) -> int:
    while math.gcd(number, base) > 1:
        number += 1
    return number
