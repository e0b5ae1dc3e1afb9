"""SQL that makes ids which are a number of fixed size: UUIDs, ULIDs, ObjectIds.

Each is put together from hexadecimal digits: time, random digits, and those that a specification fixes. The database's
sources of randomness are those of :mod:`sqlalchemy_public_id.online.making`; time is that of the server. What Python
adds so that the ids of one millisecond ascend, a counter, no database can keep: there, they are in any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import ObjectId, TypeIdFormat, Ulid, Uuid4, Uuid7
from sqlalchemy_public_id.formats._bits import BitsFormat

__all__ = ["expression", "literal", "native_type"]

_Part: TypeAlias = "str | int | Callable[[_Words], str]"
"""Digits as they are, a number of random digits, or what the words of a database say."""


class _Words(ABC):
    """How a database says the parts."""

    milliseconds: str
    """Since 1970, as 12 digits."""
    seconds: str
    """Since 1970, as 8 digits."""
    variant: str
    """One of 8, 9, a and b."""

    @abstractmethod
    def random(self, digits: int) -> str:
        """So many random digits."""

    def joined(self, parts: list[str]) -> str:
        return " || ".join(parts)


class _PostgreSQL(_Words):
    milliseconds = "lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')"
    seconds = "lpad(to_hex(floor(extract(epoch FROM clock_timestamp()))::bigint), 8, '0')"
    _uuid = "replace(gen_random_uuid()::text, '-', '')"
    variant = f"substr({_uuid}, 17, 1)"

    def random(self, digits: int) -> str:
        at_once = 15  # behind what says "v4"
        parts = [f"substr({self._uuid}, 18, {min(at_once, digits - at)})" for at in range(0, digits, at_once)]
        return " || ".join(parts)


class _MySQL(_Words):
    # not of the local time, which has one hour twice in a year
    milliseconds = "LPAD(HEX(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000), 12, '0')"
    seconds = "LPAD(HEX(UNIX_TIMESTAMP()), 8, '0')"
    variant = "SUBSTR('89AB', 1 + CAST(CONV(HEX(RANDOM_BYTES(1)), 16, 10) AS UNSIGNED) MOD 4, 1)"

    def random(self, digits: int) -> str:
        drawn = f"HEX(RANDOM_BYTES({(digits + 1) // 2}))"
        return f"SUBSTR({drawn}, 2)" if digits % 2 else drawn

    def joined(self, parts: list[str]) -> str:
        return f"CONCAT({', '.join(parts)})"


class _SQLite(_Words):
    milliseconds = "printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))"
    seconds = "printf('%08x', CAST(strftime('%s', 'now') AS INTEGER))"
    variant = "substr('89ab', 1 + abs(random() % 4), 1)"

    def random(self, digits: int) -> str:
        drawn = f"hex(randomblob({(digits + 1) // 2}))"
        return f"substr({drawn}, 2)" if digits % 2 else drawn


_WORDS: dict[str, _Words] = {
    "mariadb": _MySQL(),
    "mysql": _MySQL(),
    "postgresql": _PostgreSQL(),
    "sqlite": _SQLite(),
}


_PIECES = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
"""Where the pieces of a hyphenated UUID begin among its digits, and how long they are."""


def _milliseconds(words: _Words) -> str:
    return words.milliseconds


def _seconds(words: _Words) -> str:
    return words.seconds


def _variant(words: _Words) -> str:
    return words.variant


_VERSION_7: tuple[_Part, ...] = (_milliseconds, "7", 3, _variant, 15)  # RFC 9562, section 5.7
_DIGITS: dict[type[BitsFormat], tuple[_Part, ...]] = {
    Uuid4: (12, "4", 3, _variant, 15),  # RFC 9562, section 5.4
    Uuid7: _VERSION_7,
    TypeIdFormat: _VERSION_7,
    Ulid: (_milliseconds, 20),
    ObjectId: (_seconds, 16),
}


def expression(format: BitsFormat, dialect: str, version: Sequence[int | str] | None = None) -> str:
    """An expression that makes what a column of *format* stores; *version* is that of the server, where it is known.

    :raises ConfigurationError: where the database cannot make such ids.
    """
    parts = _DIGITS.get(type(format))
    if parts is None:
        raise _refusal(format, dialect, "they take a machine id and a sequence, which are kept by the programs")
    if dialect == "postgresql" and format.is_native:
        if parts is _VERSION_7 and version is not None and int(version[0]) >= 18:
            return "uuidv7()"  # its ids ascend within a session
        if type(format) is Uuid4:
            return "gen_random_uuid()"
    words = _WORDS[dialect]
    digits = words.joined([_said(part, words) for part in parts])
    if format.is_native:
        return _as_number(format, dialect, digits)
    return _as_text(format, dialect, digits)


def native_type(format: BitsFormat) -> str:
    """The type of PostgreSQL that a function has which makes ids of *format*."""
    if not format.is_native:
        return "text"
    return "uuid" if format.bits == 128 else "bytea"


def _said(part: _Part, words: _Words) -> str:
    if isinstance(part, str):
        return f"'{part}'"
    return words.random(part) if isinstance(part, int) else part(words)


def _as_number(format: BitsFormat, dialect: str, digits: str) -> str:
    if dialect == "postgresql":
        return f"({digits})::uuid" if format.bits == 128 else f"decode({digits}, 'hex')"
    if dialect == "sqlite":
        raise _refusal(format, dialect, 'it has no function for bytes; storage="text" with encoding="hex" can be made')
    return f"UNHEX({digits})"


def _as_text(format: BitsFormat, dialect: str, digits: str) -> str:
    if format.encoding not in ("hex", "hyphenated"):
        raise _refusal(format, dialect, 'as text, only those of encoding="hex" and "hyphenated" can be made')
    text = f"lower({digits})"
    if format.encoding == "hyphenated":
        text = _hyphenated(text, dialect)
    if format.prefix is None:
        return text
    if dialect in ("mysql", "mariadb") and "\\" in format.separator:
        raise _refusal(format, dialect, "how it reads a backslash depends on its settings")
    return _WORDS[dialect].joined([literal(format.prefix + format.separator, dialect), text])


def literal(text: str, dialect: str = "postgresql") -> str:
    """Return *text* as SQL writes it; one with a backslash is refused before on MySQL and MariaDB."""
    written = "'" + text.replace("'", "''") + "'"
    is_escaped = "\\" in text and dialect == "postgresql"
    return "E" + written.replace("\\", "\\\\") if is_escaped else written


def _hyphenated(digits: str, dialect: str) -> str:
    if dialect == "postgresql":
        return f"({digits})::uuid::text"
    if dialect == "sqlite":  # each piece draws its own digits; the time is the same throughout a statement
        return " || '-' || ".join(f"substr({digits}, {at}, {length})" for at, length in _PIECES)
    for at in (9, 14, 19, 24):
        digits = f"INSERT({digits}, {at}, 0, '-')"
    return digits


def _refusal(format: BitsFormat, dialect: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{dialect} cannot make ids of the format {format!r}: {why}; "
        f'say server_default="none", and let every program give the ids'
    )
