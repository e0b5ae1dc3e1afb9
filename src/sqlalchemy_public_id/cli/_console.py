"""What the commands share: how they refuse, the formats they are told, and the databases they open."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, NoSuchTableError, SQLAlchemyError

from sqlalchemy_public_id.errors import ConfigurationError, PublicIdError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats.written import read

__all__ = ["Refusal", "a_format", "a_table_format", "note", "opened", "shown_url"]


class Refusal(click.ClickException):
    """The command cannot do what it was asked; one line says why."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Write the line to stderr."""
        note(f"public-id: {self.message}")


def note(text: str) -> None:
    """Tell the person at the terminal; what comes after a ``|`` does not see it."""
    click.echo(text, err=True)


def a_format(text: str) -> Format:
    """The format that an argument names."""
    try:
        return read(text)
    except ConfigurationError as error:
        raise click.BadParameter(str(error)) from None


def a_table_format(text: str) -> tuple[str, Format]:
    """``TABLE=FORMAT``."""
    table, equals, written = text.partition("=")
    if not (table and equals):
        raise click.BadParameter(f"{text!r} names no table; write TABLE=FORMAT, such as 'customer=NanoId(length=16)'")
    return table.strip(), a_format(written)


def shown_url(url: URL) -> str:
    """*url* without its password, and without its query, which may hold another one."""
    return url.set(query={}).render_as_string(hide_password=True)


@contextmanager
def opened(text: str) -> Generator[Engine]:
    """An engine for the URL *text*; whatever goes wrong with the database is told in one line, without a password."""
    url = _parsed(text)
    try:
        engine = create_engine(url)
    except NoSuchModuleError:
        raise Refusal(f"{url.drivername!r} is no database that SQLAlchemy knows; {_EXAMPLES}") from None
    except ModuleNotFoundError as error:
        raise Refusal(f"the driver {error.name} is not installed; {_EXAMPLES}, or install it") from None
    except (ArgumentError, TypeError, ValueError) as error:
        raise Refusal(f"{shown_url(url)}: {_one_line(error, url)}") from None
    if engine.dialect.is_async:
        raise Refusal(f"{url.drivername!r} is an asynchronous driver, expected another one; {_EXAMPLES}")
    try:
        _probe(engine, url)
        yield engine
    except NoSuchTableError as error:
        raise Refusal(f"{shown_url(url)}: there is no table {str(error)!r}") from None
    except SQLAlchemyError as error:
        raise Refusal(f"{shown_url(url)}: {_one_line(error, url)}") from None
    except PublicIdError as error:
        raise Refusal(_without_secrets(str(error), url)) from None
    finally:
        engine.dispose()


def _probe(engine: Engine, url: URL) -> None:
    """Connect once: a driver may refuse the options of the URL with any exception."""
    try:
        with engine.connect():
            pass
    except Exception as error:
        raise Refusal(f"{shown_url(url)}: {_one_line(error, url)}") from None


_EXAMPLES = "write postgresql+psycopg://…, mysql+pymysql://…, mariadb+pymysql://… or sqlite:///file.db"


def _parsed(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # the message may repeat the text, and the text a password
        _no_url()
    file = url.database if url.get_backend_name() == "sqlite" else None
    if file and not file.startswith((":memory:", "file:")) and not Path(file).exists():
        raise Refusal(f"there is no file {file!r}; SQLite would make an empty one")
    return url


def _no_url() -> NoReturn:
    raise Refusal(f"that is not the URL of a database; {_EXAMPLES}")


def _one_line(error: Exception, url: URL) -> str:
    """What the driver says, on one line."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    message = cause.args[1] if len(cause.args) > 1 and isinstance(cause.args[1], str) else str(cause)
    return _without_secrets(" ".join(message.split()), url)


def _without_secrets(text: str, url: URL) -> str:
    secrets = [str(url.password)] if url.password else []
    secrets += [value for name, value in url.query.items() if "pass" in name.lower() and isinstance(value, str)]
    for secret in secrets:
        text = text.replace(secret, "***") if secret else text
    return text
