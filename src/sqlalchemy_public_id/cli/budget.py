"""``public-id budget``: the number of ids that a format can issue before a collision is likely."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from sqlalchemy_public_id.cli._console import UsageProblem, echo_stderr, example_lines, format_argument
from sqlalchemy_public_id.errors import MissingExtra
from sqlalchemy_public_id.formats import Format

_PROBABILITIES = (1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.5)
_HOURS_PER_YEAR = 24 * 365.25
_POINTS = 200
_READABLE = 1e15
"""Above it, powers of ten are easier to read than 1 P, 1 E and 1 Z."""
_RED = "#b03a2e"


@click.command(
    epilog=example_lines("public-id budget", "public-id budget 'NanoId(length=10)' --per-hour 5000 --plot budget.svg")
)
@click.argument("format", type=format_argument, default="NanoId")
@click.option(
    "--per-hour", type=click.FloatRange(min=0, min_open=True), default=1000, show_default=True, help="Ids per hour."
)
@click.option(
    "--ids", "counts", type=click.IntRange(min=2), multiple=True, help="Add a line for this number of ids; repeatable."
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw a chart: FILE.png or FILE.svg.")
def budget(format: Format, per_hour: float, counts: tuple[int, ...], plot: Path | None) -> None:
    """Show after how many ids of FORMAT, and how many years, a collision is likely.

    Ids that begin with the time can only collide with ids of the same time.
    """
    if plot is not None and plot.suffix.lower() not in {".png", ".svg"}:
        raise UsageProblem(f"cannot draw {str(plot)!r}; expected a name that ends with .png or .svg")
    space = format.budget()
    rows = {(space.ids_at(probability), probability) for probability in _PROBABILITIES}
    rows |= {(count, space.probability(count)) for count in counts}
    table = Table()
    table.add_column("ids with the same time" if format.ordered else "ids issued", justify="right")
    table.add_column("chance of a collision", justify="right")
    if not format.ordered:
        table.add_column(f"years at {per_hour:,.6g} an hour", justify="right")
    for count, probability in sorted(rows):
        years = [] if format.ordered else [_years(count / per_hour / _HOURS_PER_YEAR)]
        table.add_row(f"{count:,}", _chance(probability), *years)
    click.echo(f"{format!r}: {_rounded(space.capacity)} ids, {format.entropy_bits:.1f} random bits")
    Console(highlight=False, markup=False).print(table)
    if plot is not None:
        try:
            _draw(plot, format, per_hour)
        except OSError as error:
            raise UsageProblem(f"{str(plot)!r} cannot be written: {error.strerror or error}") from None
        echo_stderr(f"wrote {plot}")


def _draw(path: Path, format: Format, per_hour: float) -> None:
    """Draw the probability of a collision by the number of ids, and mark 1 %."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter, PercentFormatter
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise MissingExtra("matplotlib", extra="plot") from None
    space = format.budget()
    marked = max(space.ids_at(0.01), 2)
    first, last = math.log10(max(space.ids_at(1e-6), 2)), math.log10(max(2 * space.ids_at(0.999), 4))
    counts = [round(10 ** (first + (last - first) * point / _POINTS)) for point in range(_POINTS + 1)]

    figure: Any = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(counts, [space.probability(count) for count in counts], color="#1f5fa8", linewidth=2)
    axes.set_xscale("log")
    shown: Callable[[int], str] = _rounded
    if counts[-1] < _READABLE:
        axes.xaxis.set_major_formatter(EngFormatter())  # 10 k, 1 M, 1 G
        shown = EngFormatter(places=0).format_data
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("ids issued")
    axes.set_ylabel("chance of a collision")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(alpha=0.3)
    axes.axvline(marked, color=_RED, linestyle="--", linewidth=1)
    years = _years(marked / per_hour / _HOURS_PER_YEAR)
    label = f"1 % at {shown(marked)} ids:\n{years} years of {per_hour:,.6g} an hour"
    axes.annotate(
        label, (marked, 0.6), xytext=(-8, 0), textcoords="offset points", horizontalalignment="right", color=_RED
    )
    axes.set_title(repr(format), parse_math=False, wrap=True)
    figure.savefig(path, dpi=150)


def _rounded(count: int) -> str:
    """Return *count*, if large as ``4.7 × 10^18``."""
    if count < 1_000_000:
        return f"{count:,}"
    power = len(str(count)) - 1
    return f"{count // 10 ** max(power - 2, 0) / 100:.1f} × 10^{power}"


def _chance(probability: float) -> str:
    return f"{probability:.0%}" if probability >= 0.01 else f"1 in {1 / probability:,.0f}" if probability else "0"


def _years(years: float) -> str:
    if years < 0.1:
        return f"{years:.2g}"
    return f"{years:,.1f}" if years < 1e6 else f"10^{math.log10(years):.0f}"
