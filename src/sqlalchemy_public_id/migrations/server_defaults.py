"""Generate ids inside the database, each of them as likely as in Python.

Old applications and hand-written INSERTs do not set a new column, so a server default does. The random bits come from
the strong source of the database: ``gen_random_uuid()`` (PostgreSQL), ``RANDOM_BYTES()`` (MySQL, MariaDB 10.10),
``random()`` (SQLite).

PostgreSQL prefers an operator that another role has created to one of ``pg_catalog`` whose types match less exactly,
and a default runs as everyone who inserts. So functions are qualified, and operators have exactly the types of an
operator of ``pg_catalog``.

On PostgreSQL, the characters of a NanoId come from the base64 form of hashed UUIDs, all of whose 64 characters are
equally likely: those that stand for no character of the alphabet are left out, and the first ones of the rest are the
id. Elsewhere, and for alphabets of more than 64 characters, each character is chosen by a random number of 48 bits or
more, modulo the size of the alphabet, so no character is likelier than another by more than one part in 10**12.

UUIDs, ULIDs and ObjectIds are joined from hexadecimal digits: the server's time, random digits, and those that a
specification fixes. Python keeps a counter, so that the ids of one millisecond ascend. A database has no counter, so
the ids that it generates in one millisecond are in random order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, JetifyTypeId, Ksuid, NanoId, ObjectId, Ulid, Uuid4, Uuid7
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.ksuid import EPOCH

_BACKSLASH = "how it reads a backslash depends on its settings"


def expression(format: Format, dialect: str, version: Sequence[int | str] | None = None) -> str:
    """Return the expression of a server default that generates ids.

    :param version: the version of the server, if it is known.
    :raises ConfigurationError: if the database cannot generate ids of *format*.
    """
    return _expression(format, dialect, version, _DIGITS[dialect])


def _expression(format: Format, dialect: str, version: Sequence[int | str] | None, source: _Source) -> str:
    if isinstance(format, BitsFormat):
        return _digits_expression(format, dialect, version, source)
    if not isinstance(format, NanoId):
        raise _refusal(format, dialect, "there is no SQL for it")
    if format.check_digit:
        raise _refusal(format, dialect, "the expression of a DEFAULT cannot compute a check digit")
    if "\\" in format.alphabet:
        raise _refusal(format, dialect, _BACKSLASH)
    if source.filters and len(format.alphabet) <= len(_BASE64):
        return source.join([*_lead(format, dialect), _filtered(format)])
    place = source.number.format(len(format.alphabet))
    character = f"{source.substr}({_literal(format.alphabet)}, 1 + {place}, 1)"
    return source.join([*_lead(format, dialect), *[character] * format.length])


def can_generate(format: Format, dialect: str) -> bool:
    """Return True if a database of *dialect* can generate ids of *format*."""
    try:
        return bool(expression(format, dialect))
    except ConfigurationError:
        return False


def is_generated(default: str, format: Format, dialect: str, version: Sequence[int | str] | None = None) -> bool:
    """Return True if *default*, as the database reports it, is :func:`expression` for *format* or an older one.

    It may be the expression of an earlier version of this library, or of one for an older server.
    """
    return form_of(default, format, dialect, version) is not None


def form_of(
    default: str, format: Format, dialect: str, version: Sequence[int | str] | None = None, *, outdated: bool = False
) -> Format | None:
    """Return the form of *format* whose ids *default* generates, if this library has written it.

    :param outdated: True for a default that an earlier version has written, and this version would not.
    """
    stored = _as_reported(default)
    for form in format.forms:
        if can_generate(form, dialect):
            present = {_as_reported(expression(form, dialect, each)) for each in (version, None)}
            old = _OLD.get(dialect)
            older = set[str]() if old is None else {_as_reported(_expression(form, dialect, None, old))}
            if stored in (older - present if outdated else older | present):
                return form
    return None


_PIECE = re.compile(
    r"""(?P<literal>'(?:[^'\\]|''|\\.)*')
    | \b_\w+(?=')                                 # the character set of a literal
    | ::(?:character\ varying|\w+)(?:\(\d+\))?    # a cast
    | \bpg_catalog\. | "                          # PostgreSQL qualifies a function only if it has to
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
        is_left_out = word[0] in '_() \n\t"' or word.startswith("::") or word == "pg_catalog."
        return "" if is_left_out else _SYNONYMS.get(word, word)

    return _PIECE.sub(reported, sql)


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


# --- the characters of a NanoId on PostgreSQL

_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_DIGEST = "pg_catalog.encode(pg_catalog.sha384(pg_catalog.uuid_send(pg_catalog.gen_random_uuid())), 'base64')"
"""64 characters of base64, without line breaks or padding, from the 122 random bits of a UUID."""
_BITS_OF_A_UUID, _BITS_TO_SPARE = 122, 40
"""An id of few bits less than a UUID has would not be quite uniform."""
_DOUBT = 64
"""The chance that too few characters are left for an id is at most 1 in ``2**64``."""


def _filtered(format: NanoId) -> str:
    alphabet, length = format.alphabet, format.length
    times = len(_BASE64) // len(alphabet)  # how many characters of base64 stand for each one of the alphabet
    meant = [each for each in alphabet if each not in _BASE64] + [*alphabet] * (times - 1)
    others = "".join(each for each in _BASE64 if each not in alphabet)
    count = math.ceil((format.entropy_bits + _BITS_TO_SPARE) / _BITS_OF_A_UUID)
    while _are_too_few(length, count * len(_BASE64), times * len(alphabet)):
        count += 1
    kept = " || ".join([_DIGEST] * count)
    if others:
        kept = f"pg_catalog.translate({kept}, {_literal(others)}, {_literal(''.join(meant))})"
    return f"pg_catalog.left({kept}, {length})"


def _are_too_few(needed: int, drawn: int, kept: int) -> bool:
    """Return True if the chance is too great that fewer than *needed* of the *drawn* characters of base64 are kept.

    :param kept: how many of the 64 characters are kept.
    """
    all_, left_out = len(_BASE64), len(_BASE64) - kept
    cases = sum(math.comb(drawn, n) * kept**n * left_out ** (drawn - n) for n in range(min(needed, drawn + 1)))
    return bool(cases << _DOUBT > all_**drawn)


# --- UUIDs, ULIDs, ObjectIds


class _Source(NamedTuple):
    """Expressions for random numbers and hexadecimal digits."""

    number: str
    """A random number below the size of an alphabet."""
    milliseconds: str
    """The milliseconds since 1970, as 12 digits."""
    seconds: str
    """The seconds since 1970, as 8 digits."""
    variant: str
    """One of 8, 9, a and b."""
    random: Callable[[int], str]
    """A function that returns an expression for the given number of random digits."""
    join: Callable[[list[str]], str] = " || ".join
    substr: str = "substr"
    filters: bool = False
    """True if the characters of a NanoId are those of base64 that are left, instead of numbers."""
    seconds_since_2014: str = ""
    """The seconds of a KSUID, as 8 digits, where the database can generate one."""
    rest_of_version_7: str | None = None
    """All digits of a UUID behind the version, in one expression."""


def _random_digits_from(source: str) -> Callable[[int], str]:
    def random(digits: int) -> str:
        drawn = source.format((digits + 1) // 2)
        return f"substr({drawn}, 2)" if digits % 2 else drawn

    return random


def _random_digits_of_uuids(digits: int, schema: str = "pg_catalog.") -> str:
    at_once = 12  # the last digits of a UUID, which are all random
    return " || ".join(
        f"{schema}substr({schema}gen_random_uuid()::text, 25, {min(at_once, digits - at)})"
        for at in range(0, digits, at_once)
    )


_MYSQL = _Source(
    number="CAST(CONV(HEX(RANDOM_BYTES(7)), 16, 10) AS UNSIGNED) MOD {}",
    # UTC, because local time repeats an hour when daylight saving time ends
    milliseconds="LPAD(HEX(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000), 12, '0')",
    seconds="LPAD(HEX(UNIX_TIMESTAMP()), 8, '0')",
    seconds_since_2014=f"LPAD(HEX(UNIX_TIMESTAMP() - {EPOCH}), 8, '0')",
    variant="SUBSTR('89AB', 1 + CAST(CONV(HEX(RANDOM_BYTES(1)), 16, 10) AS UNSIGNED) MOD 4, 1)",
    random=_random_digits_from("HEX(RANDOM_BYTES({}))"),
    join=_concat,
)
_TIME = "pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()){})::bigint"
_DIGITS = {
    "mariadb": _MYSQL,
    "mysql": _MYSQL,
    "postgresql": _Source(
        # the last 12 digits of a random UUID are all random; with %, a program that executes it may have to double it
        number=(
            "pg_catalog.mod(('x' || pg_catalog.right(pg_catalog.gen_random_uuid()::text, 12))::bit(48)::bigint, "
            "{}::bigint)::int"
        ),
        milliseconds=f"pg_catalog.lpad(pg_catalog.to_hex({_TIME.format(' * 1000::numeric')}), 12, '0')",
        seconds=f"pg_catalog.lpad(pg_catalog.to_hex({_TIME.format('')}), 8, '0')",
        seconds_since_2014=f"pg_catalog.lpad(pg_catalog.to_hex({_TIME.format(f' - {EPOCH}::numeric')}), 8, '0')",
        variant="pg_catalog.substr(pg_catalog.gen_random_uuid()::text, 20, 1)",
        random=_random_digits_of_uuids,
        substr="pg_catalog.substr",
        filters=True,
        rest_of_version_7="pg_catalog.substr(pg_catalog.translate(pg_catalog.gen_random_uuid()::text, '-', ''), 14)",
    ),
    "sqlite": _Source(
        number="abs(random() % {})",
        milliseconds="printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))",
        seconds="printf('%08x', CAST(strftime('%s', 'now') AS INTEGER))",
        variant="substr('89ab', 1 + abs(random() % 4), 1)",
        random=_random_digits_from("hex(randomblob({}))"),
    ),
}
_OLD = {
    # builds before 1.0, whose operators had types for which pg_catalog has no exact match
    "postgresql": _Source(
        number="(('x' || substr(gen_random_uuid()::text, 25))::bit(48)::bigint % {})::int",
        milliseconds="lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')",
        seconds="lpad(to_hex(floor(extract(epoch FROM clock_timestamp()))::bigint), 8, '0')",
        variant="substr(gen_random_uuid()::text, 20, 1)",
        random=partial(_random_digits_of_uuids, schema=""),
    ),
}
"""The expressions of earlier versions, by which their defaults are recognized."""

# Strings are fixed digits, or attributes of _Digits; integers count random digits.
_VERSION_7 = ("milliseconds", "7", 3, "variant", 15)  # RFC 9562, section 5.7
_PARTS: dict[type[BitsFormat], tuple[str | int, ...]] = {
    Uuid4: (12, "4", 3, "variant", 15),  # RFC 9562, section 5.4
    Uuid7: _VERSION_7,
    JetifyTypeId: _VERSION_7,
    Ulid: ("milliseconds", 20),
    Ksuid: ("seconds_since_2014", 32),
    ObjectId: ("seconds", 16),
}


def _digits_expression(format: BitsFormat, dialect: str, version: Sequence[int | str] | None, source: _Source) -> str:
    parts = _PARTS.get(type(format))
    if parts is None:
        raise _refusal(format, dialect, "they need a machine id and a sequence, which only the application has")
    if dialect == "postgresql" and format.is_native:
        if parts is _VERSION_7 and version is not None and int(version[0]) >= 18:
            return "pg_catalog.uuidv7()"  # its ids ascend within a session
        if type(format) is Uuid4:
            return "pg_catalog.gen_random_uuid()"
    if source.rest_of_version_7 is not None and parts is _VERSION_7:
        parts = ("milliseconds", "7", "rest_of_version_7")
    digits = source.join(
        [source.random(part) if isinstance(part, int) else getattr(source, part, f"'{part}'") for part in parts]
    )
    return _as_number(format, dialect, digits) if format.is_native else _as_string(format, dialect, digits)


def _as_number(format: BitsFormat, dialect: str, digits: str) -> str:
    if dialect == "postgresql":
        return f"({digits})::uuid" if format.bits == 128 else f"pg_catalog.decode({digits}, 'hex')"
    if dialect == "sqlite":
        raise _refusal(format, dialect, 'it has no function for bytes; storage="text" with encoding="hex" works')
    return f"UNHEX({digits})"


def _as_string(format: BitsFormat, dialect: str, digits: str) -> str:
    if format.encoding not in ("hex", "hyphenated"):
        raise _refusal(format, dialect, 'as text, only encoding="hex" and "hyphenated" work')
    lower = "pg_catalog.lower" if dialect == "postgresql" else "lower"
    string = f"{lower}({digits})"
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
