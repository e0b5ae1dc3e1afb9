"""Coprime-step keys: short, all different, and in an order that looks random. They are counted, not drawn.

>>> from sqlalchemy_public_id import BASE62
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from operator import add
from typing import Any, ClassVar, cast

from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, KeySpaceExhausted, safe_repr
from sqlalchemy_public_id.formats._base import Value
from sqlalchemy_public_id.formats.alphabets import (
    character_class,
    check_texts,
    digits_at_once,
    in_words,
    reader_of,
    table_of,
    writer_of,
)


class KeySpace(Value, ABC):
    """All strings of *length* characters of *alphabet*, each with an index, in an order that the subclass defines.

    A value: immutable, hashable, equal to another one with the same settings; it has no database and keeps no count.
    Subclasses are frozen dataclasses whose fields are the settings and ``_before``; they call ``_describe()`` once.
    """

    alphabet: str
    """The characters of the keys; the position of each is its value as a digit."""
    length: int
    """The number of characters of a key; those from before :meth:`extend` have fewer."""
    _before: KeySpace | None
    """The shorter keys that are issued first."""
    _kept: ClassVar[tuple[str, ...]] = ("alphabet",)
    """The settings that :meth:`extend` leaves as they are."""

    # --- for subclasses

    @property
    @abstractmethod
    def entropy_bits(self) -> float:
        """The bits of a guess after other keys are known."""

    @abstractmethod
    def extend(self, length: int | None = None) -> Self:
        """Return the same keys with the same indices, followed by the keys of *length* characters."""

    @abstractmethod
    def _text(self, place: int) -> str:
        """Return the key of this length at *place*, from 0 to ``size - 1``."""

    def _texts(self, place: int, count: int) -> list[str]:
        """Return *count* keys from *place* on."""
        return [self._text(at) for at in range(place, place + count)]

    @abstractmethod
    def _place(self, text: str) -> int:
        """Return the place of a well-formed key of this length."""

    def _describe(self) -> None:
        length, alphabet = self.length, self.alphabet
        check_texts(length, alphabet)
        if len(alphabet) == 1:
            raise ConfigurationError(f"the alphabet {alphabet!r} is not allowed: one character alone cannot count")
        size: int = len(alphabet) ** length
        keep = object.__setattr__  # a key space is frozen
        keep(self, "size", size)
        keep(self, "_first", 0)
        keep(self, "_write", writer_of(alphabet, length))
        keep(self, "_regex", re.compile(f"{character_class(alphabet)}{{{length}}}"))
        keep(self, "_read", reader_of(alphabet))

    size: int
    """The number of keys of this length: ``len(alphabet) ** length``."""
    _first: int
    _write: Callable[[int], str]
    _read: Callable[[str], int]
    _regex: re.Pattern[str]

    # --- keys

    def key(self, index: int) -> str:
        """Return the key with the *index*, counted from 0.

        :raises KeySpaceExhausted: if the index is too large; the keys never begin again.
        """
        _check_number("index", index)
        place = index - self._first
        if place < 0:
            return cast("KeySpace", self._before).key(index)
        if place >= self.size:
            raise self._exhausted(index)
        return self._text(place)

    def keys(self, first: int, count: int) -> list[str]:
        """Return the keys with the indices *first* to ``first + count - 1``, several times faster than one by one.

        :raises KeySpaceExhausted: if an index is too large.
        """
        _check_number("first", first)
        _check_number("count", count)
        if count and first + count > self.capacity:
            raise self._exhausted(first + count - 1)
        keys: list[str] = []
        for part in self.parts():
            begin, end = max(first, part._first), min(first + count, part._first + part.size)
            if begin < end:
                own = part._texts(begin - part._first, end - begin)
                keys = keys + own if keys else own
        return keys

    def index(self, key: object, field: str | None = None) -> int:
        """Return the index of *key*, issued or not: the counterpart of :meth:`key`.

        :param field: the name of the input, for the error message.
        :raises InvalidPublicId: if *key* is malformed.
        """
        for part in self.parts():
            if part._accepts(key):
                return part._first + part._place(str.__str__(cast("str", key)))
        raise InvalidPublicId(key, expected=self.expected, reason=self._reason(key), field=field)

    def is_valid(self, key: object) -> bool:
        """Return True if *key*, any object, is well-formed."""
        return any(part._accepts(key) for part in self.parts())

    @property
    def capacity(self) -> int:
        """The number of keys of all lengths."""
        return self._first + self.size

    def remaining(self, issued: int) -> int:
        """Return how many keys are left after the first *issued* ones."""
        if issued < 0:
            raise ValueError(f"issued is {issued}, expected 0 or more")
        return max(self.capacity - issued, 0)

    @property
    def expected(self) -> str:
        """The keys in words, for error messages."""
        return " or ".join(f"{part.length} of {in_words(part.alphabet)}" for part in reversed(list(self.parts())))

    @property
    def before(self) -> KeySpace | None:
        """The shorter keys, which are issued first: what this one was extended from."""
        return self._before

    def parts(self) -> Iterator[KeySpace]:
        """Yield one part per length, the shortest first and this one last."""
        if self._before is not None:
            yield from self._before.parts()
        yield self

    def _after(self, before: KeySpace) -> Self:
        """Continue after *before*. Mutates self: only for an object under construction."""
        if self.length <= before.length:
            raise ConfigurationError(
                f"length is {self.length}, expected more than the {before.length} characters of the keys before: "
                f"keys of one length would clash"
            )
        object.__setattr__(self, "_before", before)
        object.__setattr__(self, "_first", before.capacity)
        return self

    def _accepts(self, key: object) -> bool:
        return isinstance(key, str) and len(key) == self.length and self._regex.fullmatch(key) is not None

    def _reason(self, key: object) -> str:
        if not isinstance(key, str):
            return f"it is of type {type(key).__name__}"
        if any(len(key) == part.length for part in self.parts()):
            return "it contains other characters"
        return "it has 1 character" if len(key) == 1 else f"it has {len(key)} characters"

    def _exhausted(self, index: int) -> KeySpaceExhausted:
        return KeySpaceExhausted(
            f"{self!r} has {self.capacity} keys, so there is none with the index {safe_repr(index)}; extend() goes on "
            f"with keys of {self.length + 1} characters, and leaves those that were issued as they are"
        )

    # --- a value

    def _shown(self) -> dict[str, str]:
        """Return the arguments for :func:`repr`; a subclass leaves its defaults out."""
        return {name: repr(value) for name, value in self._settings().items()}

    def __repr__(self) -> str:
        """Return an expression that evaluates to an equal value; a secret is not shown."""
        arguments = self._shown()
        if self._before is None:
            return f"{type(self).__name__}({_call(arguments)})"
        own = {name: value for name, value in arguments.items() if name not in self._kept}
        return f"{self._before!r}.extend({_call(own)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings alone."""
        return self._rebuild, (self._settings(), self._before)

    @classmethod
    def _rebuild(cls, settings: dict[str, Any], before: KeySpace | None) -> Self:
        space = cls(**settings)
        return space if before is None else space._after(before)


def _call(arguments: dict[str, str]) -> str:
    positional = ("alphabet", "length")
    return ", ".join(value if name in positional else f"{name}={value}" for name, value in arguments.items())


def _check_number(name: str, number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{name} is {safe_repr(number)}, expected a whole number of 0 or more")


_AT_ONCE = 1024
_LIMB = 2**52
"""A chunk of these adds up to less than 2**63, below which :class:`range` counts in machine words."""


@dataclass(frozen=True, repr=False)
class CoprimeStep(KeySpace):
    """The strings of *length* characters of *alphabet*, in steps of *step*: the n-th is ``(start + n·step) mod size``.

    **This is obfuscation, and no secret.** The difference of two consecutive keys is the step, and with it every key
    before and after can be listed. If that matters, use
    :class:`~sqlalchemy_public_id.keys.coprime.keyed.KeyedStep`, or random ids.

    Step, start, alphabet and length must never change after keys have been issued; :meth:`extend` adds longer keys.

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
    _before: KeySpace | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._describe()
        size = self.size
        step = self._checked_step()
        start = step if self.start is None else self.start
        if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < size:
            raise ConfigurationError(f"start is {safe_repr(start)}, expected a whole number from 0 to {size - 1}")
        keep = object.__setattr__
        keep(self, "step", step)
        keep(self, "start", start)
        keep(self, "_line", (start, step))
        keep(self, "_inverse", pow(step, -1, size))

    _line: ClassVar[tuple[int, int]]  # each one has its own, set above; as a ClassVar it is no field
    _inverse: ClassVar[int]

    @property
    def entropy_bits(self) -> float:
        """0: two consecutive keys reveal all others."""
        return 0.0

    def extend(self, length: int | None = None, *, step: int | None = None, start: int | None = None) -> CoprimeStep:
        """Return the same keys with the same indices, followed by the keys of *length* characters.

        :param length: more than now; one more by default.
        :param step: for the longer keys, as in the constructor.
        :param start: for the longer keys, as in the constructor.

        >>> longer = CoprimeStep("01", 2).extend()
        >>> longer.keys(0, 12)
        ['11', '10', '01', '00', '101', '010', '111', '100', '001', '110', '011', '000']
        """
        length = self.length + 1 if length is None else length
        return CoprimeStep(self.alphabet, length, step, start)._after(self)

    def _text(self, place: int) -> str:
        start, step = self._line
        return self._write((start + place * step) % self.size)

    def _place(self, text: str) -> int:
        return (self._read(text) - self._line[0]) * self._inverse % self.size

    def _texts(self, place: int, count: int) -> list[str]:
        texts: list[str] = []
        for at in range(0, count, _AT_ONCE):
            texts += self._chunk(place + at, min(_AT_ONCE, count - at))
        return texts

    def _chunk(self, place: int, count: int) -> list[str]:
        # The value is cut into limbs of several digits. The values of all keys are added up limb by limb, with a carry
        # to the next one. A limb beyond its size shows only its last digits, so nothing is divided by *size*. Each loop
        # does one thing to all keys, which is fast in Python.
        base, width = len(self.alphabet), digits_at_once(self.alphabet)
        start, step = self._line
        number = (start + place * step) % self.size
        left = self.length
        columns: list[list[str]] = []
        carries: list[int] = []
        limb_digits = width  # whole tables, at least one
        while base ** (limb_digits + width) <= _LIMB:
            limb_digits += width
        while left:
            digits = min(left, limb_digits)
            limb: int = base**digits
            number, low = divmod(number, limb)
            step, low_step = divmod(step, limb)
            sums = range(low, low + count * low_step, low_step) if low_step else repeat(low, count)
            values = list(map(add, sums, carries)) if carries else list(sums)
            columns += self._columns(values, digits)
            left -= digits
            if left:
                carries = [value // limb for value in values]
        return columns[0] if len(columns) == 1 else list(map("".join, zip(*reversed(columns), strict=True)))

    def _columns(self, values: list[int], digits: int) -> list[list[str]]:
        """Return the last *digits* of all *values*, a few at a time, the last ones first."""
        alphabet, base = self.alphabet, len(self.alphabet)
        columns: list[list[str]] = []
        below = 1
        while digits:
            width = min(digits, digits_at_once(alphabet))
            table, size = table_of(alphabet, width), base**width
            if below == 1:
                columns.append([table[value % size] for value in values])
            else:
                columns.append([table[value // below % size] for value in values])
            below *= size
            digits -= width
        return columns

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
