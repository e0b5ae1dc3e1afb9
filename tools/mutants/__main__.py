"""The command line: ``make mutants``."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from tools.mutants.generated import generate_slips
from tools.mutants.running import CACHE, OUTCOMES, Trial, cover, read_lines, read_slips, run, tests_of

QUICK = '--on sqlite -m "not slow and not nodes and not browser and not housekeeping" tests'
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("files", type=_file, nargs=-1)
@click.option("--only", multiple=True, metavar="ID", help="Only this slip; may be repeated.")
@click.option("--survivors", is_flag=True, help="Only slips that no test killed last time.")
@click.option("--generate", default=0, metavar="NUMBER", help="Make these by rule instead of reading FILES.")
@click.option("--in", "places", multiple=True, metavar="PATH", help="Where they are made, below the package.")
@click.option("--seed", default=1, show_default=True, help="Another seed chooses other places.")
@click.option("--same-lines", is_flag=True, help="Choose the tests by the coverage that was recorded last time.")
@click.option("--tests", default=QUICK, show_default=True, help="Arguments of pytest that choose the tests.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for one test.")
@click.option("--limit", default=900.0, show_default=True, help="Seconds for all tests of one slip.")
@click.option("-n", "--processes", default=2, show_default=True)
def main(
    files: Sequence[Path],
    only: Sequence[str],
    survivors: bool,
    generate: int,
    places: Sequence[str],
    seed: int,
    same_lines: bool,
    tests: str,
    timeout: float,
    limit: float,
    processes: int,
) -> None:
    """Put each slip of FILES into a copy of the library, and run the tests that execute its lines: one has to fail.

    FILES are slips.toml unless others are given. The results are kept in .cache/mutants/trials.json.
    The exit status is 1 if a slip survives although a test killed it last time.
    """
    console, results = Console(soft_wrap=True, highlight=False, markup=False), CACHE / "trials.json"
    last = {row["id"]: Trial(**row) for row in json.loads(results.read_text())} if results.exists() else {}
    killed = {id for id, trial in last.items() if trial.outcome == "killed"}
    if places and not generate:
        raise click.UsageError("--in is for slips that are made: add --generate NUMBER")
    chosen = generate_slips(places or ["."], generate, seed) if generate else read_slips(files)
    slips = [slip for slip in chosen if slip.id in (only or [slip.id]) and not (survivors and slip.id in killed)]
    arguments = shlex.split(tests)
    # a slip that was made belongs to no database
    is_here = bool(generate) or "--on" not in arguments
    slips = [slip for slip in slips if is_here or slip.id in only or slip.on in arguments]
    lines = read_lines() if same_lines else cover(arguments)
    options = [argument for argument in arguments if not Path(argument).exists()]
    # several side by side, those with few tests first
    pairs = sorted(((slip, tests_of(slip, lines)) for slip in slips), key=lambda pair: len(pair[1]))
    trials: list[Trial] = []
    with ThreadPoolExecutor(processes) as pool:
        # a failure of one of many generated slips is not looked at twice
        for trial in pool.map(lambda pair: run(*pair, options, timeout, limit, again=not generate), pairs):
            trials.append(trial)
            console.print(f"{trial.outcome:9}{trial.tests:6} tests {trial.seconds:6} s  {trial.id}  {trial.killer}")
            last[trial.id] = trial
            if not generate:
                results.write_text(json.dumps(list(map(asdict, last.values())), indent=1))

    table = Table("part", "all", *OUTCOMES, box=box.MARKDOWN)
    for part in [*sorted({trial.part for trial in trials}), "all"]:
        outcomes = Counter(trial.outcome for trial in trials if part in (trial.part, "all"))
        table.add_row(part, *map(str, (outcomes.total(), *(outcomes[name] for name in OUTCOMES))))
    console.print(table)
    lost = [trial.id for trial in trials if trial.outcome != "killed" and trial.id in killed]
    console.print(*(f"not killed any more: {id}" for id in lost), sep="\n")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
