"""``public-id add``, ``expand``, ``backfill``, ``contract``, ``loosen`` and ``drop``: migrations without Alembic."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeAlias

import click
from sqlalchemy import Connection, Engine, String, inspect
from sqlalchemy.exc import SQLAlchemyError
from typing_extensions import Unpack

from sqlalchemy_public_id.backfill import MaxLag, MaxLoad, PauseFile, Progress
from sqlalchemy_public_id.backfill import run as run_backfill
from sqlalchemy_public_id.cli._console import UsageProblem, connect, counted, echo_stderr, example_lines, problem_of
from sqlalchemy_public_id.cli._options import (
    COLUMN,
    CONSENT,
    LOCATION,
    PACE,
    TIMEOUTS,
    TRIGGERS,
    Decorator,
    given_options,
    options,
)
from sqlalchemy_public_id.cli._tables import Location, Selection, chosen_targets
from sqlalchemy_public_id.errors import DryRun, PublicIdError
from sqlalchemy_public_id.migrations import Consent, Options, Pace, PublicIdColumn, Timeouts
from sqlalchemy_public_id.migrations.consent import take_fields
from sqlalchemy_public_id.migrations.databases import live_table, plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, incomplete, run_phases
from sqlalchemy_public_id.migrations.table import columns_of

OnProgress: TypeAlias = Callable[[Progress], None]

_INTERRUPTED = 130
_SECONDS_BETWEEN_LINES = 5.0

_DONE = {
    "add": "has an id in each row, unique and NOT NULL",
    "expand": "exists, and may be NULL",
    "contract": "is unique and NOT NULL",
    "loosen": "may be NULL, and is no longer unique",
    "drop": "is dropped",
}


class _Stopped(Exception):
    """Ctrl-C was pressed, and the batch has ended."""


@dataclass(frozen=True)
class _Waits:
    """When a backfill waits."""

    replica: str | None
    max_lag: float
    max_load: int | None
    pause_file: str | None


def _run(name: str, selection: Selection, waits: _Waits, *, jobs: int, yes: bool) -> None:
    """Run the operation *name* on each table, and exit with the highest exit status."""
    given = selection.options
    dry_run = given.get("dry_run", False)
    with (
        connect(selection.location.url) as engine,
        connect(waits.replica) if waits.replica else nullcontext() as replica,
        _logged(),
        _interruptible() if "backfill" in PHASES[name] else nullcontext(lambda: False) as is_stopped,
    ):
        targets = chosen_targets(engine, selection, needs_models=True)
        if name == "drop" and not yes and not dry_run:
            names = ", ".join(map(str, targets))
            click.confirm(f"Drop {names}? Links that contain these ids will stop working.", abort=True, err=True)
        consent, timeouts = Consent(**take_fields(Consent, given)), Timeouts(**take_fields(Timeouts, given))
        pace = Pace(**take_fields(Pace, given), wait_while=_wait_while(waits, replica, is_stopped))

        def run(target: PublicIdColumn) -> int:
            """Return the exit status of one table. An error does not stop the work on the other tables."""
            began, on_progress = time.monotonic(), _lines_of_progress(target)
            try:
                with engine.connect() as connection:
                    connection.execution_options(isolation_level="AUTOCOMMIT")
                    if name == "backfill" and not dry_run:
                        if given.get("format") is None and selection.models is None:
                            _require_usual_length(connection, target)
                        _backfill(connection, target, consent, pace, on_progress)
                        return 0
                    run_phases(
                        connection,
                        plan_for(target, connection.dialect, consent),
                        PHASES[name],
                        timeouts=timeouts,
                        pace=pace,
                        dry_run=dry_run,
                        on_progress=on_progress,
                    )
            except DryRun as end:
                click.echo(str(end.report))
                return 1 if end.report.obstacles else 0
            except (PublicIdError, SQLAlchemyError) as error:
                problem = problem_of(error, engine.url)
                prefix = f"{target}: " if len(targets) > 1 else ""
                echo_stderr(f"public-id: {prefix}{problem.message}")
                return problem.exit_code
            click.echo(f"{target} {_DONE[name]}, after {time.monotonic() - began:.1f} s")
            return 0

        try:
            if jobs == 1:
                status = max(map(run, targets), default=0)
            else:
                with ThreadPoolExecutor(jobs) as pool:
                    status = max(pool.map(run, targets), default=0)
        except (_Stopped, KeyboardInterrupt) as end:
            how = "stopped" if isinstance(end, _Stopped) else "interrupted"
            echo_stderr(f"{how}; run the same command again to continue")
            status = _INTERRUPTED
    sys.exit(status)


def _backfill(
    connection: Connection, target: PublicIdColumn, consent: Consent, pace: Pace, on_progress: OnProgress
) -> None:
    """Fill the rows without waiting for a turn, so that several processes can fill one table."""
    progress = run_backfill(
        connection,
        target.table,
        target.column,
        format=target.format,
        schema=target.schema,
        **vars(pace),
        update_triggers=consent.update_triggers,
        on_progress=on_progress,
    )
    rows = "row" if progress.filled == 1 else "rows"
    click.echo(f"{progress.filled} {rows} of {_table(target)} got an id in {progress.seconds:.1f} s")
    if not progress.finished:
        raise incomplete(live_table(connection, target))


def _require_usual_length(connection: Connection, target: PublicIdColumn) -> None:
    # a column of another length needs another format, and a forgotten prefix cannot be added later
    column = columns_of(inspect(connection), target.table, target.schema).get(target.column)
    if column is None:
        return
    type_, needed = column["type"], target.format.max_length
    if not isinstance(type_, String) or type_.length not in (None, needed):
        has = f"has {type_.length} characters" if isinstance(type_, String) else f"has the type {type_}"
        raise UsageProblem(
            f"{target.table}.{target.column} {has}, but ids of {target.format!r} have {needed}; "
            f"name the format of the ids, such as --format 'NanoId(prefix=\"cus\")'"
        )


# --- while it runs


def _wait_while(given: _Waits, replica: Engine | None, is_stopped: Callable[[], bool]) -> Callable[[Connection], bool]:
    waits: list[Callable[[Connection], bool]] = []
    if replica is not None:
        waits.append(MaxLag(replica, given.max_lag))
    if given.max_load is not None:
        waits.append(MaxLoad(given.max_load))
    if given.pause_file:
        waits.append(PauseFile(given.pause_file))

    def wait_while(connection: Connection) -> bool:
        if is_stopped():
            raise _Stopped
        answers = [wait(connection) for wait in waits]  # call each one, because it logs
        return any(answers)

    return wait_while


@contextmanager
def _logged() -> Generator[None]:
    """Print what the library logs: steps, waits and warnings."""
    log, handler = logging.getLogger("sqlalchemy_public_id"), logging.StreamHandler()  # only the message, to stderr
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextmanager
def _interruptible() -> Generator[Callable[[], bool]]:
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


def _lines_of_progress(target: PublicIdColumn) -> OnProgress:
    """Return a function that prints the progress of a table, one line every few seconds."""
    next_line = 0.0

    def print_line(progress: Progress) -> None:
        nonlocal next_line
        if progress.finished or time.monotonic() >= next_line:
            next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
            line = f"{_table(target)}: {counted(progress.filled, 'row')}, {progress.rate:,.0f} rows/s"
            if progress.left and progress.rate:
                line += f", about {_duration(progress.left / progress.rate)} left"
            echo_stderr(line)

    return print_line


def _table(target: PublicIdColumn) -> str:
    return f"{target.schema}.{target.table}" if target.schema else target.table


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


# --- the commands

_JOBS = click.option(
    "--jobs",
    type=click.IntRange(1, 15),
    metavar="NUMBER",
    default=1,
    help="How many tables to work on at the same time.",
)
_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Print the steps, their locks and all obstacles. Changes nothing."
)
_YES = click.option("--yes", is_flag=True, help="Drop without asking for confirmation.")


def _command(name: str, summary: str, more: str, *groups: Sequence[Decorator]) -> click.Command:
    @click.command(
        name,
        help=f"{summary}\n\n{more}",
        short_help=summary,
        epilog=example_lines(
            f"public-id {name} invoice --format 'NanoId(prefix=\"inv\")'",
            f"public-id {name} postgresql+psycopg://app@localhost/shop --all --models shop.models:Base --jobs 4",
        ),
    )
    @options(LOCATION, COLUMN, *groups, [_JOBS, _DRY_RUN])
    def command(
        location: Location,
        all_tables: bool,
        models: Any,
        column: str | None,
        jobs: int,
        yes: bool = False,
        replica: str | None = None,
        max_lag: float = 0.0,
        max_load: int | None = None,
        pause_file: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        selection = Selection(location, all_tables, models, column, given_options(options))
        waits = _Waits(replica, max_lag, max_load, pause_file)
        _run(name, selection, waits, jobs=jobs, yes=yes)

    return command


_AGAIN = "After a failure or Ctrl-C, run the same command again to continue."

OPERATIONS: Sequence[click.Command] = (
    _command(
        "add",
        "Add public ids to each TABLE while it stays in use.",
        f"Runs expand, backfill and contract, one after the other. {_AGAIN}",
        *(CONSENT, TIMEOUTS, PACE),
    ),
    _command(
        "expand",
        "Add a nullable column for public ids to each TABLE.",
        f"From then on, the database generates the ids of new rows. {_AGAIN}",
        *(CONSENT, TIMEOUTS),
    ),
    _command(
        "backfill",
        "Generate ids for existing rows without one, in short batches.",
        f"Readers and writers can continue. To speed it up, start several processes for one table. {_AGAIN}",
        *(TRIGGERS, PACE),
    ),
    _command(
        "contract",
        "Make the column of each TABLE unique and NOT NULL.",
        f"Every row must already have an id. Readers and writers can continue while the index is built. {_AGAIN}",
        *(CONSENT, TIMEOUTS),
    ),
    _command(
        "loosen",
        "Undo contract: drop the unique index and allow NULL.",
        f"The ids remain in the table. {_AGAIN}",
        TIMEOUTS,
    ),
    _command(
        "drop",
        "Drop the public ids of each TABLE: column, index and default.",
        f"The ids cannot be restored, and links that contain them stop working. {_AGAIN}",
        *(TIMEOUTS, [_YES]),
    ),
)
