"""``public-id merge-check``: keys and public ids that several databases have in common."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack

import click
from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_public_id.cli._console import UsageProblem, connect, counted, echo_stderr, example_lines
from sqlalchemy_public_id.merging import Comparison, Report
from sqlalchemy_public_id.merging import merge_check as compare_databases


@click.command("merge-check", epilog=example_lines("public-id merge-check sqlite:///north.db sqlite:///south.db"))
@click.argument("urls", metavar="URL URL...", nargs=-1, required=True)
@click.option("--schema", help="The schema; by default the usual one.")
@click.option("--table", "tables", multiple=True, help="Check only this table; repeatable.")
@click.option("--column", default="public_id", show_default=True, help="The column of public ids.")
@click.option(
    "--examples", type=click.IntRange(min=0), default=10, show_default=True, help="Clashes to show per column."
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def merge_check(
    urls: tuple[str, ...], schema: str | None, tables: tuple[str, ...], column: str, examples: int, output: str
) -> None:
    """Prove that no key and no public id of several databases clash. Changes nothing.

    The exit status is 0 if that is proven, 1 if there is a clash or a column could not be compared, and 2 if a database
    could not be checked.
    """
    if len(set(urls)) < len(urls):
        raise UsageProblem("a URL is given twice; a database clashes with itself")
    failed: list[str] = []
    with ExitStack() as stack:
        engines: list[Engine] = []
        for url in urls:
            engine = stack.enter_context(connect(url))
            engines.append(engine)

            @event.listens_for(engine, "handle_error")
            def remember(context: ExceptionContext, url: str = url) -> None:
                failed.append(url)

        try:
            report = compare_databases(engines, schema=schema, tables=tables or None, column=column, examples=examples)
        except SQLAlchemyError:
            if not failed:
                raise
            with connect(failed[0]):  # it turns the error into one line about that database
                raise
    if output == "json":
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        _show(report)
    sys.exit(0 if report.is_proven else 1)


def _show(report: Report) -> None:
    for table in report.tables:
        missing = f" (not in {', '.join(table.missing)})" if table.missing else ""
        click.echo(f"{table.name}{missing}")
        for name, comparison in (("key", table.key), ("public id", table.public_id)):
            click.echo(f"  {name:<9}  {_outcome(comparison)}")
            for clash in comparison.examples:
                click.echo(f"               {clash.value}  {', '.join(clash.databases)}")
    verdict = "nothing clashes" if report.is_proven else counted(report.clashes, "clash", "clashes")
    unproven = sum(
        comparison.proof == "not comparable" for table in report.tables for comparison in (table.key, table.public_id)
    )
    rest = f", {counted(unproven, 'column')} not compared" if unproven else ""
    echo_stderr(f"{counted(len(report.tables), 'table')}: {verdict}{rest}")


def _outcome(comparison: Comparison) -> str:
    if comparison.proof == "ranges":
        return f"{comparison.column}: the ranges lie apart"
    if comparison.proof == "compared":
        clashes = counted(comparison.clashes, "clash", "clashes") if comparison.clashes else "no clashes"
        styled = click.style(clashes, fg="red") if comparison.clashes else clashes
        return f"{comparison.column}: {comparison.compared} compared, {styled}"
    return f"{comparison.column or '-'}: {comparison.proof}: {comparison.reason}"
