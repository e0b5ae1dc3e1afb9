"""One migration of a table in use, as its load sees it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from benchmarks import live_load
from benchmarks.databases import Bench, Database
from benchmarks.live_load import Load, Sample, summary
from benchmarks.live_picture import Course
from benchmarks.live_table import FORMAT, TABLE, faults, table
from sqlalchemy_public_id.alembic import add_public_id
from sqlalchemy_public_id.errors import PublicIdError
from sqlalchemy_public_id.migrating import Triggers

__all__ = ["LOCK_TIMEOUT", "STALL", "Marks", "Outcome", "add_public_ids", "migrated"]

LOCK_TIMEOUT = 1.0
STALL = LOCK_TIMEOUT + 0.25
"""The longest time of a statement: the lock timeout, and a quarter for a busy machine."""
Marks: TypeAlias = list[tuple[float, str]]
"""Start and name of each step."""


@dataclass
class Outcome:
    """One migration, and the statements of the load before and during it."""

    name: str
    load: Load
    first: float
    last: float
    marks: Marks
    broke: str | None
    faults: dict[str, int] = field(default_factory=dict)

    @property
    def before(self) -> list[Sample]:
        return [sample for sample in self.load.samples if sample.due >= self.load.began and sample.ended < self.first]

    @property
    def meanwhile(self) -> list[Sample]:
        """Return the samples from the start of the migration to the end of the load: its result can hurt, too."""
        return self.load.between(self.first, float("inf"))

    @property
    def failed(self) -> int:
        return sum(sample.error is not None for sample in self.load.samples)

    @property
    def stall(self) -> float:
        return max(sample.took for sample in self.meanwhile)

    @property
    def course(self) -> Course:
        name = f"{self.name}, which broke off" if self.broke else self.name
        return Course(name, self.load.samples, self.first, self.last, self.marks)

    @property
    def steps(self) -> dict[str, float]:
        """Return the seconds of each step."""
        ends = [at for at, _ in self.marks[1:]] + [self.last]
        return {name: round(end - at, 3) for (at, name), end in zip(self.marks, ends, strict=True)}

    def notes(self, database: str) -> list[str]:
        """Return the facts without a column in the table of comparisons."""
        steps = ", ".join(f"{name} {took:.2f} s" for name, took in self.steps.items())
        broke = f"BROKE OFF: {self.broke}; " if self.broke else ""
        failed = "; ".join(f"{times} × {what}" for what, times in summary(self.load.samples)["failed"].items())
        longest = max(self.meanwhile, key=lambda sample: sample.took)
        speed = ""
        if "backfill" in self.steps:
            speed = f"; backfill {self.faults['rows'] / self.steps['backfill']:,.0f} rows/s"
        where = f"began {longest.began - self.first:+.2f} s, and ended {self._at(longest)}"
        return [
            f"{database}, {self.name}: {broke}{steps}{speed}",
            f"  rows {self.faults}; failed: {failed or 'none'}",
            f"  the longest statement, one {longest.kind} of {longest.took * 1e3:.0f} ms, {where}",
        ]

    def _at(self, sample: Sample) -> str:
        """Return the step that ran at the end of *sample*."""
        if sample.ended > self.last:
            return "after the migration"
        return next(f"during {name!r}" for at, name in reversed(self.marks) if at <= sample.ended)


def migrated(
    database: Database,
    rows: int,
    bench: Bench,
    name: str,
    migrate: Callable[[Engine, Marks], None],
    history: Sequence[str] = (),
) -> Outcome:
    """Create a table of *rows* rows, execute the statements of *history*, and run *migrate* under load."""
    rest = bench.times(10, 3)
    marks: Marks = []
    broke: str | None = None
    with table(database, rows, history) as engine:
        with live_load.running(database.url, rows) as load:
            time.sleep(rest)
            first = time.monotonic()
            try:
                migrate(engine, marks)
            except (DBAPIError, PublicIdError) as error:
                broke = str(error).splitlines()[0]
            last = time.monotonic()
            time.sleep(rest)
        wrong = faults(engine)
    outcome = Outcome(name, load, first, last, marks, broke, wrong)
    bench.details[f"{database.name}: {name}"] = {
        "rows": rows,
        "seconds": round(last - first, 3),
        "broke_off": broke,
        "steps": outcome.steps,
        "faults": wrong,
        "before": summary(outcome.before),
        "meanwhile": summary(outcome.meanwhile),
    }
    return outcome


def add_public_ids(
    engine: Engine, marks: Marks, *, contracting: Callable[[], object] = int, update_triggers: Triggers = "refuse"
) -> None:
    """Migrate our way: one operation. *contracting* is called when the backfill has ended."""

    def begins(connection: Connection) -> bool:
        """Record the start of the backfill, which calls this before each batch."""
        if not is_filling():
            marks.append((time.monotonic(), "backfill"))
        return False

    def is_filling() -> bool:
        return any(name == "backfill" for _, name in marks)

    def step(name: str) -> None:
        if is_filling() and marks[-1][1] == "backfill":
            contracting()
        marks.append((time.monotonic(), name))

    with engine.connect() as connection, _logged(step):
        context = MigrationContext.configure(connection, opts={"transaction_per_migration": True})
        with context.begin_transaction(_per_migration=True):
            op = Operations(context)
            add_public_id(
                op,
                TABLE,
                format=FORMAT,
                lock_timeout=LOCK_TIMEOUT,
                wait_while=begins,
                update_triggers=update_triggers,
            )


@contextmanager
def _logged(begins: Callable[[str], None]) -> Iterator[None]:
    """Call *begins* with the name of each step, from the log of the library: "table.column: step"."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno == logging.INFO and isinstance(record.args, tuple) and isinstance(record.args[1], str):
                begins(record.args[1])

    log, handler = logging.getLogger("sqlalchemy_public_id.migrating"), Handler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
