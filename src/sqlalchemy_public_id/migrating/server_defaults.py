"""Generate ids inside the database, each as likely as one from Python.

Old applications and hand-written INSERTs do not set a new column: a server default does. The random bits come from the
strong source of the database: ``gen_random_uuid()`` (PostgreSQL 13), ``RANDOM_BYTES()`` (MySQL, MariaDB 10.10),
``random()`` (SQLite).

A character of a NanoId is a random number modulo the size of the alphabet. With 60 bits for up to 32 bits of
characters, no id is likelier than another one by more than one part in 10**8.

UUIDs, ULIDs and ObjectIds are joined from hexadecimal digits: the server's time, random digits, and those that a
specification fixes. Python keeps a counter, so that the ids of one millisecond ascend; a database has none, and there
they are in any order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, NanoId, ObjectId, TypeIdFormat, Ulid, Uuid4, Uuid7
from sqlalchemy_public_id.formats._bits import BitsFormat

_CHUNK = 2**32
"""The largest number of different strings that are cut from one random number of 60 bits."""
_UUID = "replace(gen_random_uuid()::text, '-', '')"
_BACKSLASH = "how it reads a backslash depends on its settings"


def expression(format: Format, dialect: str) -> str | None:
    """Return the expression of a server default that generates ids; ``None`` if it takes a function (PostgreSQL).

    :raises ConfigurationError: if the database cannot generate ids of *format*.
    """
    if isinstance(format, BitsFormat):
        return None if dialect == "postgresql" else _digits_expression(format, dialect)
    nanoid = _supported(format, dialect)
    if dialect == "postgresql":
        return None
    if nanoid.check_digit:
        raise _refusal(format, dialect, "a check digit takes more than the expression of a DEFAULT")
    if dialect == "sqlite":
        character = f"substr({_literal(nanoid.alphabet)}, 1 + abs(random() % {len(nanoid.alphabet)}), 1)"
        return " || ".join([*_lead(nanoid), *[character] * nanoid.length])
    number = f"CAST(CONV(HEX(RANDOM_BYTES(7)), 16, 10) AS UNSIGNED) MOD {len(nanoid.alphabet)}"
    character = f"SUBSTR({_literal(nanoid.alphabet)}, 1 + {number}, 1)"
    return _concat([*_lead(nanoid), *[character] * nanoid.length])


def function_body(format: Format, version: Sequence[int | str] | None = None) -> str:
    """Return the body of a function of PostgreSQL in SQL, which calls only functions of its core.

    :param version: the version of the server, if it is known.
    :raises ConfigurationError: if the database cannot generate ids of *format*.
    """
    if isinstance(format, BitsFormat):
        return f"SELECT {_digits_expression(format, 'postgresql', version)}"
    nanoid = _supported(format, "postgresql")
    size, length = len(nanoid.alphabet), nanoid.length
    at_once = max(count for count in range(1, 33) if count == 1 or size**count <= _CHUNK)
    digits: list[str] = []
    for at in range(length):
        place = at % at_once
        digits.append(f"(n{at // at_once}{f' / {size**place}' if place else ''} % {size})::int")
    characters = _characters(nanoid, digits)
    # a random UUID holds two numbers of 60 bits: all bits but those of its version and variant
    halves = ["substr({0}, 18, 15)", "substr({0}, 1, 12) || substr({0}, 14, 3)"]
    draws = -(-length // at_once)
    columns = [f"('x' || {halves[at % 2].format(f'u{at // 2}')})::bit(60)::bigint AS n{at}" for at in range(draws)]
    uuids = [f"{_UUID} AS u{at}" for at in range(-(-draws // 2))]
    return (
        f"SELECT {' || '.join([*_lead(nanoid), *characters])}\n"
        f"FROM (SELECT {_literal(nanoid.alphabet)} AS a, {', '.join(columns)}\n"
        f"      FROM (SELECT {', '.join(uuids)}) AS random) AS numbers"
    )


def function_type(format: Format) -> str:
    """Return the type of the function of PostgreSQL that generates ids of *format*."""
    if not isinstance(format, BitsFormat) or not format.is_native:
        return "text"
    return "uuid" if format.bits == 128 else "bytea"


def can_generate(format: Format, dialect: str) -> bool:
    """Return True if a database of *dialect* can generate ids of *format*."""
    try:
        return bool(function_body(format) if dialect == "postgresql" else expression(format, dialect))
    except ConfigurationError:
        return False


def is_generated(default: str, format: Format, dialect: str) -> bool:
    """Return True if *default*, as the database reports it, is :func:`expression` for *format* or an older one."""
    written = (expression(form, dialect) for form in format.forms if can_generate(form, dialect))
    return any(_as_reported(default) == _as_reported(each) for each in written if each is not None)


_PIECE = re.compile(r"('(?:[^'\\]|''|\\.)*')|\b_\w+(?=')|\bMOD\b|\bLCASE\b|[\s()]+|.", re.IGNORECASE | re.DOTALL)
_SYNONYMS = {"mod": "%", "lcase": "lower"}


def _as_reported(sql: str) -> str:
    """Return *sql* without what servers change when they store it: case, blanks, parentheses, and character sets."""

    def reported(match: re.Match[str]) -> str:
        if match[1]:
            return match[1].replace("\\'", "''")
        word = match[0].lower()
        return "" if word[0] in "_() \n\t" else _SYNONYMS.get(word, word)

    return _PIECE.sub(reported, sql)


# --- NanoIds


def _supported(format: Format, dialect: str) -> NanoId:
    if not isinstance(format, NanoId):
        raise _refusal(format, dialect, "there is no SQL for it")
    if dialect != "postgresql" and ("\\" in format.alphabet or "\\" in format.separator):
        raise _refusal(format, dialect, _BACKSLASH)
    return format


def _characters(format: NanoId, digits: list[str]) -> list[str]:
    """Return the expressions of all characters, including a check digit, from those of the *digits*."""
    if format.check_digit:
        # ISO 7064 MOD 37,36: each step adds the digit, then doubles; 0 counts as 36
        product = reduce(lambda so_far, digit: f"(({so_far} + {digit} + 35) % 36 + 1) * 2 % 37", digits, "36")
        digits = [*digits, f"(37 - {product}) % 36"]
    return [f"substr(a, 1 + {digit}, 1)" for digit in digits]


def _concat(parts: list[str]) -> str:
    return f"CONCAT({', '.join(parts)})"


def _lead(format: NanoId) -> list[str]:
    return [_literal(format.prefix + format.separator)] if format.prefix is not None else []


def _literal(text: str, dialect: str = "postgresql") -> str:
    # a backslash arrives here only on PostgreSQL, and on SQLite, where it is an ordinary character
    plain = "'" + text.replace("'", "''") + "'"
    return "E" + plain.replace("\\", "\\\\") if "\\" in text and dialect == "postgresql" else plain


# --- UUIDs, ULIDs, ObjectIds


class _Digits(NamedTuple):
    """Expressions for hexadecimal digits."""

    milliseconds: str
    """Since 1970, as 12 digits."""
    seconds: str
    """Since 1970, as 8 digits."""
    variant: str
    """One of 8, 9, a and b."""
    random: Callable[[int], str]
    """Returns an expression for so many random digits."""
    join: Callable[[list[str]], str] = " || ".join


def _random_digits_from(source: str) -> Callable[[int], str]:
    def random(digits: int) -> str:
        drawn = source.format((digits + 1) // 2)
        return f"substr({drawn}, 2)" if digits % 2 else drawn

    return random


def _random_digits_of_uuids(digits: int) -> str:
    at_once = 15  # after the digits of version and variant
    return " || ".join(f"substr({_UUID}, 18, {min(at_once, digits - at)})" for at in range(0, digits, at_once))


_MYSQL = _Digits(
    # UTC, because the local time has one hour twice a year
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
        variant=f"substr({_UUID}, 17, 1)",
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
    TypeIdFormat: _VERSION_7,
    Ulid: ("milliseconds", 20),
    ObjectId: ("seconds", 16),
}


def _digits_expression(format: BitsFormat, dialect: str, version: Sequence[int | str] | None = None) -> str:
    parts = _PARTS.get(type(format))
    if parts is None:
        raise _refusal(format, dialect, "they take a machine id and a sequence, which the application keeps")
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
    if format.prefix is None:
        return string
    if dialect in ("mysql", "mariadb") and "\\" in format.separator:
        raise _refusal(format, dialect, _BACKSLASH)
    return _DIGITS[dialect].join([_literal(format.prefix + format.separator, dialect), string])


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
