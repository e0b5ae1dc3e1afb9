"""``public-id plan``: what a migration would do to tables, and its obstacles."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from typing_extensions import Unpack

from sqlalchemy_public_id.cli._console import (
    connect,
    counted,
    echo,
    echo_stderr,
    example_lines,
    problem_of,
    table_lines,
)
from sqlalchemy_public_id.cli._options import COLUMN, CONSENT, JSON, LOCATION, given_options, options
from sqlalchemy_public_id.cli._tables import Location, Selection, chosen_targets
from sqlalchemy_public_id.cli._wording import as_typed
from sqlalchemy_public_id.errors import Obstacle, PublicIdError
from sqlalchemy_public_id.migrations import Consent, Options, PublicIdColumn
from sqlalchemy_public_id.migrations.consent import take_fields
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import examine
from sqlalchemy_public_id.migrations.plan import Lock
from sqlalchemy_public_id.migrations.report import LOCKS, MigrationReport, in_time


@click.command(
    epilog=example_lines(
        "public-id plan invoice --format 'NanoId(prefix=\"inv\")'",
        "public-id plan mysql+pymysql://app@localhost/shop invoice customer --output json",
        "public-id plan --all --models shop.models:Base",
    )
)
@options(LOCATION, COLUMN, CONSENT)
@click.option(
    "--output",
    type=click.Choice(["text", "table", "json"]),
    help="text: steps and statements. table: one line per table. json: everything, for programs.  "
    "[default: text; table with --all]",
)
@JSON
def plan(
    location: Location,
    all_tables: bool,
    models: Any,
    column: str | None,
    output: str | None,
    as_json: bool,
    **options: Unpack[Options],
) -> None:
    """Preview the migration of each TABLE: steps, locks, obstacles.

    Shows what 'public-id add' would do, with its statements and the estimated time, and changes nothing. The exit
    status is 1 if there is an obstacle. To preview another command, run it with --dry-run.
    """
    given = given_options(options)
    consent, selection = Consent(**take_fields(Consent, given)), Selection(location, all_tables, models, column, given)
    with connect(location.url) as engine, engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        targets = chosen_targets(engine, selection, needs_models=False)
        is_alone = not all_tables and len(targets) == 1
        reports = [_examined(connection, target, consent, raises=is_alone) for target in targets]
    output = "json" if as_json else output or ("table" if all_tables else "text")
    if output == "json":
        facts = [report.as_dict() for report in reports]
        echo(json.dumps(facts[0] if is_alone else facts, indent=2))
    elif output == "table":
        _print_table(reports)
    else:
        echo("\n\n".join(as_typed(str(report)) for report in reports))
    if any(report.obstacles for report in reports):
        sys.exit(1)


def _examined(connection: Connection, target: PublicIdColumn, consent: Consent, *, raises: bool) -> MigrationReport:
    """Return the report of one table. If it cannot be read, report an obstacle, or raise the error if *raises*."""
    try:
        return examine(connection, plan_for(target, connection.dialect, consent), ["expand", "backfill", "contract"])
    except (PublicIdError, SQLAlchemyError) as error:
        if raises or connection.invalidated:
            raise
        reason = problem_of(error, connection.engine.url).message
        return MigrationReport(
            target=str(target),
            database=connection.dialect.name,
            rows=None,
            size=None,
            seconds=None,
            steps=(),
            rights=(),
            triggers=(),
            warnings=(),
            obstacles=(Obstacle("unreadable", reason, "the table was not examined"),),
        )


def _print_table(reports: list[MigrationReport]) -> None:
    """Print a line for each table, and the obstacles below."""
    rows = [("column", "rows", "MB", "time", "short locks", "in the way")]
    for report in reports:
        locks = sum(step.lock in (LOCKS[Lock.STRONG], LOCKS[Lock.REWRITE]) for step in report.steps)
        rows.append(
            (
                report.target,
                "?" if report.rows is None else f"{report.rows:,}",
                "?" if report.size is None else f"{report.size / 1e6:,.1f}",
                "?" if report.seconds is None else in_time(report.seconds) if report.steps else "-",
                str(locks),
                ", ".join(each.code for each in report.obstacles) or ("nothing" if report.steps else "it is done"),
            )
        )
    echo(table_lines(rows, "<>>>><"))
    for report in reports:
        for obstacle in report.obstacles:
            echo(as_typed(f"{report.target}: {obstacle}"))
    seconds = sum(report.seconds or 0 for report in reports)
    clear = sum(not report.obstacles for report in reports)
    echo_stderr(f"{counted(len(reports), 'table')}, {clear} without obstacles, about {in_time(seconds)}")
