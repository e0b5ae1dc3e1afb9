"""Run the benchmarks, print a table, and write a dated file. The exit status is always 0: this is not a test."""

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
    live_history,
    lookup,
    network,
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
    "network": network.run,
    "storage": storage.run,
    "references": references.run,
    "blocks": blocks.run,
    "cluster": cluster.run,
    "live": live.run,
    "live-history": live_history.run,
}
_WITHOUT_DATABASE = {"ids", "import"}


def main() -> None:
    """Run the suites that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--suite", action="append", choices=SUITES, help="only this one; may be repeated")
    parser.add_argument(
        "--quick", action="store_true", help="few rows and rounds, to see that it runs: the figures mean little"
    )
    parser.add_argument("--url", action="append", default=[], help="another server than that on the usual port")
    parser.add_argument("--on", action="append", choices=ALL, help="only this database; may be repeated")
    parser.add_argument("--rows", type=int, help="rows in the table of the live suites, by default 2 million")
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="where to write the file")
    parser.add_argument("--markdown", action="store_true", help="run nothing; print the stored results as a table")
    options = parser.parse_args()
    suites = options.suite or list(SUITES)
    if options.markdown:
        latest = sorted(report.stored(options.results), key=lambda one: list(SUITES).index(one.what.split(":")[0]))
        print(report.markdown([one for one in latest if one.what.split(":")[0] in suites]))
        return
    comparisons: list[Comparison] = []
    with opened(options.url, () if _WITHOUT_DATABASE.issuperset(suites) else options.on or ALL) as (databases, missing):
        bench = Bench(options.quick, databases, missing, rows=options.rows, results=options.results)
        about = report.facts(bench)
        for suite in suites:
            comparisons += _run(suite, bench)
    report.show(comparisons, about)
    print(f"\nAll samples: {report.write(comparisons, about, options.results)}")


def _run(suite: str, bench: Bench) -> list[Comparison]:
    """Run *suite*; if it fails, return the comparisons made until then."""
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
