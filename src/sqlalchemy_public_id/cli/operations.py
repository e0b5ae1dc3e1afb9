"""``public-id add``, ``expand``, ``backfill``, ``contract``, ``loosen`` and ``drop``: migrations without Alembic."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import click
from sqlalchemy import Connection, Engine, String, inspect
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_public_id.backfill import MaxLag, MaxLoad, Pace, PauseFile, Progress
from sqlalchemy_public_id.backfill import run as run_backfill
from sqlalchemy_public_id.cli._console import UsageProblem, connect, echo_stderr, example_lines, problem_of
from sqlalchemy_public_id.cli._options import COLUMN, CONSENT, JOBS, PACE, PATIENCE, PLACE, TRIGGERS, Decorator, options
from sqlalchemy_public_id.cli._progress import interruptible, logged, shown
from sqlalchemy_public_id.cli._tables import chosen_targets, fields_of
from sqlalchemy_public_id.errors import BackfillIncomplete, DryRun, PublicIdError
from sqlalchemy_public_id.migrating import Consent, Patience, PublicIdColumn
from sqlalchemy_public_id.migrating.databases import live_table
from sqlalchemy_public_id.operation import PHASES, run_phases

_INTERRUPTED = 130

_DONE = {
    "add": "has an id in each row, unique and NOT NULL",
    "expand": "is there, and may be NULL",
    "contract": "is unique and NOT NULL",
    "loosen": "may be NULL, and is not unique any more",
    "drop": "is gone",
}


class _Stopped(Exception):
    """Ctrl-C was pressed, and the batch has ended."""


def _run(name: str, given: dict[str, Any]) -> None:
    """Run the operation *name* on each table, and exit with the highest status of them."""
    with (
        connect(given["place"].url) as engine,
        connect(given["replica"]) if given.get("replica") else nullcontext() as replica,
        logged(),
        interruptible() if "pause" in given else nullcontext(lambda: False) as is_stopped,
        shown() as on_progress,
    ):
        targets = chosen_targets(engine, given, needs_models=True)
        if name == "drop" and not given["yes"] and not given["dry_run"]:
            names = ", ".join(map(str, targets))
            click.confirm(f"Drop {names}? Links that contain these ids are dead from then on.", abort=True, err=True)
        operation = _Operation(name, engine, given, _wait_while(given, replica, is_stopped), on_progress)
        try:
            status = _on_each(targets, given["jobs"], operation.run, engine)
        except _Stopped:
            echo_stderr("stopped; run the same command again to continue")
            status = _INTERRUPTED
        except KeyboardInterrupt:
            echo_stderr("interrupted; run the same command again to continue")
            status = _INTERRUPTED
    sys.exit(status)


def _on_each(targets: Sequence[PublicIdColumn], jobs: int, run: Callable[[PublicIdColumn], int], engine: Engine) -> int:
    """Return the highest status. An error of one table is printed, and does not end the work on the others."""

    def status_of(target: PublicIdColumn) -> int:
        try:
            return run(target)
        except (PublicIdError, SQLAlchemyError) as error:
            problem = problem_of(error, engine.url)
            echo_stderr(
                f"public-id: {target}: {problem.message}" if len(targets) > 1 else f"public-id: {problem.message}"
            )
            return problem.exit_code

    if jobs == 1:
        return max(map(status_of, targets), default=0)
    with ThreadPoolExecutor(jobs) as pool:
        return max(pool.map(status_of, targets), default=0)


def _wait_while(
    given: dict[str, Any], replica: Engine | None, is_stopped: Callable[[], bool]
) -> Callable[[Connection], bool]:
    waits: list[Callable[[Connection], bool]] = []
    if replica is not None:
        waits.append(MaxLag(replica, given["max_lag"]))
    if given.get("max_load") is not None:
        waits.append(MaxLoad(given["max_load"]))
    if given.get("pause_file"):
        waits.append(PauseFile(given["pause_file"]))

    def wait_while(connection: Connection) -> bool:
        if is_stopped():
            raise _Stopped
        answers = [wait(connection) for wait in waits]  # of each one, for the log
        return any(answers)

    return wait_while


class _Operation:
    def __init__(
        self,
        name: str,
        engine: Engine,
        given: dict[str, Any],
        wait_while: Callable[[Connection], bool],
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.name, self.engine, self.given, self.on_progress = name, engine, given, on_progress
        self.consent, self.patience = Consent(**fields_of(Consent, given)), Patience(**fields_of(Patience, given))
        self.pace = Pace(**fields_of(Pace, given), wait_while=wait_while)

    def run(self, target: PublicIdColumn) -> int:
        """Run the operation on one table, print its result, and return the exit status."""
        began = time.monotonic()
        with self.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            if self.name == "backfill" and not self.given["dry_run"]:
                self._backfill(connection, target)
                return 0
            try:
                run_phases(
                    connection,
                    target,
                    PHASES[self.name],
                    consent=self.consent,
                    patience=self.patience,
                    pace=self.pace,
                    dry_run=self.given["dry_run"],
                    on_progress=self.on_progress,
                )
            except DryRun as end:
                click.echo(str(end.report))
                return 1 if end.report.obstacles else 0
        click.echo(f"{target} {_DONE[self.name]}, after {time.monotonic() - began:.1f} s")
        return 0

    def _backfill(self, connection: Connection, target: PublicIdColumn) -> None:
        """Fill the rows, beside other processes that do the same."""
        if self.given["format"] is None and self.given["models"] is None:
            _require_usual_length(connection, target)
        progress = run_backfill(
            connection,
            target.table,
            target.column,
            format=target.format,
            schema=target.schema,
            batch_seconds=self.pace.batch_seconds,
            pause=self.pace.pause,
            wait_while=self.pace.wait_while,
            update_triggers=self.consent.update_triggers,
            on_progress=self.on_progress,
        )
        rows = "row" if progress.filled == 1 else "rows"
        click.echo(f"{progress.filled} {rows} of {target.table} got an id in {progress.seconds:.1f} s")
        if not progress.finished:
            raise BackfillIncomplete(
                table=target.table,
                column=target.column,
                schema=target.schema,
                format=target.format,
                missing=live_table(connection, target).count_missing(),
            )


def _require_usual_length(connection: Connection, target: PublicIdColumn) -> None:
    # a column of another length has another format, and a forgotten prefix cannot be added later
    inspector = inspect(connection)
    table, schema = target.table, target.schema
    columns = inspector.get_columns(table, schema=schema) if inspector.has_table(table, schema=schema) else []
    for type_ in (reflected["type"] for reflected in columns if reflected["name"] == target.column):
        if isinstance(type_, String) and type_.length in (None, target.format.max_length):
            continue
        has = f"has {type_.length} characters" if isinstance(type_, String) else f"has the type {type_}"
        raise UsageProblem(
            f"{table}.{target.column} {has} and ids of {target.format!r} have {target.format.max_length}; "
            f"name the format of the ids, such as --format 'NanoId(prefix=\"cus\")'"
        )


_DRY_RUN = click.option("--dry-run", is_flag=True, help="Print the steps and what stands in the way. Change nothing.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


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
    @options(PLACE, COLUMN, *groups, [JOBS, _DRY_RUN])
    def command(**given: Any) -> None:
        _run(name, given)

    return command


_AGAIN = "After a failure or Ctrl-C, the same command continues with what is left."

OPERATIONS: Sequence[click.Command] = (
    _command(
        "add",
        "Give each TABLE in use a column of public ids.",
        f"These are the phases expand, backfill and contract, one after the other. {_AGAIN}",
        *(CONSENT, PATIENCE, PACE),
    ),
    _command(
        "expand",
        "Add the column of ids to each TABLE, nullable.",
        f"The database gives ids to new rows from then on. {_AGAIN}",
        *(CONSENT, PATIENCE),
    ),
    _command(
        "backfill",
        "Store an id in each row that has none, in short batches.",
        f"Several processes may work on one table, beside readers and writers. {_AGAIN}",
        *([TRIGGERS], PACE),
    ),
    _command(
        "contract",
        "Make the column of each TABLE unique and NOT NULL.",
        f"The index is built beside readers and writers. All rows must have an id. {_AGAIN}",
        *(CONSENT, PATIENCE),
    ),
    _command(
        "loosen",
        "Undo contract: allow NULL, and drop the unique index.",
        f"The ids stay. {_AGAIN}",
        PATIENCE,
    ),
    _command(
        "drop",
        "Drop the column of each TABLE, and with it the ids.",
        f"The index, the default and the function go as well. Links that contain the ids are dead. {_AGAIN}",
        *(PATIENCE, [_YES]),
    ),
)
