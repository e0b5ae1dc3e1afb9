"""The report of a migration: what it would do, and its obstacles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations.obstacles import READ_ONLY_REMEDY, SAMPLE
from sqlalchemy_public_id.migrations.plan import Lock, Migration
from sqlalchemy_public_id.migrations.trial import try_ids

_ROWS_A_SECOND = {"backfill": 50_000, "index": 500_000}
"""Rates under load, on two cores; ``make bench ARGS="--suite live"`` measures them."""
_LONGEST = 240
"""The length of the longest line of a statement that is shown whole."""
LOCKS = {
    Lock.STRONG: "all others wait for milliseconds",
    Lock.BUILD: "readers and writers go on, other ALTERs of the table wait",
    Lock.REWRITE: "all others wait for milliseconds at its beginning and its end",
    Lock.WRITERS: "writers wait until it ends",
}


@dataclass(frozen=True)
class PlannedStep:
    """A step that would be executed."""

    phase: str
    name: str
    lock: str
    """Which other sessions wait."""
    statements: tuple[str, ...] = ()
    """The statements; none for the backfill, which sends as many as the rows need."""


@dataclass(frozen=True)
class MigrationReport:
    """The steps of a migration, with their locks and an estimate, and its obstacles."""

    target: str
    """The column, with its table and schema."""
    database: str
    rows: int | None
    """The number of rows of the table, as the database estimates it."""
    size: int | None
    """The size of the table and its indexes in bytes; ``None`` on SQLite."""
    seconds: float | None
    """About how long the migration takes, if nobody keeps the table locked."""
    steps: tuple[PlannedStep, ...]
    rights: tuple[str, ...]
    """The rights that the migration needs."""
    triggers: tuple[str, ...]
    """The triggers that fire for an UPDATE of the column."""
    warnings: tuple[str, ...]
    """The work to do elsewhere, as on the subscribers of a published table, and what applications must expect."""
    obstacles: tuple[Obstacle, ...]
    not_examined: tuple[str, ...] = ()
    """The code that the database stores, and that could not be read, each with the reason."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary that can be serialized as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        rows = "" if self.rows is None else f", about {self.rows:,} rows"
        time = "" if self.seconds is None else f", about {in_time(self.seconds)}"
        lines = [f"{self.target} on {self.database}{rows}{time}"]
        for number, step in enumerate(self.steps, 1):
            lines.append(f"{number}. {step.phase}: {step.name} (lock: {step.lock})")
            lines += [f"   {_cut(line)}" for sql in step.statements for line in sql.splitlines()]
        if any(len(line) > _LONGEST for step in self.steps for sql in step.statements for line in sql.splitlines()):
            lines.append(f"lines of more than {_LONGEST} characters are cut here; as JSON, the report has them whole")
        if not self.steps and not self.obstacles:
            lines.append("nothing is left to do")
        if self.steps:
            lines.append(f"rights: {', '.join(self.rights)}")
        lines += [f"trigger: {name} fires for an UPDATE" for name in self.triggers]
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += [f"not examined: {what}" for what in self.not_examined]
        lines += [f"obstacle: {obstacle}" for obstacle in self.obstacles]
        return "\n".join(lines)


def _cut(line: str) -> str:
    """Return *line*, without the middle of a server default of MySQL, which has 1,700 characters."""
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 60]} … {line[-50:]}"


def build_report(migration: Migration, obstacles: Sequence[Obstacle]) -> MigrationReport:
    """Build the report of *migration*."""
    live = migration.table
    steps = tuple(_steps(migration)) if not obstacles else ()
    kinds = ["backfill"] * migration.fills_rows + ["index"] * any("index" in step.name for step in steps)
    rows = live.estimate_rows()
    warnings = [*migration.plan.warnings(migration)]
    if migration.read_only is not None and steps:
        warnings.insert(0, f"{migration.read_only}: to migrate, {READ_ONLY_REMEDY}")
    if (
        "contract" in migration.phases
        and migration.state.exists
        and not migration.state.complete
        and (rows or 0) > SAMPLE
    ):
        warnings.append(f"the ids of the first {SAMPLE:,} rows were compared with the format; the contract reads all")
    if migration.plan.deadlocks_with_readers and steps:
        warnings.append(
            f"a transaction that reads {live.target.table} and then writes to it gets error 1213 while a step waits "
            f"for its lock; the application has to repeat it, as after any deadlock"
        )
    if migration.change is not None:
        warnings += map(str, migration.plan.find_statements(migration, migration.change))
    may_read = not any(obstacle.code == "missing-right" for obstacle in obstacles)
    if may_read and migration.state.exists and {"expand", "contract"} & {*migration.phases}:
        warnings += [str(outcome) for outcome in try_ids(live) if outcome.refused is None]
    return MigrationReport(
        target=str(migration.target),
        database=live.connection.dialect.name,
        rows=rows,
        size=live.estimate_bytes(),
        seconds=None if rows is None else sum(rows / _ROWS_A_SECOND[kind] for kind in kinds),
        steps=steps,
        rights=tuple(migration.plan.rights(migration)),
        triggers=tuple(migration.triggers) if migration.fills_rows else (),
        warnings=tuple(warnings),
        obstacles=tuple(obstacles),
        not_examined=(*migration.stored_code.not_examined, *migration.stored_code.elsewhere),
    )


def _steps(migration: Migration) -> Iterator[PlannedStep]:
    for phase in migration.phases:
        if phase == "backfill" and migration.fills_rows:
            lock = "writers of the same rows wait for the time of a batch"
            yield PlannedStep(phase, "set the ids of rows without one, in batches", lock)
        for of_phase, step in migration.steps:
            if of_phase == phase:
                is_allowed = step.lock is Lock.REWRITE and migration.consent.allow_lock
                lock = LOCKS[Lock.WRITERS if is_allowed else step.lock]
                yield PlannedStep(phase, step.name, lock, tuple(step.statements(migration.state)))


def in_time(seconds: float) -> str:
    """Return *seconds* as text, in seconds, minutes or hours.

    >>> in_time(0.2), in_time(75), in_time(9000)
    ('1 s', '1 min', '2.5 h')
    """
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
