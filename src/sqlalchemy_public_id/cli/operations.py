"""``public-id add``, ``expand``, ``backfill``, ``contract``, ``loosen`` and ``drop``: migrations without Alembic."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource
from sqlalchemy import Connection, Engine, String, inspect
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from typing_extensions import Unpack

from sqlalchemy_public_id.backfill import MaxLag, MaxLoad, PauseFile, Progress
from sqlalchemy_public_id.backfill import run as run_backfill
from sqlalchemy_public_id.cli._console import (
    Refusal,
    UsageProblem,
    connect,
    counted,
    echo_stderr,
    example_lines,
    problem_of,
)
from sqlalchemy_public_id.cli._display import Display, OnProgress, name_of
from sqlalchemy_public_id.cli._interrupts import AGAIN, INTERRUPTED, Interrupts, Stopped
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
from sqlalchemy_public_id.cli._wording import as_typed
from sqlalchemy_public_id.errors import DryRun, PublicIdError
from sqlalchemy_public_id.migrations import Consent, Options, Pace, PublicIdColumn, Timeouts
from sqlalchemy_public_id.migrations.consent import take_fields
from sqlalchemy_public_id.migrations.databases import live_table, plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, incomplete, run_phases
from sqlalchemy_public_id.migrations.stored_types import has_width_of
from sqlalchemy_public_id.migrations.table import columns_of

_REPAIR = "do what is said about each above, and run the same command again"
_DONE = {
    "add": "has an id in each row, unique and NOT NULL",
    "expand": "exists, and may be NULL",
    "contract": "is unique and NOT NULL",
    "loosen": "may be NULL, and is no longer unique",
    "drop": "is dropped",
}


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
    display = Display()
    interrupts = Interrupts(display, in_threads=jobs > 1)
    is_handled = jobs > 1 or "backfill" in PHASES[name]  # otherwise, Ctrl-C raises KeyboardInterrupt
    with (
        connect(selection.location.url) as engine,
        connect(waits.replica) if waits.replica else nullcontext() as replica,
    ):
        targets = chosen_targets(engine, selection, needs_models=True)
        if name == "drop" and not yes and not dry_run:
            names = ", ".join(map(str, targets))
            _confirm(f"Drop {names}? Links that contain these ids will stop working.")
        consent, timeouts = Consent(**take_fields(Consent, given)), Timeouts(**take_fields(Timeouts, given))
        speed, reasons = take_fields(Pace, given), _reasons_to_wait(waits, replica)

        def work(target: PublicIdColumn, connection: Connection) -> None:
            def wait_while(connection: Connection) -> bool:
                interrupts.check()
                answers = [wait(connection) for wait in reasons]  # call each one, because it logs
                interrupts.fills(target, waits=any(answers))
                return any(answers)

            def on_progress(progress: Progress) -> None:
                show(progress)
                if progress.finished:
                    interrupts.has_filled(target)

            show, pace = display.on_progress(target), Pace(**speed, wait_while=wait_while)
            if name == "backfill" and not dry_run:
                if given.get("format") is None and selection.models is None:
                    _require_usual_length(connection, target)
                _backfill(connection, target, consent, pace, display, on_progress)
                return
            began, plan = time.monotonic(), plan_for(target, connection.dialect, consent)
            options: dict[str, Any] = {"timeouts": timeouts, "pace": pace, "dry_run": dry_run}
            run_phases(connection, plan, PHASES[name], **options, on_progress=on_progress)
            display.result(f"{target} {_DONE[name]}, after {time.monotonic() - began:.1f} s")

        def run(target: PublicIdColumn) -> int:
            """Return the exit status of one table. An error does not stop the work on the other tables."""
            try:
                with engine.connect() as connection:
                    connection.execution_options(isolation_level="AUTOCOMMIT")
                    with display.working_on(target), interrupts.working_on(target, connection):
                        work(target, connection)
            except DryRun as end:
                display.result(as_typed(str(end.report)))
                return 1 if end.report.obstacles else 0
            except (PublicIdError, SQLAlchemyError) as error:
                problem = problem_of(error, engine.url)
                names = f"{target}: ", f"{name_of(target)}: "
                prefix = names[0] if len(targets) > 1 and not problem.message.startswith(names) else ""
                is_lost = isinstance(error, DBAPIError) and error.connection_invalidated
                display.note(f"public-id: {prefix}{problem.message}{f'; {AGAIN}' if is_lost else ''}")
                return problem.exit_code
            return 0

        try:
            with display.running(), interrupts.handled() if is_handled else nullcontext():
                if jobs == 1:
                    results = [*map(run, targets)]
                else:
                    with ThreadPoolExecutor(jobs) as pool:
                        results = [*pool.map(run, targets)]
            status = max(results, default=0)
            failed = [name_of(target) for target, result in zip(targets, results, strict=True) if result]
            if failed and len(targets) > 1 and not dry_run:
                display.end(f"public-id: {len(failed)} of {len(targets)} tables failed: {', '.join(failed)}; {_REPAIR}")
        except (Stopped, KeyboardInterrupt) as end:
            how = "stopped" if isinstance(end, Stopped) else "interrupted"
            display.end(f"{how}; {AGAIN}")
            status = INTERRUPTED
    sys.exit(status)


def _confirm(question: str) -> None:
    try:
        is_sure = click.confirm(question, err=True)
    except click.Abort:
        echo_stderr("")  # the question stays on its line
        is_sure = False
    if not is_sure:
        raise Refusal("nothing was dropped; answer y, or pass --yes")


def _backfill(
    connection: Connection,
    target: PublicIdColumn,
    consent: Consent,
    pace: Pace,
    display: Display,
    on_progress: OnProgress,
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
    rows = counted(progress.filled, "row")
    display.result(f"{rows} of {name_of(target)} got an id in {progress.seconds:.1f} s")
    if not progress.finished:
        raise incomplete(live_table(connection, target))


def _require_usual_length(connection: Connection, target: PublicIdColumn) -> None:
    # a column of another length needs another format, and a forgotten prefix cannot be added later
    column = columns_of(inspect(connection), target.table, target.schema).get(target.column)
    if column is None:
        return
    type_, needed = column["type"], target.format.max_length
    if not has_width_of(type_, target.format):
        has = f"has {type_.length} characters" if isinstance(type_, String) else f"has the type {type_}"
        raise UsageProblem(
            f"{target.table}.{target.column} {has}, but ids of {target.format!r} have {needed}; "
            f"name the format of the ids, such as --format 'NanoId(prefix=\"cus\")'"
        )


def _reasons_to_wait(given: _Waits, replica: Engine | None) -> list[Callable[[Connection], bool]]:
    waits: list[Callable[[Connection], bool]] = []
    if replica is not None:
        waits.append(MaxLag(replica, given.max_lag))
    if given.max_load is not None:
        waits.append(MaxLoad(given.max_load))
    if given.pause_file:
        waits.append(PauseFile(given.pause_file))
    return waits


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
        is_told = click.get_current_context().get_parameter_source("max_lag") is ParameterSource.COMMANDLINE
        if is_told and not replica:
            raise click.UsageError("--max-lag needs --replica URL, the server whose lag it limits")
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
