"""Run the benchmarks, print their tables, and write a file for each. The exit status is 1 if a suite failed."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
import traceback
from pathlib import Path

from tools.benchmarks import report
from tools.benchmarks.databases import ALL, Bench, opened
from tools.benchmarks.measure import Comparison, Unavailable

_PAGE = Path(__file__).with_name("README.md")
_LONG = {"live"}
"""Suites that take minutes even with few rows: ``--quick`` skips them unless they are named."""


def main() -> int:
    """Run the suites that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks", description=__doc__)
    parser.add_argument("--suite", action="append", choices=report.SUITES, help="only this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it runs: nothing is written")
    parser.add_argument("--url", action="append", default=[], help="another server than that on the usual port")
    parser.add_argument("--on", action="append", choices=ALL, help="only this database; may be repeated")
    parser.add_argument("--rows", type=int, help="rows in the table of live")
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="the folder for the files")
    parser.add_argument("--write", action="store_true", help="run nothing; write README.md and the pictures anew")
    options = parser.parse_args()
    if options.write:
        from tools.benchmarks import pictures

        _PAGE.write_text(report.filled(_PAGE.read_text(encoding="utf-8"), options.results), encoding="utf-8")
        print(*(_PAGE, *pictures.draw(options.results)), sep="\n")
        return 0
    suites = options.suite or [name for name in report.SUITES if not (options.quick and name in _LONG)]
    broken = False
    with opened(options.url, options.on or ALL) as (databases, missing):
        print(*missing, sep="\n", file=sys.stderr)
        for suite in suites:
            bench, done = Bench(options.quick, databases, options.rows), list[Comparison]()
            before = report.figures_of(suite, options.results)
            if options.quick:
                gc.freeze()  # a collection that visits all modules would take longer than a sample
            try:
                for one in importlib.import_module(f"tools.benchmarks.{report.SUITES[suite]}").run(bench):
                    done.append(one)
                    was = before.get(report.name_of(one))
                    change = "" if was is None else f", was {was:.3f}"
                    print(f"{suite}: {one.what} {one.figure:.3f}{change}", file=sys.stderr, flush=True)
            except Unavailable as reason:
                print(f"{suite} left out: {reason}", file=sys.stderr)
                broken = broken or suite in (options.suite or ())
            except Exception:
                broken = True
                traceback.print_exc()
            print(f"\n{suite}\n", *report.table(done), sep="\n")
            if done and not options.quick:
                print(report.write(suite, done, bench, options.results))
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
