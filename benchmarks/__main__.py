"""Run the benchmarks, print a table, and write a dated file. The exit status is always 0: this is not a test."""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from pathlib import Path

from benchmarks import report
from benchmarks.databases import ALL, Bench, opened
from benchmarks.measure import Comparison

SUITES = {
    "ids": "ids",
    "formats": "formats",
    "import": "imports",
    "statements": "statements",
    "flush": "flush",
    "rivals": "rivals",
    "async": "asynchronous",
    "bulk": "bulk",
    "lookup": "lookup",
    "joins": "joins",
    "spaces": "spaces",
    "core": "core",
    "storage": "storage",
    "references": "references",
    "blocks": "blocks",
    "cluster": "cluster",
    "growth": "growth",
    "live": "live",
    "live-history": "live_history",
}
"""Suites, and their modules; each is imported when it runs, so that a missing package stops no other."""
_WITHOUT_DATABASE = {"ids", "import"}
_LONG = {"growth", "live", "live-history"}
"""What runs for half an hour, and is left out of ``--quick`` unless it is named."""


def main() -> None:
    """Run the suites that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--suite", action="append", choices=SUITES, help="only this one; may be repeated")
    parser.add_argument(
        "--quick", action="store_true", help="few rows and rounds, to see that it runs: the figures mean little"
    )
    parser.add_argument("--url", action="append", default=[], help="another server than that on the usual port")
    parser.add_argument("--on", action="append", choices=ALL, help="only this database; may be repeated")
    parser.add_argument("--rows", type=int, help="rows in the tables of live, growth, joins and storage")
    parser.add_argument("--size", action="append", type=int, help="objects in a flush of rivals; may be repeated")
    parser.add_argument("--minutes", type=float, default=60, help="the longest time of growth, all databases together")
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="where to write the file")
    parser.add_argument("--markdown", action="store_true", help="run nothing; print the stored results as a table")
    options = parser.parse_args()
    suites = options.suite or [name for name in SUITES if not (options.quick and name in _LONG)]
    if options.markdown:
        latest = sorted(report.stored(options.results), key=lambda one: list(SUITES).index(one.what.split(":")[0]))
        print(report.markdown([one for one in latest if one.what.split(":")[0] in suites]))
        return
    comparisons: list[Comparison] = []
    with opened(options.url, () if _WITHOUT_DATABASE.issuperset(suites) else options.on or ALL) as (databases, missing):
        bench = Bench(
            options.quick,
            databases,
            missing,
            rows=options.rows,
            sizes=tuple(options.size or ()),
            minutes=options.minutes,
            results=options.results,
        )
        about = report.facts(bench)
        for suite in suites:
            comparisons += _run(suite, bench)
    report.show(comparisons, about)
    print(f"\nAll samples: {report.write(comparisons, about, options.results)}")


def _run(suite: str, bench: Bench) -> list[Comparison]:
    """Run *suite*; if it fails, return the comparisons made until then."""
    done: list[Comparison] = []
    try:
        module = importlib.import_module(f"benchmarks.{SUITES[suite]}")
        for comparison in module.run(bench):
            comparison.what = f"{suite}: {comparison.what}"
            done.append(comparison)
            print(f"{comparison.what} {comparison.figure:.3f}", file=sys.stderr, flush=True)
    except Exception:
        bench.missing.append(f"{suite} broke off:\n{traceback.format_exc()}")
    return done


main()
