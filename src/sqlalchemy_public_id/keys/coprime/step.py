"""Coprime-step keys: short and unique, from a counter, in an order that looks random.

>>> from sqlalchemy_public_id.formats import BASE62
>>> from sqlalchemy_public_id.keys.coprime.step import CoprimeStep
>>> step = CoprimeStep(BASE62, 6)
>>> step.keys(0, 4)
['cJinsN', 'EdRbkk', 'qxAPd7', 'TGtDVU']
>>> step.index("TGtDVU"), step.remaining(4)
(3, 56800235580)

If *step* and *size* have no common factor, repeatedly adding *step* modulo *size* visits each number below *size* once
before any is repeated: *step* generates the group of integers modulo *size*. (D. E. Knuth, The Art of Computer
Programming, volume 2, 3.2.1.2, theorem A, with the multiplier 1.)
"""

from __future__ import annotations

import hashlib
import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy_public_id.errors import ConfigurationError, KeySpaceExhausted
from sqlalchemy_public_id.formats._settings import Value
from sqlalchemy_public_id.formats.alphabets import reader_of, writer_of
from sqlalchemy_public_id.formats.nanoid import NanoId
from sqlalchemy_public_id.keys.ranges import is_whole
from sqlalchemy_public_id.messages import safe_repr


class KeySpace(Value, ABC):
    """All strings of *length* characters of *alphabet*, each with an index, in an order that the subclass defines.

    Key spaces are immutable, hashable, and equal if their settings are. They use no database and keep no count.
    Subclasses are frozen dataclasses whose fields are the settings.
    """

    alphabet: str
    """The characters of the keys; the position of each is its value as a digit."""
    length: int
    """The number of characters of a key."""
    size: int
    """The number of keys: ``len(alphabet) ** length``."""
    _form: NanoId

    def __post_init__(self) -> None:
        form = NanoId(self.length, alphabet=self.alphabet)
        if form.capacity == 1:
            raise ConfigurationError(f"the alphabet {self.alphabet!r} is not allowed: expected two characters or more")
        object.__setattr__(self, "_form", form)  # a key space is frozen
        object.__setattr__(self, "size", form.capacity)

    # --- for subclasses

    @property
    @abstractmethod
    def entropy_bits(self) -> float:
        """How hard a key is to guess once others are known, in bits."""

    @abstractmethod
    def _text(self, index: int) -> str:
        """Return the key with the *index*."""

    @abstractmethod
    def _index(self, text: str) -> int:
        """Return the index of a well-formed key."""

    # --- keys

    @property
    def fingerprint(self) -> str:
        """A text that differs from those of other orders: a digest of the alphabet and of the first keys."""
        first = self.keys(0, min(self.size, 16))
        return hashlib.sha256(" ".join([self.alphabet, *first]).encode()).hexdigest()[:16]

    def key(self, index: int) -> str:
        """Return the key with the *index*, counted from 0.

        :raises KeySpaceExhausted: if the index is too large; keys are never repeated.
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
                f"{self!r} has {self.size} keys, so there is none with the index {first + count - 1}; continue with "
                f"keys of {self.length + 1} characters, in a format that accepts these: accepting(…)"
            )
        return [self._text(index) for index in range(first, first + count)]

    def index(self, key: object, field: str | None = None) -> int:
        """Return the index of *key*, issued or not. This is the inverse of :meth:`key`.

        :param field: the name of the input, for the error message.
        :raises InvalidPublicId: if *key* is malformed.
        """
        return self._index(self._form.validate(key, field))

    def is_valid(self, key: object) -> bool:
        """Return True if *key*, any object, is well-formed."""
        return self._form.is_valid(key)

    def remaining(self, issued: int) -> int:
        """Return how many keys are left after the first *issued* ones."""
        _check_number("issued", issued)
        return max(self.size - issued, 0)

    @property
    def expected(self) -> str:
        """The keys in words, for error messages."""
        return self._form.expected

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings alone."""
        return type(self), tuple(self._settings().values())


def _check_number(name: str, number: object, error: type[Exception] = ValueError) -> None:
    if not is_whole(number, 0, math.inf):
        raise error(f"{name} is {safe_repr(number)}, expected a whole number of 0 or more")


@dataclass(frozen=True)
class CoprimeStep(KeySpace):
    """The strings of *length* characters of *alphabet*, in steps of *step*: the n-th is ``(start + n·step) mod size``.

    **This is obfuscation, not encryption.** The difference of two consecutive keys is the step, which reveals every key
    before and after. If that matters, use :class:`~sqlalchemy_public_id.keys.coprime.keyed.KeyedStep`, or random ids.

    Changing step, start, alphabet or length later can repeat issued keys; only increasing the length cannot.

    >>> CoprimeStep("01234", 1, step=3, start=0).keys(0, 5)
    ['0', '3', '1', '4', '2']

    :raises ConfigurationError: for invalid settings, such as a step that would repeat keys too early.
    """

    alphabet: str
    length: int
    step: int | None = None
    """The distance from one key to the next, modulo *size*. By default, *size* divided by the golden ratio, rounded
    down, or the next larger number without a common factor with *size*. It spreads issued keys as evenly as possible
    (Knuth, volume 3, 6.4, theorem S)."""
    start: int | None = None
    """The value of the first key, modulo *size*; by default *step*, so that zero is the last key of all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.size
        # the default must never change: it defines the keys of every CoprimeStep without an explicit step
        step = self._coprime((math.isqrt(5 * size * size) - size) // 2) if self.step is None else self.step
        start = step if self.start is None else self.start
        _check_number("step", step, ConfigurationError)
        _check_number("start", start, ConfigurationError)
        factor = math.gcd(step, size)
        if factor > 1:
            raise ConfigurationError(
                f"step is {safe_repr(step)}, which has the factor {factor} in common with the "
                f"{len(self.alphabet)}**{self.length} keys: they would repeat after {size // factor}; "
                f"step={self._coprime(step % size or size)} has none"
            )
        object.__setattr__(self, "step", step % size)
        object.__setattr__(self, "start", start % size)

    @property
    def entropy_bits(self) -> float:
        """0: two consecutive keys reveal all others."""
        return 0.0

    @property
    def _line(self) -> tuple[int, int]:
        return cast("tuple[int, int]", (self.start, self.step))

    def _text(self, index: int) -> str:
        start, step = self._line
        return writer_of(self.alphabet, self.length)((start + index * step) % self.size)

    def _index(self, text: str) -> int:
        start, step = self._line
        return (reader_of(self.alphabet)(text) - start) * pow(step, -1, self.size) % self.size

    def _coprime(self, number: int) -> int:
        return next(each for each in itertools.count(number) if math.gcd(each, self.size) == 1)
