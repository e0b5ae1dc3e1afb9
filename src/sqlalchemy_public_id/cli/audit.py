"""``public-id audit``: problems with the public ids of a database."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import click
from sqlalchemy import make_url

from sqlalchemy_public_id.audit import Finding, Report, Severity, read_schema, require_column
from sqlalchemy_public_id.audit.tables import AuditSettings
from sqlalchemy_public_id.cli._console import (
    connect,
    counted,
    echo,
    echo_stderr,
    example_lines,
    safe_url,
    table_format_argument,
)
from sqlalchemy_public_id.cli._options import JSON, require_url
from sqlalchemy_public_id.cli._tables import base_argument, chosen_schemas, metadata_of
from sqlalchemy_public_id.cli._wording import as_typed
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.keys.ranges import Range, range_of
from sqlalchemy_public_id.messages import safe_repr

_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "info": "blue"}
_CLUSTER = re.compile(r"(.+)=([0-9]{1,19})(?:-([0-9]{1,19}))?", re.DOTALL)


def _table_cluster_argument(text: str) -> tuple[str, Range]:
    match = _CLUSTER.fullmatch(text)
    if match is None:
        raise click.BadParameter(
            f"{safe_repr(text)} names no table and cluster; write TABLE=CLUSTER, such as 'customer=10', or "
            f"TABLE=FIRST-LAST, such as 'customer=1-1000000'"
        )
    table, first, last = match.groups()
    try:
        return table.strip(), range_of(int(first)) if last is None else Range(int(first), int(last) + 1)
    except (ConfigurationError, ValueError) as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    epilog=example_lines(
        "public-id audit postgresql+psycopg://app@localhost/shop",
        "public-id audit sqlite:///shop.db --table customer --output json",
    )
)
@click.argument("url", envvar="DATABASE_URL", required=False, callback=require_url)
@click.option(
    "--schema",
    help="The schema to check, or a pattern, such as 'tenant_*'.  [default: the default schema of the connection]",
)
@click.option("--table", "tables", multiple=True, help="Check only this table. Repeatable.")
@click.option("--column", help="The column that stores the public ids.  [default: those of the models, or public_id]")
@click.option(
    "--table-format",
    "formats",
    type=table_format_argument,
    metavar="TABLE=FORMAT",
    multiple=True,
    help="The format of the ids in a table, which is guessed otherwise. Repeatable.",
)
@click.option(
    "--models",
    type=base_argument,
    metavar="MODULE:BASE",
    help="Read formats and the names of indexes from these models.",
)
@click.option(
    "--cluster",
    "clusters",
    type=_table_cluster_argument,
    metavar="TABLE=CLUSTER",
    multiple=True,
    help="The cluster number of a table, or its range of keys as TABLE=FIRST-LAST, if the database does not store it. "
    "Repeatable.",
)
@click.option(
    "--sample", type=click.IntRange(min=1), default=10_000, show_default=True, help="How many rows to read per table."
)
@click.option("--defaults", is_flag=True, help="Also list each table whose ids the database does not generate.")
@click.option("--remedies/--no-remedies", default=True, help="Show the statements that repair each problem.")
@click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The output format."
)
@JSON
def audit(
    url: str,
    schema: str | None,
    tables: tuple[str, ...],
    column: str | None,
    formats: tuple[tuple[str, Format], ...],
    models: Any,
    clusters: tuple[tuple[str, Range], ...],
    sample: int,
    defaults: bool,
    remedies: bool,
    output: str,
    as_json: bool,
) -> None:
    """Check the public ids and keys of the database at URL.

    Reads the catalogs and a sample of the rows, and changes nothing. The exit status is 1 if there is a warning or an
    error, and 2 if the database could not be checked.
    """
    settings = AuditSettings(
        schema=None,
        tables=tables or None,
        column=column,
        formats=dict(formats),
        models=[] if models is None else metadata_of(models),
        clusters=dict(clusters),
        sample=sample,
        defaults=defaults,
    )
    report = Report([], [])
    with connect(url) as engine:
        for each in chosen_schemas(engine, schema):
            of_schema = read_schema(engine, replace(settings, schema=each))
            report.tables.extend(of_schema.tables)
            report.findings.extend(of_schema.findings)
    require_column(report, column)
    if as_json or output == "json":
        facts: dict[str, Any] = {"url": safe_url(make_url(url)), **report.as_dict()}
        if not remedies:
            facts["findings"] = [{**each, "remedy": None} for each in facts["findings"]]
        echo(json.dumps(facts, indent=2, default=str))
    else:
        _show(report, column, defaults, remedies)
    sys.exit(1 if report.at_least("warning") else 0)


def _show(report: Report, column: str | None, defaults: bool, remedies: bool) -> None:
    found = {table.column for table in report.tables if table.has_column} or {"public_id"}
    column = column or (found.pop() if len(found) == 1 else "public ids")
    of_columns: dict[tuple[str, str | None], list[Finding]] = {(each.name, each.column): [] for each in report.tables}
    first = {each.name: each.column for each in reversed(report.tables)}
    for finding in report.findings:  # what is found about a key is shown with the first column
        place = finding.table, finding.column
        of_columns[place if place in of_columns else (finding.table, first[finding.table])].append(finding)
    for table in report.tables:
        findings = of_columns[table.name, table.column]
        if table.has_column and table.readable:
            ids = f"{counted(table.sampled, 'id')} ({table.format or 'of no format'})" if table.sampled else "no ids"
            name = table.name if table.column == column else f"{table.name}.{table.column}"
            echo(f"{name}: {ids}{'' if findings else '; nothing is wrong'}")
        elif findings:
            echo(f"{table.name}: no {table.column}" if table.readable else table.name)
        last = {finding.remedy: finding for finding in findings if finding.severity != "info"}
        for finding in findings:
            _show_problem(finding.severity, finding.problem, finding.message)
            if remedies and finding.remedy is not None and last.get(finding.remedy) is finding:
                lines = finding.remedy.lines
                lines = lines if finding.remedy.language == "sql" else tuple(map(as_typed, lines))
                echo("\n".join(f"               {line}" for line in lines))
    for name, count in Counter(table.column for table in report.without_column).items():
        echo(f"{counted(count, 'table')} without {name}")
    without_default = {table.name for table in report.without_default}
    if without_default and not defaults:
        message = (
            f"the database generates no ids in {counted(len(without_default), 'table')}: programs that "
            f"leave the column out cannot insert, or insert NULL; --defaults lists them"
        )
        _show_problem("info", "default-missing", message)
    names: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "remark"}
    counts = Counter(finding.severity for finding in report.findings)
    totals = [counted(counts[severity], name) for severity, name in names.items() if severity in counts]
    audited = len({table.name for table in report.tables if table.has_column})
    tables = counted(len(first), "table")
    echo_stderr(f"{column} in {audited} of {tables}: {', '.join(totals) or 'nothing is wrong'}")


def _show_problem(severity: Severity, problem: str, message: str) -> None:
    echo(f"  {click.style(f'{severity:<7}', fg=_COLOURS[severity])}  {problem:<16}  {message}")
