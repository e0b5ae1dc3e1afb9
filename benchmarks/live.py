"""Adding public ids to a table in use: ``op.add_public_id()``, compared with the usual migration.

The load runs meanwhile, in its own processes. Measured is its view: failed statements, and the longest wait. A picture
of each database goes into the folder of results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine

from benchmarks import live_load
from benchmarks.databases import Bench, Database
from benchmarks.live_load import PER_SECOND, Sample, summary
from benchmarks.live_picture import draw
from benchmarks.live_run import LOCK_TIMEOUT, STALL, Marks, Outcome, add_public_ids, migrated
from benchmarks.live_table import FORMAT, TABLE, table
from benchmarks.measure import Comparison
from sqlalchemy_public_id import backfill
from sqlalchemy_public_id.alembic import expand_public_id

__all__ = ["run"]

_NAIVE = sa.String(16)
_HASH = {"postgresql": "substr(md5(random()::text || id), 1, 16)"}
_NAMES = {"postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare both migrations on each server, under load, and the backfill with one UPDATE of all rows."""
    rows = bench.rows or bench.times(2_000_000, 50_000)
    for database in bench.on("postgresql", "mysql", "mariadb"):
        ours = migrated(database, rows, bench, "op.add_public_id()", add_public_ids)
        naive = migrated(database, rows, bench, "the naive way", _naive)
        yield from _compared(database.name, ours, naive)
        picture = bench.results / f"live-{database.name}.png"
        title = f"{_NAMES[database.name]} {database.version}, {rows:,} rows, {PER_SECOND} statements/s of old code"
        draw([ours.course, naive.course], title, LOCK_TIMEOUT, picture)
        bench.notes += [*ours.notes(database.name), *naive.notes(database.name), f"{database.name}: see {picture}"]
    for database in bench.on("postgresql"):
        yield from _backfills(database, rows, bench)


def _naive(engine: Engine, marks: Marks) -> None:
    """Migrate without regard to the load: one migration of four operations."""
    made = _HASH.get(engine.name, "LEFT(SHA2(CONCAT(RAND(), id), 256), 16)")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"transaction_per_migration": True})
        op = Operations(context)
        with context.begin_transaction(_per_migration=True):
            marks.append((time.monotonic(), "add column"))
            op.add_column(TABLE, sa.Column("public_id", _NAIVE))
            marks.append((time.monotonic(), "UPDATE"))
            op.execute(f"UPDATE {TABLE} SET public_id = {made}")
            marks.append((time.monotonic(), "unique constraint"))
            op.create_unique_constraint("uq_live_person_public_id", TABLE, ["public_id"])
            marks.append((time.monotonic(), "NOT NULL"))
            op.alter_column(TABLE, "public_id", existing_type=_NAIVE, nullable=False)


def _compared(database: str, ours: Outcome, naive: Outcome) -> Iterator[Comparison]:
    """Compare the errors and waits of the load with their limits, and with the naive way."""

    def row(what: str, names: tuple[str, str], unit: str, values: tuple[float, float], **goal: Any) -> Comparison:
        return Comparison(f"{what}, {database}", *names, unit, [float(values[0])], [float(values[1])], **goal)

    both, allowed = (ours.name, naive.name), (ours.name, "allowed")
    yield row("failed statements", allowed, "failed", (ours.failed, 0), goal=0, difference=True)
    yield row("failed statements", both, "failed", (ours.failed, naive.failed), difference=True)
    yield row("longest statement", allowed, "ms", (ours.stall * 1e3, STALL * 1e3), goal=1)
    yield row("longest statement", both, "ms", (ours.stall * 1e3, naive.stall * 1e3))
    names = "while " + ours.name, "before"
    yield row("p99 of latency", names, "ms", (_p99(ours.meanwhile), _p99(ours.before)))
    yield row("p99 of latency", both, "ms", (_p99(ours.meanwhile), _p99(naive.meanwhile)))
    names = ours.name, naive.name + (", which broke off" if naive.broke else "")
    yield row("from nothing to the end", names, "s", (ours.last - ours.first, naive.last - naive.first))
    wrong = sum(ours.faults[name] for name in ("without", "not distinct", "malformed", "column not complete"))
    yield row("rows that are not as they should be", allowed, "rows", (wrong, 0), goal=0, difference=True)


def _p99(samples: list[Sample]) -> float:
    return float(summary(samples)["p99_ms"])


# --- the backfill against one UPDATE


def _backfills(database: Database, rows: int, bench: Bench) -> Iterator[Comparison]:
    """Fill the same table in each way under the same load, with a fresh table each time."""
    rivals = {
        "UPDATE … SET public_id = DEFAULT": "DEFAULT",
        "UPDATE … SET public_id = a cheap hash": _HASH["postgresql"],
    }
    ways: dict[str, Callable[[Engine], int]] = {"backfill.run()": _filled_by_us}
    ways |= {name: partial(_filled_at_once, made) for name, made in rivals.items()}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(bench.times(3, 1)):
        for name, fill in list(ways.items())[:: -1 if turn % 2 else 1]:
            with table(database, rows) as engine:
                _expand(engine)
                with live_load.running(database.url, rows) as load:
                    time.sleep(1)
                    began = time.monotonic()
                    filled = fill(engine)
                    taken[name].append((time.monotonic() - began) * 1e6 / filled)
                bench.details[f"{database.name}: {name}, turn {turn + 1}"] = summary(load.samples)
    what = f"backfill of {rows} rows, {database.name}"
    ours, *others = taken
    for rival in others:
        yield Comparison(what, ours, rival, "µs", taken[ours], taken[rival], goal=2)


def _expand(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        with context.begin_transaction():
            expand_public_id(Operations(context), TABLE, format=FORMAT)


def _filled_by_us(engine: Engine) -> int:
    progress = backfill.run(engine, TABLE, format=FORMAT)
    assert progress.finished
    return progress.filled


def _filled_at_once(made: str, engine: Engine) -> int:
    with engine.begin() as connection:
        return connection.exec_driver_sql(f"UPDATE {TABLE} SET public_id = {made} WHERE public_id IS NULL").rowcount
