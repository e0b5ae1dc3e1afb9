"""``public-id budget``: the number of ids that a format can issue before a collision is likely."""

from __future__ import annotations

import math

import click
from rich.console import Console
from rich.table import Table

from sqlalchemy_public_id.cli._console import example_lines, format_argument
from sqlalchemy_public_id.formats import Format

_PROBABILITIES = (1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.5)
_HOURS_PER_YEAR = 24 * 365.25


@click.command(epilog=example_lines("public-id budget", "public-id budget 'NanoId(length=10)' --per-hour 5000"))
@click.argument("format", type=format_argument, default="NanoId")
@click.option(
    "--per-hour", type=click.FloatRange(min=0, min_open=True), default=1000, show_default=True, help="Ids per hour."
)
@click.option(
    "--ids", "counts", type=click.IntRange(min=2), multiple=True, help="Add a line for this number of ids; repeatable."
)
def budget(format: Format, per_hour: float, counts: tuple[int, ...]) -> None:
    """Show after how many ids of FORMAT, and how many years, a collision is likely.

    Ids that begin with the time can only collide with ids of the same time.
    """
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
