"""What a command shows while it works on tables: one live line on a terminal, and lines in a pipe or a file."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TypeAlias

import click

from sqlalchemy_public_id.backfill import Progress
from sqlalchemy_public_id.cli._console import counted, echo, echo_stderr
from sqlalchemy_public_id.cli._wording import as_typed
from sqlalchemy_public_id.migrations import PublicIdColumn

OnProgress: TypeAlias = Callable[[Progress], None]

_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_FRAMES = 0.5
_CLEAR = "\r\x1b[K"
"""Goes to the beginning of the line of a terminal, and clears it."""


@dataclass
class _Work:
    """What is done with a table."""

    doing: str
    since: float
    is_batch: bool = False

    def __str__(self) -> str:
        seconds = time.monotonic() - self.since
        if not self.is_batch:
            return f"{self.doing} ({_duration(seconds)})"
        is_late = seconds > _SECONDS_BETWEEN_LINES
        return f"{self.doing}; {_duration(seconds)} since the last batch" if is_late else self.doing


class Display(logging.Handler):
    """Prints what the library logs, the results, and how far each table is."""

    def __init__(self) -> None:
        super().__init__()
        self.is_live: bool = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._work: dict[PublicIdColumn, _Work] = {}
        self._of_thread = threading.local()
        self._printing = threading.RLock()
        self._is_over = False

    @contextmanager
    def running(self) -> Generator[None]:
        """Print what the library logs, and keep the live line up to date."""
        log, ended = logging.getLogger("sqlalchemy_public_id"), threading.Event()
        level = log.level

        def refresh() -> None:
            while not ended.wait(_SECONDS_BETWEEN_FRAMES):
                self._draw()

        ticker = threading.Thread(target=refresh, daemon=True)
        log.addHandler(self)
        log.setLevel(logging.INFO)
        if self.is_live:
            ticker.start()
        try:
            yield
        finally:
            ended.set()
            log.removeHandler(self)
            log.setLevel(level)

    @contextmanager
    def working_on(self, target: PublicIdColumn) -> Generator[None]:
        """Show what this thread does with *target* until the block ends."""
        self._of_thread.target = target
        self._set(target, "examining the table")
        try:
            yield
        finally:
            self._of_thread.target = None
            with self._printing:
                self._work.pop(target, None)
                self._draw()

    def end(self, text: str) -> None:
        """Write *text* as the last line to stderr. Other threads print nothing afterwards."""
        self._print(text, echo_stderr, is_last=True)

    def result(self, text: str) -> None:
        """Write *text* to stdout."""
        self._print(text, echo)

    def note(self, text: str) -> None:
        """Write *text* to stderr."""
        self._print(text, echo_stderr)

    def emit(self, record: logging.LogRecord) -> None:
        """Print what the library logs; the live line shows it until something else happens to the table."""
        message, target = as_typed(record.getMessage()), getattr(self._of_thread, "target", None)
        if target is not None:
            self._set(target, message.removeprefix(f"{target}: "))
        self.note(message)

    def on_progress(self, target: PublicIdColumn) -> OnProgress:
        """Return a function that shows the progress of a table."""
        next_line = 0.0

        def show(progress: Progress) -> None:
            nonlocal next_line
            line = _line_of(progress)
            if self.is_live:
                self._set(target, line, is_batch=not progress.finished)
            elif progress.finished or time.monotonic() >= next_line:
                next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
                self.note(f"{name_of(target)}: {line}")

        return show

    def _set(self, target: PublicIdColumn, doing: str, *, is_batch: bool = False) -> None:
        with self._printing:
            self._work[target] = _Work(doing, time.monotonic(), is_batch)
            self._draw()

    def _print(self, text: str, write: Callable[[str], object], *, is_last: bool = False) -> None:
        with self._printing:
            if self._is_over:
                return
            if self.is_live:
                click.echo(_CLEAR, err=True, nl=False)
            write(text)
            self._is_over = is_last  # the line of tables that are still worked on would stay below it
            self._draw()

    def _draw(self) -> None:
        if not self.is_live or self._is_over:
            return
        with self._printing:
            line = " | ".join(f"{name_of(target)}: {work}" for target, work in self._work.items())
            width = get_terminal_size().columns - 1
            line = line if len(line) <= width else f"{line[: width - 1]}…"  # or else "28 s" may look like "2"
            click.echo(_CLEAR + line, err=True, nl=False)


def name_of(target: PublicIdColumn) -> str:
    """Return the name of a table, with its schema."""
    return f"{target.schema}.{target.table}" if target.schema else target.table


def _line_of(progress: Progress) -> str:
    line = f"{counted(progress.filled, 'row')}, {progress.rate:,.0f} rows/s"
    if progress.left and progress.rate:
        line += f", about {_duration(progress.left / progress.rate)} left"
    return line


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
