"""The command line and its table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click
from rich import box
from rich.console import Console
from rich.table import Table

from tools.outside import suites
from tools.outside.comparing import Broken, Outcomes, failed, files, regressions
from tools.outside.running import Runner
from tools.outside.suites import Excuse, Suite

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
    def cells(self) -> list[str]:
        suite = self.suite
        about = [suite.name, suite.version, suite.sqlalchemy, self.database]
        return [*about, self.cases, self.without, self.loaded, self.new, f"{self.seconds:.0f}"]


@click.command()
@click.option("--suite", "names", multiple=True, help="Only this one; may be repeated.")
@click.option("--series", "all_series", multiple=True, help="Only with this release series of SQLAlchemy.")
@click.option("--on", "databases", multiple=True, help="Only on this database: sqlite, postgresql.")
@click.option("--test", "tests", multiple=True, help="Only this file or test, of the one --suite.")
@click.option("--once", is_flag=True, help="Run without the library only the files in which a test failed with it.")
@click.option("--gate", is_flag=True, help="What .ci/run takes: a part of some suites, --once.")
@click.option("--renew", is_flag=True, help="Write the pins in requirements/ again, and run nothing.")
@click.option("-n", "--processes", default=1, show_default=True, help="Of pytest-xdist, for suites that can.")
@click.option("--timeout", default=7200.0, show_default=True, help="Seconds for one run.")
@click.option("--postgresql", default="postgresql://postgres@127.0.0.1:5432", show_default=True, help="The server.")
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
    postgresql: str,
) -> None:
    """Run suites of others without the library and with it, and print a table. A new failure is exit status 1."""
    listed, excuses = suites.load()
    chosen = [
        suite
        for suite in listed
        if suite.name in (names or [suite.name])
        and suite.series in (all_series or [suite.series])
        and (suite.gate or not gate)
    ]
    if not chosen:
        raise click.UsageError(f"no such suite; there are {', '.join(sorted({suite.name for suite in listed}))}")
    if renew:
        for suite in {suite.package: suite for suite in chosen if suite.requires}.values():
            _console.print(f"{suite.requirements} ...")
            suite.renew()
        return
    suites.install_library()
    runner, table = Runner(postgresql, processes, timeout), Table(box=box.MARKDOWN)
    for title in ("suite", "version", "SQLAlchemy", "database"):
        table.add_column(title, no_wrap=True)
    for title in ("cases", "failures without", "failures with", "new", "seconds"):
        table.add_column(title, justify="right", no_wrap=True)
    good = True
    for suite in chosen:
        for database in [name for name in suite.databases if name in (databases or [name])]:
            row = Row(suite, database)
            try:
                _compare(runner, row, tests or (suite.gate if gate else suite.tests), excuses, once=once or gate)
            except Broken as error:
                _console.print(f"{suite.name}, {database}: {error}")
            table.add_row(*row.cells)
            good &= row.new == "0"
    Console(width=140).print(table)
    sys.exit(not good)


def _compare(runner: Runner, row: Row, tests: Sequence[str], excuses: list[Excuse], *, once: bool) -> None:
    """Run *tests* without the library and with it. New failures are run again in both ways before they count.

    They are run again with their whole files, because tests depend on those before them. With *once*, only the files of
    failed tests are run without the library.
    """

    def run(tests: Sequence[str], *, loaded: bool, again: bool = False) -> Outcomes:
        result = runner.run(row.suite, row.database, tests, loaded=loaded, again=again)
        row.seconds += result.seconds
        _console.print(
            f"{', '.join(row.cells[:4])}, {'with' if loaded else 'without'}: {len(result.outcomes)} outcomes, "
            f"{len(failed(result.outcomes))} failed, {result.seconds:.0f} s"
        )
        return result.outcomes

    without = None if once else run(tests, loaded=False)
    loaded = run(tests, loaded=True)
    new = regressions(without or {}, loaded)
    if new:
        without_again = run(files(new), loaded=False, again=True)
        repeated = regressions(without_again, run(files(new), loaded=True, again=True))
        without = without or without_again
        for test in sorted(set(new) - set(repeated) - failed(without)):
            _console.print(f"  not repeated: {test}\n    {new[test]}")
        new = {test: repeated[test] for test in new if test in repeated}
    for excuse in excuses:
        excused = [test for test in new if excuse.covers(test)]
        if excused:
            _console.print(f"  excused, {len(excused)}: {excuse.test}\n    {excuse.why}")
            new = {test: cause for test, cause in new.items() if test not in excused}
    for test, cause in new.items():
        _console.print(f"  NEW: {test}\n    {cause}")
    row.cases = str(sum(outcome.outcome != "skipped" for outcome in loaded.values()))
    row.without, row.loaded, row.new = str(len(failed(without or {}))), str(len(failed(loaded))), str(len(new))


if __name__ == "__main__":
    main()
