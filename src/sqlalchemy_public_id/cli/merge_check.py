"""``public-id merge-check``: whether the rows of several databases can be put into one."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack

import click
from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_public_id.cli._console import Refusal, note, opened
from sqlalchemy_public_id.merging import Comparison, Report
from sqlalchemy_public_id.merging import merge_check as check

__all__ = ["merge_check"]


@click.command("merge-check")
@click.argument("urls", metavar="URL URL...", nargs=-1, required=True)
@click.option("--schema", help="Where to look, instead of the usual schema.")
@click.option("--table", "tables", multiple=True, help="Look at this table alone; repeatable.")
@click.option("--column", default="public_id", show_default=True, help="The column of public ids.")
@click.option(
    "--examples", type=click.IntRange(min=0), default=10, show_default=True, help="Clashes to show of a column."
)
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def merge_check(
    urls: tuple[str, ...], schema: str | None, tables: tuple[str, ...], column: str, examples: int, output: str
) -> None:
    """Prove that no key and no public id of several databases clash. Nothing is changed.

    The exit status is 0 where that is proven, 1 where something clashes or could not be compared, 2 where a database
    could not be looked at.
    """
    if len(set(urls)) < len(urls):
        raise Refusal("a URL is given twice; a database clashes with itself")
    failed: list[str] = []
    with ExitStack() as stack:
        engines: list[Engine] = []
        for url in urls:
            engine = stack.enter_context(opened(url))
            engines.append(engine)

            @event.listens_for(engine, "handle_error")
            def remember(context: ExceptionContext, url: str = url) -> None:
                failed.append(url)

        try:
            report = check(engines, schema=schema, tables=tables or None, column=column, examples=examples)
        except SQLAlchemyError:
            if not failed:
                raise
            with opened(failed[0]):  # which tells the error as one of that database
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
        for what, comparison in (("key", table.key), ("public id", table.public_id)):
            click.echo(f"  {what:<9}  {_said(comparison)}")
            for clash in comparison.examples:
                click.echo(f"               {clash.value}  {', '.join(clash.databases)}")
    verdict = "nothing clashes" if report.is_proven else f"{report.clashes} clashes"
    unproven = sum(
        comparison.proof == "not comparable" for table in report.tables for comparison in (table.key, table.public_id)
    )
    note(f"{len(report.tables)} tables: {verdict}{f', {unproven} columns not compared' if unproven else ''}")


def _said(comparison: Comparison) -> str:
    if comparison.proof == "ranges":
        return f"{comparison.column}: the ranges lie apart"
    if comparison.proof == "compared":
        found = click.style(f"{comparison.clashes} clash", fg="red") if comparison.clashes else "none clashes"
        return f"{comparison.column}: {comparison.compared} compared, {found}"
    return f"{comparison.column or '-'}: {comparison.proof}: {comparison.reason}"
