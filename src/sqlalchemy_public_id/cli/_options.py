"""The arguments and options that several commands share, each declared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import click

from sqlalchemy_public_id.cli._console import format_argument
from sqlalchemy_public_id.cli._models import base_argument

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


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


def _seconds(name: str, default: float, help: str) -> Decorator:
    above_zero = click.FloatRange(min=0, min_open=True)
    return click.option(name, type=above_zero, metavar="SECONDS", default=default, show_default=True, help=help)


def _choice(name: str, *choices: str, help: str) -> Decorator:
    return click.option(name, type=click.Choice(choices), default=choices[0], show_default=True, help=help)


PLACE: Sequence[Decorator] = (
    click.argument("place", nargs=-1, callback=_place, metavar="[URL] [TABLE]..."),
    click.option("--all", "all_tables", is_flag=True, help="All tables, instead of TABLE."),
    click.option(
        "--models",
        type=base_argument,
        metavar="MODULE:BASE",
        help="Take columns, formats and names from these models; --all are the tables of theirs with public ids.",
    ),
)
COLUMN: Sequence[Decorator] = (
    click.option("--column", help="The column of public ids.  [default: public_id]"),
    click.option("--schema", help="The schema of the tables.  [default: that of the connection]"),
    click.option(
        "--format", type=format_argument, metavar="FORMAT", help="The format of the ids.  [default: NanoId()]"
    ),
    click.option("--unique-name", metavar="NAME", help="The unique index, if there is none.  [default: uq_…]"),
    click.option("--unique", type=click.Choice(["index", "constraint"]), help="The kind of it.  [default: index]"),
    click.option("--collation", metavar="NAME", help="Change the collation of a column that exists: bytes, or a name."),
    click.option(
        "--keeps", type=click.Choice(["unique", "not null", "all"]), help="What 'loosen' leaves: it was there before."
    ),
    click.option(
        "--server-default",
        type=click.Choice(["keep", "drop", "none"]),
        help="Ids of writers that pass none: generate them always, until the contract, or never.  [default: keep]",
    ),
    click.option("--comment", metavar="TEXT", help="The comment of the column."),
)
"""They are the arguments of :meth:`PublicIdColumn.of`, and ``None`` if they are left out."""
TRIGGERS = _choice("--update-triggers", "refuse", "fire", "skip", help="If triggers would fire for the new ids.")
CONSENT: Sequence[Decorator] = (
    TRIGGERS,
    _choice("--on-duplicate", "refuse", "replace", help="If rows share an id: replace all but the first."),
    _choice("--on-invalid", "refuse", "keep", "replace", help="If the format does not accept a stored id."),
    click.option("--allow-lock", is_flag=True, help="Accept steps for which writers wait."),
)
PATIENCE: Sequence[Decorator] = (
    _seconds("--lock-timeout", 1.0, "How long a step, and all others behind it, wait for a lock on the table."),
    click.option(
        "--attempts",
        type=click.IntRange(min=1),
        metavar="NUMBER",
        default=30,
        show_default=True,
        help="How often a step tries to get its lock.",
    ),
    _seconds("--index-timeout", 600.0, "How long the build of the index waits for open transactions."),
)
PACE: Sequence[Decorator] = (
    _seconds("--batch-seconds", 0.5, "How long a batch of rows should take."),
    click.option(
        "--pause",
        type=click.FloatRange(min=0),
        metavar="SHARE",
        default=0.1,
        show_default=True,
        help="The rest after a batch, as a share of its time.",
    ),
    click.option(
        "--replica",
        metavar="URL",
        envvar="PUBLIC_ID_REPLICA_URL",
        show_envvar=True,
        help="Wait while this replica is behind.",
    ),
    _seconds("--max-lag", 10.0, "How far the replica may be behind."),
    click.option(
        "--max-load",
        type=click.IntRange(min=0),
        metavar="NUMBER",
        help="Wait while other sessions execute more statements than that: the active ones of PostgreSQL, "
        "Threads_running of MySQL and MariaDB.",
    ),
    click.option(
        "--pause-file", type=click.Path(), metavar="PATH", help="Wait while this file exists: create it to pause."
    ),
)
JOBS = click.option(
    "--jobs",
    type=click.IntRange(1, 15),
    metavar="NUMBER",
    default=1,
    show_default=True,
    help="The number of tables to work on at the same time.",
)


def options(*groups: Sequence[Decorator]) -> Callable[[Function], Function]:
    """Return a decorator that gives a command the options of *groups*, in this order."""

    def decorate(function: Function) -> Function:
        for option in reversed([option for group in groups for option in group]):
            option(function)
        return function

    return decorate
