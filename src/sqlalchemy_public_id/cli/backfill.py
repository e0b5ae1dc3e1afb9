"""``public-id backfill``: ids for the rows of a live table, with its progress."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from types import FrameType

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from sqlalchemy import Engine, String, inspect

from sqlalchemy_public_id.backfill import Progress
from sqlalchemy_public_id.backfill import run as run_backfill
from sqlalchemy_public_id.backfill.replicas import MaxLag
from sqlalchemy_public_id.backfill.triggers import Triggers
from sqlalchemy_public_id.cli._console import (
    UsageProblem,
    connect,
    counted,
    echo_stderr,
    example_lines,
    format_argument,
)
from sqlalchemy_public_id.formats import Format, NanoId

_SECONDS_BETWEEN_LINES = 5.0
_INTERRUPTED = 130


@click.command(
    epilog=example_lines(
        "public-id backfill postgresql+psycopg://app@localhost/shop customer --format 'NanoId(prefix=\"cus\")'"
    )
)
@click.argument("url")
@click.argument("table")
@click.option("--column", default="public_id", show_default=True, help="The column of public ids.")
@click.option("--schema", help="The schema; by default the usual one.")
@click.option(
    "--format",
    type=format_argument,
    metavar="FORMAT",
    help="The format of the ids; NanoId if the column has 12 characters.",
)
@click.option(
    "--batch-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=0.5,
    show_default=True,
    help="The seconds that a batch should take.",
)
@click.option(
    "--pause",
    type=click.FloatRange(min=0),
    default=0.1,
    show_default=True,
    help="The rest after a batch, as a share of its time.",
)
@click.option(
    "--update-triggers",
    type=click.Choice(["refuse", "fire", "skip"]),
    default="refuse",
    show_default=True,
    help="Triggers that an UPDATE of the column fires.",
)
@click.option("--replica", metavar="URL", help="A replica: the backfill waits while it is behind.")
@click.option(
    "--max-lag",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="The seconds that the replica may be behind.",
)
def backfill(
    url: str,
    table: str,
    column: str,
    schema: str | None,
    format: Format | None,
    batch_seconds: float,
    pause: float,
    update_triggers: Triggers,
    replica: str | None,
    max_lag: float,
) -> None:
    """Store an id in each row of TABLE that has none, in short batches, while the table is in use.

    Ctrl-C stops between two batches; the same command continues from there.
    """
    try:
        with (
            connect(url) as engine,
            connect(replica) if replica else nullcontext() as replica_engine,
            _stop_on_interrupt() as should_stop,
            _progress_display(table) as on_progress,
        ):
            progress = run_backfill(
                engine,
                table,
                column,
                format=format or _usual_format(engine, table, column, schema),
                schema=schema,
                batch_seconds=batch_seconds,
                pause=pause,
                wait_while=MaxLag(replica_engine, max_lag) if replica_engine is not None else None,
                update_triggers=update_triggers,
                on_progress=on_progress,
                should_stop=should_stop,
            )
    except KeyboardInterrupt:
        echo_stderr("interrupted inside a batch, which is rolled back; run the same command again to continue")
        sys.exit(_INTERRUPTED)
    rows = "row" if progress.filled == 1 else "rows"
    click.echo(f"{progress.filled} {rows} of {table} got an id in {progress.seconds:.1f} s")
    if progress.finished:
        return
    if should_stop():
        echo_stderr("stopped; run the same command again to continue")
        sys.exit(_INTERRUPTED)
    echo_stderr("rows without an id are left: they were locked, or new ones keep arriving; run the same command again")
    sys.exit(1)


def _usual_format(engine: Engine, table: str, column: str, schema: str | None) -> Format:
    # a column of another length has another format, and a forgotten prefix cannot be added later
    format = NanoId()
    inspector = inspect(engine)
    columns = inspector.get_columns(table, schema=schema) if inspector.has_table(table, schema=schema) else []
    for type_ in (reflected["type"] for reflected in columns if reflected["name"] == column):
        if isinstance(type_, String) and type_.length in (None, format.max_length):
            continue
        has = f"has {type_.length} characters" if isinstance(type_, String) else f"has the type {type_}"
        raise UsageProblem(
            f"{table}.{column} {has} and ids of {format!r} have {format.max_length}; "
            f"name the format of the ids, such as --format 'NanoId(prefix=\"cus\")'"
        )
    return format


@contextmanager
def _stop_on_interrupt() -> Generator[Callable[[], bool]]:
    """Provide a function that returns True after Ctrl-C; the second Ctrl-C interrupts at once."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        # not the previous handler: a shell that starts a background job has set it to ignore the signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        echo_stderr("finishing the batch; Ctrl-C again stops at once")

    previous = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _progress_display(table: str) -> Generator[Callable[[Progress], None]]:
    """Provide a function that shows the progress on stderr: a bar on a terminal, elsewhere a line now and then."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        next_line = 0.0

        def print_line(progress: Progress) -> None:
            nonlocal next_line
            if progress.finished or time.monotonic() >= next_line:
                next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
                echo_stderr(f"{table}: {_summary(progress)}")

        yield print_line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[summary]}"), TimeElapsedColumn())
    with ProgressBar(*columns, console=console) as bar:
        task = bar.add_task(table, total=None, summary="")

        def update_bar(progress: Progress) -> None:
            total = None if progress.left is None else progress.filled + progress.left
            bar.update(task, total=total, completed=progress.filled, summary=_summary(progress))

        yield update_bar


def _summary(progress: Progress) -> str:
    summary = f"{counted(progress.filled, 'row')}, {progress.rate:,.0f} rows/s"
    if progress.left and progress.rate:
        summary += f", about {_duration(progress.left / progress.rate)} left"
    return summary


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
