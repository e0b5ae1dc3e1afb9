"""Pictures of the stored results. Each contains a digest of its data, so that a test sees whether it is up to date.

>>> digest({"postgresql": [1.0]}) == digest({"postgresql": [1.5]})
False
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from tools.benchmarks.databases import ALL
from tools.benchmarks.live import OURS, THEIRS
from tools.benchmarks.report import RESULTS, in_rows, runs_of

__all__ = ["PICTURES", "digest", "draw"]

_FASTER, _SLOWER, _GREY = "#0072b2", "#d55e00", "#999999"
Data = dict[str, Any]


def _ratios(suites: Sequence[str], folder: Path) -> Data:
    """Return, by database and case, the quartiles of our time divided by the rival's."""
    found: Data = {}
    for suite in suites:
        for (case, ours, rival), row in in_rows(
            each for run in runs_of(suite, folder) for each in run.comparisons
        ).items():
            for database, one in row.items():
                if not one.difference:
                    name = f"{case}: {ours}" if suite == "network" else f"{ours} / {rival}"
                    name += ", one object" * (case == "one object")
                    cut = [round(value, 4) for value in (one.spread[0], one.figure, one.spread[1])]
                    found.setdefault(database, {})[name] = cut
    return {database: found[database] for database in ALL if database in found}


def _draw_ratios(title: str, data: Data) -> Figure:
    names = list(dict.fromkeys(name for found in data.values() for name in found))
    figure = Figure(figsize=(2.6 * len(data) + 4, 0.32 * len(names) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(data), sharey=True, squeeze=False)[0]
    for axes, (database, found) in zip(panels, data.items(), strict=True):
        axes.set(title=database, xlabel="our time ÷ the rival's")
        axes.axvline(1, color=_GREY, linewidth=0.8)
        axes.grid(axis="x", alpha=0.3)
        for place, name in enumerate(names):
            if name in found:
                low, middle, high = found[name]
                colour = _SLOWER if low > 1 else _FASTER
                axes.plot([low, high], [place, place], color=colour, linewidth=2)
                axes.plot([middle], [place], "o", color=colour, markersize=4)
        axes.set_xlim(left=0)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    figure.suptitle(title)
    return figure


def _live(folder: Path) -> Data:
    """Return, by server, the longest latency of a statement in ms, and the failed statements, of each way."""
    found: Data = {}
    for run in runs_of("live", folder):
        for name, course in run.document["details"].items():
            server, _, way = name.partition(": ")
            for part, key in (("before", "before"), ("meanwhile", way)):
                if part == "meanwhile" or way == OURS:
                    longest, failed = course[part]["longest_latency_ms"], sum(course[part]["failed"].values())
                    found.setdefault(server, {})[key] = [longest, failed]
    return {server: found[server] for server in ALL if server in found}


def _draw_live(data: Data) -> Figure:
    figure = Figure(figsize=(9, 1.1 * len(data) + 1.4), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    colours = {"before": _GREY, OURS: _FASTER, THEIRS: _SLOWER}
    for number, ways in enumerate(data.values()):
        for place, (way, (latency, failed)) in enumerate(ways.items()):
            y = number + 0.27 * (place - 1)
            axes.barh(y, latency, color=colours[way], height=0.25, label=way if number == 0 else None)
            text = f" {latency / 1000:,.2g} s" if latency >= 1000 else f" {latency:,.0f} ms"
            axes.text(latency, y, f"{text}, {failed:,} failed" if failed else text, va="center", fontsize=9)
    axes.set_yticks(range(len(data)), list(data))
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("the longest that a statement of the application waited, ms")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("A table of two million rows in use gains public ids")
    return figure


PICTURES: dict[str, tuple[Callable[[Path], Data], Callable[[Data], Figure]]] = {
    "live.svg": (_live, _draw_live),
    "ratios.svg": (
        partial(_ratios, ["flush", "bulk", "lookup"]),
        partial(_draw_ratios, "On loopback: medians and quartiles; left of 1 the library is faster"),
    ),
    "network.svg": (
        partial(_ratios, ["network"]),
        partial(_draw_ratios, "A millisecond away: medians and quartiles; left of 1 the library is faster"),
    ),
}
"""The files, the functions that collect their data, and the functions that draw them."""


def draw(folder: Path = RESULTS) -> list[Path]:
    """Draw all pictures for which there are results."""
    drawn = []
    for name, (read, picture) in PICTURES.items():
        if data := read(folder):
            drawn.append(folder / name)
            with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
                picture(data).savefig(drawn[-1], metadata={"Date": None, "Description": digest(data)})
    return drawn


def digest(data: Data) -> str:
    """Return a digest of *data*."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
