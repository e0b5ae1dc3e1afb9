r"""The tables of README.md, each between two markers, made of the files of results and of nothing else.

>>> print(filled("<!-- generated: import -->\n<!-- end -->", Path("no such folder")))
<!-- generated: import -->
Not measured yet: `python -m benchmarks --suite import`.
<!-- end -->
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.databases import ALL
from benchmarks.measure import Comparison
from benchmarks.stored import Run, Stored, details, latest, split
from benchmarks.suites import SUITES

__all__ = ["BLOCK", "filled"]

BLOCK = re.compile(r"(?<=<!-- generated: )(?P<name>[\w-]+) -->\n(?P<text>.*?)(?=<!-- end -->)", re.DOTALL)
_SERVERS = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB", "mysql": "MySQL"}


def filled(page: str, folder: Path) -> str:
    """Return *page* with all its tables made anew."""
    stored = latest(folder)

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        others = {"growth-sizes": _sizes(folder), "claims": _claims(stored, folder), "goals": _goals(stored)}
        if name in others:
            lines = others[name]
        elif name in SUITES:
            lines = _suite(name, stored)
        else:
            raise LookupError(f"{name!r} is no suite, and no other table")
        return "\n".join([f"{name} -->", *lines, ""])

    return BLOCK.sub(block, page)


# --- a suite


def _suite(suite: str, stored: list[Stored]) -> Iterator[str]:
    """Make a row of each case and rival, and a column of each database."""
    mine = [each for each in stored if split(each.comparison)[0] == suite]
    if not mine:
        yield f"Not measured yet: `python -m benchmarks --suite {suite}`."
        return
    yield from _conditions(each.run for each in mine)
    yield ""
    found = {split(each.comparison)[2] for each in mine}
    databases = [name for name in ALL if name in found] or [""]
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for each in mine:
        _, case, database = split(each.comparison)
        row = rows.setdefault((case, each.comparison.ours_name, each.comparison.rival_name), {})
        row[database] = _cell(each.comparison)
    yield from _table(
        ["", "ours", "rival", *(_SERVERS.get(name, "ratio") for name in databases)],
        ([*names, *(cells.get(name, "") for name in databases)] for names, cells in rows.items()),
    )


def _cell(each: Comparison) -> str:
    """Return the figure in bold if the rival is ahead of us in three quarters of the rounds."""
    form = "{:+.3g}" if each.difference else "{:.3f}"
    low, high = each.spread
    figure = form.format(each.figure)
    if low > (0 if each.difference else 1):
        figure = f"**{figure}**"
    if low != high:
        figure += f" ({form.format(low)} … {form.format(high)})"
    cell = [figure]
    if each.cpu_figure is not None:
        cell.append(f"CPU {form.format(each.cpu_figure)}")
    cell.append(f"{_number(statistics.median(each.ours))} {each.unit}")
    if each.goal is not None:
        cell.append(f"goal {each.goal:g} {'reached' if each.reached else 'missed'}")
    return "; ".join(cell)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


# --- the goals


def _goals(stored: list[Stored]) -> Iterator[str]:
    """Make a row of each case that has a goal, with the command that measures it."""
    mine = [each for each in stored if each.comparison.goal is not None]
    yield from _conditions(each.run for each in mine)
    yield ""
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for each in mine:
        suite, case, database = split(each.comparison)
        one = each.comparison
        names = one.ours_name if one.rival_name == "allowed" else f"{one.ours_name} / {one.rival_name}"
        row = rows.setdefault((suite, case, names), {})
        figure = f"{one.figure:+.3g}" if one.difference else f"{one.figure:.2f}"
        row[database] = f"{figure if one.reached else f'**{figure}**'} ≤ {one.goal:.3g}"
    columns = ["", *ALL]
    yield from _table(
        ["`--suite`", "case", "ours / rival", "", *(_SERVERS[name] for name in ALL)],
        ([*names, *(cells.get(name, "") for name in columns)] for names, cells in rows.items()),
    )


def _conditions(runs: Iterable[Run]) -> Iterator[str]:
    """Say of each run how, when and where it was made."""
    for run in {run.path: run for run in runs}.values():
        document = run.document
        machine, versions = document["machine"], document["versions"]
        servers = ", ".join(f"{_SERVERS[name]} {version}" for name, version in document["databases"].items())
        day = datetime.fromisoformat(document["date"])
        yield (
            f"* `{' '.join(document['command'])}`, {day.day} {day:%B %Y}: {machine['processors']} × "
            f"{machine['processor']}, load {machine['load_average'][0]:.1f}; Python {versions['python'].split()[0]}, "
            f"SQLAlchemy {versions['SQLAlchemy']}{f'; {servers}' if servers else ''}; `results/{run.path.name}`"
        )


def _table(headings: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    for row in (headings, ["---"] * len(headings), *rows):
        yield f"| {' | '.join(cell.replace('|', '∣') for cell in row)} |"


# --- growth


def _sizes(folder: Path) -> Iterator[str]:
    """Make a row of each kind of key and index: bytes a row, and how full the pages are."""
    grown = details(folder, "growth")
    if not grown:
        yield "Not measured yet: `python -m benchmarks --suite growth`."
        return
    yield from _conditions(run for run, _ in grown.values())
    yield ""
    for database, (_, course) in grown.items():
        settings = ", ".join(f"`{name}` {value}" for name, value in course["settings"].items())
        yield f"* {_SERVERS[database]}: {course['rows']:,} rows of each kind; {settings}"
    yield ""
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for database, (_, course) in grown.items():
        for kind, tables in course["sizes"].items():
            for table, sizes in tables.items():
                for size in sizes:
                    row = cells.setdefault((kind, table, size["of"]), {})
                    row[database] = f"{size['bytes_a_row']:.1f}{_percent(size['fill'], ', {:.0%} full')}"
    yield from _table(
        ["key", "table", "index", *(_SERVERS[name] for name in grown)],
        ([*names, *(row.get(name, "") for name in grown)] for names, row in cells.items()),
    )


def _claims(stored: list[Stored], folder: Path) -> Iterator[str]:
    """Set what two articles say beside what was measured."""
    grown = details(folder, "growth")
    if not grown:
        yield "Not measured yet: `python -m benchmarks --suite growth`."
        return
    ordered, by_key = "BIGINT + NanoId", "BIGINT + NanoId, by its key"

    def fill(kind: str, of: str) -> list[str]:
        return [_percent(_fill(course, kind, of), "{:.0%}") for _, course in grown.values()]

    lookups = {
        split(each.comparison)[2]: each.comparison
        for each in stored
        if each.comparison.rival_name == by_key and each.comparison.ours_name == ordered
    }
    yield from _table(
        ["claim", "of what", *(_SERVERS[name] for name in grown)],
        [
            ["sequential keys: pages 94 % full", f"rows, {ordered}", *fill(ordered, "rows")],
            ["", "index of the key", *fill(ordered, "id")],
            ["random keys: 50 %", "rows, UUIDv4 key", *fill("UUIDv4 key", "rows")],
            ["", "rows, NanoID key", *fill("NanoID key", "rows")],
            ["", "index of the UUIDv4 key", *fill("UUIDv4 key", "id")],
            ["", f"index of `public_id`, {ordered}", *fill(ordered, "public_id")],
            [
                "by public id: 2 × the lookup by key",
                ordered,
                *(_cell(lookups[name]) if name in lookups else "" for name in grown),
            ],
        ],
    )


def _fill(course: Any, kind: str, of: str) -> float | None:
    return next((size["fill"] for size in course["sizes"][kind]["accounts"] if size["of"] == of), None)


def _percent(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
