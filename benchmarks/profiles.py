"""Where the time of a flush and of a bulk insert goes, now and in an earlier tree of this repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.databases import Bench
from benchmarks.measure import Comparison

__all__ = ["run"]

_ROOT = Path(__file__).parent.parent
_EARLIER = "12b488f"
"""The last commit in which SQLite had an INSERT for each row of a flush, and PostgreSQL no arrays."""


def run(bench: Bench) -> Iterator[Comparison]:
    """Fill ``details`` for the picture, in turn with each tree; compare the time of a row in both."""
    rows, times, rounds = bench.times(5_000, 500), bench.times(10, 2), bench.times(5, 1)
    with tempfile.TemporaryDirectory(prefix="public-id-profiles-") as folder:
        archive = subprocess.run(["git", "archive", _EARLIER, "src"], cwd=_ROOT, capture_output=True, check=True)
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as tree:
            tree.extractall(folder, filter="data")
        trees = {"before": Path(folder, "src"), "now": _ROOT / "src"}
        for database in bench.on("sqlite", "postgresql"):
            url = database.url.render_as_string(hide_password=False)
            taken: dict[str, list[Any]] = {name: [] for name in trees}
            for at in range(rounds):
                for name in sorted(trees, reverse=at % 2 == 1):
                    taken[name].append(_sampled(trees[name], url, rows, times))
            bench.details.setdefault("profiles", {})[database.name] = {
                f"{operation}, {name}": _medians([one[operation] for one in several])
                for name, several in taken.items()
                for operation in several[0]
            }
            for operation in ("flush", "bulk.insert()"):
                now, before = ([sum(one[operation].values()) for one in taken[name]] for name in ("now", "before"))
                yield Comparison(
                    what=f"{operation} of {rows} rows, sampled, {database.name}",
                    ours_name=operation,
                    rival_name=f"the same at {_EARLIER}",
                    unit="µs",
                    ours=now,
                    rival=before,
                )


def _sampled(tree: Path, url: str, rows: int, times: int) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.sampled", url, str(rows), str(times)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), str(_ROOT)])}
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, dict[str, float]] = json.loads(done.stdout)
    return result


def _medians(samples: list[dict[str, float]]) -> dict[str, float]:
    parts = dict.fromkeys(part for sample in samples for part in sample)
    return {part: round(median(sample.get(part, 0.0) for sample in samples), 2) for part in parts}
