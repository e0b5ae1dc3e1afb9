"""The files of results: one a run, with every sample."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.databases import ALL
from benchmarks.measure import Comparison
from benchmarks.suites import BY_CASE, SUITES

__all__ = ["RESULTS", "Run", "Stored", "details", "latest", "split"]

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Run:
    """A file of results."""

    path: Path
    document: dict[str, Any]


@dataclass(frozen=True)
class Stored:
    """A comparison, and the run that made it."""

    comparison: Comparison
    run: Run


def latest(folder: Path) -> list[Stored]:
    """Return the comparisons of the latest run of each suite on each database. Quick runs do not count."""
    found: dict[tuple[str, ...], list[Stored]] = {}
    for run in _runs(folder):
        of_run: dict[tuple[str, ...], list[Stored]] = {}
        for values in run.document["comparisons"]:
            names = {field.name for field in dataclasses.fields(Comparison)}
            comparison = Comparison(**{name: value for name, value in values.items() if name in names})
            of_run.setdefault(_key(comparison), []).append(Stored(comparison, run))
        found |= of_run
    order = list(SUITES)
    return sorted(
        (each for several in found.values() for each in several),
        key=lambda each: order.index(split(each.comparison)[0]),
    )


def details(folder: Path, name: str) -> dict[str, tuple[Run, Any]]:
    """Return the latest details called *name*, by database."""
    found: dict[str, tuple[Run, Any]] = {}
    for run in _runs(folder):
        found |= {database: (run, value) for database, value in run.document.get("details", {}).get(name, {}).items()}
    return {database: found[database] for database in ALL if database in found}


def live_courses(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the latest courses of the suite ``live``: server → way → what was measured."""
    found: dict[str, dict[str, Any]] = {}
    for run in _runs(folder):
        if run.document["command"][-2:-1] == ["--on"] and "live" in run.document["command"]:
            for name, course in run.document.get("details", {}).items():
                server, _, way = name.partition(": ")
                if isinstance(course, dict) and "meanwhile" in course:
                    found.setdefault(server, {})[way] = course
    return {server: found[server] for server in ALL if server in found}


def split(comparison: Comparison) -> tuple[str, str, str]:
    """Return suite, case and database of a comparison; the database is empty if there is none."""
    suite, _, rest = comparison.what.partition(": ")
    case, _, database = rest.rpartition(", ")
    if database in ALL:
        return suite, case, database
    return suite, rest, ""


def _key(comparison: Comparison) -> tuple[str, ...]:
    suite, case, database = split(comparison)
    return (suite, case, database) if suite in BY_CASE else (suite, database)


def _runs(folder: Path) -> list[Run]:
    runs = [Run(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]
    return [run for run in runs if not run.document.get("quick")]
