"""``public-id new`` and ``public-id template``."""

from __future__ import annotations

from pathlib import Path

import click

from sqlalchemy_public_id.cli._console import Refusal, a_format
from sqlalchemy_public_id.formats import Format

__all__ = ["new", "template"]

_AT_ONCE = 10_000

_PACKAGE = Path(__file__).parents[1]
_TEMPLATES = _PACKAGE / "alembic_templates", _PACKAGE.parents[1] / "alembic_templates"
"""In a wheel, and beside ``src`` in the repository."""


@click.command()
@click.argument("format", type=a_format, default="NanoId")
@click.option("-n", "count", type=click.IntRange(min=0), default=1, show_default=True, help="How many.")
def new(format: Format, count: int) -> None:
    """Print new ids of FORMAT, one on a line."""
    while count > 0:
        ids = format.generate_many(min(count, _AT_ONCE))
        click.echo("\n".join(ids))
        count -= len(ids)


@click.command()
@click.argument("name", type=click.Choice(["generic", "async"]))
def template(name: str) -> None:
    r"""Print where the Alembic template NAME is.

    \b
    alembic init -t "$(public-id template generic)" migrations
    """
    folders = [folder / name for folder in _TEMPLATES]
    existing = next((folder for folder in folders if folder.is_dir()), None)
    if existing is None:
        raise Refusal(f"no folder {str(folders[0])!r}: the installation is incomplete; install the package again")
    click.echo(str(existing))
