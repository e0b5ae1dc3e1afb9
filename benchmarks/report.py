"""The table on the terminal or in the manual, and the dated file with all samples."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import datetime
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import sqlalchemy_public_id
from benchmarks.databases import Bench
from benchmarks.measure import Comparison

__all__ = ["facts", "markdown", "show", "write"]

_HEADINGS = ("what", "ours", "rival", "ratio (quartiles)", "CPU", "goal", "reached")
_PACKAGES = (
    *("sqlalchemy-public-id", "SQLAlchemy", "psycopg", "PyMySQL", "asyncpg", "aiomysql", "asyncmy", "aiosqlite"),
    *("nanoid", "fastnanoid", "uuid_utils", "advanced-alchemy", "typeid-python", "python-ulid", "sqids", "hashids"),
)


def facts(bench: Bench) -> dict[str, Any]:
    """Return the conditions of the figures: the machine, its load, and all versions."""
    return {
        "machine": {
            "processor": _processor(),
            "processors": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "system": platform.platform(),
            "load_average": os.getloadavg(),
        },
        "versions": {
            "python": f"{platform.python_version()} ({platform.python_compiler()})",
            **{name: _version(name) for name in _PACKAGES},
            "commit": _git("describe", "--always", "--dirty"),
        },
        "quick": bench.quick,
        "databases": {name: database.version for name, database in bench.databases.items()},
        "missing": bench.missing,
        "notes": bench.notes,
        "details": bench.details,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def show(comparisons: list[Comparison], about: dict[str, Any]) -> None:
    """Print the table; as Markdown if the output is not a terminal."""
    terminal = sys.stdout.isatty()
    table = Table(box=box.SIMPLE_HEAD if terminal else box.MARKDOWN)
    for heading in _HEADINGS:
        table.add_column(heading, no_wrap=not terminal)
    for _, rows in groupby(comparisons, lambda each: each.what.split(":")[0]):
        for each in rows:
            table.add_row(*map(Text, _cells(each)))
        if terminal:
            table.add_section()
    console = Console(width=None if terminal else 250, highlight=False, markup=False)
    machine, versions = about["machine"], about["versions"]
    servers = ", ".join(f"{name} {version}" for name, version in about["databases"].items())
    console.print(
        f"Python {versions['python'].split()[0]}, SQLAlchemy {versions['SQLAlchemy']}, {machine['processors']} × "
        f"{machine['processor']}, load {machine['load_average'][0]:.1f}; {servers or 'no database'}\n"
    )
    console.print(table)
    for line in [*about["missing"], *about["notes"]]:
        console.print(line)


def write(comparisons: list[Comparison], about: dict[str, Any], folder: Path, now: datetime) -> Path:
    """Write everything into the file that is named by date and time."""
    document = {"date": now.isoformat(timespec="seconds"), "command": ["python", "-m", "benchmarks", *sys.argv[1:]]}
    document |= about
    head = json.dumps(document, indent=1, ensure_ascii=False).removesuffix("\n}")
    rows = ",\n  ".join(json.dumps(_as_json(each), ensure_ascii=False) for each in comparisons)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y-%m-%d-%H%M%S}.json"
    path.write_text(f'{head},\n "comparisons": [\n  {rows}\n ]\n}}\n', encoding="utf-8")
    return path


def markdown(comparisons: list[Comparison]) -> str:
    """Return the table for the manual, ``README.md``."""
    rows = [_HEADINGS, ["---"] * len(_HEADINGS), *map(_cells, comparisons)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(each: Comparison) -> list[str]:
    low, high = each.spread
    form, goal_form = ("{:+.3g}", "≤ {:+g}") if each.difference else ("{:.3f}", "≤ {:g}")
    ratio = form.format(each.figure)
    if low != high:
        ratio += f" ({form.format(low)} … {form.format(high)})"
    sides = (each.ours_name, each.ours), (each.rival_name, each.rival)
    return [
        each.what,
        *(f"{_number(statistics.median(values))} {each.unit}  {name}" for name, values in sides),
        ratio,
        "" if each.cpu_figure is None else form.format(each.cpu_figure),
        "" if each.goal is None else goal_form.format(each.goal),
        {None: "", True: "yes", False: "NO"}[each.reached],
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _as_json(each: Comparison) -> dict[str, Any]:
    document = dataclasses.asdict(each)
    for name in ("ours", "rival", "cpu"):
        document[name] = _rounded(document[name])
    measured = {"figure": each.figure, "spread": each.spread, "cpu_figure": each.cpu_figure, "reached": each.reached}
    return {key: _rounded(value) for key, value in measured.items()} | document


def _rounded(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _git(*arguments: str) -> str | None:
    """Run git in the checkout of the measured library, which need not be the one beside this file."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(sqlalchemy_public_id.__file__).parent, capture_output=True, text=True
        )
    except OSError:
        return None
    return done.stdout.strip() or None
