"""What Ctrl-C does while a command works on tables: it lets batches end, and a second one stops at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id.cli._display import Display, name_of
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import database_of

INTERRUPTED = 130
AGAIN = "run the same command again to continue"
_SECONDS_TO_CANCEL = 2.0


class Stopped(Exception):
    """Ctrl-C was pressed, and the batch has ended."""


class Interrupts:
    """Handles Ctrl-C.

    :param in_threads: True if several threads work on tables: Ctrl-C raises no exception in them.
    """

    def __init__(self, display: Display, *, in_threads: bool) -> None:
        self.display = display
        self.in_threads = in_threads
        self._is_pressed = False
        self._batches: dict[PublicIdColumn, bool] = {}
        """The tables that are filled, and whether a batch of them is running."""
        self._statements: dict[PublicIdColumn, Callable[[], None]] = {}
        """Functions that cancel the statement of a table."""

    @contextmanager
    def handled(self) -> Generator[None]:
        """Handle Ctrl-C until the block ends."""
        previous = signal.signal(signal.SIGINT, self._press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)

    @contextmanager
    def working_on(self, target: PublicIdColumn, connection: Connection) -> Generator[None]:
        """Note that *connection* works on *target* until the block ends.

        :raises Stopped: if Ctrl-C was pressed before.
        """
        self.check()
        session = database_of(connection.dialect).session(connection)
        number, url = session.read_number() if self.in_threads else None, connection.engine.url

        def cancel() -> None:
            # the threads may have all connections of the pool
            with suppress(SQLAlchemyError), create_engine(url, poolclass=NullPool).connect() as other:
                database_of(other.dialect).session(other).cancel(number)

        if number is not None:
            self._statements[target] = cancel
        try:
            yield
        finally:
            self._batches.pop(target, None)
            self._statements.pop(target, None)

    def fills(self, target: PublicIdColumn, *, waits: bool) -> None:
        """Note that a batch of *target* begins, or *waits* to begin."""
        self._batches[target] = not waits

    def has_filled(self, target: PublicIdColumn) -> None:
        """Note that all rows of *target* have been filled.

        :raises Stopped: if Ctrl-C was pressed during the last batch: no later phase begins.
        """
        self._batches.pop(target, None)
        self.check()

    def check(self) -> None:
        """Raise :class:`Stopped` after Ctrl-C."""
        if self._is_pressed:
            raise Stopped

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self._is_pressed or not self._batches:
            self._stop_at_once()
        self._is_pressed = True
        running = [name_of(target) for target, is_running in {**self._batches}.items() if is_running]
        others = [name_of(target) for target in {**self._statements} if target not in self._batches]
        doing = "finishing the batch" if running else "stopping"
        doing += f" of {', '.join(running)}" if running and self.in_threads else ""
        doing += f"; waiting for {', '.join(others)}" if others else ""
        self.display.note(f"{doing}; Ctrl-C again stops at once")

    def _stop_at_once(self) -> None:
        if not self.in_threads:
            # not the previous handler: a shell that starts a background job has set it to ignore the signal
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt
        self.display.end(f"interrupted; {AGAIN}")
        cancels = [threading.Thread(target=cancel, daemon=True) for cancel in {**self._statements}.values()]
        for thread in cancels:
            thread.start()
        for thread in cancels:
            thread.join(_SECONDS_TO_CANCEL)
        os._exit(INTERRUPTED)  # the other threads wait for the database
