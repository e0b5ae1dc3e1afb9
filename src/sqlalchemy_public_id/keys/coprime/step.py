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
from dataclasses import dataclass, field
from itertools import repeat
from operator import add
from typing import ClassVar

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.formats.digits import digits_at_once, table_of
from sqlalchemy_public_id.keys.coprime.keyspace import KeySpace

__all__ = ["CoprimeStep"]

_AT_ONCE = 1024
_LIMB = 2**52
"""Of these, a chunk can be added up below 2**63, where :class:`range` counts in words of the machine."""


@dataclass(frozen=True, repr=False)
class CoprimeStep(KeySpace):
    """The texts of *length* characters of *alphabet*, in steps of *step*: the n-th is ``(start + n·step) mod size``.

    **This is obfuscation, and no secret.** The difference of two keys that were issued one after the other is the step,
    and whoever has it can list every key before and after. Where that matters, take
    :class:`~sqlalchemy_public_id.keys.coprime.keyed.KeyedStep`, or random ids.

    Step, start, alphabet and length must never change once keys have been issued; :meth:`extend` is the way to more.

    >>> CoprimeStep("01234", 1, step=3, start=0).keys(0, 5)
    ['0', '3', '1', '4', '2']

    :raises ConfigurationError: where the settings cannot work, such as a step that would repeat keys too early.
    """

    alphabet: str
    length: int
    step: int | None = None
    """How far it is from one key to the next; it is kept modulo *size*, which makes the same keys. By default *size*
    over the golden ratio, 1.618…, rounded down, or the next number above that has no common factor with *size*: the
    keys issued so far then lie as evenly as they can (Knuth, volume 3, 6.4, theorem S)."""
    start: int | None = None
    """The number of the first key; *step* by default, so that zero is the very last key."""
    _before: KeySpace | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._describe()
        size = self.size
        step = self._checked_step()
        start = step if self.start is None else self.start
        if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < size:
            raise ConfigurationError(f"start is {shown(start)}, expected a whole number from 0 to {size - 1}")
        keep = object.__setattr__
        keep(self, "step", step)
        keep(self, "start", start)
        keep(self, "_line", (start, step))
        keep(self, "_inverse", pow(step, -1, size))

    _line: ClassVar[tuple[int, int]]  # each one has its own, set above; as a ClassVar it is no field
    _inverse: ClassVar[int]

    @property
    def entropy_bits(self) -> float:
        """0: with two neighbours, no key is left to guess."""
        return 0.0

    def extend(self, length: int | None = None, *, step: int | None = None, start: int | None = None) -> CoprimeStep:
        """The same keys with the same indices, and after the last of them the keys of *length* characters.

        :param length: more than now; one more by default.
        :param step: for the longer keys, as in the constructor.
        :param start: for the longer keys, as in the constructor.

        >>> longer = CoprimeStep("01", 2).extend()
        >>> longer.keys(0, 12)
        ['11', '10', '01', '00', '101', '010', '111', '100', '001', '110', '011', '000']
        """
        length = self.length + 1 if length is None else length
        return CoprimeStep(self.alphabet, length, step, start)._after(self)

    # --- inside

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
        """As :meth:`_texts`, for few texts.

        A number is cut into limbs of several digits, and the numbers of all texts are counted up limb by limb, with a
        carry to the next one. What a limb is beyond its size does not show in its digits, so nothing is divided by
        *size*; and each loop does one thing to all texts, which is what Python is quick at.
        """
        base, width = len(self.alphabet), digits_at_once(self.alphabet)
        start, step = self._line
        number = (start + place * step) % self.size
        left = self.length
        columns: list[list[str]] = []
        carries: list[int] = []
        while left:
            digits = min(left, _limb_of(base, width))
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
        """The last so many *digits* of all *values*, a few at a time, the last ones first."""
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
            raise ConfigurationError(f"step is {shown(step)}, expected a whole number of 1 or more")
        factor = math.gcd(step, size)
        if factor > 1:
            raise ConfigurationError(
                f"step is {shown(step)}, which has the factor {factor} in common with the {base}**{self.length} keys: "
                f"they would repeat after {size // factor}; step={_next_coprime(step % size or size, base)} has none"
            )
        return step % size

    def _shown(self) -> dict[str, str]:
        shown = super()._shown()
        if self.step == _default_step(self.size, len(self.alphabet)):
            del shown["step"]
        if self.start == self.step:
            del shown["start"]
        return shown


def _default_step(size: int, base: int) -> int:
    """*size* over the golden ratio, or the next number that will do. It is the same for ever."""
    return _next_coprime((math.isqrt(5 * size * size) - size) // 2, base)


def _next_coprime(number: int, base: int) -> int:
    """*number*, or the next one that has no factor in common with any power of *base*."""
    while math.gcd(number, base) > 1:
        number += 1
    return number


def _limb_of(base: int, width: int) -> int:
    """How many digits a limb has: whole tables of *width* digits, and one at least."""
    digits = width
    while base ** (digits + width) <= _LIMB:
        digits += width
    return digits
