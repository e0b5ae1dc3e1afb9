"""SQL that makes public ids inside a database, each as likely as with Python.

Old programs and hand-written INSERTs know nothing of a new column; their rows get ids from its database-side default.
The random bits come from the database's strong source: ``gen_random_uuid()`` (PostgreSQL 13), ``RANDOM_BYTES()``
(MySQL, MariaDB 10.10), ``random()`` (SQLite). A character is such a number modulo the size of the alphabet. With 60
bits for up to 32 bits of text, no id is likelier than another one by more than one part in 10**8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.online import numbers
from sqlalchemy_public_id.online.numbers import literal

__all__ = ["can_make", "expression", "function_body", "function_type", "is_made_here", "literal", "trigger_body"]

_CHUNK = 2**32
"""How many different texts are cut from one random number of 60 bits, at most."""


def expression(format: Format, dialect: str) -> str | None:
    """An expression that makes an id, for a DEFAULT of *dialect*; ``None`` where it takes a function or a trigger.

    :raises ConfigurationError: where the database cannot make ids of *format*.
    """
    if isinstance(format, BitsFormat):
        return None if dialect == "postgresql" else numbers.expression(format, dialect)
    nanoid = _known(format, dialect)
    if nanoid.check_digit or dialect == "postgresql":
        if dialect == "sqlite":
            raise ConfigurationError(
                f"SQLite cannot make ids with a check digit ({format!r}) in a DEFAULT; "
                f'say server_default="none", and let every program give the ids'
            )
        return None
    if dialect == "sqlite":
        characters = [
            f"substr({literal(nanoid.alphabet)}, 1 + abs(random() % {len(nanoid.alphabet)}), 1)"
        ] * nanoid.length
        return " || ".join([*_lead(nanoid), *characters])
    return f"CONCAT({', '.join([*_lead(nanoid), *[_mysql_character(nanoid)] * nanoid.length])})"


def function_body(format: Format, version: Sequence[int | str] | None = None) -> str:
    """The body of a function of PostgreSQL, in SQL, from functions of its core alone; *version* where it is known.

    :raises ConfigurationError: where the database cannot make ids of *format*.
    """
    if isinstance(format, BitsFormat):
        return f"SELECT {numbers.expression(format, 'postgresql', version)}"
    nanoid = _known(format, "postgresql")
    size, length = len(nanoid.alphabet), nanoid.length
    at_once = max(count for count in range(1, 33) if count == 1 or size**count <= _CHUNK)
    draws = -(-length // at_once)
    digits = [_digit(f"n{at // at_once}", size, at % at_once) for at in range(length)]
    text = " || ".join([*_lead(nanoid), *_characters(nanoid, digits, lambda digit: f"substr(a, 1 + {digit}, 1)")])
    halves = ["substr({0}, 18, 15)", "substr({0}, 1, 12) || substr({0}, 14, 3)"]  # 60 bits each: all but what says "v4"
    columns = [f"('x' || {halves[at % 2].format(f'u{at // 2}')})::bit(60)::bigint AS n{at}" for at in range(draws)]
    uuids = [f"replace(gen_random_uuid()::text, '-', '') AS u{at}" for at in range(-(-draws // 2))]
    return (
        f"SELECT {text}\nFROM (SELECT {literal(nanoid.alphabet)} AS a, {', '.join(columns)}\n"
        f"      FROM (SELECT {', '.join(uuids)}) AS random) AS numbers"
    )


def can_make(format: Format, dialect: str) -> bool:
    """Whether a database of *dialect* can make ids of *format*."""
    try:
        if function_body(format) if dialect == "postgresql" else expression(format, dialect):
            return True
        return bool(trigger_body(format, "x"))
    except ConfigurationError:
        return False


def function_type(format: Format) -> str:
    """The type that a function of PostgreSQL has which makes ids of *format*."""
    return numbers.native_type(format) if isinstance(format, BitsFormat) else "text"


def is_made_here(default: str, dialect: str) -> bool:
    """Whether *default*, as the database tells it, is what :func:`expression` has made."""
    sources = ("abs(random() %", "hex(randomblob(") if dialect == "sqlite" else ("random_bytes(",)
    return any(source in default.lower() for source in sources)


def trigger_body(format: Format, column: str) -> str:
    """What a BEFORE INSERT trigger of MySQL or MariaDB does for rows whose *column*, a quoted name, is NULL."""
    nanoid = _known(format, "mysql")
    size = len(nanoid.alphabet)
    digits = [f"n{at}" for at in range(nanoid.length)]
    draw = "".join(f"DECLARE {digit} INT DEFAULT {_mysql_number(size)}; " for digit in digits)
    characters = _characters(nanoid, digits, lambda digit: f"SUBSTR({literal(nanoid.alphabet)}, 1 + {digit}, 1)")
    text = f"CONCAT({', '.join([*_lead(nanoid), *characters])})"
    return f"IF NEW.{column} IS NULL THEN BEGIN {draw}SET NEW.{column} = {text}; END; END IF"


def _digit(number: str, size: int, place: int) -> str:
    """One digit of *number*, written to the base *size*."""
    return f"({number}{f' / {size**place}' if place else ''} % {size})::int"


def _known(format: Format, dialect: str) -> NanoId:
    if not isinstance(format, NanoId):
        raise ConfigurationError(
            f"{dialect} cannot make ids of the format {format!r}; "
            f'say server_default="none", and let every program give the ids'
        )
    if dialect != "postgresql" and ("\\" in format.alphabet or "\\" in format.separator):
        raise ConfigurationError(f"{dialect} cannot make ids with a backslash in them ({format!r})")
    return format


def _characters(format: NanoId, digits: list[str], character: Callable[[str], str]) -> list[str]:
    """The expressions of all characters, a check digit included, from those of the *digits*."""
    if not format.check_digit:
        return [character(digit) for digit in digits]
    # ISO 7064 MOD 37,36: each step takes the digit, then doubles; 0 counts as 36
    product = reduce(lambda so_far, digit: f"(({so_far} + {digit} + 35) % 36 + 1) * 2 % 37", digits, "36")
    return [character(digit) for digit in (*digits, f"(37 - {product}) % 36")]


def _mysql_character(format: NanoId) -> str:
    return f"SUBSTR({literal(format.alphabet)}, 1 + {_mysql_number(len(format.alphabet))}, 1)"


def _mysql_number(below: int) -> str:
    return f"CAST(CONV(HEX(RANDOM_BYTES(7)), 16, 10) AS UNSIGNED) MOD {below}"


def _lead(format: NanoId) -> list[str]:
    return [literal(format.prefix + format.separator)] if format.prefix is not None else []
