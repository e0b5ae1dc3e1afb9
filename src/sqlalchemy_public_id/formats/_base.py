"""The base class of formats, and the rules of prefixes."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any, ClassVar, cast

from typing_extensions import Self, final

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId
from sqlalchemy_public_id.formats._settings import Value
from sqlalchemy_public_id.formats.alphabets import MAX_LENGTH, Case, anchored, escaped, in_either_case, is_printable
from sqlalchemy_public_id.formats.budget import Budget
from sqlalchemy_public_id.formats.pool import IdPool

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_WITHOUT_OTHER_CASE: dict[Case | None, str] = {None: "", str.lower: "(?!.*[A-Z])", str.upper: "(?!.*[a-z])"}


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
    collision_cause: ClassVar[str | None] = None
    """What is wrong if a new id is taken, for ids that never collide by chance. A collision is logged with it."""

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
        return text if self._case is None else self._lead + self._case(text[len(self._lead) :])

    def _text_of(self, value: object) -> str | None:
        """Return *value*, such as a :class:`uuid.UUID`, as an id of this format itself; ``None`` for other objects."""
        return None

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

    def _describe(
        self, body_pattern: str, body_length: int, expected: str, case: Case | None = None, *, ignore_case: bool = False
    ) -> None:
        """Store the pattern and the length of an id without its prefix, and its description for error messages.

        :param case: if the body is accepted in either case, the case of new ids: ``str.lower`` or ``str.upper``.
        :param ignore_case: True if the prefix is accepted in either case.
        """
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
        lead_pattern = (in_either_case if ignore_case else escaped)(prefix) + escaped(separator) if prefix else ""
        keep(self, "_lead", lead)
        keep(self, "_lead_regex", re.compile(lead_pattern))
        keep(self, "_case", case)
        keep(self, "_has_spellings", case is not None or type(self)._normalize is not Format._normalize)
        keep(self, "_own_length", length)
        keep(self, "_own_pattern", f"{lead_pattern}{body_pattern}")
        keep(self, "_stored_pattern", f"{escaped(lead)}{_WITHOUT_OTHER_CASE[case]}{body_pattern}")
        keep(self, "_own_regex", re.compile(self._own_pattern))
        keep(self, "_expected", f"{lead} and {expected}" if lead else expected)
        keep(self, "_pool", IdPool())
        compared = (setting.name for setting in fields(cast("Any", self)) if setting.compare)
        keep(self, "_values", (type(self), *(getattr(self, name) for name in compared)))

    _lead: str
    _lead_regex: re.Pattern[str]
    _case: Case | None
    _has_spellings: bool
    _own_length: int
    _own_pattern: str
    _stored_pattern: str
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
        return anchored(form._own_pattern for form in self._chain())

    @property
    def stored_pattern(self) -> str:
        """An anchored regular expression for the texts that a column stores: not for ids in another case."""
        return anchored(form._stored_pattern for form in self._chain())

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

        Formats of UUIDs take a :class:`uuid.UUID`, too; Ulid and ObjectId take the objects of python-ulid and PyMongo.

        >>> from sqlalchemy_public_id.formats import Ulid
        >>> Ulid().canonical("01arz3ndektsv4rrffq69g5fav"), Ulid().canonical(7)
        ('01ARZ3NDEKTSV4RRFFQ69G5FAV', None)
        """
        if not isinstance(text, str):
            for form in self._chain():
                written = form._text_of(text)
                canonical = None if written is None else self.canonical(written)
                if canonical is not None:
                    return canonical
            return None
        canonical = self._normalize(str.__str__(text)) if self._accepts(text) else None  # str() of an Enum is its name
        if canonical == text:
            return canonical
        for older in self._accepted:
            other = older.canonical(text)
            if other is not None and (canonical is None or other == text):  # an issued id is found as it was issued
                return self._adopt(other)
        return canonical

    @final
    def is_valid(self, text: object) -> bool:
        """Return True if *text*, which may be any object, is a well-formed public id."""
        return self.canonical(text) is not None

    @property
    def quick_check(self) -> Callable[[str], object]:
        """The fastest function that returns a true value for canonical ids of the newest form, and only for these."""
        if self._has_spellings:
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
        from sqlalchemy_public_id.formats.single import SingleId  # its base class is above

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

    def spec(self) -> dict[str, Any]:
        """Return what a program in another language needs to make and check ids, as JSON can represent it."""
        own, *older = self.forms
        return own._own_spec() | {"accepts": [form._own_spec() for form in older]}

    def _own_spec(self) -> dict[str, Any]:
        return {
            "format": type(self).__name__,
            "prefix": self.prefix,
            "separator": self.separator if self.prefix else "",
            "pattern": self.pattern,
            "pattern_is_exact": self._has_exact_pattern,
            "length": self._own_length,
            "written_in": None if self._case is None else "lower" if self._case("A") == "a" else "upper",
            "order": "time" if self.ordered else None,
            "random_bits": round(self.entropy_bits, 2),
            "is_counted": self.counted,
            "body": self._body_spec(),
        }

    def _body_spec(self) -> dict[str, Any] | None:
        """Return what follows the prefix; ``None`` if only the pattern describes it."""
        return None

    def _chain(self) -> Iterator[Format]:
        """Yield the format itself and all older formats, the newest first."""
        yield self
        for older in self._accepted:
            yield from older._chain()

    def _reason(self, text: object) -> str:
        if not isinstance(text, str):
            written = self._text_of(text)
            return f"it is of type {type(text).__name__}" if written is None else self._reason(written)
        if not self._lead_regex.match(text):
            prefix, separator, _ = text[:MAX_LENGTH].rpartition(self.separator)
            return f"the prefix is {prefix!r}" if separator else f"it does not begin with {self._lead!r}"
        if len(text) != self._own_length:
            return "it has 1 character" if len(text) == 1 else f"it has {len(text)} characters"
        return self._explain(text[len(self._lead) :])

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


def _rebuild(cls: type[Format], settings: dict[str, Any], older: tuple[Format, ...]) -> Format:
    return cls(**settings).accepting(*older)
