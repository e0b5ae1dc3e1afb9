"""The progress of commands that take long, on stderr."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from sqlalchemy_public_id.backfill import Progress
from sqlalchemy_public_id.cli._console import counted, echo_stderr

_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def logged() -> Generator[None]:
    """Print what the library logs: steps, waits and warnings."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            echo_stderr(record.getMessage())

    log, handler = logging.getLogger("sqlalchemy_public_id"), Handler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextmanager
def interruptible() -> Generator[Callable[[], bool]]:
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
def shown() -> Generator[Callable[[Progress], None]]:
    """Provide a function that shows the progress of tables: bars on a terminal, elsewhere a line now and then."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        next_lines: dict[str, float] = {}

        def print_line(progress: Progress) -> None:
            if progress.finished or time.monotonic() >= next_lines.get(progress.table, 0.0):
                next_lines[progress.table] = time.monotonic() + _SECONDS_BETWEEN_LINES
                echo_stderr(f"{progress.table}: {_summary(progress)}")

        yield print_line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[summary]}"), TimeElapsedColumn())
    with ProgressBar(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def update_bar(progress: Progress) -> None:
            if progress.table not in tasks:
                tasks[progress.table] = bars.add_task(progress.table, summary="")
            total = None if progress.left is None else progress.filled + progress.left
            summary = _summary(progress)
            bars.update(tasks[progress.table], total=total, completed=progress.filled, summary=summary)

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
