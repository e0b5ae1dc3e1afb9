"""Pictures of the stored results. Each carries a digest of what it shows, so that a test sees whether it is up to date.

>>> digest({"postgresql": [1.0]}) == digest({"postgresql": [1.5]})
False
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from benchmarks.stored import details, latest, live_courses, split

__all__ = ["PICTURES", "digest", "draw"]

_COLOURS = {
    "BIGINT + NanoId": "#0072b2",
    "BIGINT + Uuid4, native": "#56b4e9",
    "BIGINT + Uuid7, native": "#009e73",
    "UUIDv4 key": "#d55e00",
    "UUIDv7 key": "#e69f00",
    "NanoID key": "#cc79a7",
}
_SIZE = "flush of 1,000"


def _growth(folder: Path) -> dict[str, Any]:
    """Return, by database, the rows of a turn, and the seconds of each turn."""
    return {
        database: {"step": course["step"], "seconds": course["seconds"]}
        for database, (_, course) in details(folder, "growth").items()
    }


def _rivals(folder: Path) -> dict[str, Any]:
    """Return, by database and rival, the quartiles of our time divided by the rival's."""
    found: dict[str, dict[str, list[float]]] = {}
    for each in latest(folder):
        suite, case, database = split(each.comparison)
        if suite == "rivals" and case == _SIZE and len(each.comparison.figures) > 1:
            cut = quantiles(each.comparison.figures, n=4, method="inclusive")
            found.setdefault(database, {})[each.comparison.rival_name] = [round(value, 4) for value in cut]
    return found


def _draw_growth(data: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(4.6 * len(data), 4.6), layout="constrained")
    panels = figure.subplots(1, len(data), squeeze=False)[0]
    for axes, (database, course) in zip(panels, data.items(), strict=True):
        axes.set(title=database, xlabel="rows in the table")
        axes.grid(alpha=0.3)
        for kind, seconds in course["seconds"].items():
            step = course["step"]
            # the median of five turns hides a checkpoint, and keeps the course
            speeds = [step / median(seconds[max(at - 2, 0) : at + 3]) for at in range(len(seconds))]
            places = [step * (at + 1) for at in range(len(seconds))]
            axes.plot(places, speeds, color=_COLOURS[kind], label=kind, linewidth=1.2)
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel("accounts a second, each with an entry")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels) // 2, frameon=False)
    figure.suptitle("Rows a second while tables grow, by kind of key")
    return figure


def _draw_rivals(data: dict[str, Any]) -> Figure:
    names = list(dict.fromkeys(name for found in data.values() for name in found))
    figure = Figure(figsize=(3.4 * len(data) + 2, 0.32 * len(names) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(data), sharey=True, squeeze=False)[0]
    for axes, (database, found) in zip(panels, data.items(), strict=True):
        axes.set(title=database, xlabel="our time ÷ the rival's")
        axes.axvline(1, color="#999999", linewidth=0.8)
        axes.grid(axis="x", alpha=0.3)
        for place, name in enumerate(names):
            if name in found:
                low, middle, high = found[name]
                colour = "#d55e00" if low > 1 else "#0072b2"
                axes.plot([low, high], [place, place], color=colour, linewidth=2)
                axes.plot([middle], [place], "o", color=colour, markersize=4)
        axes.set_xlim(left=0)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    figure.suptitle("A flush of 1,000 objects: medians and quartiles; left of 1 ours is faster")
    return figure


_LIVE = {"before": "#999999", "op.add_public_id()": "#0072b2", "the naive way": "#d55e00"}


def _live(folder: Path) -> dict[str, Any]:
    """Return, by server, the longest latency of a statement in ms, and the failed statements, of each way."""
    courses = live_courses(folder)
    return {
        server: {
            "before": [ways["op.add_public_id()"]["before"]["longest_latency_ms"], 0],
            **{
                way: [ways[way]["meanwhile"]["longest_latency_ms"], sum(ways[way]["meanwhile"]["failed"].values())]
                for way in ("op.add_public_id()", "the naive way")
            },
        }
        for server, ways in courses.items()
    }


def _draw_live(data: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(9, 1.1 * len(data) + 1.4), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    for number, ways in enumerate(data.values()):
        for place, (way, (latency, failed)) in enumerate(ways.items()):
            y = number + 0.27 * (place - 1)
            axes.barh(y, latency, color=_LIVE[way], height=0.25, label=way if number == 0 else None)
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


PICTURES: dict[str, tuple[Callable[[Path], dict[str, Any]], Callable[[dict[str, Any]], Figure]]] = {
    "growth.svg": (_growth, _draw_growth),
    "live.svg": (_live, _draw_live),
    "rivals.svg": (_rivals, _draw_rivals),
}
"""The files, what they show, and how."""


def draw(folder: Path) -> list[Path]:
    """Draw all pictures for which there are results."""
    drawn = []
    for name, (read, picture) in PICTURES.items():
        if data := read(folder):
            path = folder / name
            with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
                picture(data).savefig(path, metadata={"Date": None, "Description": digest(data)})
            drawn.append(path)
    return drawn


def digest(data: dict[str, Any]) -> str:
    """Return what tells *data* from all other data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
