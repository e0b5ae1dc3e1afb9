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
    is_url = bool(words) and "://" in words[0]
    url = words[0] if is_url else os.environ.get("DATABASE_URL", "")
    if not url and not context.resilient_parsing:
        raise click.UsageError("there is no URL of a database: write it before the tables, or set DATABASE_URL")
    return Place(url, words[1:] if is_url else words)


def _choice(name: str, choices: Any, help: str, **more: Any) -> Decorator:
    return click.option(name, type=click.Choice(get_args(choices)), help=help, **more)


def _number(name: str, least: int, help: str, **more: Any) -> Decorator:
    return click.option(name, type=click.IntRange(min=least), metavar="NUMBER", help=help, **more)


PLACE: Sequence[Decorator] = (
    click.argument("place", nargs=-1, callback=_place, metavar="[URL] [TABLE]..."),
    click.option("--all", "all_tables", is_flag=True, help="All tables, instead of TABLE."),
    click.option(
        "--models",
        **MODELS,
        help="Take columns, formats and names from these models; --all are the tables of theirs with public ids.",
    ),
)
COLUMN: Sequence[Decorator] = (
    click.option("--column", help="The column of public ids.  [default: public_id]"),
    click.option("--schema", help="The schema of the tables.  [default: that of the connection]"),
    click.option("--format", **FORMAT, help="The format of the ids.  [default: NanoId()]"),
    click.option("--unique-name", metavar="NAME", help="The unique index, if there is none.  [default: uq_…]"),
    click.option("--collation", metavar="NAME", help="Change the collation of a column that exists: bytes, or a name."),
    _choice("--keeps", Keeps, "What 'loosen' leaves: it was there before."),
    _choice(
        "--server-default",
        ServerDefault,
        "Ids of writers that pass none: generate them always, until the contract, or never.  [default: keep]",
    ),
    click.option("--comment", metavar="TEXT", help="The comment of the column."),
)
"""They are the arguments of :meth:`PublicIdColumn.of`, and ``None`` if they are left out."""
TRIGGERS = _choice("--update-triggers", Triggers, "If triggers would fire for the new ids.", default="refuse")
CONSENT: Sequence[Decorator] = (
    TRIGGERS,
    _choice("--on-duplicate", OnDuplicate, "If rows share an id: replace all but the first.", default="refuse"),
    _choice("--on-invalid", OnInvalid, "If the format does not accept a stored id.", default="refuse"),
    click.option("--allow-lock", is_flag=True, help="Accept steps for which writers wait."),
)
PATIENCE: Sequence[Decorator] = (
    click.option(
        "--lock-timeout",
        **_SECONDS,
        default=Patience.lock_timeout,
        help="How long a step, and all others behind it, wait for a lock on the table.",
    ),
    _number("--attempts", 1, "How often a step tries to get its lock.", default=Patience.attempts),
    click.option(
        "--index-timeout",
        **_SECONDS,
        default=Patience.index_timeout,
        help="How long the build of the index waits for open transactions.",
    ),
)
PACE: Sequence[Decorator] = (
    click.option(
        "--batch-seconds", **_SECONDS, default=Pace.batch_seconds, help="How long a batch of rows should take."
    ),
    click.option(
        "--pause",
        type=click.FloatRange(min=0),
        metavar="SHARE",
        default=Pace.pause,
        help="The rest after a batch, as a share of its time.",
    ),
    click.option(
        "--replica",
        metavar="URL",
        envvar="PUBLIC_ID_REPLICA_URL",
        show_envvar=True,
        help="Wait while this replica is behind.",
    ),
    click.option("--max-lag", **_SECONDS, default=10.0, help="How far the replica may be behind."),
    _number(
        "--max-load",
        0,
        "Wait while other sessions execute more statements than that: the active ones of PostgreSQL, "
        "Threads_running of MySQL and MariaDB.",
    ),
    click.option(
        "--pause-file", type=click.Path(), metavar="PATH", help="Wait while this file exists: create it to pause."
    ),
)


def options(*groups: Sequence[Decorator]) -> Callable[[Function], Function]:
    """Return a decorator that gives a command the options of *groups*, in this order."""

    def decorate(function: Function) -> Function:
        for option in reversed([option for group in groups for option in group]):
            option(function)
        return function

    return decorate
