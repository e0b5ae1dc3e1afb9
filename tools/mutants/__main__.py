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

from tools.mutants.running import CACHE, OUTCOMES, Trial, cover, read_slips, run, tests_of

QUICK = '--on sqlite -m "not slow and not nodes and not browser and not housekeeping" tests'
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("files", type=_file, nargs=-1)
@click.option("--only", multiple=True, metavar="ID", help="Only this slip; may be repeated.")
@click.option("--survivors", is_flag=True, help="Only slips that no test killed last time.")
@click.option("--tests", default=QUICK, show_default=True, help="Arguments of pytest that choose the tests.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for one test.")
@click.option("--limit", default=900.0, show_default=True, help="Seconds for all tests of one slip.")
@click.option("-n", "--processes", default=2, show_default=True)
def main(
    files: Sequence[Path],
    only: Sequence[str],
    survivors: bool,
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
    slips = [
        slip for slip in read_slips(files) if slip.id in (only or [slip.id]) and not (survivors and slip.id in killed)
    ]
    arguments = shlex.split(tests)
    slips = [slip for slip in slips if slip.id in only or slip.on in arguments or "--on" not in arguments]
    lines = cover(arguments)
    options = [argument for argument in arguments if not Path(argument).exists()]
    # several side by side, those with few tests first
    pairs = sorted(((slip, tests_of(slip, lines)) for slip in slips), key=lambda pair: len(pair[1]))
    trials: list[Trial] = []
    with ThreadPoolExecutor(processes) as pool:
        for trial in pool.map(lambda pair: run(*pair, options, timeout, limit), pairs):
            trials.append(trial)
            console.print(f"{trial.outcome:9}{trial.tests:6} tests {trial.seconds:6} s  {trial.id}  {trial.killer}")
            last[trial.id] = trial
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
