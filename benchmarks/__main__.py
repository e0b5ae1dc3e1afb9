"""Run the benchmarks, print a table, and write a dated file. The exit status is always 0: this is not a test."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
import time
import traceback
from datetime import datetime, timezone
from pathlib import Path

from benchmarks import pictures, report, stored, tables
from benchmarks.databases import ALL, Bench, opened
from benchmarks.measure import Comparison
from benchmarks.suites import LONG, SUITES, WITHOUT_DATABASE

_PAGE = Path(__file__).parent / "README.md"


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
    parser.add_argument("--results", type=Path, default=stored.RESULTS, help="where to write the file")
    parser.add_argument("--markdown", action="store_true", help="run nothing; print the stored results as a table")
    parser.add_argument(
        "--write", action="store_true", help="run nothing; fill the tables of README.md, and draw the pictures"
    )
    options = parser.parse_args()
    suites = options.suite or [name for name in SUITES if not (options.quick and name in LONG)]
    if options.markdown:
        comparisons = [each.comparison for each in stored.latest(options.results)]
        print(report.markdown([one for one in comparisons if stored.split(one)[0] in suites]))
        return
    if options.write:
        _PAGE.write_text(tables.filled(_PAGE.read_text(encoding="utf-8"), options.results), encoding="utf-8")
        print(*(path for path in (_PAGE, *pictures.draw(options.results))), sep="\n")
        return
    comparisons = []
    with opened(options.url, () if WITHOUT_DATABASE.issuperset(suites) else options.on or ALL) as (databases, missing):
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
        began = datetime.now(timezone.utc)
        for suite in suites:
            comparisons += _run(suite, bench)
            path = report.write(comparisons, about, options.results, began)  # a run of hours may be ended
    report.show(comparisons, about)
    print(f"\nAll samples: {path}")


def _run(suite: str, bench: Bench) -> list[Comparison]:
    """Run *suite*; if it fails, return the comparisons made until then."""
    done: list[Comparison] = []
    began = time.monotonic()
    try:
        module = importlib.import_module(f"benchmarks.{SUITES[suite]}")
        if bench.quick:
            gc.freeze()  # the collection before each sample takes longer than the sample, if it visits all modules
        for comparison in module.run(bench):
            comparison.what = f"{suite}: {comparison.what}"
            done.append(comparison)
            print(f"{comparison.what} {comparison.figure:.3f}", file=sys.stderr, flush=True)
    except Exception:
        bench.missing.append(f"{suite} broke off:\n{traceback.format_exc()}")
    bench.details.setdefault("seconds", {})[suite] = round(time.monotonic() - began, 1)
    return done


main()
