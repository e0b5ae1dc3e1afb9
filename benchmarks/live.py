"""Adding public ids to a table in use: ``op.add_public_id()``, compared with the usual migration.

The load runs meanwhile, in its own processes. Measured is its view: failed statements, and the longest wait. A picture
of each database goes into the folder of results.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError

from benchmarks import live_load
from benchmarks.databases import Bench, Database
from benchmarks.live_load import PER_SECOND, Load, Sample, summary
from benchmarks.live_picture import Course, draw
from benchmarks.measure import Comparison
from sqlalchemy_public_id import NanoId, backfill
from sqlalchemy_public_id.alembic import add_public_id, expand_public_id
from sqlalchemy_public_id.errors import PublicIdError

__all__ = ["run"]

_TABLE, _NAIVE = "live_person", sa.String(16)
_FORMAT = NanoId(prefix="per")
_LOCK_TIMEOUT = 1.0
_STALL = _LOCK_TIMEOUT + 0.25
"""The longest time of a statement: the lock timeout, and a quarter for a busy machine."""
_HASH = {"postgresql": "substr(md5(random()::text || id), 1, 16)"}
_NAMES = {"postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare both migrations on each server, under load, and the backfill with one UPDATE of all rows."""
    rows = bench.rows or bench.times(2_000_000, 50_000)
    for database in bench.on("postgresql", "mysql", "mariadb"):
        ours = _migrated(database, rows, bench, "op.add_public_id()", _add_public_id)
        naive = _migrated(database, rows, bench, "the naive way", _naive)
        yield from _compared(database.name, ours, naive)
        picture = bench.results / f"live-{database.name}.png"
        title = f"{_NAMES[database.name]} {database.version}, {rows:,} rows, {PER_SECOND} statements/s of old code"
        draw([ours.course, naive.course], title, _LOCK_TIMEOUT, picture)
        bench.notes += [*ours.notes(database.name), *naive.notes(database.name), f"{database.name}: see {picture}"]
    for database in bench.on("postgresql"):
        yield from _backfills(database, rows, bench)


# --- one migration under load


@dataclass
class _Outcome:
    name: str
    load: Load
    first: float
    last: float
    marks: list[tuple[float, str]]
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


def _migrated(
    database: Database, rows: int, bench: Bench, name: str, migrate: Callable[[Engine, list[tuple[float, str]]], None]
) -> _Outcome:
    """Create a table of *rows* rows, and run *migrate* under load."""
    rest = bench.times(10, 3)
    marks: list[tuple[float, str]] = []
    broke: str | None = None
    with _table(database, rows) as engine:
        with live_load.running(database.url, rows) as load:
            time.sleep(rest)
            first = time.monotonic()
            try:
                migrate(engine, marks)
            except (DBAPIError, PublicIdError) as error:
                broke = str(error).splitlines()[0]
            last = time.monotonic()
            time.sleep(rest)
        faults = _faults(engine)
    outcome = _Outcome(name, load, first, last, marks, broke, faults)
    bench.details[f"{database.name}: {name}"] = {
        "rows": rows,
        "seconds": round(last - first, 3),
        "broke_off": broke,
        "steps": outcome.steps,
        "faults": faults,
        "before": summary(outcome.before),
        "meanwhile": summary(outcome.meanwhile),
    }
    return outcome


def _add_public_id(engine: Engine, marks: list[tuple[float, str]]) -> None:
    """Migrate our way: one operation."""

    def begins(connection: Connection) -> bool:
        """Record the start of the backfill, which calls this before each batch."""
        if "backfill" not in (name for _, name in marks):
            marks.append((time.monotonic(), "backfill"))
        return False

    with engine.connect() as connection, _logged(marks):
        context = MigrationContext.configure(connection, opts={"transaction_per_migration": True})
        with context.begin_transaction(_per_migration=True):
            op = Operations(context)
            add_public_id(op, _TABLE, format=_FORMAT, lock_timeout=_LOCK_TIMEOUT, wait_while=begins)


def _naive(engine: Engine, marks: list[tuple[float, str]]) -> None:
    """Migrate without regard to the load: one migration of four operations."""
    made = _HASH.get(engine.name, "LEFT(SHA2(CONCAT(RAND(), id), 256), 16)")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"transaction_per_migration": True})
        op = Operations(context)
        with context.begin_transaction(_per_migration=True):
            marks.append((time.monotonic(), "add column"))
            op.add_column(_TABLE, sa.Column("public_id", _NAIVE))
            marks.append((time.monotonic(), "UPDATE"))
            op.execute(f"UPDATE {_TABLE} SET public_id = {made}")
            marks.append((time.monotonic(), "unique constraint"))
            op.create_unique_constraint("uq_live_person_public_id", _TABLE, ["public_id"])
            marks.append((time.monotonic(), "NOT NULL"))
            op.alter_column(_TABLE, "public_id", existing_type=_NAIVE, nullable=False)


@contextmanager
def _logged(marks: list[tuple[float, str]]) -> Iterator[None]:
    """Record the start of each step from the log of the library: "table.column: step"."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno == logging.INFO and isinstance(record.args, tuple) and isinstance(record.args[1], str):
                marks.append((time.monotonic(), record.args[1]))

    log, handler = logging.getLogger("sqlalchemy_public_id.online"), Handler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _compared(database: str, ours: _Outcome, naive: _Outcome) -> Iterator[Comparison]:
    """Compare the errors and waits of the load with their limits, and with the naive way."""

    def row(what: str, names: tuple[str, str], unit: str, values: tuple[float, float], **goal: Any) -> Comparison:
        return Comparison(f"{what}, {database}", *names, unit, [float(values[0])], [float(values[1])], **goal)

    both, allowed = (ours.name, naive.name), (ours.name, "allowed")
    yield row("failed statements", allowed, "failed", (ours.failed, 0), goal=0, difference=True)
    yield row("failed statements", both, "failed", (ours.failed, naive.failed), difference=True)
    yield row("longest statement", allowed, "ms", (ours.stall * 1e3, _STALL * 1e3), goal=1)
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
            with _table(database, rows) as engine:
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
            expand_public_id(Operations(context), _TABLE, format=_FORMAT)


def _filled_by_us(engine: Engine) -> int:
    progress = backfill.run(engine, _TABLE, format=_FORMAT)
    assert progress.finished
    return progress.filled


def _filled_at_once(made: str, engine: Engine) -> int:
    with engine.begin() as connection:
        return connection.exec_driver_sql(f"UPDATE {_TABLE} SET public_id = {made} WHERE public_id IS NULL").rowcount


# --- the table


@contextmanager
def _table(database: Database, rows: int) -> Iterator[Engine]:
    """Create a table of *rows* rows without public ids, and an unguarded engine."""
    engine = create_engine(database.url)
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {_TABLE}")
            _MAKERS[engine.name == "postgresql"](connection, rows)
        yield engine
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"DROP TABLE {_TABLE}")
    finally:
        engine.dispose()


def _make_on_postgresql(connection: Connection, rows: int) -> None:
    connection.exec_driver_sql(
        f"CREATE TABLE {_TABLE} (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name varchar(50) NOT NULL, "
        f"email varchar(100) NOT NULL, visits integer NOT NULL DEFAULT 0)"
    )
    connection.exec_driver_sql(
        f"INSERT INTO {_TABLE} (name, email) SELECT 'person ' || n, n || '@example.org' "
        f"FROM generate_series(1, {rows}) AS n"
    )
    connection.exec_driver_sql(f"CREATE INDEX ix_live_person_email ON {_TABLE} (email)")
    connection.exec_driver_sql(f"VACUUM ANALYZE {_TABLE}")


def _make_on_mysql(connection: Connection, rows: int) -> None:
    connection.exec_driver_sql(
        f"CREATE TABLE {_TABLE} (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(50) NOT NULL, "
        f"email VARCHAR(100) NOT NULL, visits INT NOT NULL DEFAULT 0)"
    )
    connection.exec_driver_sql(f"INSERT INTO {_TABLE} (id, name, email) VALUES (1, 'person 1', '1@example.org')")
    there = 1
    while there < rows:
        more = min(there, rows - there, 200_000)
        connection.exec_driver_sql(
            f"INSERT INTO {_TABLE} (id, name, email) SELECT id + {there}, CONCAT('person ', id + {there}), "
            f"CONCAT(id + {there}, '@example.org') FROM {_TABLE} WHERE id <= {more}"
        )
        there += more
    connection.exec_driver_sql(f"CREATE INDEX ix_live_person_email ON {_TABLE} (email)")
    connection.exec_driver_sql(f"ANALYZE TABLE {_TABLE}").all()


_MAKERS = {True: _make_on_postgresql, False: _make_on_mysql}


def _faults(engine: Engine) -> dict[str, int]:
    """Count missing, duplicate and malformed ids of all rows in the database."""
    matches = "~" if engine.name == "postgresql" else "REGEXP"
    with engine.connect() as connection:
        columns = {column["name"]: column for column in sa.inspect(connection).get_columns(_TABLE)}
        indexes = sa.inspect(connection).get_indexes(_TABLE)
        column = columns.get("public_id")
        if column is None:
            count = connection.exec_driver_sql(f"SELECT count(*) FROM {_TABLE}").scalar_one()
            return {"rows": count, "without": count, "not distinct": 0, "malformed": 0, "column not complete": 1}
        query = sa.text(
            f"SELECT count(*), count(*) - count(public_id), count(public_id) - count(DISTINCT public_id), "
            f"count(CASE WHEN NOT public_id {matches} :pattern THEN 1 END) FROM {_TABLE}"
        )
        found = connection.execute(query, {"pattern": _FORMAT.pattern}).one()
    unique = any(index["unique"] and index["column_names"] == ["public_id"] for index in indexes)
    names = "rows", "without", "not distinct", "malformed"
    faults = {name: int(value) for name, value in zip(names, found, strict=True)}
    return {**faults, "column not complete": int(column["nullable"] or not unique)}
