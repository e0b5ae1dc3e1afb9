"""The ``public-id`` command with its subcommands."""

from __future__ import annotations

from typing import Any

import click

from sqlalchemy_public_id._version import __version__
from sqlalchemy_public_id.cli._console import Refusal
from sqlalchemy_public_id.cli.audit import audit
from sqlalchemy_public_id.cli.backfill import backfill
from sqlalchemy_public_id.cli.budget import budget
from sqlalchemy_public_id.cli.inspect import inspect
from sqlalchemy_public_id.cli.merge_check import merge_check
from sqlalchemy_public_id.cli.new import new, template
from sqlalchemy_public_id.errors import PublicIdError

__all__ = ["public_id"]


class _OneLine(click.Group):
    """A group whose errors are one readable line each."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PublicIdError as error:
            raise Refusal(str(error)) from None


@click.group(cls=_OneLine, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(version)s")
def public_id() -> None:
    """Make and inspect public ids, and look after databases that have them.

    FORMAT is written as in Python: NanoId, 'NanoId(length=16, prefix="cus")'. URL is one of SQLAlchemy:
    postgresql+psycopg://user@host/database.
    """


for _command in (new, inspect, budget, audit, backfill, merge_check, template):
    public_id.add_command(_command)
