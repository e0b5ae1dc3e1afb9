"""The command line and its table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click
from rich import box
from rich.console import Console
from rich.table import Table

from outside import environments, suites
from outside.comparing import Broken, failed, files, regressions
from outside.running import Run, Runner
from outside.suites import Excuse, Suite

_console = Console(soft_wrap=True, highlight=False, markup=False)


@dataclass
class Row:
    """A line of the table: one suite on one database, with one SQLAlchemy."""

    suite: Suite
    database: str
    cases: str = "–"
    without: str = "–"
    loaded: str = "–"
    new: str = "broken"
    seconds: float = 0

    @property
    def is_good(self) -> bool:
        return self.new == "0"


@click.command()
@click.option("--suite", "names", multiple=True, help="Only this one; may be repeated.")
@click.option("--series", "all_series", multiple=True, help="Only with this release series of SQLAlchemy.")
@click.option("--on", "databases", multiple=True, help="Only on this database: sqlite, postgresql.")
@click.option("--test", "tests", multiple=True, help="Only this file or test, of the one --suite.")
@click.option("--once", is_flag=True, help="Run without the library only the files in which a test failed with it.")
@click.option("--gate", is_flag=True, help="What .ci/run takes: a part of some suites, --once.")
@click.option("--renew", is_flag=True, help="Write the pins in outside/requirements again, and run nothing.")
@click.option("-n", "--processes", default=1, show_default=True, help="Of pytest-xdist, for suites that can.")
@click.option("--timeout", default=7200.0, show_default=True, help="Seconds for one run.")
@click.option(
    "--postgresql", "server", default="postgresql://postgres@127.0.0.1:5432", show_default=True, help="The server."
)
def main(
    names: Sequence[str],
    all_series: Sequence[str],
    databases: Sequence[str],
    tests: Sequence[str],
    once: bool,
    gate: bool,
    renew: bool,
    processes: int,
    timeout: float,
    server: str,
) -> None:
    """Run suites of others without the library and with it, and print a table. A new failure is exit status 1."""
    listed, excuses = suites.load()
    chosen = [
        suite
        for suite in listed
        if (not names or suite.name in names)
        and (not all_series or suite.series in all_series)
        and (not gate or suite.gate)
    ]
    if not chosen:
        raise click.UsageError(f"no such suite; there are {', '.join(sorted({suite.name for suite in listed}))}")
    if renew:
        for suite in {suite.package: suite for suite in chosen if suite.requires}.values():
            _console.print(f"{suite.requirements} ...")
            environments.renew(suite)
        return
    environments.install_library()
    with _console.status("") as status:
        runner = Runner(server, processes, timeout, lambda count: status.update(f"{count} outcomes"))
        rows = [
            _compare(
                runner, suite, database, tests or (suite.gate if gate else suite.tests), excuses, once=once or gate
            )
            for suite in chosen
            for database in suite.databases
            if not databases or database in databases
        ]
    _print_table(rows)
    sys.exit(not all(row.is_good for row in rows))


def _compare(
    runner: Runner, suite: Suite, database: str, tests: Sequence[str], excuses: list[Excuse], *, once: bool
) -> Row:
    """Run *tests* without the library and with it; what is new is run again in both ways before it counts.

    It is run again with its whole file, for tests depend on those before them. With *once*, only the files of what
    failed are run without the library.
    """
    row = Row(suite, database)
    title = f"{suite.name} {suite.version}, SQLAlchemy {suite.sqlalchemy}, {database}"

    def run(tests: Sequence[str], *, loaded: bool, again: bool = False) -> Run:
        result = runner.run(suite, database, tests, loaded=loaded, again=again)
        row.seconds += result.seconds
        facts = f"; {result.facts.engines} engines guarded, {result.facts.revived} listeners revived" if loaded else ""
        _console.print(
            f"{title}, {'with' if loaded else 'without'}: {len(result.outcomes)} outcomes, "
            f"{len(failed(result.outcomes))} failed, {result.seconds:.0f} s{facts}"
        )
        return result

    try:
        without = None if once else run(tests, loaded=False).outcomes
        loaded = run(tests, loaded=True).outcomes
        new = regressions(without or {}, loaded)
        if new:
            their_files = files(new)
            without_again = run(their_files, loaded=False, again=True).outcomes
            repeated = regressions(without_again, run(their_files, loaded=True, again=True).outcomes)
            without = without or without_again
            for test in sorted(set(new) - set(repeated) - failed(without)):
                _console.print(f"  not repeated: {test}\n    {new[test]}")
            new = {test: repeated[test] for test in new if test in repeated}
    except Broken as error:
        _console.print(f"{title}: {error}")
        return row
    for excuse in excuses:
        excused = [test for test in new if excuse.covers(test)]
        if excused:
            _console.print(f"  excused, {len(excused)}: {excuse.test}\n    {excuse.why}")
            new = {test: cause for test, cause in new.items() if test not in excused}
    for test, cause in new.items():
        _console.print(f"  NEW: {test}\n    {cause}")
    row.cases = str(sum(outcome.outcome != "skipped" for outcome in loaded.values()))
    row.without, row.loaded, row.new = str(len(failed(without or {}))), str(len(failed(loaded))), str(len(new))
    return row


def _print_table(rows: list[Row]) -> None:
    table = Table(box=box.MARKDOWN)
    for title in ("suite", "version", "SQLAlchemy", "database"):
        table.add_column(title, no_wrap=True)
    for title in ("cases", "failures without", "failures with", "new", "seconds"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        suite = row.suite
        about = (suite.name, suite.version, suite.sqlalchemy, row.database)
        table.add_row(*about, row.cases, row.without, row.loaded, row.new, f"{row.seconds:.0f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
