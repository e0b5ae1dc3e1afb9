r"""The files of results, one per suite and run, and the tables of README.md, which are generated from these files.

>>> print(filled("<!-- generated: import -->\n<!-- end -->", Path("no such folder")))
<!-- generated: import -->
Not measured yet: `python -m tools.benchmarks --suite import`.
<!-- end -->
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import sqlalchemy_public_id
from tools.benchmarks.databases import ALL, Bench
from tools.benchmarks.measure import Comparison

__all__ = ["BLOCK", "RESULTS", "SUITES", "Run", "filled", "in_rows", "runs_of", "split", "table", "write"]

RESULTS = Path(__file__).parent / "results"
SUITES = {
    "flush": "flush",
    "bulk": "bulk",
    "lookup": "lookup",
    "references": "references",
    "lists": "lists",
    "ids": "ids",
    "import": "imports",
    "growth": "growth",
    "instructions": "instructions",
    "live": "live",
    "network": "network",
}
"""The suites, in the order in which they run, and their modules. Each has ``run(bench)``."""
BLOCK = re.compile(r"(?<=<!-- generated: )(?P<name>[\w-]+) -->\n(?P<text>.*?)(?=<!-- end -->)", re.DOTALL)
_SERVERS = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB", "mysql": "MySQL"}
_PACKAGES = "sqlalchemy-public-id", "SQLAlchemy", "psycopg", "PyMySQL", "nanoid", "fastnanoid", "uuid_utils"


@dataclass(frozen=True)
class Run:
    """A file of results."""

    path: Path
    document: dict[str, Any]

    @property
    def comparisons(self) -> list[Comparison]:
        return [Comparison(**values) for values in self.document["comparisons"]]

    @property
    def conditions(self) -> str:
        """How, when and where the run was made."""
        machine, versions = self.document["machine"], self.document["versions"]
        servers = "".join(f", {_SERVERS[name]} {version}" for name, version in self.document["databases"].items())
        day = datetime.fromisoformat(self.document["date"])
        return (
            f"{day.day} {day:%B %Y}: {machine['processors']} × {machine['processor']}, load "
            f"{machine['load_average'][0]:.1f}; Python {versions['python'].split()[0]}, SQLAlchemy "
            f"{versions['SQLAlchemy']}{servers}; [`{self.path.name}`](results/{self.path.name})"
        )


def runs_of(suite: str, folder: Path = RESULTS) -> list[Run]:
    """Return the run of a suite, or its runs, one for each database."""
    paths = [path for path in sorted(folder.glob(f"{suite}*.json")) if re.fullmatch(rf"{suite}(-\w+)?", path.stem)]
    return [Run(path, json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def name_of(comparison: Comparison) -> tuple[str, str, str]:
    """Return what identifies a comparison in several runs."""
    return comparison.what, comparison.ours_name, comparison.rival_name


def figures_of(suite: str, folder: Path = RESULTS) -> dict[tuple[str, str, str], float]:
    """Return the figures of the stored runs of a suite, which a new run is compared with."""
    return {name_of(each): each.figure for run in runs_of(suite, folder) for each in run.comparisons}


def write(suite: str, comparisons: Sequence[Comparison], bench: Bench, folder: Path) -> Path:
    """Write the results into the file of the suite; if they are from a single server, into a file for that server."""
    document = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
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
            "commit": _commit(),
        },
        "databases": {name: database.version for name, database in bench.databases.items()},
        "details": bench.details,
    }
    head = json.dumps(document, indent=1, ensure_ascii=False).removesuffix("\n}")
    rows = ",\n  ".join(json.dumps(_rounded(dataclasses.asdict(each)), ensure_ascii=False) for each in comparisons)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{'-'.join([suite, *(bench.databases if len(bench.databases) == 1 else [])])}.json"
    path.write_text(f'{head},\n "comparisons": [\n  {rows}\n ]\n}}\n', encoding="utf-8")
    return path


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str | None:
    """Return the commit of the measured library, which need not be the one beside this file."""
    folder = Path(sqlalchemy_public_id.__file__).parent
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None


# --- tables


def filled(page: str, folder: Path = RESULTS) -> str:
    """Return *page* with all its tables generated again."""

    def block(match: re.Match[str]) -> str:
        if (suite := match["name"]) not in SUITES:
            raise LookupError(f"{suite!r} is no suite")
        runs = runs_of(suite, folder)
        lines = [run.conditions for run in runs] or [f"Not measured yet: `python -m tools.benchmarks --suite {suite}`."]
        lines = [line if len(lines) == 1 else f"* {line}" for line in lines]
        if runs:
            lines += ["", *table([each for run in runs for each in run.comparisons])]
        return "\n".join([f"{suite} -->", *lines, ""])

    return BLOCK.sub(block, page)


def split(what: str) -> tuple[str, str]:
    """Return case and database of a comparison; the database is empty if there is none."""
    case, _, database = what.rpartition(", ")
    return (case, database) if database in ALL else (what, "")


def in_rows(comparisons: Iterable[Comparison]) -> dict[tuple[str, str, str], dict[str, Comparison]]:
    """Return case, ours and rival → database → comparison."""
    rows: dict[tuple[str, str, str], dict[str, Comparison]] = {}
    for each in comparisons:
        case, database = split(each.what)
        rows.setdefault((case, each.ours_name, each.rival_name), {})[database] = each
    return rows


def table(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield a Markdown table with a row for each case and rival, and a column for each database."""
    rows = in_rows(comparisons)
    databases = [name for name in ("", *ALL) if any(name in row for row in rows.values())]
    heads = ["", "ours / rival", *(_SERVERS.get(name, "ratio") for name in databases)]
    cells = [
        [case, f"{ours} / {rival}", *(_cell(row[name]) if name in row else "" for name in databases)]
        for (case, ours, rival), row in rows.items()
    ]
    for line in (heads, ["---"] * len(heads), *cells):
        yield f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |"


def _cell(each: Comparison) -> str:
    """Return the figure in bold if the rival is ahead of us in three quarters of the rounds."""
    form = "{:+.3g}" if each.difference else "{:.2f}"
    low, high = each.spread
    figure = form.format(each.figure)
    if low > (0 if each.difference else 1):
        figure = f"**{figure}**"
    if low != high:
        figure += f" ({form.format(low)} … {form.format(high)})"
    median = statistics.median(each.ours)
    cell = f"{figure}; {f'{median:,.0f}' if median >= 1000 else f'{median:.3g}'} {each.unit}"
    return cell if each.reached is None else f"{cell}; {'≤' if each.reached else 'not ≤'} {each.goal:.3g}"
