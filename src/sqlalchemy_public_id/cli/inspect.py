"""``public-id inspect``: the facts that an id itself contains."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import click

from sqlalchemy_public_id.cli._console import connect, counted, echo_stderr, example_lines, format_argument
from sqlalchemy_public_id.cli._models import base_argument, columns_of, has_row
from sqlalchemy_public_id.errors import InvalidPublicId, safe_repr
from sqlalchemy_public_id.formats import BASE36, Format
from sqlalchemy_public_id.formats._bits import TimedFormat
from sqlalchemy_public_id.formats.alphabets import MAX_LENGTH, in_words, is_printable
from sqlalchemy_public_id.formats.guess import UUID_TEXT, alphabets, guesses, split
from sqlalchemy_public_id.formats.nanoid import is_checked


@click.command(
    epilog=example_lines(
        "public-id inspect cus_izkpm55j334u --format 'NanoId(prefix=\"cus\")'",
        "public-id inspect - --format Ulid < ids.txt",
    )
)
@click.argument("id")
@click.option(
    "--format", "format", type=format_argument, metavar="FORMAT", help="The expected format; guessed without it."
)
@click.option("--models", "base", type=base_argument, metavar="MODULE:BASE", help="Name the models that ID can be of.")
@click.option("--url", metavar="URL", help="With --models: look for the row in this database.")
def inspect(id: str, format: Format | None, base: Any, url: str | None) -> None:
    """Show format, prefix, time and check digit of ID, and why it is malformed.

    With --format, the exit status is 1 if ID is not well-formed; with --url, if no row has it.

    If ID is -, ids are read from the standard input, one per line. With --format, only those that are not well-formed
    are shown, with their lines.
    """
    if url is not None and base is None:
        raise click.UsageError("--url needs --models MODULE:BASE, the models of the database")
    if id != "-":
        _show(id, format)
        is_valid = format is None or format.is_valid(id)
        if base is not None:
            is_valid = _show_models(id, base, url) and is_valid
    elif base is not None:
        raise click.UsageError("--models takes one id, not the standard input")
    elif format is None:
        for number, text in enumerate(_lines()):
            click.echo("\n" * (number > 0), nl=False)
            click.echo(f"{'id':<12} {text}")
            _show(text, format)
        is_valid = True
    else:
        is_valid = _check(format)
    if not is_valid:
        sys.exit(1)


def _show(text: str, format: Format | None) -> None:
    for name, value in _facts(text, format):
        click.echo(f"{name:<12} {value}")


def _show_models(text: str, base: Any, url: str | None) -> bool:
    """Show the models that can have the id, and whether a row has it. Return False if none has."""
    columns = list(columns_of(base, text))
    if not columns:
        click.echo(f"{'model':<12} none of {base.__name__} has such ids")
        return False
    with nullcontext() if url is None else connect(url) as engine:
        rows = [engine is not None and has_row(engine, column, text) for _, column in columns]
    for (mapper, column), is_stored in zip(columns, rows, strict=True):
        row = "" if url is None else f": {'one row' if is_stored else 'no row'}"
        click.echo(f"{'model':<12} {mapper.class_.__name__}, {column}{row}")
    return url is None or any(rows)


def _lines() -> Iterator[str]:
    with click.open_file("-", errors="replace") as file:
        for line in file:
            yield line.rstrip("\r\n")


def _check(format: Format) -> bool:
    """Show each line of the standard input that is no id of *format*. Return True if there is none."""
    ids = wrong = 0
    for ids, text in enumerate(_lines(), 1):  # the number of the last line is that of all ids
        if not format.is_valid(text):
            wrong += 1
            click.echo(f"{ids}: {safe_repr(text)}: {_verdict(text, format).removeprefix('no: ')}")
    echo_stderr(f"{counted(ids, 'id')}, {wrong:,} not well-formed")
    return not wrong


def _facts(text: str, format: Format | None) -> Iterator[tuple[str, str]]:
    prefix, separator, body = _split(text, format)
    if prefix:
        yield "prefix", prefix
        yield "separator", separator
    yield "length", f"{len(text)} ({len(body)} without the prefix)" if prefix else str(len(text))
    if is_printable(text):
        names = ", ".join(name for name, alphabet in alphabets() if set(body) <= set(alphabet))
        unknown = f"{in_words(''.join(set(body)))}: no known alphabet"
        yield "characters", f"those of {names}" if names else unknown
    if format is not None:
        yield "format", repr(format)
        yield "well-formed", _verdict(text, format)
        candidates = [format]
    else:
        candidates = list(guesses(text))
        yield "format", " or ".join(map(repr, candidates)) + " (a guess)" if candidates else "no known one"
        if not candidates:
            yield "wrong", _fault(text)
    if format is None or getattr(format, "check_digit", False):
        yield from _check_digit(body)
    if UUID_TEXT.fullmatch(body):
        version = uuid.UUID(body).version
        yield "uuid", f"version {version}" if version else "of no version"
    for candidate in candidates:
        if isinstance(candidate, TimedFormat) and candidate.is_valid(text):
            time = candidate.timestamp(text).isoformat(timespec="milliseconds")
            yield "time", f"{time} (as {type(candidate).__name__})" if len(candidates) > 1 else time


def _split(text: str, format: Format | None) -> tuple[str, str, str]:
    """Return prefix, separator and body of *text*; the first two are empty without a prefix."""
    if format is not None and format.prefix is not None:
        lead = format.prefix + format.separator
        if text.startswith(lead):
            return format.prefix, format.separator, text[len(lead) :]
    return split(text)


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
    return f"no id contains {', '.join(map(repr, odd))}" if odd else "no format has such ids"


def _check_digit(body: str) -> Iterator[tuple[str, str]]:
    if len(body) < 2 or not any(set(body) <= set(alphabet) for alphabet in (BASE36, BASE36.upper())):
        return
    if is_checked(body):
        yield "check digit", "valid by ISO 7064 MOD 37,36; so is 1 of 36 random strings"
    else:
        yield "check digit", "not valid by ISO 7064 MOD 37,36: it has none, or it is mistyped"
