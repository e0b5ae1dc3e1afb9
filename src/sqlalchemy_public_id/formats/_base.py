"""The face that every format has, and the rules of prefixes."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import Field, fields
from functools import cache
from typing import Any, ClassVar, cast

from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, safe_repr
from sqlalchemy_public_id.formats.budget import Budget
from sqlalchemy_public_id.formats.pool import IdPool

__all__ = ["MAX_LENGTH", "Format", "Value", "character_class", "check_texts", "in_words", "is_printable"]

MAX_LENGTH = 255
"""No public id is longer: the column has to fit into a unique index on every database."""

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


class Value:
    """A frozen dataclass that its settings make again, beside what a subclass keeps in ``_accepted`` or ``_before``."""

    def _settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor that make an equal value."""
        return {setting.name: getattr(self, setting.name) for setting in self._fields() if setting.init}

    @classmethod
    def _fields(cls) -> tuple[Field[Any], ...]:
        return fields(cast("Any", cls))  # each subclass is a dataclass


class Format(Value, ABC):
    """Makes, checks and describes the public ids of one kind.

    A format is a value: immutable, hashable, equal to another one with the same settings, and it knows no database.
    Subclasses are frozen dataclasses whose fields are the settings, :attr:`prefix`, :attr:`separator` and ``_accepted``
    among them; they call :meth:`_describe` once, and implement :meth:`_make`.
    """

    ordered: ClassVar[bool] = False
    """Whether later ids sort after earlier ones. Such an id tells when its row was made."""

    prefix: str | None
    """The object type written before the separator, if there is one."""
    separator: str
    """What stands between the prefix and the rest."""
    _accepted: tuple[Format, ...]
    """The older formats that are still accepted."""

    # --- what a subclass says of itself

    @property
    @abstractmethod
    def capacity(self) -> int:
        """How many different ids there are."""

    @property
    @abstractmethod
    def entropy_bits(self) -> float:
        """How many random bits an id holds: what guessing one costs."""

    @property
    def bits(self) -> int | None:
        """How many bits the number has that an id stands for; ``None`` where an id is text and nothing else."""
        return None

    @property
    def is_native(self) -> bool:
        """Whether a column stores that number, as ``uuid``, ``BINARY`` or ``BIGINT``, and not the text."""
        return False

    @abstractmethod
    def _make(self, count: int) -> list[str]:
        """At least *count* new ids, in the order in which they were made."""

    def _fault(self, body: str) -> str | None:
        """What is wrong with *body*, a text whose length and characters are right; ``None`` for nothing."""
        return None

    def _misfit(self, body: str) -> str:
        """What is wrong with *body*, a text of the right length that does not match the pattern."""
        return "it contains other characters"

    def _describe(self, body_pattern: str, body_length: int, expected: str) -> None:
        """Keep what every check needs: the pattern, the length and the words for an error message."""
        lead = self._checked_lead()
        length = len(lead) + body_length
        if length > MAX_LENGTH:
            raise ConfigurationError(
                f"{type(self).__name__} would make ids of {length} characters, expected {MAX_LENGTH} or fewer: "
                f"use a shorter length or prefix"
            )
        keep = object.__setattr__  # formats are frozen
        keep(self, "_lead", lead)
        keep(self, "_own_length", length)
        keep(self, "_own_pattern", f"{_escaped(lead)}{body_pattern}")
        keep(self, "_own_regex", re.compile(self._own_pattern))
        keep(self, "_expected", f"{lead} and {expected}" if lead else expected)
        keep(self, "_pool", IdPool())

    _lead: str
    _own_length: int
    _own_pattern: str
    _own_regex: re.Pattern[str]
    _expected: str
    _pool: IdPool

    # --- making ids

    def generate(self) -> str:
        """One new id.

        Safe in threads and after a fork: no id is ever handed out twice by the same pool.
        """
        try:
            return self._pool.pop()
        except IndexError:
            pass
        ids = self._make(1)
        first = ids.pop()
        self._pool.extend(ids)
        return first

    def generate_many(self, count: int) -> list[str]:
        """*count* new ids, faster than one by one."""
        if count < 0:
            raise ValueError(f"count is {count}, expected 0 or more")
        pool = self._pool
        ids: list[str] = []
        while len(ids) < count:
            try:
                ids.append(pool.pop())
            except IndexError:
                break
        if len(ids) < count:
            made = self._make(count - len(ids))
            cut = len(made) - (count - len(ids))
            ids += made[cut:]
            pool.extend(made[:cut])
        return ids

    def example(self) -> str:
        """An id for documentation. Nothing is counted for it."""
        return self.generate()

    # --- checking ids

    @property
    def pattern(self) -> str:
        """An anchored regular expression for the ids this format accepts, for JSON schemas and :func:`re.fullmatch`."""
        patterns = list(dict.fromkeys(format._own_pattern for format in self._chain()))
        return f"^{patterns[0]}$" if len(patterns) == 1 else f"^(?:{'|'.join(patterns)})$"

    @property
    def max_length(self) -> int:
        """The number of characters of the longest id this format accepts, prefix included."""
        return max(format._own_length for format in self._chain())

    @property
    def expected(self) -> str:
        """The format in words, as error messages show it."""
        return " or ".join(dict.fromkeys(format._expected for format in self._chain()))

    def is_valid(self, text: object) -> bool:
        """Whether *text* is a well-formed public id. Any object may be asked about; it costs no more for a long one."""
        if not isinstance(text, str):
            return False
        if self._accepts(text):
            return True
        return any(older.is_valid(text) for older in self._accepted)

    def validate(self, text: object, field: str | None = None) -> str:
        """Return the canonical text of *text*, or raise :class:`InvalidPublicId` saying what is wrong.

        *field* names the input in the message.
        """
        canonical = self._canonical(text) if isinstance(text, str) else None
        if canonical is None:
            raise InvalidPublicId(text, expected=self.expected, reason=self._reason(text), field=field)
        return canonical

    def accepting(self, *older: Format) -> Self:
        """The same format, which also accepts the ids of *older* formats.

        New ids have the new form; ids that were issued before stay valid for ever.

        >>> from sqlalchemy_public_id import NanoId
        >>> format = NanoId(length=16).accepting(NanoId(length=12))
        >>> format.is_valid("izkpm55j334u"), len(format.generate())
        (True, 16)
        """
        for format in older:
            if not isinstance(format, Format):
                raise ConfigurationError(f"accepting() takes formats, not {format!r}; write accepting(NanoId(...))")
        return self._with_accepted((*self._accepted, *older))

    def prefixed(self, prefix: str | None) -> Self:
        """A copy with another *prefix*, which accepts what this one accepts, under the prefixes these have."""
        return type(self)(**dict(self._settings(), prefix=prefix))._with_accepted(self._accepted)

    def budget(self) -> Budget:
        """How many ids can be issued before two of them are likely to be the same."""
        return Budget(self.capacity)

    # --- inside

    def _accepts(self, text: str) -> bool:
        """Whether *text* is an id of this very format, older ones aside."""
        if len(text) != self._own_length or not self._own_regex.fullmatch(text):
            return False
        return self._fault(text[len(self._lead) :]) is None

    def _canonical(self, text: str) -> str | None:
        """*text* as ids are written, or ``None`` where it is no id of this format or an older one."""
        if self._accepts(text):
            return str.__str__(text)  # of a subclass too: str() would ask an Enum for its name
        found = (older._canonical(text) for older in self._accepted)
        return next((canonical for canonical in found if canonical is not None), None)

    def _chain(self) -> Iterator[Format]:
        """The format itself and everything it accepts, the newest first."""
        yield self
        for older in self._accepted:
            yield from older._chain()

    def _reason(self, text: object) -> str:
        """What is wrong with *text*, for the error message."""
        if not isinstance(text, str):
            return f"it is of type {type(text).__name__}"
        if self._lead and not text.startswith(self._lead):
            prefix, found, _ = text[:MAX_LENGTH].rpartition(self.separator)
            return f"the prefix is {prefix!r}" if found else f"it does not begin with {self._lead!r}"
        if len(text) != self._own_length:
            return f"it has {len(text)} characters"
        body = text[len(self._lead) :]
        return (self._fault(body) if self._own_regex.fullmatch(text) else self._misfit(body)) or "it is malformed"

    def _checked_lead(self) -> str:
        """Prefix and separator, or nothing."""
        prefix, separator = self.prefix, self.separator
        if not isinstance(separator, str) or not is_printable(separator):
            raise ConfigurationError(f"the separator {separator!r} is not allowed: expected printable ASCII characters")
        if prefix is None:
            return ""
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise ConfigurationError(
                f"the prefix {prefix!r} is not allowed: expected ASCII letters, digits and '_', beginning with a letter"
            )
        return prefix + separator

    # --- a value

    def _with_accepted(self, older: tuple[Format, ...]) -> Self:
        """A copy that accepts *older*, and no others."""
        copy = type(self)(**self._settings())
        object.__setattr__(copy, "_accepted", older)
        return copy

    def __repr__(self) -> str:
        """A constructor call, which :func:`eval` turns back into an equal format."""
        defaults = {setting.name: setting.default for setting in self._fields()}
        settings = ((name, value) for name, value in self._settings().items() if value != defaults[name])
        given = ", ".join(f"{name}={self._shown(value)}" for name, value in settings)
        older = f".accepting({', '.join(map(repr, self._accepted))})" if self._accepted else ""
        return f"{type(self).__name__}({given}){older}"

    def _shown(self, value: object) -> str:
        """The *value* of a setting, as Python reads it."""
        return repr(value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the settings; ids made ahead stay where they are, or two processes would share them."""
        return _rebuild, (type(self), self._settings(), self._accepted)


def _rebuild(cls: type[Format], settings: dict[str, Any], older: tuple[Format, ...]) -> Format:
    return cls(**settings).accepting(*older)


def is_printable(text: str) -> bool:
    """Whether *text* is one or more visible ASCII characters."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def check_texts(length: object, alphabet: object) -> None:
    """Refuse texts of *length* characters of *alphabet* that no id can be.

    :raises ConfigurationError: if there can be no such texts, or characters occur twice.
    """
    if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MAX_LENGTH:
        raise ConfigurationError(f"length is {safe_repr(length)}, expected a whole number from 1 to {MAX_LENGTH}")
    if not isinstance(alphabet, str) or not is_printable(alphabet):
        raise ConfigurationError(f"the alphabet {alphabet!r} is not allowed: expected printable ASCII characters")
    if len(set(alphabet)) != len(alphabet):
        twice = sorted({character for character in alphabet if alphabet.count(character) > 1})
        raise ConfigurationError(f"the alphabet {alphabet!r} is not allowed: it repeats {' '.join(twice)}")


def _escaped(text: str, special: str = r"^$\.*+?()[]{}|/") -> str:
    """*text* for a regular expression; unlike :func:`re.escape`, also for ECMAScript's, which JSON schemas use."""
    return "".join(f"\\{character}" if character in special else character for character in text)


def _runs(alphabet: str) -> Iterator[tuple[str, str]]:
    """The first and last character of each run of neighbours in *alphabet*."""
    characters = sorted(alphabet)
    first = last = characters[0]
    for character in characters[1:]:
        if ord(character) != ord(last) + 1:
            yield first, last
            first = character
        last = character
    yield first, last


@cache
def character_class(alphabet: str) -> str:
    """A regular expression for one character of *alphabet*."""
    parts: list[str] = []
    for first, last in _runs(alphabet):
        between = "-" if ord(last) - ord(first) > 1 else ""
        ends = (first,) if first == last else (first, last)
        parts.append(between.join(_escaped(end, "\\]^-[") for end in ends))
    return f"[{''.join(parts)}]"


@cache
def in_words(alphabet: str) -> str:
    """*alphabet* for a person: ``0-9 a-z``."""
    return " ".join(first if first == last else f"{first}-{last}" for first, last in _runs(alphabet))
