"""The command line: trials of slips and of a sample, a table, and the comparison of two suites."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from tools.mutants import candidates
from tools.mutants.candidates import Mutant
from tools.mutants.running import CACHE, OUTCOMES, Trial, cover, run, tests_of

_console = Console(soft_wrap=True, highlight=False, markup=False)
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
@click.option(
    "--tests",
    default='--on sqlite -m "not slow and not nodes and not browser and not housekeeping" tests',
    show_default=True,
    help="Arguments of pytest that choose the tests.",
)
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for one test.")
@click.option("--limit", default=900.0, show_default=True, help="Seconds for all tests of one mutant.")
@click.option("-n", "--processes", default=2, show_default=True)
def main(**options: object) -> None:
    """Change the library in one place, and run the tests that execute the place: one of them has to fail.

    The results of LABEL are in .cache/mutants/LABEL.json. A survivor is not an error.
    """


@main.command()
@click.argument("label")
@click.option("--only", multiple=True, metavar="ID", help="Only this slip; may be repeated.")
@click.option("--survivors", is_flag=True, help="Only those that no test has killed the last time.")
def slips(label: str, only: Sequence[str], survivors: bool) -> None:
    """Try mistakes that were written by hand, those of slips.toml."""
    killed = {trial.id for trial in _read(CACHE / f"{label}.json") if trial.outcome == "killed"} if survivors else ()
    _try(label, [each for each in candidates.slips() if each.id in (only or [each.id]) and each.id not in killed])


@main.command()
@click.argument("label")
@click.option("--count", default=150, show_default=True, help="The number of mutants.")
@click.option("--seed", default=1, show_default=True, help="The same seed and tests are the same sample.")
@click.option("--part", "parts", multiple=True, help="Only this package or module; may be repeated.")
@click.option("--like", type=_file, help="The mutants of these results, such as those before tests were removed.")
def sample(label: str, count: int, seed: int, parts: Sequence[str], like: Path | None) -> None:
    """Try a sample of what Cosmic Ray can change in lines that the tests execute."""
    if like:
        _try(label, [candidates.mutant(trial.id) for trial in _read(like)])
    else:
        _try(label, candidates.sample(cover(_options()["tests"], label), count, seed, parts))


@main.command()
@click.argument("old", type=_file)
@click.argument("new", type=_file)
def compare(old: Path, new: Path) -> None:
    """Print the mutants that the suite of OLD killed and that of NEW does not: exit status 1 if there are any."""
    before, after = ({trial.id for trial in _read(path) if trial.outcome == "killed"} for path in (old, new))
    _console.print(*(f"lost: {id}" for id in sorted(before - after)), sep="\n")
    _console.print(f"{len(before)} killed before, {len(before - after)} of them not any more")
    sys.exit(bool(before - after))


def _options() -> dict[str, Any]:
    root = click.get_current_context().find_root().params
    return {**root, "tests": shlex.split(root["tests"])}


def _try(label: str, mutants: Iterable[Mutant]) -> None:
    """Run the tests, several mutants side by side, those with few tests first."""
    options = _options()
    lines = cover(options["tests"], label)
    selected = [option for option in options["tests"] if not Path(option).exists()]
    pairs = sorted(((each, tests_of(each, lines)) for each in mutants), key=lambda pair: len(pair[1]))
    trials = {trial.id: trial for trial in _read(CACHE / f"{label}.json")}
    with ThreadPoolExecutor(options["processes"]) as pool:
        done = pool.map(lambda pair: run(*pair, selected, options["timeout"], options["limit"]), pairs)
        for trial in done:
            trials[trial.id] = trial
            _console.print(f"{trial.outcome:9}{trial.tests:6} tests {trial.seconds:6} s  {trial.id}  {trial.killer}")
            (CACHE / f"{label}.json").write_text(json.dumps(list(map(asdict, trials.values())), indent=1))
    table = Table("part", "all", *OUTCOMES, box=box.MARKDOWN)
    for part in [*sorted({trial.part for trial in trials.values()}), "all"]:
        outcomes = Counter(trial.outcome for trial in trials.values() if part in (trial.part, "all"))
        table.add_row(part, *map(str, (outcomes.total(), *(outcomes[name] for name in OUTCOMES))))
    _console.print(table)


def _read(path: Path) -> list[Trial]:
    return [Trial(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


if __name__ == "__main__":
    main()
