"""``public-id inspect``: what can be told from an id alone."""

from __future__ import annotations

import inspect as signatures
import re
import sys
import uuid
from collections.abc import Iterator
from itertools import product
from typing import Any

import click

from sqlalchemy_public_id import formats
from sqlalchemy_public_id.cli._console import a_format
from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId
from sqlalchemy_public_id.formats import BASE36, Format
from sqlalchemy_public_id.formats._base import MAX_LENGTH, in_words, is_printable
from sqlalchemy_public_id.formats._bits import BitsFormat, TimedFormat
from sqlalchemy_public_id.formats.check_digit import is_checked
from sqlalchemy_public_id.formats.codec import ENCODINGS
from sqlalchemy_public_id.formats.written import known_formats

__all__ = ["guesses", "inspect"]

_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_PREFIXED = re.compile(
    rf"(?P<prefix>[A-Za-z][A-Za-z0-9_]*?)(?P<separator>[^A-Za-z0-9]+)(?P<body>[A-Za-z0-9]+|{_UUID.pattern})", re.ASCII
)


@click.command()
@click.argument("id")
@click.option(
    "--format", "format", type=a_format, metavar="FORMAT", help="The format it should have; without one, it is guessed."
)
def inspect(id: str, format: Format | None) -> None:
    """Say what ID is: format, prefix, time, check digit, and what is wrong with it.

    With --format, the exit status is 1 where ID is not well-formed.
    """
    for name, value in _described(id, format):
        click.echo(f"{name:<12} {value}")
    if format is not None and not format.is_valid(id):
        sys.exit(1)


def _described(text: str, format: Format | None) -> Iterator[tuple[str, str]]:
    """The lines of the answer: a name and a value each."""
    prefix, separator, body = _split(text, format)
    if prefix:
        yield "prefix", prefix
        yield "separator", separator
    yield "length", f"{len(text)} ({len(body)} without the prefix)" if prefix else str(len(text))
    if is_printable(text):
        yield "characters", _characters(body)
    if format is not None:
        yield "format", repr(format)
        yield "well-formed", _verdict(text, format)
        found = [format]
    else:
        found = list(guesses(text))
        yield "format", " or ".join(map(repr, found)) + " (a guess)" if found else "none that is known"
        if not found:
            yield "wrong", _fault(text)
    if format is None or getattr(format, "check_digit", False):
        yield from _check_digit(body)
    yield from _times(text, body, found)


def _split(text: str, format: Format | None) -> tuple[str, str, str]:
    if format is not None and format.prefix is not None:
        lead = format.prefix + format.separator
        if text.startswith(lead):
            return format.prefix, format.separator, text[len(lead) :]
    found = _PREFIXED.fullmatch(text[:MAX_LENGTH]) if not _UUID.fullmatch(text) else None
    return ("", "", text) if found is None else (found["prefix"], found["separator"], found["body"])


def _characters(body: str) -> str:
    fitting = [name for name, alphabet in _alphabets() if set(body) <= set(alphabet)]
    return (
        f"those of {', '.join(fitting)}" if fitting else f"{in_words(''.join(set(body)))}: those of no known alphabet"
    )


def _alphabets() -> list[tuple[str, str]]:
    """The named alphabets, the smallest first."""
    exported = [(name, getattr(formats, name)) for name in formats.__all__]
    return sorted((pair for pair in exported if isinstance(pair[1], str)), key=lambda pair: len(pair[1]))


def _verdict(text: str, format: Format) -> str:
    try:
        format.validate(text)
    except InvalidPublicId as error:
        return f"no: {error.reason} (expected {error.expected})"
    return "yes"


def _fault(text: str) -> str:
    if not text:
        return "it is empty"
    if len(text) > MAX_LENGTH:
        return f"no id has more than {MAX_LENGTH} characters"
    odd = sorted({character for character in text if not is_printable(character)})
    return f"no id contains {', '.join(map(repr, odd))}" if odd else "no format makes such ids"


def _check_digit(body: str) -> Iterator[tuple[str, str]]:
    if len(body) < 2 or not any(set(body) <= set(alphabet) for alphabet in (BASE36, BASE36.upper())):
        return
    if is_checked(body):
        yield "check digit", "valid by ISO 7064 MOD 37,36; so is one random text in 36"
    else:
        yield "check digit", "not valid by ISO 7064 MOD 37,36: it has none, or it is mistyped"


def _times(text: str, body: str, found: list[Format]) -> Iterator[tuple[str, str]]:
    """When the id was made, where it tells."""
    if _UUID.fullmatch(body):
        version = uuid.UUID(body).version
        yield "uuid", f"version {version}" if version else "of no version"
    for format in found:
        if isinstance(format, TimedFormat):
            try:
                made = format.timestamp(text).isoformat(timespec="milliseconds")
            except InvalidPublicId:
                continue
            yield "time", f"{made} (as {type(format).__name__})" if len(found) > 1 else made


def guesses(text: str) -> Iterator[Format]:
    """The formats that *text* may be of, one of each kind, with the settings that it seems to have."""
    if not is_printable(text) or len(text) > MAX_LENGTH:
        return
    prefix, separator, body = _split(text, None)
    leads: list[dict[str, Any]] = [{"prefix": prefix, "separator": separator}] if prefix else [{}]
    likely = sorted(known_formats().values(), key=lambda cls: not issubclass(cls, BitsFormat))  # they fit fewer texts
    for cls in likely:
        for settings in _settings(cls, leads, body, text):
            try:
                format = cls(**settings)
            except (ConfigurationError, TypeError, ValueError):
                continue
            if format.is_valid(text):
                yield format
                break


def _settings(cls: type[Format], leads: list[dict[str, Any]], body: str, text: str) -> Iterator[dict[str, Any]]:
    """Arguments to try, the likeliest first, as far as *cls* takes them."""
    parameters = signatures.signature(cls).parameters
    for lead, rest in [*((lead, body) for lead in leads), *([({}, text)] if leads != [{}] else [])]:
        choices: dict[str, list[Any]] = {}
        if "alphabet" in parameters:
            usual = parameters["alphabet"].default
            known = [usual, *(alphabet for _, alphabet in _alphabets()), BASE36.upper()]
            choices["alphabet"] = [one for one in dict.fromkeys(known) if set(rest) <= set(one)][:1]
        if "length" in parameters:
            choices["length"] = [len(rest)]
        if "encoding" in parameters:
            choices["encoding"] = list(ENCODINGS)
        if "machine_id" in parameters:
            choices["machine_id"] = [0]  # whose ids are all accepted
        given = {name: value for name, value in lead.items() if name in parameters}
        for values in product(*choices.values()):
            yield {**given, **dict(zip(choices, values, strict=True))}
