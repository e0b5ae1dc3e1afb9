"""Run a long history: ``python tests/histories --operations 100000 --on postgresql --seed 7``."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

if str(Path(__file__).parents[1]) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> int:
    """Run the command; return the exit status, 1 if there are findings."""
    from histories.failover import place_with_replica
    from histories.places import SERVERS, place, programs
    from histories.running import run

    parser = argparse.ArgumentParser(prog="histories", description=__doc__)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--on", action="append", choices=["sqlite", *SERVERS], help="may be repeated; all by default")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=4, help="in each process")
    parser.add_argument("--careless", action="store_true", help="use a connection again after a time limit")
    parser.add_argument("--replica", action="store_true", help="PostgreSQL with a replica, which becomes the primary")
    given = parser.parse_args()
    paths, found = programs(), 0
    for database in given.on or ["sqlite", *SERVERS]:
        with_replica = database == "postgresql" and given.replica
        with place_with_replica(paths) if with_replica else place(database, paths) as where:
            report = run(
                where,
                given.seed,
                given.operations,
                processes=given.processes,
                threads=given.threads,
                careless=given.careless,
            )
        sys.stdout.write(f"{report}\n")
        sys.stdout.flush()
        found += len(report.findings)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
