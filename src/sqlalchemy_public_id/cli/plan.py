"""``public-id plan``: what a migration would do to a table, and what stands in its way."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from sqlalchemy_public_id.cli._console import connect, example_lines, format_argument
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.online import PublicIdColumn
from sqlalchemy_public_id.online.run import plan_for
from sqlalchemy_public_id.preflight import Consent, MigrationReport, examine
from sqlalchemy_public_id.preflight.report import in_time


@click.command(epilog=example_lines("public-id plan mysql+pymysql://app@localhost/shop customer --output json"))
@click.argument("url")
@click.argument("table")
@click.option("--column", default="public_id", show_default=True, help="The column of public ids.")
@click.option("--schema", help="The schema; by default the usual one.")
@click.option(
    "--format", "id_format", type=format_argument, metavar="FORMAT", help="The format of the ids; NanoId by default."
)
@click.option("--unique-name", help="The name of the unique index; if there is none, uq_TABLE_COLUMN by default.")
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
@click.option("--output", type=click.Choice(["text", "table", "json"]), default="text", show_default=True)
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
        if unique_name is None:
            target = target.with_existing_name(connection, valid=not drop)
        steps = plan_for(target, engine.dialect, allow_lock=allow_lock)
        report = examine(connection, steps, phases, Consent(**choices))
    if output == "json":
        click.echo(json.dumps(report.as_dict(), indent=2))
    elif output == "table":
        _print_table(report)
    else:
        click.echo(str(report))
    if report.obstacles:
        sys.exit(1)


def _print_table(report: MigrationReport) -> None:
    """Print the facts of *report* in one table, and its steps without their statements in another one."""
    steps = Table("phase", "step", "lock")
    for step in report.steps:
        steps.add_row(step.phase, step.name, step.lock)
    facts = Table(show_header=False)
    facts.add_row("column", f"{report.target} on {report.database}")
    facts.add_row("rows", "unknown" if report.rows is None else f"about {report.rows:,}")
    facts.add_row("time", "unknown" if report.seconds is None else f"about {in_time(report.seconds)}")
    for name, values in (
        ("rights", report.rights),
        ("triggers", report.triggers),
        ("warnings", report.warnings),
        ("obstacles", [str(obstacle) for obstacle in report.obstacles]),
    ):
        facts.add_row(name, "\n".join(values) or "none")
    console = Console(highlight=False, markup=False)
    console.print(facts)
    if report.steps:
        console.print(steps)
