"""The picture of ``public-id budget --plot``: the chance of a collision against the number of ids."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from sqlalchemy_public_id.errors import MissingExtra
from sqlalchemy_public_id.formats import Format

__all__ = ["draw"]

_HOURS_PER_YEAR = 24 * 365.25
_POINTS = 200
_MARKED = 0.01


def draw(path: Path, format: Format, per_hour: float) -> None:
    """Draw the chance of a collision of *format* into *path*, a PNG or an SVG by its suffix.

    :raises MissingExtra: where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise MissingExtra("matplotlib", extra="plot") from None
    space = format.budget()
    marked = max(space.ids_at(_MARKED), 2)
    first, last = math.log10(max(space.ids_at(1e-6), 2)), math.log10(max(2 * space.ids_at(0.999), 4))
    counts = [round(10 ** (first + (last - first) * at / _POINTS)) for at in range(_POINTS + 1)]

    figure: Any = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(counts, [space.probability(count) for count in counts], color="#1f5fa8", linewidth=2)
    axes.set_xscale("log")
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("ids issued")
    axes.set_ylabel("chance of a collision")
    axes.yaxis.set_major_formatter(_percent)
    axes.grid(alpha=0.3)
    axes.axvline(marked, color="#b03a2e", linestyle="--", linewidth=1)
    years = marked / per_hour / _HOURS_PER_YEAR
    axes.annotate(
        f"1 % at {marked:,} ids:\n{years:,.1f} years of {per_hour:,.6g} an hour",
        (marked, 0.6),
        xytext=(-8, 0),
        textcoords="offset points",
        horizontalalignment="right",
        color="#b03a2e",
    )
    axes.set_title(repr(format), parse_math=False, wrap=True)
    figure.savefig(path, dpi=150)


def _percent(value: float, at: object) -> str:
    return f"{value:.0%}"
