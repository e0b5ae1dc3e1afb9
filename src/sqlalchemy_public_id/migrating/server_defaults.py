"""Generate ids inside the database, each of them as likely as in Python.

Old applications and hand-written INSERTs do not set a new column, so a server default does. The random bits come from
the strong source of the database: ``gen_random_uuid()`` (PostgreSQL), ``RANDOM_BYTES()`` (MySQL, MariaDB 10.10),
``random()`` (SQLite).

Each character of a NanoId is chosen by a random number of 48 bits or more, modulo the size of the alphabet, so no
character is likelier than another by more than one part in 10**12.

UUIDs, ULIDs and ObjectIds are joined from hexadecimal digits: the server's time, random digits, and those that a
specification fixes. Python keeps a counter, so that the ids of one millisecond ascend. A database has no counter, so
the ids that it generates in one millisecond are in random order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, JetifyTypeId, NanoId, ObjectId, Ulid, Uuid4, Uuid7
from sqlalchemy_public_id.formats._bits import BitsFormat

_BACKSLASH = "how it reads a backslash depends on its settings"


def expression(format: Format, dialect: str, version: Sequence[int | str] | None = None) -> str:
    """Return the expression of a server default that generates ids.

    :param version: the version of the server, if it is known.
    :raises ConfigurationError: if the database cannot generate ids of *format*.
    """
    if isinstance(format, BitsFormat):
        return _digits_expression(format, dialect, version)
    if not isinstance(format, NanoId):
        raise _refusal(format, dialect, "there is no SQL for it")
    if format.check_digit:
        raise _refusal(format, dialect, "the expression of a DEFAULT cannot compute a check digit")
    if "\\" in format.alphabet:
        raise _refusal(format, dialect, _BACKSLASH)
    place = _NUMBERS[dialect].format(len(format.alphabet))
    character = f"substr({_literal(format.alphabet)}, 1 + {place}, 1)"
    return _DIGITS[dialect].join([*_lead(format, dialect), *[character] * format.length])


def can_generate(format: Format, dialect: str) -> bool:
    """Return True if a database of *dialect* can generate ids of *format*."""
    try:
        return bool(expression(format, dialect))
    except ConfigurationError:
        return False


def is_generated(default: str, format: Format, dialect: str, version: Sequence[int | str] | None = None) -> bool:
    """Return True if *default*, as the database reports it, is :func:`expression` for *format* or an older one."""
    forms = [form for form in format.forms if can_generate(form, dialect)]
    written = {expression(form, dialect, each) for form in forms for each in (version, None)}  # of an older server
    return _as_reported(default) in map(_as_reported, written)


_PIECE = re.compile(
    r"""(?P<literal>'(?:[^'\\]|''|\\.)*')
    | \b_\w+(?=')                                 # the character set of a literal
    | ::(?:character\ varying|\w+)(?:\(\d+\))?    # a cast
    | \b(?:MOD|LCASE)\b | [\s()]+ | .""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_SYNONYMS = {"mod": "%", "lcase": "lower"}


def _as_reported(sql: str) -> str:
    """Return *sql* without what servers change when they store it: case, blanks, parentheses, casts, character sets."""

    def reported(match: re.Match[str]) -> str:
        if match["literal"]:
            return match[0].replace("\\'", "''")
        word = match[0].lower()
        return "" if word[0] in "_() \n\t" or word.startswith("::") else _SYNONYMS.get(word, word)

    return _PIECE.sub(reported, sql)


_NUMBERS = {
    "mariadb": "CAST(CONV(HEX(RANDOM_BYTES(7)), 16, 10) AS UNSIGNED) MOD {}",
    "mysql": "CAST(CONV(HEX(RANDOM_BYTES(7)), 16, 10) AS UNSIGNED) MOD {}",
    # the last 12 digits of a random UUID are all random
    "postgresql": "(('x' || substr(gen_random_uuid()::text, 25))::bit(48)::bigint % {})::int",
    "sqlite": "abs(random() % {})",
}
"""Expressions for a random number below the size of an alphabet."""


def _concat(parts: list[str]) -> str:
    return f"CONCAT({', '.join(parts)})"


def _lead(format: NanoId | BitsFormat, dialect: str) -> list[str]:
    """Return the literal of the prefix with its separator, if there is one."""
    if format.prefix is None:
        return []
    if "\\" in format.separator:
        raise _refusal(format, dialect, _BACKSLASH)
    return [_literal(format.prefix + format.separator)]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- UUIDs, ULIDs, ObjectIds


class _Digits(NamedTuple):
    """Expressions for hexadecimal digits."""

    milliseconds: str
    """The milliseconds since 1970, as 12 digits."""
    seconds: str
    """The seconds since 1970, as 8 digits."""
    variant: str
    """One of 8, 9, a and b."""
    random: Callable[[int], str]
    """A function that returns an expression for the given number of random digits."""
    join: Callable[[list[str]], str] = " || ".join


def _random_digits_from(source: str) -> Callable[[int], str]:
    def random(digits: int) -> str:
        drawn = source.format((digits + 1) // 2)
        return f"substr({drawn}, 2)" if digits % 2 else drawn

    return random


def _random_digits_of_uuids(digits: int) -> str:
    at_once = 12  # the last digits of a UUID, which are all random
    return " || ".join(
        f"substr(gen_random_uuid()::text, 25, {min(at_once, digits - at)})" for at in range(0, digits, at_once)
    )


_MYSQL = _Digits(
    # UTC, because local time repeats an hour when daylight saving time ends
    milliseconds="LPAD(HEX(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000), 12, '0')",
    seconds="LPAD(HEX(UNIX_TIMESTAMP()), 8, '0')",
    variant="SUBSTR('89AB', 1 + CAST(CONV(HEX(RANDOM_BYTES(1)), 16, 10) AS UNSIGNED) MOD 4, 1)",
    random=_random_digits_from("HEX(RANDOM_BYTES({}))"),
    join=_concat,
)
_DIGITS = {
    "mariadb": _MYSQL,
    "mysql": _MYSQL,
    "postgresql": _Digits(
        milliseconds="lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')",
        seconds="lpad(to_hex(floor(extract(epoch FROM clock_timestamp()))::bigint), 8, '0')",
        variant="substr(gen_random_uuid()::text, 20, 1)",
        random=_random_digits_of_uuids,
    ),
    "sqlite": _Digits(
        milliseconds="printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))",
        seconds="printf('%08x', CAST(strftime('%s', 'now') AS INTEGER))",
        variant="substr('89ab', 1 + abs(random() % 4), 1)",
        random=_random_digits_from("hex(randomblob({}))"),
    ),
}

# Strings are fixed digits, or attributes of _Digits; integers count random digits.
_VERSION_7 = ("milliseconds", "7", 3, "variant", 15)  # RFC 9562, section 5.7
_PARTS: dict[type[BitsFormat], tuple[str | int, ...]] = {
    Uuid4: (12, "4", 3, "variant", 15),  # RFC 9562, section 5.4
    Uuid7: _VERSION_7,
    JetifyTypeId: _VERSION_7,
    Ulid: ("milliseconds", 20),
    ObjectId: ("seconds", 16),
}


def _digits_expression(format: BitsFormat, dialect: str, version: Sequence[int | str] | None = None) -> str:
    parts = _PARTS.get(type(format))
    if parts is None:
        raise _refusal(format, dialect, "they need a machine id and a sequence, which only the application has")
    if dialect == "postgresql" and format.is_native:
        if parts is _VERSION_7 and version is not None and int(version[0]) >= 18:
            return "uuidv7()"  # its ids ascend within a session
        if type(format) is Uuid4:
            return "gen_random_uuid()"
    source = _DIGITS[dialect]
    digits = source.join(
        [source.random(part) if isinstance(part, int) else getattr(source, part, f"'{part}'") for part in parts]
    )
    return _as_number(format, dialect, digits) if format.is_native else _as_string(format, dialect, digits)


def _as_number(format: BitsFormat, dialect: str, digits: str) -> str:
    if dialect == "postgresql":
        return f"({digits})::uuid" if format.bits == 128 else f"decode({digits}, 'hex')"
    if dialect == "sqlite":
        raise _refusal(format, dialect, 'it has no function for bytes; storage="text" with encoding="hex" works')
    return f"UNHEX({digits})"


def _as_string(format: BitsFormat, dialect: str, digits: str) -> str:
    if format.encoding not in ("hex", "hyphenated"):
        raise _refusal(format, dialect, 'as text, only encoding="hex" and "hyphenated" work')
    string = f"lower({digits})"
    if format.encoding == "hyphenated":
        string = _hyphenated(string, dialect)
    lead = _lead(format, dialect)
    return _DIGITS[dialect].join([*lead, string]) if lead else string


def _hyphenated(digits: str, dialect: str) -> str:
    if dialect == "postgresql":
        return f"({digits})::uuid::text"
    if dialect == "sqlite":  # each piece draws its own digits; the time is the same throughout a statement
        pieces = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
        return " || '-' || ".join(f"substr({digits}, {at}, {length})" for at, length in pieces)
    for at in (9, 14, 19, 24):
        digits = f"INSERT({digits}, {at}, 0, '-')"
    return digits


def _refusal(format: Format, dialect: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{dialect} cannot generate ids of the format {format!r}: {why}; "
        f'pass server_default="none", and let every application set the ids'
    )
