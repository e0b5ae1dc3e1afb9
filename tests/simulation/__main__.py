"""Simulates the write path: every error at every call of all short histories, then random histories.

.. code-block:: sh

    make simulate                                             # ten minutes on two cores
    make simulate ARGS="--only random --random 1000000"       # hours
    make simulate ARGS="--only 'every order and error'"       # hours
    make simulate ARGS="--repeat '{…}'"                       # one history, as a failure has printed it
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import Pool

from simulation.exploring import (
    pair_histories,
    plain_histories,
    random_history,
    shrink,
    with_every_fault,
    with_every_order,
    with_every_order_and_fault,
    with_two_faults,
)
from simulation.histories import History
from simulation.known import RARE
from simulation.running import Result, run
from simulation.storage import FAMILIES


def every_error(name: str) -> Iterator[Result]:
    """All histories of one session, with each error at each call, and two errors in a row."""
    for _, history in plain_histories(name):
        yield from with_every_fault(history)


def two_errors(name: str) -> Iterator[Result]:
    for title, history in plain_histories(name):
        if title in {"one row", "many rows", "insert_once", "savepoint"}:
            yield from with_two_faults(history)


def every_order(name: str) -> Iterator[Result]:
    """All histories of two sessions, in each order of their first calls."""
    for history in pair_histories(name):
        yield from with_every_order(history)


def every_order_and_error(name: str) -> Iterator[Result]:
    """Those, and the orders that make a difference with each error at each of these calls."""
    for history in pair_histories(name):
        yield from with_every_order_and_fault(history)


SUITES: dict[str, Callable[[str], Iterator[Result]]] = {
    "every error": every_error,
    "two errors": two_errors,
    "every order": every_order,
    "every order and error": every_order_and_error,
}
FOR_HOURS = frozenset({"every order and error"})
"""What runs only if it is named."""


def explore(task: tuple[str, str]) -> tuple[str, int, Counter[str], dict[str, str]]:
    """Run one suite on one family of databases."""
    suite, family = task
    return suite, *_count(SUITES[suite](family))


def explore_seeds(seeds: range) -> tuple[str, int, Counter[str], dict[str, str]]:
    """Run random histories."""
    return "random", *_count(run(random_history(seed)) for seed in seeds)


def _count(results: Iterator[Result]) -> tuple[int, Counter[str], dict[str, str]]:
    number, kinds, examples = 0, Counter[str](), dict[str, str]()
    for result in results:
        number += 1
        for kind in result.kinds:
            kinds[kind] += 1
            if kind not in examples and kind not in RARE:
                examples[kind] = shrink(result.history, kind).to_text()
    return number, kinds, examples


def collect_rarely() -> None:
    """Let the garbage of many histories be collected at once: a tenth of the time is saved."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def write(*lines: object) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def main(arguments: list[str] | None = None) -> int:
    """Print what was run and found. Return 1 if there was a defect that is not known."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=100_000, metavar="N", help="random histories")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first random history")
    parser.add_argument("--only", choices=[*SUITES, "random"], help="one part")
    parser.add_argument("--repeat", metavar="HISTORY", help="one history, or the seed of one, with all its calls")
    parser.add_argument("-n", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    options = parser.parse_args(arguments)
    if options.repeat:
        text = options.repeat
        result = run(random_history(int(text)) if text.isdigit() else History.from_text(text))
        write(result.history, result.stage, *result.violations)
        return int(bool(result.kinds - RARE.keys()))
    began = time.monotonic()
    named = [options.only] if options.only else [*SUITES, "random"]
    suites = [suite for suite in SUITES if suite in named and (options.only or suite not in FOR_HOURS)]
    tasks = list(itertools.product(suites, FAMILIES))
    last = options.seed + (options.random if "random" in named else 0)
    seeds = [range(first, min(first + 500, last)) for first in range(options.seed, last, 500)]
    runs, kinds, examples = Counter[str](), Counter[str](), dict[str, str]()
    with Pool(options.n, initializer=collect_rarely) as pool:
        for suite, number, some, found in itertools.chain(
            pool.imap_unordered(explore, tasks), pool.imap_unordered(explore_seeds, seeds)
        ):
            runs[suite] += number
            kinds += some
            examples.update(found)
    for suite, number in runs.items():
        write(f"{number:9} histories: {suite}")
    for kind, number in kinds.most_common():
        write(f"{number:9} {'rare' if kind in RARE else 'NEW':5} {kind}")
    for kind, text in examples.items():
        write(f"\n{kind}\n  make simulate ARGS=\"--repeat '{text}'\"")
    write(f"{time.monotonic() - began:.0f} s, {options.n} processes")
    return int(bool(examples))


if __name__ == "__main__":
    sys.exit(main())
