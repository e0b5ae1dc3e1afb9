"""The arguments and options that several commands share, each declared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_args

import click

from sqlalchemy_public_id.backfill import Pace
from sqlalchemy_public_id.cli._console import format_argument
from sqlalchemy_public_id.cli._tables import base_argument
from sqlalchemy_public_id.migrating import Keeps, OnDuplicate, OnInvalid, Patience, ServerDefault, Triggers

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

FORMAT: dict[str, Any] = {"type": format_argument, "metavar": "FORMAT"}
MODELS: dict[str, Any] = {"type": base_argument, "metavar": "MODULE:BASE"}
_SECONDS: dict[str, Any] = {"type": click.FloatRange(min=0, min_open=True), "metavar": "SECONDS"}


class Place(NamedTuple):
    """The database and the tables that a command line names."""

    url: str
    tables: tuple[str, ...]


def _place(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> Place:
    urls = [word for word in words if "://" in word]
    if len(urls) > 1:
        raise click.UsageError("there are two database URLs; run the command once for each database")
    url = require_url(context, parameter, urls[0] if urls else os.environ.get("DATABASE_URL", ""))
    return Place(url, tuple(word for word in words if word not in urls))


def require_url(context: click.Context, parameter: click.Parameter, url: str | None) -> str:
    """Return *url*, or raise a usage error if there is none."""
    if not url and not context.resilient_parsing:
        raise click.UsageError("there is no database URL; write it after the command, or set DATABASE_URL")
    return url or ""


def _choice(name: str, choices: Any, help: str, **more: Any) -> Decorator:
    return click.option(name, type=click.Choice(get_args(choices)), help=help, **more)


def _number(name: str, least: int, help: str, **more: Any) -> Decorator:
    return click.option(name, type=click.IntRange(min=least), metavar="NUMBER", help=help, **more)


PLACE: Sequence[Decorator] = (
    click.argument("place", nargs=-1, callback=_place, metavar="[URL] [TABLE]..."),
    click.option("--all", "all_tables", is_flag=True, help="Work on all tables instead of the named ones."),
    click.option(
        "--models",
        **MODELS,
        help="Read columns, formats and index names from these models. --all means every model with public ids.",
    ),
)
COLUMN: Sequence[Decorator] = (
    click.option("--column", help="The column that stores the public ids.  [default: public_id]"),
    click.option("--schema", help="The schema of the tables.  [default: the default schema of the connection]"),
    click.option("--format", **FORMAT, help="The format of the ids.  [default: NanoId()]"),
    click.option(
        "--unique-name",
        metavar="NAME",
        help="The name for the unique index if the migration creates it.  [default: uq_…]",
    ),
    click.option(
        "--collation",
        metavar="NAME",
        help="Change the collation of an existing column: 'bytes' for an exact comparison, or the name of a collation.",
    ),
    _choice("--keeps", Keeps, "What 'loosen' leaves in place because the column had it before."),
    _choice(
        "--server-default",
        ServerDefault,
        "Whether the database generates ids that writers omit: always, until 'contract', or never.  [default: keep]",
    ),
    click.option("--comment", metavar="TEXT", help="A comment to store with the column."),
)
"""They are the arguments of :meth:`PublicIdColumn.of`, and ``None`` if they are left out."""
TRIGGERS = _choice(
    "--update-triggers", Triggers, "What to do if the backfill would fire triggers of the table.", default="refuse"
)
CONSENT: Sequence[Decorator] = (
    TRIGGERS,
    _choice(
        "--on-duplicate",
        OnDuplicate,
        "What to do if several rows have one id. 'replace' keeps it in the first row.",
        default="refuse",
    ),
    _choice("--on-invalid", OnInvalid, "What to do with stored ids that the format does not accept.", default="refuse"),
    click.option("--allow-lock", is_flag=True, help="Allow steps that make writers wait."),
)
PATIENCE: Sequence[Decorator] = (
    click.option(
        "--lock-timeout",
        **_SECONDS,
        default=Patience.lock_timeout,
        help="How long a step waits for a lock on the table. Other sessions queue behind it meanwhile.",
    ),
    _number("--attempts", 1, "How often a step tries to get its lock before it gives up.", default=Patience.attempts),
    click.option(
        "--index-timeout",
        **_SECONDS,
        default=Patience.index_timeout,
        help="How long the index build waits for open transactions to end.",
    ),
)
PACE: Sequence[Decorator] = (
    click.option(
        "--batch-seconds",
        **_SECONDS,
        default=Pace.batch_seconds,
        help="How long one batch of rows should take. The number of rows adapts.",
    ),
    click.option(
        "--pause",
        type=click.FloatRange(min=0),
        metavar="SHARE",
        default=Pace.pause,
        help="How long to pause after a batch, as a share of its duration.",
    ),
    click.option(
        "--replica",
        metavar="URL",
        envvar="PUBLIC_ID_REPLICA_URL",
        show_envvar=True,
        help="Wait while this replica lags behind.",
    ),
    click.option("--max-lag", **_SECONDS, default=10.0, help="How far the replica may lag behind."),
    _number(
        "--max-load",
        0,
        "Wait while other sessions run more statements than this (active sessions on PostgreSQL, Threads_running on "
        "MySQL and MariaDB).",
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
