"""Generate ids inside the database, each of them as likely as in Python.

Old applications and hand-written INSERTs do not set a new column, so a server default does. Each database has its own
expressions, in its subpackage, whose random bits come from a strong source.

Each character of a NanoId is chosen by a random number of 48 bits or more, modulo the size of the alphabet, so no
character is likelier than another by more than one part in 10**12. PostgreSQL has a shorter expression for alphabets of
up to 64 characters.

UUIDs, ULIDs and ObjectIds are joined from hexadecimal digits: the server's time, random digits, and those that a
specification fixes. Python keeps a counter, so that the ids of one millisecond ascend. A database has no counter, so
the ids that it generates in one millisecond are in random order.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy.engine import Dialect

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, JetifyTypeId, Ksuid, NanoId, ObjectId, Ulid, Uuid4, Uuid7
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.guess import alphabets, ranked_guesses
from sqlalchemy_public_id.formats.ksuid import EPOCH

_BACKSLASH = "how it reads a backslash depends on its settings"

# Strings are fixed digits, or properties of ServerDefaults; integers count random digits.
_VERSION_7 = ("milliseconds", "7", 3, "variant", 15)  # RFC 9562, section 5.7
_PARTS: dict[type[BitsFormat], tuple[str | int, ...]] = {
    Uuid4: (12, "4", 3, "variant", 15),  # RFC 9562, section 5.4
    Uuid7: _VERSION_7,
    JetifyTypeId: _VERSION_7,
    Ulid: ("milliseconds", 20),
    Ksuid: ("seconds since 2014", 32),
    ObjectId: ("seconds", 16),
}
_EPOCHS = {"seconds": 0, "seconds since 2014": EPOCH}
_TEXTS = ("hex", "hyphenated")
"""The encodings in which a database can write an id as text."""
_NAMED = {"milliseconds", "variant"}


class ServerDefaults(ABC):
    """The server defaults with which the database of *dialect* generates ids."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect: Dialect = dialect
        self.version: tuple[Any, ...] | None = dialect.server_version_info
        """The version of the server, if it is known."""

    def expression(self, format: Format) -> str:
        """Return the expression of a server default that generates ids.

        :raises ConfigurationError: if the database cannot generate ids of *format*.
        """
        if isinstance(format, BitsFormat):
            return self._from_digits(format)
        if not isinstance(format, NanoId):
            raise self.refusal(format, "there is no SQL for it")
        if format.check_digit:
            raise self.refusal(format, "the expression of a DEFAULT cannot compute a check digit")
        if "\\" in format.alphabet:
            raise self.refusal(format, _BACKSLASH)
        return self.join([*self._lead(format), *self.characters(format)])

    def can_generate(self, format: Format) -> bool:
        """Return True if the database can generate ids of *format*."""
        try:
            return bool(self.expression(format))
        except ConfigurationError:
            return False

    def is_generated(self, default: str, format: Format) -> bool:
        """Return True if *default*, as the database reports it, is :meth:`expression` for *format* or an older one.

        It may be the expression of an earlier version of this library, or of one for an older server.
        """
        return self.form_of(default, format) is not None

    def form_of(self, default: str, format: Format, *, outdated: bool = False) -> Format | None:
        """Return the form of *format* whose ids *default* generates, if this library has written it.

        :param outdated: True for a default that an earlier version has written, and this version would not.
        """
        stored = _as_reported(default)
        for form in format.forms:
            if self.can_generate(form):
                present = {*map(_as_reported, self.present_expressions(form))}
                older = {*map(_as_reported, self.older_expressions(form))}
                if stored in (older - present if outdated else older | present):
                    return form
        return None

    def former_format(self, default: str, format: Format, ids: Sequence[str]) -> Format | None:
        """Return the format for which this library has written *default*, before the model had *format*.

        :param ids: ids of the table, from which formats are guessed.
        """
        likely = dict.fromkeys([*_variants(format), *ranked_guesses(ids)[:_GUESSES], *_led(default), *_texts()])
        return next((each for each in likely if self.is_generated(default, each)), None)

    def format_of_numbers(self, default: str) -> Format | None:
        """Return the format for whose numbers this library has written *default*, unless it only calls a function.

        Columns of a project may call it, too, such as ``gen_random_uuid()``.
        """
        formats = [kind() for kind in _PARTS]
        made = (each for each in formats if self.function_of(each) is None and self.is_generated(default, each))
        return next(made, None)

    def present_expressions(self, format: Format) -> list[str]:
        """Return the expressions that this version of the library writes, depending on the version of the server."""
        return [self.expression(format)]

    def older_expressions(self, format: Format) -> list[str]:
        """Return the expressions that earlier versions of the library have written."""
        return []

    def refusal(self, format: Format, why: str) -> ConfigurationError:
        """Return the error for a *format* whose ids the database cannot generate."""
        return ConfigurationError(
            f"{self.dialect.name} cannot generate ids of the format {format!r}: {why}; "
            f'pass server_default="none", and let every application set the ids'
        )

    # --- the SQL of a database

    @abstractmethod
    def random_number(self, limit: int) -> str:
        """Return the expression of a random number from 0 up to, and without, *limit*."""

    @abstractmethod
    def random_digits(self, count: int) -> str:
        """Return the expression of *count* random hexadecimal digits."""

    @property
    @abstractmethod
    def milliseconds(self) -> str:
        """The milliseconds since 1970, as 12 hexadecimal digits."""

    @abstractmethod
    def seconds_since(self, epoch: int) -> str:
        """Return the expression of the seconds since *epoch*, a Unix time, as 8 hexadecimal digits."""

    @property
    @abstractmethod
    def variant(self) -> str:
        """One of the digits 8, 9, a and b."""

    @abstractmethod
    def as_number(self, format: BitsFormat, digits: str) -> str:
        """Return the value of the *digits* for a column that stores numbers.

        :raises ConfigurationError: if the database cannot convert them.
        """

    @abstractmethod
    def hyphenated(self, digits: str) -> str:
        """Return the 32 *digits* with the hyphens of a UUID."""

    def join(self, strings: list[str]) -> str:
        """Return the concatenation of *strings*."""
        return " || ".join(strings)

    def lowercase(self, string: str) -> str:
        """Return *string* in lower case."""
        return f"lower({string})"

    def character(self, alphabet: str, number: str) -> str:
        """Return the character of *alphabet* with the *number*, which is counted from 0."""
        return f"substr({sql_literal(alphabet)}, 1 + {number}, 1)"

    def characters(self, format: NanoId) -> list[str]:
        """Return expressions that together are the random characters of an id."""
        return [self.character(format.alphabet, self.random_number(len(format.alphabet)))] * format.length

    def function_of(self, format: BitsFormat) -> str | None:
        """Return the call of the database's own function for *format*, if it has one."""
        return None

    def digits_of_version_7(self) -> list[str] | None:
        """Return shorter expressions for the digits of a UUID of version 7, if the database has any."""
        return None

    # --- UUIDs, ULIDs, ObjectIds

    def _from_digits(self, format: BitsFormat) -> str:
        parts = _PARTS.get(type(format))
        if parts is None:
            raise self.refusal(format, "they need a machine id and a sequence, which only the application has")
        if format.is_native and (call := self.function_of(format)) is not None:
            return call
        shorter = self.digits_of_version_7() if parts is _VERSION_7 else None
        digits = self.join(shorter or [self._part(part) for part in parts])
        return self.as_number(format, digits) if format.is_native else self._as_string(format, digits)

    def _part(self, part: str | int) -> str:
        if isinstance(part, int):
            return self.random_digits(part)
        if part in _EPOCHS:
            return self.seconds_since(_EPOCHS[part])
        return str(getattr(self, part)) if part in _NAMED else f"'{part}'"

    def _as_string(self, format: BitsFormat, digits: str) -> str:
        if format.encoding not in _TEXTS:
            raise self.refusal(format, 'as text, only encoding="hex" and "hyphenated" work')
        string = self.lowercase(digits)
        if format.encoding == "hyphenated":
            string = self.hyphenated(string)
        lead = self._lead(format)
        return self.join([*lead, string]) if lead else string

    def _lead(self, format: NanoId | BitsFormat) -> list[str]:
        """Return the literal of the prefix with its separator, if there is one."""
        if format.prefix is None:
            return []
        if "\\" in format.separator:
            raise self.refusal(format, _BACKSLASH)
        return [sql_literal(format.prefix + format.separator)]


_GUESSES = 20
_LENGTHS = range(4, 41)


def _variants(format: Format) -> Iterator[Format]:
    """Yield formats of which *format* may have been made: without its prefix, of other lengths and alphabets."""
    yield format
    with suppress(ConfigurationError):
        yield format.prefixed(None)
    if isinstance(format, NanoId):
        for prefix in dict.fromkeys([format.prefix, None]):
            for alphabet in dict.fromkeys([format.alphabet, *(characters for _, characters in alphabets())]):
                for length in _LENGTHS:
                    with suppress(ConfigurationError):
                        separator = format.separator
                        yield NanoId(length, prefix=prefix, separator=separator, alphabet=alphabet)


def _led(default: str) -> Iterator[Format]:
    """Yield formats whose prefix is the first literal of *default*."""
    lead = re.search(r"'([^'\\]{2,})", default)
    if lead is None:
        return
    prefix: dict[str, Any] = {"prefix": lead[1][:-1], "separator": lead[1][-1]}
    with suppress(ConfigurationError):
        yield from _variants(NanoId(**prefix))
    yield from _texts(**prefix)


def _texts(**prefix: Any) -> Iterator[Format]:
    """Yield the formats of numbers that a database can write as text, with this prefix and separator."""
    for kind in _PARTS:
        for encoding in _TEXTS:
            settings = {**prefix, "encoding": encoding, "storage": "text"}
            with suppress(ConfigurationError, TypeError):  # a format may have its own separator
                yield kind(**settings)


def sql_literal(text: str) -> str:
    """Return *text*, which has no backslash, as a string literal of any database."""
    return "'" + text.replace("'", "''") + "'"


_PIECE = re.compile(
    r"""(?P<literal>'(?:[^'\\]|''|\\.)*')
    | \b_\w+(?=')                                 # the character set of a literal
    | ::"?(?:character\ varying|\w+)"?(?:\(\d+\))?  # a cast; quote_all_identifiers of PostgreSQL adds quotes
    | \bpg_catalog"?\. | "                        # PostgreSQL qualifies a function only if it has to
    | \bOPERATOR\((?:"(?:[^"]|"")+"|\w+)\.(?P<operator>[^)\w]+)\)
    | \b(?:MOD|LCASE)\b | [\s()]+ | .""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_SYNONYMS = {"mod": "%", "lcase": "lower"}


def _as_reported(sql: str) -> str:
    """Return *sql* without what servers change when they store it: case, blanks, parentheses, casts, character sets."""

    def reported(match: re.Match[str]) -> str:
        if match["literal"]:
            return match[0].replace("\\'", "''")
        word = (match["operator"] or match[0]).lower()
        is_left_out = word[0] in '_() \n\t"' or word.startswith(("::", "pg_catalog"))
        return "" if is_left_out else _SYNONYMS.get(word, word)

    return _PIECE.sub(reported, sql)
