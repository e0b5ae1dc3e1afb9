"""``public-id backfill``: ids for the rows of a live table, with the progress in sight."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import Engine, String, inspect

from sqlalchemy_public_id import backfill as filler
from sqlalchemy_public_id.cli._console import Refusal, a_format, note, opened
from sqlalchemy_public_id.formats import Format, NanoId

__all__ = ["backfill"]

_SECONDS_BETWEEN_LINES = 5.0
_INTERRUPTED = 130


@click.command()
@click.argument("url")
@click.argument("table")
@click.option("--column", default="public_id", show_default=True, help="The column of public ids.")
@click.option("--schema", help="Where the table is, instead of the usual schema.")
@click.option(
    *("--id-format", "--format", "format"),
    type=a_format,
    metavar="FORMAT",
    help="The format of the ids; NanoId where the column takes 12 characters.",
)
@click.option(
    "--batch-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=0.5,
    show_default=True,
    help="How long a batch is to take.",
)
@click.option(
    "--pause",
    type=click.FloatRange(min=0),
    default=0.1,
    show_default=True,
    help="How long to rest after a batch, as a share of its time.",
)
def backfill(
    url: str, table: str, column: str, schema: str | None, format: Format | None, batch_seconds: float, pause: float
) -> None:
    """Give an id to each row of TABLE that has none, in short batches, while the table is in use.

    Ctrl-C stops it between two batches; the same command goes on from there.
    """
    try:
        with opened(url) as engine, _stoppable() as should_stop, _shown(table) as on_progress:
            done = filler.run(
                engine,
                table,
                column,
                format=format or _usual_format(engine, table, column, schema),
                schema=schema,
                batch_seconds=batch_seconds,
                pause=pause,
                on_progress=on_progress,
                should_stop=should_stop,
            )
    except KeyboardInterrupt:
        note("interrupted inside a batch, which is undone; run the same command again to go on")
        sys.exit(_INTERRUPTED)
    click.echo(f"{done.filled} rows of {table} got an id in {done.seconds:.1f} s")
    if done.finished:
        return
    if should_stop():
        note("stopped; run the same command again to go on")
        sys.exit(_INTERRUPTED)
    note("rows without an id are left: others had them locked, or keep adding them; run the same command again")
    sys.exit(1)


def _usual_format(engine: Engine, table: str, column: str, schema: str | None) -> Format:
    """``NanoId()``, unless the column is made for ids of another length: a forgotten prefix cannot be mended later."""
    format = NanoId()
    inspector = inspect(engine)
    columns = inspector.get_columns(table, schema=schema) if inspector.has_table(table, schema=schema) else []
    for type_ in (found["type"] for found in columns if found["name"] == column):
        if isinstance(type_, String) and type_.length in (None, format.max_length):
            continue
        takes = f"takes {type_.length} characters" if isinstance(type_, String) else f"is of the type {type_}"
        raise Refusal(
            f"{table}.{column} {takes} and {format!r} makes {format.max_length}: "
            f"say which ids it is to have, such as --id-format 'NanoId(prefix=\"cus\")'"
        )
    return format


@contextmanager
def _stoppable() -> Generator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed. The second one interrupts at once."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # not the one before: a shell may have it ignored
        note("finishing the batch; Ctrl-C again stops at once")

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _shown(table: str) -> Generator[Callable[[filler.Progress], None]]:
    """What shows the progress on stderr: a bar on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield _Lines(table)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(table, total=None, said="")

        def show(done: filler.Progress) -> None:
            left = done.left
            bar.update(
                task, total=None if left is None else done.filled + left, completed=done.filled, said=_said(done)
            )

        yield show


class _Lines:
    """A line every few seconds, and one for the first batch and for the end."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.next = 0.0

    def __call__(self, done: Any) -> None:
        if done.finished or time.monotonic() >= self.next:
            self.next = time.monotonic() + _SECONDS_BETWEEN_LINES
            note(f"{self.table}: {_said(done)}")


def _said(done: filler.Progress) -> str:
    """Rows, rate and time left."""
    said = f"{done.filled:,} rows, {done.rate:,.0f} rows/s"
    if done.left and done.rate:
        said += f", about {_duration(done.left / done.rate)} left"
    return said


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
