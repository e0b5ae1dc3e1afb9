"""Guess the format of an id from its text.

>>> [*guesses("cus_izkpm55j334u")]
[NanoId(prefix='cus')]
>>> split_prefix("cus_izkpm55j334u")
('cus', '_', 'izkpm55j334u')
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from sqlalchemy_public_id import formats
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.alphabets import BASE36, MAX_LENGTH, is_printable
from sqlalchemy_public_id.formats.codec import ENCODINGS
from sqlalchemy_public_id.formats.parse import known_formats

UUID_TEXT: re.Pattern[str] = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
"""A UUID of any version, with hyphens or without."""
_PREFIXED = re.compile(
    rf"(?P<prefix>[A-Za-z][A-Za-z0-9_]*?)(?P<separator>[^A-Za-z0-9]+)(?P<body>[A-Za-z0-9]+|{UUID_TEXT.pattern})",
    re.ASCII,
)


def split_prefix(text: str) -> tuple[str, str, str]:
    """Return the prefix, the separator and the body of *text*; the first two are empty without a prefix."""
    match = _PREFIXED.fullmatch(text[:MAX_LENGTH]) if not UUID_TEXT.fullmatch(text) else None
    return ("", "", text) if match is None else (match["prefix"], match["separator"], match["body"])


def alphabets() -> list[tuple[str, str]]:
    """Return the names and characters of the exported alphabets, the smallest first."""
    exported = [(name, getattr(formats, name)) for name in formats.__all__]
    return sorted((pair for pair in exported if isinstance(pair[1], str)), key=lambda pair: len(pair[1]))


def guesses(text: str) -> Iterator[Format]:
    """Yield the formats that accept *text*, one per class, with settings taken from it."""
    if is_printable(text) and len(text) <= MAX_LENGTH:
        found = groupby(_candidates(text, BASE36), key=type)
        yield from (next(of_one_class) for _, of_one_class in found)


def ranked_guesses(texts: Sequence[str]) -> list[Format]:
    """Return formats that accept some of *texts*, the one that accepts most of them first.

    If no two texts have the same prefix, the alphabet may contain the separator.

    >>> ranked_guesses(["cus_izkpm55j334u", "cus_0z3n8s4kq2vh", "oops"])
    [NanoId(prefix='cus')]
    """
    printable = [text for text in texts if is_printable(text) and len(text) <= MAX_LENGTH]
    tried = printable[:: len(printable) // 100 + 1]
    leads = Counter("".join(split_prefix(text)[:2]) for text in tried)
    lead, count = max(leads.items(), key=lambda each: each[1], default=("", 0))
    characters = "".join(sorted({*"".join(printable)}))
    candidates = dict.fromkeys(
        format
        for text in tried
        for format in _candidates(text, characters)
        if count == 1 or lead == (f"{format.prefix}{format.separator}" if format.prefix else "")
    )
    return sorted(candidates, key=lambda guess: -sum(map(guess.is_valid, tried)))


def _candidates(text: str, characters: str) -> Iterator[Format]:
    """Yield the formats that accept *text*.

    :param characters: the alphabet to try if no exported one has all characters of *text*.
    """
    prefix, separator, body = split_prefix(text)
    splits: list[tuple[dict[str, Any], str]] = [({"prefix": prefix, "separator": separator}, body)] if prefix else []
    # formats of a fixed number of bits accept fewer texts than a NanoId: they come first
    for cls in sorted(known_formats().values(), key=lambda cls: not issubclass(cls, BitsFormat)):
        for settings in (
            each for lead, rest in [*splits, ({}, text)] for each in _settings(cls, lead, rest, characters)
        ):
            with suppress(ConfigurationError, TypeError, ValueError):
                format = cls(**settings)
                if format.is_valid(text):
                    yield format


def _settings(cls: type[Format], lead: dict[str, Any], body: str, characters: str) -> Iterator[dict[str, Any]]:
    """Yield the arguments of *cls* to try, one for each encoding if it has encodings."""
    parameters = inspect.signature(cls).parameters
    settings = lead | {"length": len(body), "machine_id": 0}  # any machine id accepts the ids of all machines
    if "alphabet" in parameters:
        known = [parameters["alphabet"].default, *(alphabet for _, alphabet in alphabets()), BASE36.upper()]
        settings["alphabet"] = next((alphabet for alphabet in known if set(body) <= set(alphabet)), characters)
    accepted = {name: value for name, value in settings.items() if name in parameters}
    for encoding in ENCODINGS if "encoding" in parameters else [None]:
        yield accepted if encoding is None else accepted | {"encoding": encoding}
