"""The ``public-id`` command with its subcommands; ``new`` and ``template`` are defined here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sqlalchemy_public_id._version import __version__
from sqlalchemy_public_id.cli._console import UsageProblem, example_lines, format_argument
from sqlalchemy_public_id.cli.audit import audit
from sqlalchemy_public_id.cli.budget import budget
from sqlalchemy_public_id.cli.inspect import inspect
from sqlalchemy_public_id.cli.operations import OPERATIONS
from sqlalchemy_public_id.cli.plan import plan
from sqlalchemy_public_id.errors import PublicIdError
from sqlalchemy_public_id.formats import Format

_BATCH = 10_000
_PACKAGE = Path(__file__).parents[1]
_TEMPLATES = _PACKAGE / "alembic_templates", _PACKAGE.parents[1] / "alembic_templates"  # in a wheel, and in a checkout


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PublicIdError as error:
            raise UsageProblem(str(error)) from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(version)s")
def public_id() -> None:
    """Generate and inspect public ids, and maintain databases that contain them.

    FORMAT is written as in Python: NanoId, 'NanoId(length=16, prefix="cus")'. URL is a database URL of SQLAlchemy,
    postgresql+psycopg://user@host/database; without it, the environment variable DATABASE_URL is. Other users of the
    machine can read arguments, but not variables: a password belongs there.

    The exit status is 0 for success, 1 if a problem was found or rows are left, 2 if the command could not run, and
    130 after Ctrl-C.
    """


@public_id.command(epilog=example_lines("public-id new", "public-id new 'NanoId(prefix=\"cus\")' -n 3"))
@click.argument("format", type=format_argument, default="NanoId")
@click.option("-n", "count", type=click.IntRange(min=0), default=1, show_default=True, help="The number of ids.")
def new(format: Format, count: int) -> None:
    """Print new ids of FORMAT, one per line."""
    while count > 0:
        ids = format.generate_many(min(count, _BATCH))
        click.echo("\n".join(ids))
        count -= len(ids)


@public_id.command(epilog=example_lines('alembic init -t "$(public-id template async)" migrations'))
@click.argument("name", type=click.Choice(["generic", "async"]))
def template(name: str) -> None:
    """Print the path of the Alembic template NAME."""
    folders = [folder / name for folder in _TEMPLATES]
    existing = next((folder for folder in folders if folder.is_dir()), None)
    if existing is None:
        raise UsageProblem(f"no folder {str(folders[0])!r}: the installation is incomplete; install the package again")
    click.echo(str(existing))


for _command in (inspect, budget, audit, plan, *OPERATIONS):
    public_id.add_command(_command)
