"""Run the benchmarks, print a table, and write a dated file. The exit status is 0 always: this is not a test."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import (
    blocks,
    bulk,
    cluster,
    core,
    flush,
    ids,
    imports,
    live,
    lookup,
    references,
    report,
    statements,
    storage,
)
from benchmarks.databases import ALL, Bench, opened
from benchmarks.measure import Comparison

SUITES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {
    "ids": ids.run,
    "import": imports.run,
    "statements": statements.run,
    "flush": flush.run,
    "bulk": bulk.run,
    "lookup": lookup.run,
    "core": core.run,
    "storage": storage.run,
    "references": references.run,
    "blocks": blocks.run,
    "cluster": cluster.run,
    "live": live.run,
}
_WITHOUT_DATABASE = {"ids", "import"}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--suite", action="append", choices=SUITES, help="only this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few rows and rounds: does it run? The figures say little")
    parser.add_argument("--url", action="append", default=[], help="another server than that on the usual port")
    parser.add_argument("--on", action="append", choices=ALL, help="only this database; may be repeated")
    parser.add_argument("--rows", type=int, help="how many rows the table of the suite live has: 2 million")
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="where to write the file")
    options = parser.parse_args()
    suites = options.suite or list(SUITES)
    comparisons: list[Comparison] = []
    with opened(options.url, () if _WITHOUT_DATABASE.issuperset(suites) else options.on or ALL) as (databases, missing):
        bench = Bench(options.quick, databases, missing, rows=options.rows, results=options.results)
        about = report.facts(bench)
        for suite in suites:
            comparisons += _run(suite, bench)
    report.show(comparisons, about)
    print(f"\nAll samples: {report.write(comparisons, about, options.results)}")


def _run(suite: str, bench: Bench) -> list[Comparison]:
    """The comparisons of *suite*, up to where it fails, if it does."""
    done: list[Comparison] = []
    try:
        for comparison in SUITES[suite](bench):
            comparison.what = f"{suite}: {comparison.what}"
            done.append(comparison)
            print(f"{comparison.what} {comparison.figure:.3f}", file=sys.stderr, flush=True)
    except Exception:
        bench.missing.append(f"{suite} broke off:\n{traceback.format_exc()}")
    return done


main()
