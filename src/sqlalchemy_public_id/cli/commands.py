"""The ``public-id`` command with its subcommands. The short ones, which need no database, are defined here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from sqlalchemy_public_id._version import __version__
from sqlalchemy_public_id.cli._console import (
    UsageProblem,
    echo,
    echo_stderr,
    example_lines,
    format_argument,
    table_lines,
)
from sqlalchemy_public_id.cli._interrupts import INTERRUPTED
from sqlalchemy_public_id.cli.audit import audit
from sqlalchemy_public_id.cli.inspect import inspect
from sqlalchemy_public_id.cli.operations import OPERATIONS
from sqlalchemy_public_id.cli.plan import plan
from sqlalchemy_public_id.cli.spec import spec
from sqlalchemy_public_id.errors import PublicIdError
from sqlalchemy_public_id.formats import Format

_BATCH = 10_000
_PROBABILITIES = (1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.5)
_HOURS_PER_YEAR = 24 * 365.25
_PACKAGE = Path(__file__).parents[1]
_TEMPLATES = _PACKAGE / "alembic_templates", _PACKAGE.parents[1] / "alembic_templates"  # in a wheel, and in a checkout


class _Group(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0].startswith("-"):
                raise
            names = ", ".join(self.list_commands(ctx))
            raise click.UsageError(f"{error.format_message()} The commands are {names}.", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PublicIdError as error:
            raise UsageProblem(str(error)) from None
        except KeyboardInterrupt:  # click would exit with 1; a migration stops in its own way
            echo_stderr("interrupted")
            ctx.exit(INTERRUPTED)


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=_Group, context_settings=_SETTINGS)
@click.version_option(__version__, message="%(version)s")
def public_id() -> None:
    """Generate and inspect public ids; check and migrate the databases that store them.

    Write FORMAT as in Python: NanoId, or 'NanoId(length=16, prefix="cus")'. URL is an SQLAlchemy database URL, such as
    postgresql+psycopg://user@host/database. Without it, the command uses the environment variable DATABASE_URL. Put
    passwords there, because other users of the machine can read the arguments of a command.

    The exit status is 0 for success, 1 if a problem was found or rows remain, 2 if the command could not run, and
    130 after Ctrl-C.
    """


@public_id.command(epilog=example_lines("public-id new", "public-id new 'NanoId(prefix=\"cus\")' -n 3"))
@click.argument("format", type=format_argument, default="NanoId")
@click.option("-n", "count", type=click.IntRange(min=0), default=1, help="How many ids to generate.")
def new(format: Format, count: int) -> None:
    """Generate ids of FORMAT, one per line."""
    while count > 0:
        ids = format.generate_many(min(count, _BATCH))
        if not echo("\n".join(ids)):
            break
        count -= len(ids)


@public_id.command(epilog=example_lines("public-id budget", "public-id budget 'NanoId(length=10)' --per-hour 5000"))
@click.argument("format", type=format_argument, default="NanoId")
@click.option(
    "--per-hour", type=click.FloatRange(min=0, min_open=True), default=1000, help="How many ids you issue per hour."
)
@click.option(
    "--ids", "counts", type=click.IntRange(min=2), multiple=True, help="Add a line for this number of ids. Repeatable."
)
def budget(format: Format, per_hour: float, counts: tuple[int, ...]) -> None:
    """Estimate how many ids FORMAT can issue before a collision.

    Ids that begin with a time can collide only with ids of the same time.
    """
    space = format.budget()
    lines = {(space.ids_at(probability), probability) for probability in _PROBABILITIES}
    lines |= {(count, space.probability(count)) for count in counts}
    head = ("ids with the same time" if format.ordered else "ids issued", "chance of a collision")
    rows = [(f"{count:,}", _chance(probability), _years(count / per_hour)) for count, probability in sorted(lines)]
    table = [(*head, f"years at {per_hour:,.6g} an hour"), *rows]
    columns = 2 if format.ordered else 3
    echo(f"{format!r}: {_rounded(space.capacity)} ids, {format.entropy_bits:.1f} random bits")
    echo(table_lines([row[:columns] for row in table], ">" * columns))


def _rounded(count: int) -> str:
    """Return *count* as text; a large one is rounded, such as ``4.7 × 10^18``."""
    if count < 1_000_000:
        return f"{count:,}"
    power = len(str(count)) - 1
    return f"{count // 10 ** max(power - 2, 0) / 100:.1f} × 10^{power}"


def _chance(probability: float) -> str:
    return f"{probability:.0%}" if probability >= 0.01 else f"1 in {1 / probability:,.0f}" if probability else "0"


def _years(hours: float) -> str:
    years = hours / _HOURS_PER_YEAR
    if years < 0.1:
        return f"{years:.2g}"
    return f"{years:,.1f}" if years < 1e6 else f"10^{math.log10(years):.0f}"


@public_id.command(epilog=example_lines('alembic init -t "$(public-id template)" migrations'))
@click.argument("name", type=click.Choice(["generic", "async"]), default="generic")
def template(name: str) -> None:
    """Print the path of a template for 'alembic init'.

    One template works with synchronous and asynchronous drivers, so both names print its path.
    """
    folders = [folder / "generic" for folder in _TEMPLATES]
    existing = next((folder for folder in folders if folder.is_dir()), None)
    if existing is None:
        raise UsageProblem(f"no folder {str(folders[0])!r}: the installation is incomplete; install the package again")
    echo(str(existing))


for _command in (inspect, spec, audit, plan, *OPERATIONS):
    public_id.add_command(_command)
