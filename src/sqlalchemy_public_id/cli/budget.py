"""``public-id budget``: how many ids a format can issue before two of them are likely to be the same."""

from __future__ import annotations

import math
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from sqlalchemy_public_id.cli._console import Refusal, a_format, note
from sqlalchemy_public_id.cli._plot import draw
from sqlalchemy_public_id.formats import Format

__all__ = ["budget"]

_PROBABILITIES = (1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.5)
_HOURS_PER_YEAR = 24 * 365.25


@click.command()
@click.argument("format", type=a_format, default="NanoId")
@click.option(
    "--per-hour", type=click.FloatRange(min=0, min_open=True), default=1000, show_default=True, help="Ids an hour."
)
@click.option(
    "--ids", "counts", type=click.IntRange(min=2), multiple=True, help="Also tell of so many ids; repeatable."
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw a picture: FILE.png or FILE.svg.")
def budget(format: Format, per_hour: float, counts: tuple[int, ...], plot: Path | None) -> None:
    """Show when two ids of FORMAT are likely to be the same: after how many ids, and how many years.

    Ids that begin with the time can only be the same where they were made at the same time.
    """
    if plot is not None and plot.suffix.lower() not in {".png", ".svg"}:
        raise Refusal(f"{str(plot)!r} is no picture; expected a name that ends with .png or .svg")
    space = format.budget()
    rows = {(space.ids_at(probability), probability) for probability in _PROBABILITIES}
    rows |= {(count, space.probability(count)) for count in counts}
    title = f"{format!r}: {_rounded(space.capacity)} ids, {format.entropy_bits:.1f} random bits"
    table = Table()
    table.add_column("ids with the same time" if format.ordered else "ids issued", justify="right")
    table.add_column("chance of a collision", justify="right")
    if not format.ordered:
        table.add_column(f"years at {per_hour:,.6g} an hour", justify="right")
    for count, probability in sorted(rows):
        years = [] if format.ordered else [_years(count / per_hour / _HOURS_PER_YEAR)]
        table.add_row(f"{count:,}", _chance(probability), *years)
    click.echo(title)
    Console(highlight=False, markup=False).print(table)
    if plot is not None:
        _plot(plot, format, per_hour)


def _plot(path: Path, format: Format, per_hour: float) -> None:
    try:
        draw(path, format, per_hour)
    except OSError as error:
        raise Refusal(f"{str(path)!r} cannot be written: {error.strerror or error}") from None
    note(f"wrote {path}")


def _rounded(count: int) -> str:
    """A large whole number, as ``4.7 × 10^18``."""
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
