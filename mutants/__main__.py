"""The command line: mutants of a sample, a table, and the comparison of two suites."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from mutants import slips
from mutants.candidates import Mutant, sample
from mutants.running import CACHE, OUTCOMES, ROOT, Result, cover, run

_PACKAGE = ROOT / "src" / "sqlalchemy_public_id"
_PARTS = ["guard", "events", "references", "lookup", "formats", "online", "backfill", "idempotency", "keys"]
_console = Console(soft_wrap=True, highlight=False, markup=False)


@click.group()
def main() -> None:
    """Change the library in one place, and run the tests that execute the place: one of them has to fail."""


_QUICK = '-m "not slow and not nodes and not browser and not housekeeping"'
_tests = click.option("--tests", default=_QUICK, show_default=True, help="Arguments of pytest that choose the tests.")
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@main.command(name="sample")
@click.argument("label")
@_tests
@click.option("--count", default=150, show_default=True, help="The number of mutants.")
@click.option("--seed", default=1, show_default=True, help="The same seed is the same sample.")
@click.option("--part", "parts", multiple=True, type=click.Choice(_PARTS), help="Only this package; may be repeated.")
def choose(label: str, tests: str, count: int, seed: int, parts: Sequence[str]) -> None:
    """Write mutants of lines that the tests execute into .cache/mutants/LABEL.json."""
    lines = cover(shlex.split(tests), label)
    modules = {part: sorted((_PACKAGE / part).rglob("*.py")) for part in parts or _PARTS}
    rows = [{"mutant": asdict(mutant)} for mutant in sample(ROOT, modules, lines, count, seed)]
    _write(label, rows)
    _console.print(f"{len(rows)} mutants")


@main.command(name="run")
@click.argument("label")
@click.argument("mutants", type=_file)
@_tests
@click.option("--killed-in", type=_file, help="The results of a part of these tests: what it kills is not run again.")
@click.option("--timeout", default=120.0, show_default=True, help="Seconds for one test; then it has failed.")
@click.option("-n", "--processes", default=2, show_default=True)
def execute(label: str, mutants: Path, tests: str, killed_in: Path | None, timeout: float, processes: int) -> None:
    """Run the tests on the mutants of a file, write .cache/mutants/LABEL.json, and print a table.

    A survivor is not an error.
    """
    options = shlex.split(tests)
    lines = cover(options, label)
    killed = {Mutant(**row["mutant"]): row for row in (_read(killed_in) if killed_in else []) if _is_killed(row)}

    def one(mutant: Mutant) -> Result:
        if mutant in killed:
            return Result(**{**killed[mutant], "mutant": mutant})
        result = run(mutant, lines.get(mutant.path, {}).get(mutant.line, set()), options, timeout)
        _console.print(f"{result.outcome:9}{result.tests:6} tests  {result.mutant.name}  {result.diff}")
        return result

    with ThreadPoolExecutor(processes) as pool:
        results = list(pool.map(one, [Mutant(**row["mutant"]) for row in _read(mutants)]))
    _write(label, [asdict(result) for result in results])
    _print_table([(result.mutant.part, result.outcome) for result in results], OUTCOMES)


@main.command()
@click.argument("old", type=_file)
@click.argument("new", type=_file)
def compare(old: Path, new: Path) -> None:
    """Print the mutants that the suite of OLD killed and that of NEW does not: exit status 1 if there are any."""
    before, after = ({Mutant(**row["mutant"]): row for row in _read(path)} for path in (old, new))
    lost = [mutant for mutant in before if _is_killed(before[mutant]) and not _is_killed(after.get(mutant, {}))]
    for mutant in lost:
        _console.print(f"lost: {mutant.name}  {before[mutant]['diff']}")
    _console.print(f"{sum(map(_is_killed, before.values()))} killed before, {len(lost)} of them not any more")
    sys.exit(bool(lost))


_ON_SQLITE = '--on sqlite -m "not slow and not nodes and not browser and not housekeeping"'


@main.command(name="slips")
@click.argument("label")
@click.option("--tests", default=_ON_SQLITE, show_default=True, help="Arguments of pytest that choose the tests.")
@click.option("--slips", "file", type=_file, default=slips.FILE, help="The slips; mutants/slips.toml by default.")
@click.option("--only", multiple=True, metavar="ID", help="Only this slip; may be repeated.")
@click.option("--survivors", is_flag=True, help="Only those that no test has killed the last time.")
@click.option("--also", multiple=True, metavar="PATH", help="Tests that are run for each slip, and first; repeatable.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for one test.")
@click.option("--limit", default=900.0, show_default=True, help="Seconds for all tests of one slip.")
@click.option("-n", "--processes", default=2, show_default=True)
def try_slips(
    label: str,
    tests: str,
    file: Path,
    only: Sequence[str],
    survivors: bool,
    also: Sequence[str],
    timeout: float,
    limit: float,
    processes: int,
) -> None:
    """Run the tests on mistakes that were written by hand, write .cache/mutants/LABEL.slips.json, and print a table.

    A survivor is not an error.
    """
    options, kept = shlex.split(tests), CACHE / f"{label}.slips.json"
    trials = {row["id"]: slips.Trial(**row) for row in (_read(kept) if kept.exists() else [])}
    every = slips.read(file)
    seen = {id for id, trial in trials.items() if trial.outcome == "killed"} if survivors else set[str]()
    chosen = [slip for slip in every if slip.id in (only or [slip.id]) and slip.id not in seen]
    lines = cover([*options, "tests"], label)
    limits = {"timeout": timeout, "limit": limit}
    for trial in slips.run_all(chosen, lines, options, also=also, processes=processes, **limits):
        trials[trial.id] = trial
        _console.print(f"{trial.outcome:9}{trial.tests:6} tests {trial.seconds:6} s  {trial.id}  {trial.killer}")
        _write(f"{label}.slips", [asdict(one) for one in trials.values()])
    wrong = slips.unsure([trials[slip.id] for slip in chosen], options, timeout)
    for id, trial in trials.items():
        if trial.killer in wrong:
            trials[id] = replace(trial, outcome="unsure")
            _console.print(f"unsure: {id}: {trial.killer} fails without it, too")
    _write(f"{label}.slips", [asdict(one) for one in trials.values()])
    _print_table([(slip.part, trials[slip.id].outcome) for slip in every if slip.id in trials], slips.OUTCOMES)


def _read(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def _write(label: str, rows: Sequence[dict[str, Any]]) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / f"{label}.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


def _is_killed(row: dict[str, Any]) -> bool:
    return row.get("outcome") == "killed"


def _print_table(results: Sequence[tuple[str, str]], names: Sequence[str]) -> None:
    """Print the number of each outcome, for each part and for all."""
    table = Table("part", "all", *names, box=box.MARKDOWN)
    for part in [*dict.fromkeys(part for part, _ in results), "all"]:
        outcomes = Counter(outcome for own, outcome in results if part in (own, "all"))
        table.add_row(part, *map(str, (outcomes.total(), *(outcomes[name] for name in names))))
    _console.print(table)


if __name__ == "__main__":
    main()
