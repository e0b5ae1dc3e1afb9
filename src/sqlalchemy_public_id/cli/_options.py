"""The arguments and options that several commands share. Those of an operation are made from its ``Options``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast, get_args

import click

from sqlalchemy_public_id.cli._console import format_argument
from sqlalchemy_public_id.cli._tables import Location, base_argument
from sqlalchemy_public_id.migrations import Consent, Options, Pace, PublicIdColumn, Timeouts
from sqlalchemy_public_id.migrations.consent import choices_of, defaults_of, describe_options

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_SECONDS = click.FloatRange(min=0, min_open=True)


def _location(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> Location:
    urls = [word for word in words if "://" in word]
    if len(urls) > 1:
        raise click.UsageError("there are two database URLs; run the command once for each database")
    url = require_url(context, parameter, urls[0] if urls else os.environ.get("DATABASE_URL", ""))
    return Location(url, tuple(word for word in words if word not in urls))


def require_url(context: click.Context, parameter: click.Parameter, url: str | None) -> str:
    """Return *url*, or raise a usage error if there is none."""
    if not url and not context.resilient_parsing:
        raise click.UsageError("there is no database URL; write it after the command, or set DATABASE_URL")
    return url or ""


# --- the options of an operation

_KINDS: dict[Any, tuple[Any, str]] = {
    int: (click.IntRange(min=1), "NUMBER"),
    float: (_SECONDS, "SECONDS"),
    str: (click.STRING, "NAME"),
}
"""Type of an option → how it is read from a command line, and what stands for its value there."""
_READ: dict[str, tuple[Any, str]] = {
    "comment": (click.STRING, "TEXT"),
    "format": (format_argument, "FORMAT"),
    "pause": (click.FloatRange(min=0), "SHARE"),
}
"""Options of such a type that are read otherwise."""


def _options_of(holder: type[Any]) -> list[Decorator]:
    """Return the options whose values the dataclass *holder* holds, but for functions."""
    described = describe_options()
    is_optional = holder is PublicIdColumn  # a model may describe the column instead
    return [
        _option(name, described[name].type, described[name].text, None if is_optional else default)
        for name, default in defaults_of(holder).items()
        if name != "wait_while"
    ]


def _option(name: str, type_: Any, text: str, default: Any) -> Decorator:
    flag, help = f"--{name.replace('_', '-')}", text.replace("``", "'")
    if name == "schema":
        help += " A pattern, such as 'tenant_*', means each schema that matches."
    if type_ is bool:
        names = f"{flag}/--no{flag[1:]}" if default else flag
        return click.option(names, is_flag=True, default=bool(default), help=help)
    if bool in get_args(type_):
        return click.option(f"{flag}/--no{flag[1:]}", default=None, help=help)
    if type_ == Sequence[str]:
        return click.option(flag, multiple=True, metavar="NAME", help=help)
    if choices := choices_of(type_):
        return click.option(flag, type=click.Choice(choices), default=default, help=help)
    kinds = [_READ[name]] if name in _READ else [_KINDS[part] for part in (type_, *get_args(type_)) if part in _KINDS]
    if not kinds:
        raise TypeError(f"the command line cannot read {flag}: add {type_} to _KINDS, or {name!r} to _READ")
    read, metavar = kinds[0]
    return click.option(flag, type=read, metavar=metavar, default=default, help=help)


def given_options(options: Options) -> Options:
    """Return those of *options* that the command line contains, or that have a default."""
    return cast("Options", {name: value for name, value in options.items() if value not in (None, ())})


JSON = click.option("--json", "as_json", is_flag=True, help="The same as --output json.")

# --- groups

LOCATION: Sequence[Decorator] = (
    click.argument("location", nargs=-1, callback=_location, metavar="[URL] [TABLE]..."),
    click.option("--all", "all_tables", is_flag=True, help="Work on all tables instead of the named ones."),
    click.option(
        "--models",
        type=base_argument,
        metavar="MODULE:BASE",
        help="Read columns, formats and index names from these models. --all means every model with public ids.",
    ),
    click.option("--column", help="The column that stores the public ids.  [default: public_id]"),
)
COLUMN: Sequence[Decorator] = _options_of(PublicIdColumn)
CONSENT: Sequence[Decorator] = _options_of(Consent)
TRIGGERS: Sequence[Decorator] = CONSENT[:1]
"""Of the consent, what a backfill asks for."""
TIMEOUTS: Sequence[Decorator] = _options_of(Timeouts)
PACE: Sequence[Decorator] = (
    *_options_of(Pace),
    click.option(
        "--replica",
        metavar="URL",
        envvar="PUBLIC_ID_REPLICA_URL",
        show_envvar=True,
        help="Wait while this replica lags behind.",
    ),
    click.option(
        "--max-lag", type=_SECONDS, metavar="SECONDS", default=10.0, help="How far the replica may lag behind."
    ),
    click.option(
        "--max-load",
        type=click.IntRange(min=0),
        metavar="NUMBER",
        help="Wait while other sessions run more statements than this (active sessions on PostgreSQL, Threads_running "
        "on MySQL and MariaDB).",
    ),
    click.option(
        "--pause-file",
        type=click.Path(),
        metavar="PATH",
        help="Wait while this file exists. Create it to pause, and remove it to continue.",
    ),
)


def options(*groups: Sequence[Decorator]) -> Callable[[Function], Function]:
    """Return a decorator that gives a command the options of *groups*, in this order."""

    def decorate(function: Function) -> Function:
        for option in reversed([option for group in groups for option in group]):
            option(function)
        return function

    return decorate
