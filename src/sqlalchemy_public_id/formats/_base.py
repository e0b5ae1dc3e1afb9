"""The base class of formats, and the rules of prefixes."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, cast

from typing_extensions import Self, final

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId
from sqlalchemy_public_id.formats._settings import Value
from sqlalchemy_public_id.formats.alphabets import MAX_LENGTH, escaped, is_printable
from sqlalchemy_public_id.formats.budget import Budget
from sqlalchemy_public_id.formats.pool import IdPool

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


class Format(Value, ABC):
    """Generates, validates and describes the public ids of one kind, without a database.

    Formats are immutable, hashable, and equal if their settings are. A subclass is a frozen dataclass whose fields are
    the settings, including :attr:`prefix`, :attr:`separator` and ``_accepted``. It calls :meth:`_describe` in
    ``__post_init__``, when all fields have their values, and implements :meth:`_make`, :attr:`capacity` and
    :attr:`entropy_bits`. If a regular expression cannot recognize its ids, it overrides :meth:`_accepts` and
    :meth:`_explain`; if an id has several spellings, :meth:`_normalize`. Lookups, columns and web frameworks judge a
    text by :meth:`canonical`, from which :meth:`is_valid` and :meth:`validate` follow; none of the three can be
    overridden.

    :raises ConfigurationError: when a subclass that overrides one of the three is declared.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("canonical", "is_valid", "validate"):
            if getattr(cls, name) is not getattr(Format, name):
                raise ConfigurationError(
                    f"{cls.__name__} overrides {name}(), which not every lookup and column calls; override "
                    f"_accepts() to refuse texts, _explain() to say why, and _normalize() to accept several spellings"
                )

    counted: ClassVar[bool] = False
    """True if a counter generates the ids, so that unused ids are lost."""
    ordered: ClassVar[bool] = False
    """True if later ids sort after earlier ones. Such an id reveals when its row was created."""

    prefix: str | None
    """The object type before the separator, such as ``cus``; ``None`` for no prefix."""
    separator: str
    """The characters between the prefix and the body."""
    _accepted: tuple[Format, ...]
    """The older formats whose ids are still valid."""

    # --- properties and hooks of subclasses

    @property
    @abstractmethod
    def capacity(self) -> int:
        """The number of possible ids."""

    @property
    @abstractmethod
    def entropy_bits(self) -> float:
        """The number of random bits in an id, which measures how hard it is to guess."""

    @property
    def bits(self) -> int | None:
        """The width in bits of the number that an id encodes; ``None`` if ids are only text."""
        return None

    @property
    def is_native(self) -> bool:
        """True if a column stores the number of an id, as ``uuid``, ``BINARY`` or ``BIGINT``, instead of its text."""
        return False

    @abstractmethod
    def _make(self, count: int) -> list[str]:
        """Return at least *count* new ids, in the order in which they were generated."""

    def _accepts(self, text: str) -> bool:
        """Return True if *text* is an id of this format itself, not of an older one."""
        return self._own_regex.fullmatch(text) is not None  # the expression checks the length, too

    def _normalize(self, text: str) -> str:
        """Return the spelling of *text*, which :meth:`_accepts` has accepted, that new ids have."""
        return text

    def _adopt(self, text: str) -> str:
        """Return *text*, a canonical id of an older format, as a column of this format returns it."""
        return text

    def _read(self, text: str) -> int | None:
        """Return the number of *text*; ``None`` if it is not an id of this format itself, or encodes no number."""
        return None

    def _explain(self, body: str) -> str:
        """Return why *body*, which has the right length, is not valid. Called for errors only."""
        return "it contains other characters"

    @abstractmethod
    def __post_init__(self) -> None:
        """Check the settings, and call :meth:`_describe`."""

    def _describe(self, body_pattern: str, body_length: int, expected: str) -> None:
        """Store the pattern and the length of an id without its prefix, and its description for error messages."""
        prefix, separator = self.prefix, self.separator
        if not isinstance(separator, str) or not is_printable(separator):
            raise ConfigurationError(f"the separator {separator!r} is not allowed: expected printable ASCII characters")
        if prefix is not None and not (isinstance(prefix, str) and _PREFIX.fullmatch(prefix)):
            raise ConfigurationError(
                f"the prefix {prefix!r} is not allowed: expected ASCII letters, digits and '_', beginning with a letter"
            )
        if prefix is not None and separator and prefix.endswith(separator):
            right = prefix[: -len(separator)]
            raise ConfigurationError(f"the prefix {prefix!r} ends with the separator: write prefix={right!r}")
        lead = "" if prefix is None else prefix + separator
        length = len(lead) + body_length
        if length > MAX_LENGTH:
            raise ConfigurationError(
                f"{type(self).__name__} would generate ids of {length} characters, expected {MAX_LENGTH} or fewer; "
                f"use a shorter length or prefix"
            )
        keep = object.__setattr__  # formats are frozen
        keep(self, "_lead", lead)
        keep(self, "_own_length", length)
        keep(self, "_own_pattern", f"{escaped(lead)}{body_pattern}")
        keep(self, "_own_regex", re.compile(self._own_pattern))
        keep(self, "_expected", f"{lead} and {expected}" if lead else expected)
        keep(self, "_pool", IdPool())
        compared = (setting.name for setting in fields(cast("Any", self)) if setting.compare)
        keep(self, "_values", (type(self), *(getattr(self, name) for name in compared)))

    _lead: str
    _own_length: int
    _own_pattern: str
    _own_regex: re.Pattern[str]
    _expected: str
    _pool: IdPool
    _values: tuple[Any, ...]
    """What two equal formats have in common."""

    # --- generating ids

    def generate(self) -> str:
        """Generate an id. Safe to call from several threads, and after a fork."""
        try:
            return self._pool.pop()
        except IndexError:
            pass
        ids = self._make(1)
        first = ids.pop()
        self._pool.extend(ids)
        return first

    def generate_many(self, count: int) -> list[str]:
        """Generate *count* ids, which is faster than one at a time."""
        if count < 0:
            raise ValueError(f"count is {count}, expected 0 or more")
        pool = self._pool
        ids: list[str] = []
        with suppress(IndexError):
            while len(ids) < count:
                ids.append(pool.pop())
        missing = count - len(ids)
        if missing:
            generated = self._make(missing)
            surplus = len(generated) - missing
            ids += generated[surplus:]
            pool.extend(generated[:surplus])
        return ids

    def example(self) -> str:
        """Return an id for documentation, without taking a number from a counter."""
        return self.generate()

    # --- validating ids

    @property
    def pattern(self) -> str:
        """An anchored regular expression that matches all accepted ids, for JSON schemas and :func:`re.fullmatch`."""
        patterns = list(dict.fromkeys(format._own_pattern for format in self._chain()))
        return f"^{patterns[0]}$" if len(patterns) == 1 else f"^(?:{'|'.join(patterns)})$"

    @property
    def has_exact_pattern(self) -> bool:
        """True if :attr:`pattern` matches nothing but ids, so that no check digit and no range has to be checked."""
        return all(form._has_exact_pattern for form in self._chain())

    @property
    def _has_exact_pattern(self) -> bool:
        return type(self)._accepts is Format._accepts

    @property
    def max_length(self) -> int:
        """The length of the longest accepted id in characters, including its prefix."""
        return max(format._own_length for format in self._chain())

    @property
    def expected(self) -> str:
        """The description of the format in error messages."""
        return " or ".join(dict.fromkeys(format._expected for format in self._chain()))

    @final
    def canonical(self, text: object) -> str | None:
        """Return *text*, which may be any object, in its canonical form; ``None`` if it is not an accepted id.

        >>> from sqlalchemy_public_id.formats import Ulid
        >>> Ulid().canonical("01arz3ndektsv4rrffq69g5fav"), Ulid().canonical(7)
        ('01ARZ3NDEKTSV4RRFFQ69G5FAV', None)
        """
        if not isinstance(text, str):
            return None
        if self._accepts(text):
            return self._normalize(str.__str__(text))  # str() of an Enum member returns its name
        for older in self._accepted:
            canonical = older.canonical(text)
            if canonical is not None:
                return self._adopt(canonical)
        return None

    @final
    def is_valid(self, text: object) -> bool:
        """Return True if *text*, which may be any object, is a well-formed public id."""
        return self.canonical(text) is not None

    @property
    def quick_check(self) -> Callable[[str], object]:
        """The fastest function that returns a true value for canonical ids of the newest form, and only for these."""
        if type(self)._normalize is not Format._normalize:
            return lambda text: self._accepts(text) and self._normalize(text) == text
        return self._own_regex.fullmatch if self._has_exact_pattern else self._accepts  # the first is a function in C

    @final
    def validate(self, text: object, field: str | None = None) -> str:
        """Validate *text* and return it in its canonical form.

        :param field: the name of the input, for the error message.

        :raises InvalidPublicId: if *text* is not an accepted id; the message gives the reason.
        """
        canonical = self.canonical(text)
        if canonical is None:
            raise InvalidPublicId(text, expected=self.expected, reason=self._reason(text), field=field)
        return canonical

    def accepting(self, *older: Format | str) -> Self:
        """Return a copy that also accepts the ids of *older* formats, and single ids such as ``"__world__"``.

        New ids have the new form, and existing ids stay valid. A column that stores numbers returns all ids in the new
        form, including the prefix; with ``storage="text"``, each id stays as it was issued.

        :raises ConfigurationError: if numbers are stored, and an older format does not encode numbers of this width.

        >>> from sqlalchemy_public_id import NanoId
        >>> format = NanoId(length=16).accepting(NanoId(length=12))
        >>> format.is_valid("izkpm55j334u"), len(format.generate())
        (True, 16)
        """
        formats = [SingleId(each) if isinstance(each, str) else each for each in older]
        for format in formats:
            if not isinstance(format, Format):
                raise ConfigurationError(f"accepting() takes formats and strings, not {format!r}")
        return self._with_accepted((*self._accepted, *formats))

    @property
    def forms(self) -> tuple[Format, ...]:
        """The format itself and all older formats, the newest first. Each of them accepts only its own ids."""
        return tuple(form._with_accepted(()) for form in self._chain())

    def prefixed(self, prefix: str | None) -> Self:
        """Return a copy with another *prefix*. The older formats that it accepts keep their prefixes."""
        return type(self)(**dict(self._settings(), prefix=prefix))._with_accepted(self._accepted)

    def budget(self) -> Budget:
        """Return the budget, which tells how many ids can be issued before a duplicate is likely."""
        return Budget(self.capacity)

    def _chain(self) -> Iterator[Format]:
        """Yield the format itself and all older formats, the newest first."""
        yield self
        for older in self._accepted:
            yield from older._chain()

    def _reason(self, text: object) -> str:
        if not isinstance(text, str):
            return f"it is of type {type(text).__name__}"
        if self._lead and not text.startswith(self._lead):
            prefix, separator, _ = text[:MAX_LENGTH].rpartition(self.separator)
            return f"the prefix is {prefix!r}" if separator else f"it does not begin with {self._lead!r}"
        if len(text) != self._own_length:
            return "it has 1 character" if len(text) == 1 else f"it has {len(text)} characters"
        return self._explain(text[len(self._lead) :])

    def _refuse_separator_in(self, characters: str, what: str, advice: str) -> None:
        is_text = isinstance(self.separator, str)  # _describe() refuses any other type
        if self.prefix is not None and is_text and set(self.separator) & set(characters):
            raise ConfigurationError(
                f"the {what} contains the separator {self.separator!r}, so the end of the prefix would be ambiguous; "
                f"use a separator such as {advice}"
            )

    # --- value semantics; here, because a dataclass would make these methods for each format, at every import

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Format) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values)

    def _with_accepted(self, older: tuple[Format, ...]) -> Self:
        """Return a copy that accepts *older*, and no other formats."""
        copy = type(self)(**self._settings())
        object.__setattr__(copy, "_accepted", older)
        copy.__post_init__()  # check again, with the older formats
        return copy

    def __repr__(self) -> str:
        """Return a constructor call that evaluates to an equal format."""
        defaults = {setting.name: setting.default for setting in fields(cast("Any", self))}
        settings = ((name, value) for name, value in self._settings().items() if value != defaults[name])
        arguments = ", ".join(f"{name}={self._shown(value)}" for name, value in settings)
        older = f".accepting({', '.join(map(repr, self._accepted))})" if self._accepted else ""
        return f"{type(self).__name__}({arguments}){older}"

    def _shown(self, value: object) -> str:
        return repr(value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the settings only: two processes must not share the ids in a pool."""
        return _rebuild, (type(self), self._settings(), self._accepted)


@dataclass(frozen=True, eq=False, repr=False)
class SingleId(Format):
    """The format of a single id, such as ``"__world__"`` in ``accepting("__world__")``."""

    text: str
    prefix: str | None = field(default=None, init=False)
    separator: str = field(default="_", init=False)
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if not is_printable(self.text):
            raise ConfigurationError(f"the id {self.text!r} is not allowed: expected printable ASCII characters")
        self._describe(escaped(self.text), len(self.text), repr(self.text))

    @property
    def capacity(self) -> int:
        return 1

    @property
    def entropy_bits(self) -> float:
        return 0.0

    def _make(self, count: int) -> list[str]:
        return [self.text] * count

    def __repr__(self) -> str:
        return repr(str(self.text))


def _rebuild(cls: type[Format], settings: dict[str, Any], older: tuple[Format, ...]) -> Format:
    return cls(**settings).accepting(*older)
