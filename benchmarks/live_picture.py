"""The picture: the latency of each statement of the load during the migration, ours above the naive way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.live_load import Sample

__all__ = ["Course", "draw"]

_COLOURS = {"insert": "#0072b2", "update": "#e69f00", "delete": "#009e73", "select": "#999999"}
_SHADES = "#eef3f8", "#dce7f1"


@dataclass
class Course:
    """The course of one migration."""

    title: str
    samples: Sequence[Sample]
    began: float
    ended: float
    marks: Sequence[tuple[float, str]]
    """Start and name of each step."""


def draw(courses: Sequence[Course], title: str, limit: float, path: Path) -> None:
    """Write the picture of *courses*, one above the other, into *path*; *limit* is the lock timeout in seconds."""
    figure = Figure(figsize=(11, 3.6 * len(courses)), layout="constrained")
    panels = figure.subplots(len(courses), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, course in zip(panels, courses, strict=True):
        _panel(axes, course, limit)
    panels[-1].set_xlabel("seconds since the migration began")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, markerscale=4)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _panel(axes: Axes, course: Course, limit: float) -> None:
    axes.set_yscale("log")
    axes.set_ylabel("latency, ms")
    axes.grid(axis="y", alpha=0.3)
    _steps(axes, course)
    for kind, colour in _COLOURS.items():
        points = [(s.due - course.began, max(s.latency * 1e3, 0.05)) for s in course.samples if s.kind == kind]
        axes.plot(*_columns(points), "o", color=colour, label=kind, markersize=1.6, markeredgewidth=0)
    failed = [(s.due - course.began, max(s.latency * 1e3, 0.05)) for s in course.samples if s.error]
    axes.plot(*_columns(failed), "x", color="#d00000", markersize=3, label="failed")
    axes.axhline(limit * 1e3, color="#d00000", linewidth=0.8, linestyle="--", label="lock_timeout")
    axes.set_title(f"{course.title}: {len(failed):,} failed", loc="left", fontsize=10)


def _steps(axes: Axes, course: Course) -> None:
    """Shade the steps, and name those that are wide enough."""
    ends = [at for at, _ in course.marks[1:]] + [course.ended]
    whole = max(sample.ended for sample in course.samples) - min(sample.due for sample in course.samples)
    for number, ((at, name), end) in enumerate(zip(course.marks, ends, strict=True)):
        first, last = at - course.began, end - course.began
        axes.axvspan(first, last, color=_SHADES[number % 2], zorder=0, linewidth=0)
        if last - first > whole * 0.06:
            place: dict[str, Any] = {
                "transform": axes.get_xaxis_transform(),
                "fontsize": 8,
                "va": "bottom",
                "ha": "center",
            }
            axes.text((first + last) / 2, 0.02, name.replace(" ", "\n", 1), **place)


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
