"""Parts of several commands: errors, arguments, and connections to databases."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, NoSuchTableError, SQLAlchemyError

from sqlalchemy_public_id.cli._wording import as_typed
from sqlalchemy_public_id.dialects import message_of
from sqlalchemy_public_id.errors import (
    BackfillIncomplete,
    ConfigurationError,
    LockNotAvailable,
    MigrationRefused,
    PublicIdCollision,
    PublicIdError,
)
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats.parse import parse

_EXIT_STATUS = (
    "The exit status is 0 for success, 1 if a problem was found or rows remain, 2 if the command could not run, and "
    "130 after Ctrl-C."
)
_URLS = "write postgresql+psycopg://…, mysql+pymysql://…, mariadb+pymysql://… or sqlite:///file.db"


class UsageProblem(click.ClickException):
    """The command cannot run: it prints one line to stderr, and its exit status is 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Write the line to stderr."""
        echo_stderr(f"public-id: {self.message}")


class Refusal(UsageProblem):
    """The command did not finish: there is an obstacle, or work is left. The exit status is 1."""

    exit_code = 1


_REFUSALS = (BackfillIncomplete, LockNotAvailable, MigrationRefused, PublicIdCollision)


def echo(text: str) -> bool:
    """Write *text* to stdout. Return False if nobody reads it, as after ``| head -1``; the command goes on."""
    return _echo(text, sys.stdout)


def echo_stderr(text: str) -> None:
    """Write *text* to stderr, which a pipe does not read."""
    _echo(text, sys.stderr)


def _echo(text: str, stream: TextIO) -> bool:
    try:
        click.echo(text, err=stream is sys.stderr)
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # or else the interpreter fails when it flushes the stream at its end
        os.close(nowhere)
        return False
    return True


def counted(count: int, noun: str) -> str:
    """Return *count* with its noun: "1 table", "2 tables"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def table_lines(rows: Sequence[Sequence[str]], signs: str) -> str:
    """Return *rows* as a table, with the first one as its header. *signs* aligns each column: ``<`` or ``>``."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    cells = [[f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True)] for row in rows]
    return "\n".join("   ".join(row).rstrip() for row in cells)


def example_lines(*lines: str) -> str:
    """Return the end of a help text: the exit status, and command lines, which click does not wrap."""
    return f"{_EXIT_STATUS}\n\n\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def format_argument(text: str) -> Format:
    """Return the format that an argument describes."""
    try:
        return parse(text)
    except ConfigurationError as error:
        raise click.BadParameter(str(error)) from None


def table_format_argument(text: str) -> tuple[str, Format]:
    """Return the parts of ``TABLE=FORMAT``."""
    table, equals, format = text.partition("=")
    if not (table and equals):
        raise click.BadParameter(f"{text!r} names no table; write TABLE=FORMAT, such as 'customer=NanoId(length=16)'")
    return table.strip(), format_argument(format)


def safe_url(url: URL) -> str:
    """Return *url* without its password, and without its query, which may contain another one."""
    return url.set(query={}).render_as_string(hide_password=True)


@contextmanager
def connect(text: str) -> Generator[Engine]:
    """Create an engine for the URL *text*; turn errors of the database into one line without a password."""
    url = _parse_url(text)
    try:
        engine = create_engine(url)
    except NoSuchModuleError:
        raise UsageProblem(f"SQLAlchemy has no dialect {url.drivername!r}; {_URLS}") from None
    except ModuleNotFoundError as error:
        raise UsageProblem(f"the driver {error.name} is not installed; {_URLS}, or install it") from None
    except (ArgumentError, TypeError, ValueError) as error:
        raise problem_of(error, url) from None
    if engine.dialect.is_async:
        raise UsageProblem(f"{url.drivername!r} is an asynchronous driver, expected a synchronous one; {_URLS}")
    try:
        try:
            engine.connect().close()
        except Exception as error:  # a driver may refuse the options of the URL with any exception
            raise problem_of(error, url) from None
        yield engine
    except (PublicIdError, SQLAlchemyError) as error:
        raise problem_of(error, url) from None
    finally:
        engine.dispose()


def problem_of(error: Exception, url: URL) -> UsageProblem:
    """Return the problem to report for *error*, without the password of *url*, and with its exit status."""
    if isinstance(error, PublicIdError):
        kind = Refusal if isinstance(error, _REFUSALS) else UsageProblem
        return kind(_without_secrets(as_typed(str(error)), url))
    if isinstance(error, NoSuchTableError):
        return UsageProblem(f"{safe_url(url)}: there is no table {str(error)!r}")
    return UsageProblem(f"{safe_url(url)}: {_without_secrets(' '.join(message_of(error).split()), url)}")


def _parse_url(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # the message may repeat the text, and with it a password
        raise UsageProblem(f"this is not the URL of a database; {_URLS}") from None
    file = url.database if url.get_backend_name() == "sqlite" else None
    if file and not file.startswith((":memory:", "file:")) and not Path(file).exists():
        raise UsageProblem(f"there is no file {file!r}, and SQLite would create an empty one; correct the path")
    return url


def _without_secrets(text: str, url: URL) -> str:
    secrets = [str(url.password)] if url.password else []
    secrets += [value for name, value in url.query.items() if "pass" in name.lower() and isinstance(value, str)]
    for secret in secrets:
        text = text.replace(secret, "***") if secret else text
    return text
