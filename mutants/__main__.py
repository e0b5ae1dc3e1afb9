"""The command line: mutants of a sample, a table, and the comparison of two suites."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from mutants.candidates import Mutant, sample
from mutants.running import CACHE, ROOT, Result, cover, run

_PACKAGE = ROOT / "src" / "sqlalchemy_public_id"
_PARTS = ["guard", "events", "references", "lookup", "formats", "online", "backfill", "idempotency", "keys"]
_console = Console(soft_wrap=True, highlight=False, markup=False)


@click.group()
def main() -> None:
    """Change the library in one place, and run the tests that execute the place: one of them has to fail."""


@main.command(name="run")
@click.argument("label")
@click.option("--tests", default="", help="Arguments of pytest that choose the tests: '-m \"not slow\" --on sqlite'.")
@click.option("--sample", "count", default=150, show_default=True, help="The number of mutants.")
@click.option("--seed", default=1, show_default=True, help="The same seed is the same sample.")
@click.option("--part", "parts", multiple=True, type=click.Choice(_PARTS), help="Only this package; may be repeated.")
@click.option("--same-as", type=click.Path(exists=True, path_type=Path), help="The mutants of this file, not a sample.")
@click.option("--timeout", default=300.0, show_default=True, help="Seconds for the tests of one mutant.")
@click.option("-n", "--processes", default=2, show_default=True)
def execute(
    label: str,
    tests: str,
    count: int,
    seed: int,
    parts: Sequence[str],
    same_as: Path | None,
    timeout: float,
    processes: int,
) -> None:
    """Run the sample, write .cache/mutants/LABEL.json, and print a table. A survivor is not an error."""
    options = shlex.split(tests)
    lines = cover(options, label)
    if same_as is not None:
        mutants = [Mutant(**row["mutant"]) for row in _read(same_as)]
    else:
        modules = {part: sorted((_PACKAGE / part).rglob("*.py")) for part in parts or _PARTS}
        mutants = sample(ROOT, modules, lines, count, seed)

    def one(mutant: Mutant) -> Result:
        result = run(mutant, lines.get(mutant.path, {}).get(mutant.line, set()), options, timeout)
        _console.print(f"{result.outcome:9}{result.tests:6} tests  {result.mutant.name}  {result.diff}")
        return result

    with ThreadPoolExecutor(processes) as pool:
        results = list(pool.map(one, mutants))
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / f"{label}.json").write_text(json.dumps([asdict(result) for result in results], indent=1), encoding="utf-8")
    _print_table(results)


@main.command()
@click.argument("old", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("new", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def compare(old: Path, new: Path) -> None:
    """Print the mutants that the suite of OLD killed and that of NEW does not: exit status 1 if there are any."""
    before, after = ({Mutant(**row["mutant"]): row for row in _read(path)} for path in (old, new))
    lost = [mutant for mutant in before if _is_killed(before[mutant]) and not _is_killed(after.get(mutant, {}))]
    for mutant in lost:
        _console.print(f"lost: {mutant.name}  {before[mutant]['diff']}")
    _console.print(f"{sum(map(_is_killed, before.values()))} killed before, {len(lost)} of them not any more")
    sys.exit(bool(lost))


def _read(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def _is_killed(row: dict[str, Any]) -> bool:
    return row.get("outcome") in ("killed", "timeout")


def _print_table(results: Sequence[Result]) -> None:
    table = Table("part", "mutants", "killed", "survived", "broken", box=box.MARKDOWN)
    for part in [*dict.fromkeys(result.mutant.part for result in results), "all"]:
        outcomes = Counter(result.outcome for result in results if part in (result.mutant.part, "all"))
        killed = outcomes["killed"] + outcomes["timeout"]
        table.add_row(part, str(outcomes.total()), str(killed), str(outcomes["survived"]), str(outcomes["broken"]))
    _console.print(table)


if __name__ == "__main__":
    main()
