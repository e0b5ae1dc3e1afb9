"""Texts of fixed width that are counted: each has an index, and each index has one text.

The base of :class:`~sqlalchemy_public_id.keys.coprime.step.CoprimeStep` and
:class:`~sqlalchemy_public_id.keys.coprime.keyed.KeyedStep`. They differ in the order of the strings.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, cast

from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, KeySpaceExhausted, shown
from sqlalchemy_public_id.formats._base import Value, character_class, check_texts, in_words
from sqlalchemy_public_id.formats.digits import reader_of, writer_of

__all__ = ["KeySpace"]


class KeySpace(Value, ABC):
    """All texts of *length* characters of *alphabet*, in an order that depends on nothing else.

    A value: immutable, hashable, equal to another one with the same settings; it knows no database and keeps no count.
    Subclasses are frozen dataclasses whose fields are the settings and ``_before``; they call ``_describe()`` once.
    """

    alphabet: str
    """The characters of the keys; the position of each is its value as a digit."""
    length: int
    """How many characters a key has; those that come before :meth:`extend` have fewer."""
    _before: KeySpace | None
    """The shorter keys that are issued first."""
    _kept: ClassVar[tuple[str, ...]] = ("alphabet",)
    """The settings that :meth:`extend` leaves as they are."""

    # --- what a subclass says of itself

    @property
    @abstractmethod
    def entropy_bits(self) -> float:
        """What guessing a key costs somebody who has seen others."""

    @abstractmethod
    def extend(self, length: int | None = None) -> Self:
        """The same keys with the same indices, and after the last of them the keys of *length* characters."""

    @abstractmethod
    def _text(self, place: int) -> str:
        """The text at *place* of the own length, from 0 to ``size - 1``."""

    @abstractmethod
    def _texts(self, place: int, count: int) -> list[str]:
        """*count* texts from *place* on."""

    @abstractmethod
    def _place(self, text: str) -> int:
        """The place of a well-formed *text* of the own length."""

    def _describe(self) -> None:
        """Check alphabet and length, and keep what every call needs.

        :raises ConfigurationError: where they cannot work.
        """
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
    """How many keys of the own length there are: ``len(alphabet) ** length``."""
    _first: int
    _write: Callable[[int], str]
    _read: Callable[[str], int]
    _regex: re.Pattern[str]

    # --- keys

    def key(self, index: int) -> str:
        """The key number *index*, counted from 0.

        :raises KeySpaceExhausted: where there are not so many; the keys never begin again.
        """
        if not isinstance(index, int) or isinstance(index, bool):
            raise ValueError(f"index is {shown(index)}, expected a whole number of 0 or more")
        place = index - self._first
        if 0 <= place < self.size:
            return self._text(place)
        if place > 0:
            raise self._exhausted(index)
        if self._before is None:
            raise ValueError(f"index is {shown(index)}, expected a whole number of 0 or more")
        return self._before.key(index)

    def keys(self, first: int, count: int) -> list[str]:
        """The keys number *first* to ``first + count - 1``, several times faster than one by one.

        :raises KeySpaceExhausted: where there are not so many.
        """
        for name, number in (("first", first), ("count", count)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ValueError(f"{name} is {shown(number)}, expected a whole number of 0 or more")
        if count and first + count > self.capacity:
            raise self._exhausted(first + count - 1)
        found: list[str] = []
        for part in self.parts():
            begin, end = max(first, part._first), min(first + count, part._first + part.size)
            if begin < end:
                texts = part._texts(begin - part._first, end - begin)
                found = found + texts if found else texts
        return found

    def index(self, key: object, field: str | None = None) -> int:
        """The number of *key*, whether or not it has been issued: the counterpart of :meth:`key`.

        *field* names the input in the message.

        :raises InvalidPublicId: where *key* is malformed.
        """
        for part in self.parts():
            if part._accepts(key):
                return part._first + part._place(str.__str__(cast("str", key)))
        raise InvalidPublicId(key, expected=self.expected, reason=self._reason(key), field=field)

    def is_valid(self, key: object) -> bool:
        """Whether *key* is well-formed. Any object may be asked about."""
        return any(part._accepts(key) for part in self.parts())

    @property
    def capacity(self) -> int:
        """How many keys there are, of all lengths."""
        return self._first + self.size

    def remaining(self, issued: int) -> int:
        """How many keys are left when *issued* have been taken: those number 0 to ``issued - 1``."""
        if issued < 0:
            raise ValueError(f"issued is {issued}, expected 0 or more")
        return max(self.capacity - issued, 0)

    @property
    def expected(self) -> str:
        """The keys in words, as error messages show them."""
        return " or ".join(f"{part.length} of {in_words(part.alphabet)}" for part in reversed(list(self.parts())))

    @property
    def before(self) -> KeySpace | None:
        """What this one was extended from: the shorter keys, which are issued first."""
        return self._before

    def parts(self) -> Iterator[KeySpace]:
        """Those that were extended, the shortest first, and this one. The keys of one length are those of one part."""
        if self._before is not None:
            yield from self._before.parts()
        yield self

    # --- inside

    def _after(self, before: KeySpace) -> Self:
        """The same, for when the keys of *before* are used up. It changes itself: for new ones alone."""
        if self.length <= before.length:
            raise ConfigurationError(
                f"length is {self.length}, expected more than the {before.length} characters of the keys before: "
                f"keys of one length would clash"
            )
        object.__setattr__(self, "_before", before)
        object.__setattr__(self, "_first", before.capacity)
        return self

    def _accepts(self, key: object) -> bool:
        """Whether *key* is a key of the own length."""
        return isinstance(key, str) and len(key) == self.length and self._regex.fullmatch(key) is not None

    def _reason(self, key: object) -> str:
        if not isinstance(key, str):
            return f"it is of type {type(key).__name__}"
        if any(len(key) == part.length for part in self.parts()):
            return "it contains other characters"
        return f"it has {len(key)} characters"

    def _exhausted(self, index: int) -> KeySpaceExhausted:
        return KeySpaceExhausted(
            f"{self!r} has {self.capacity} keys, so there is none with the index {shown(index)}; extend() goes on with "
            f"keys of {self.length + 1} characters, and leaves those that were issued as they are"
        )

    # --- a value

    def _shown(self) -> dict[str, str]:
        """The arguments as :func:`repr` shows them, without those that are the defaults."""
        return {name: repr(value) for name, value in self._settings().items()}

    def __repr__(self) -> str:
        """An expression that :func:`eval` turns into an equal one; a secret is not shown, and does not come back."""
        given = self._shown()
        if self._before is None:
            return f"{type(self).__name__}({_call(given)})"
        return f"{self._before!r}.extend({_call({name: given[name] for name in given if name not in self._kept})})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings; what follows from them is made again."""
        return self._rebuild, (self._settings(), self._before)

    @classmethod
    def _rebuild(cls, settings: dict[str, Any], before: KeySpace | None) -> Self:
        made = cls(**settings)
        return made if before is None else made._after(before)


def _call(arguments: dict[str, str]) -> str:
    """*arguments* of a call: alphabet and length by place, the others by name."""
    by_place = ("alphabet", "length")
    return ", ".join(text if name in by_place else f"{name}={text}" for name, text in arguments.items())
