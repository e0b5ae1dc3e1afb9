"""``public-id audit``: what is wrong with the public ids of a database."""

from __future__ import annotations

import json
import re
import sys

import click
from sqlalchemy import make_url

from sqlalchemy_public_id import audit as auditor
from sqlalchemy_public_id.audit import Finding, Report, Severity
from sqlalchemy_public_id.cli._console import a_table_format, note, opened, shown_url
from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.keys.ranges import Range, range_of

__all__ = ["audit"]

_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "info": "blue"}
_CLUSTER = re.compile(r"(.+)=([0-9]{1,19})(?:-([0-9]{1,19}))?", re.DOTALL)


def _a_table_cluster(text: str) -> tuple[str, Range]:
    """``TABLE=CLUSTER``, or ``TABLE=FIRST-LAST``: the table, and the range of its keys."""
    found = _CLUSTER.fullmatch(text)
    if found is None:
        raise click.BadParameter(
            f"{shown(text)} names no table and cluster; write TABLE=CLUSTER, such as 'customer=10', or "
            f"TABLE=FIRST-LAST, such as 'customer=1-1000000'"
        )
    table, first, last = found.groups()
    try:
        return table.strip(), range_of(int(first)) if last is None else Range(int(first), int(last) + 1)
    except (ConfigurationError, ValueError) as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("url")
@click.option("--schema", help="Where to look, instead of the usual schema.")
@click.option("--table", "tables", multiple=True, help="Look at this table alone; repeatable.")
@click.option("--column", default="public_id", show_default=True, help="The column of public ids.")
@click.option(
    "--table-format",
    "formats",
    type=a_table_format,
    metavar="TABLE=FORMAT",
    multiple=True,
    help="The format of a table; repeatable.",
)
@click.option(
    "--cluster",
    "clusters",
    type=_a_table_cluster,
    metavar="TABLE=CLUSTER",
    multiple=True,
    help="The cluster of a table whose database cannot tell, or its keys, TABLE=FIRST-LAST; repeatable.",
)
@click.option(
    "--sample", type=click.IntRange(min=1), default=10_000, show_default=True, help="Rows to read of a table."
)
@click.option("--advice/--no-advice", default=True, help="Whether the lines that mend it are shown.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def audit(
    url: str,
    schema: str | None,
    tables: tuple[str, ...],
    column: str,
    formats: tuple[tuple[str, Format], ...],
    clusters: tuple[tuple[str, Range], ...],
    sample: int,
    advice: bool,
    output: str,
) -> None:
    """Look at the public ids of every table in the database at URL. Nothing is changed.

    The exit status is 1 where there is a warning or an error, 2 where the database could not be looked at.
    """
    with opened(url) as engine:
        report = auditor.run(
            engine,
            schema=schema,
            tables=tables or None,
            column=column,
            formats=dict(formats),
            clusters=dict(clusters),
            sample=sample,
        )
    if output == "json":
        click.echo(json.dumps({"url": shown_url(make_url(url)), **report.as_dict()}, indent=2, default=str))
    else:
        _show(report, column, advice)
    sys.exit(1 if report.at_least("warning") else 0)


def _show(report: Report, column: str, advice: bool) -> None:
    for table in report.tables:
        found = [finding for finding in report.findings if finding.table == table.name]
        if table.has_column:
            forms = ", ".join(f"{count} of {form}" for form, count in list(table.forms.items())[:3])
            click.echo(f"{table.name}: {forms or 'no ids'}{'' if found else '; nothing is wrong'}")
        else:
            click.echo(f"{table.name}: no {column}")
        for finding in found:
            _show_finding(finding, advice)
    audited = sum(table.has_column for table in report.tables)
    counts = [
        f"{count} {name}{'' if count == 1 else 's'}"
        for name, severity in (("error", "error"), ("warning", "warning"), ("remark", "info"))
        if (count := sum(finding.severity == severity for finding in report.findings))
    ]
    note(f"{audited} of {len(report.tables)} tables have a {column}: {', '.join(counts) or 'nothing is wrong'}")


def _show_finding(finding: Finding, advice: bool) -> None:
    severity = click.style(f"{finding.severity:<7}", fg=_COLOURS[finding.severity])
    click.echo(f"  {severity}  {finding.problem:<16}  {finding.message}")
    if advice and finding.advice is not None and finding.severity != "info":
        for line in finding.advice.good.splitlines():
            click.echo(f"               {line}")
