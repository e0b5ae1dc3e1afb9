"""``public-id plan``: what a migration would do to a table, and what stands in its way."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from sqlalchemy_public_id.cli._console import connect, format_argument
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.online import PublicIdColumn
from sqlalchemy_public_id.online.run import plan_for
from sqlalchemy_public_id.preflight import Consent, examine


@click.command()
@click.argument("url")
@click.argument("table")
@click.option("--column", default="public_id", show_default=True, help="The column of public ids.")
@click.option("--schema", help="The schema; by default the usual one.")
@click.option("--id-format", type=format_argument, metavar="FORMAT", help="The format of the ids; NanoId by default.")
@click.option("--unique-name", help="The name of the unique index; uq_TABLE_COLUMN by default.")
@click.option("--constraint", is_flag=True, help="A unique constraint, as unique=True declares it.")
@click.option("--replaces", metavar="NAME", help="The unique constraint or index that is replaced.")
@click.option(
    "--server-default",
    type=click.Choice(["keep", "drop", "none"]),
    default="keep",
    show_default=True,
    help="The default that generates ids for writers that pass none.",
)
@click.option("--update-triggers", type=click.Choice(["refuse", "fire", "skip"]), default="refuse", show_default=True)
@click.option("--on-duplicate", type=click.Choice(["refuse", "replace"]), default="refuse", show_default=True)
@click.option("--on-invalid", type=click.Choice(["refuse", "keep", "replace"]), default="refuse", show_default=True)
@click.option("--allow-lock", is_flag=True, help="Accept steps for which writers wait.")
@click.option("--drop", is_flag=True, help="Plan op.drop_public_id() instead of op.add_public_id().")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def plan(
    url: str,
    table: str,
    column: str,
    schema: str | None,
    id_format: Format | None,
    unique_name: str | None,
    constraint: bool,
    replaces: str | None,
    server_default: str,
    update_triggers: str,
    on_duplicate: str,
    on_invalid: str,
    allow_lock: bool,
    drop: bool,
    output: str,
) -> None:
    """Print the steps of op.add_public_id() for TABLE, their locks, and everything that stands in the way.

    Nothing is changed. The exit status is 1 if there is an obstacle.
    """
    target = PublicIdColumn.of(
        table,
        column,
        format=id_format,
        unique_name=unique_name,
        schema=schema,
        unique="constraint" if constraint else "index",
        replaces=replaces,
        server_default=server_default,
    )
    choices: dict[str, Any] = {
        "update_triggers": update_triggers,
        "on_duplicate": on_duplicate,
        "on_invalid": on_invalid,
        "allow_lock": allow_lock,
    }
    phases = ["drop"] if drop else ["expand", "backfill", "contract"]
    with connect(url) as engine, engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        steps = plan_for(target, engine.dialect, allow_lock=allow_lock)
        report = examine(connection, steps, phases, Consent(**choices))
    click.echo(json.dumps(report.as_dict(), indent=2) if output == "json" else str(report))
    if report.obstacles:
        sys.exit(1)
