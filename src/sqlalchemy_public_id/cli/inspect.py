"""``public-id inspect``: the facts that an id itself contains, and the model and the row that it belongs to."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from typing import Any

import click
from sqlalchemy import select

from sqlalchemy_public_id.cli._console import (
    connect,
    counted,
    echo,
    echo_stderr,
    example_lines,
    format_argument,
)
from sqlalchemy_public_id.cli._tables import base_argument, declared_ids, name_of_base
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import InvalidPublicId
from sqlalchemy_public_id.formats import BASE36, Format
from sqlalchemy_public_id.formats._bits import TimedFormat
from sqlalchemy_public_id.formats.alphabets import MAX_LENGTH, in_words, is_printable
from sqlalchemy_public_id.formats.guess import UUID_TEXT, alphabets, guesses, split_prefix
from sqlalchemy_public_id.formats.nanoid import is_checked
from sqlalchemy_public_id.messages import safe_repr


@click.command(
    epilog=example_lines(
        "public-id inspect cus_izkpm55j334u --format 'NanoId(prefix=\"cus\")'",
        "public-id inspect - --format Ulid < ids.txt",
    )
)
@click.argument("id")
@click.option(
    "--format",
    type=format_argument,
    metavar="FORMAT",
    help="The format that ID should have, which is guessed otherwise.",
)
@click.option(
    "--models",
    "base",
    type=base_argument,
    metavar="MODULE:BASE",
    help="Show which of these models ID may belong to.",
)
@click.option("--url", metavar="URL", help="With --models, look for the row in this database.")
def inspect(id: str, format: Format | None, base: Any, url: str | None) -> None:
    """Describe ID: format, prefix and time, or why it is malformed.

    The exit status is 1 if ID does not have the format of --format, or if no row in the database of --url has it.

    If ID is -, read ids from the standard input, one per line. With --format, show only the malformed ones, each with
    its line number.
    """
    if url is not None and base is None:
        raise click.UsageError("--url needs --models MODULE:BASE, the models of the database")
    if id == "-" and base is not None:
        raise click.UsageError("--models takes one id, not the standard input")
    if id != "-":
        _show(*_facts(id, format))
        is_right = format is None or format.is_valid(id)
        if base is not None:
            is_right = _show_models(id, base, url) and is_right
    elif format is not None:
        is_right = _show_malformed(format)
    else:
        for number, text in enumerate(_lines()):
            if number:
                echo("")
            _show(("id", text), *_facts(text, None))
        is_right = True
    if not is_right:
        sys.exit(1)


def _show(*facts: tuple[str, str]) -> None:
    for name, value in facts:
        echo(f"{name:<12} {value}")


def _show_models(text: str, base: Any, url: str | None) -> bool:
    """Show the models that can have the id, and whether a row has it. Return False if no model or row has it."""
    columns = {
        column: mapper.class_.__name__
        for mapper, _, column in declared_ids(base)
        if public_id_type(column).id_format.is_valid(text)
    }
    if not columns:
        _show(("model", f"none of {name_of_base(base)} has such ids"))
        return False
    rows = dict.fromkeys(columns, "")
    if url is not None:
        with connect(url) as engine, engine.connect() as connection:
            for column in columns:
                is_stored = connection.execute(select(column).where(column == text)).first() is not None
                rows[column] = ": one row" if is_stored else ": no row"
    _show(*(("model", f"{model}, {column}{rows[column]}") for column, model in columns.items()))
    return url is None or ": one row" in rows.values()


def _lines() -> Iterator[str]:
    with click.open_file("-", errors="replace") as file:
        for line in file:
            yield line.rstrip("\r\n")


def _show_malformed(format: Format) -> bool:
    """Show each line of the standard input that is not an id of *format*. Return True if there is none."""
    ids = wrong = 0
    for ids, text in enumerate(_lines(), 1):  # the number of the last line is the number of ids
        if not format.is_valid(text):
            wrong += 1
            echo(f"{ids}: {safe_repr(text)}: {_reason(text, format)}")
    echo_stderr(f"{counted(ids, 'id')}, {wrong:,} malformed")
    return not wrong


def _facts(text: str, format: Format | None) -> Iterator[tuple[str, str]]:
    prefix, separator, body = split_prefix(text)
    canonical = None if format is None else format.canonical(text)
    if format is not None and format.prefix is not None:
        lead = format.prefix + format.separator
        if (canonical or text).startswith(lead) and len(canonical or text) == len(text):
            prefix, separator, body = text[: len(format.prefix)], format.separator, text[len(lead) :]
    if prefix:
        yield "prefix", prefix
        yield "separator", separator
    yield "length", f"{len(text)} ({len(body)} without the prefix)" if prefix else str(len(text))
    if is_printable(text):
        names = ", ".join(name for name, alphabet in alphabets() if set(body) <= set(alphabet))
        yield "characters", f"those of {names}" if names else f"{in_words(''.join(set(body)))}: no known alphabet"
    if format is not None:
        candidates = [format]
        yield "format", repr(format)
        yield "well-formed", f"no: {_reason(text, format)}" if canonical is None else "yes"
        if canonical not in (None, text):
            yield "canonical", str(canonical)
    else:
        candidates = list(guesses(text))
        yield "format", " or ".join(map(repr, candidates)) + " (a guess)" if candidates else "unknown"
        if not candidates:
            yield "wrong", _fault(text)
    may_be_checked = format is None or getattr(format, "check_digit", False)
    if may_be_checked and len(body) > 1 and any(set(body) <= set(each) for each in (BASE36, BASE36.upper())):
        valid = "valid by ISO 7064 MOD 37,36; so is 1 of 36 random strings"
        other = "not valid by ISO 7064 MOD 37,36: the id has none, or is mistyped"
        yield "check digit", valid if is_checked(body) else other
    if UUID_TEXT.fullmatch(body):
        version = uuid.UUID(body).version
        yield "uuid", f"version {version}" if version else "of unknown version"
    for candidate in candidates:
        if isinstance(candidate, TimedFormat) and candidate.is_valid(text):
            time = candidate.timestamp(text).isoformat(timespec="milliseconds")
            yield "time", f"{time} (as {type(candidate).__name__})" if len(candidates) > 1 else time


def _reason(text: str, format: Format) -> str:
    """Return why *format* does not accept *text*."""
    try:
        format.validate(text)
    except InvalidPublicId as error:
        return f"{error.reason} (expected {error.expected})"
    return ""


def _fault(text: str) -> str:
    """Return why *text* cannot be an id."""
    if not text:
        return "it is empty"
    if len(text) > MAX_LENGTH:
        return f"no id has more than {MAX_LENGTH} characters"
    odd = sorted({character for character in text if not is_printable(character)})
    return f"no id contains {', '.join(map(repr, odd))}" if odd else "no format has such ids"
