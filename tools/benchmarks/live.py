"""Adding public ids to a table in use: ``op.add_public_id()``, compared with the usual migration.

Ten processes write to the table meanwhile, and two read it (``live_load.py``). What they see is measured: failed
statements, and the longest wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.alembic import add_public_id
from sqlalchemy_public_id.errors import PublicIdError
from tools.benchmarks import live_load
from tools.benchmarks.databases import Bench, Database
from tools.benchmarks.live_load import TABLE, Sample, summary
from tools.benchmarks.measure import Comparison

__all__ = ["OURS", "THEIRS", "run"]

OURS, THEIRS = "op.add_public_id()", "the naive way"
_FORMAT = NanoId(prefix="per")
_LOCK_TIMEOUT = 1.0
_STALL = _LOCK_TIMEOUT + 0.25
"""The longest acceptable time of a statement: the lock timeout, plus a quarter for a busy machine."""


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare both migrations on each server under load, with each other and with the limits."""
    rows = bench.rows or bench.times(2_000_000, 50_000)
    for database in bench.on("postgresql", "mysql", "mariadb"):
        ours, theirs = (_migrated(database, rows, bench, name) for name in (OURS, THEIRS))
        names = OURS, THEIRS + (", which broke off" if theirs["broke_off"] else "")

        def row(what: str, names: tuple[str, str], unit: str, *values: float, name: str = database.name, **more: Any):
            return Comparison(f"{what}, {name}", *names, unit, [float(values[0])], [float(values[1])], **more)

        failed, naive_failed = (len(each["load"].failed()) for each in (ours, theirs))
        stall, naive_stall = (each["meanwhile"]["longest_stall_ms"] for each in (ours, theirs))
        wrong = sum(value for name, value in ours["faults"].items() if name != "rows")
        allowed = OURS, "allowed"
        yield row("failed statements", allowed, "failed", failed, 0, goal=0, difference=True)
        yield row("failed statements", names, "failed", failed, naive_failed, difference=True)
        yield row("longest statement", allowed, "ms", stall, _STALL * 1e3, goal=1)
        yield row("longest statement", names, "ms", stall, naive_stall)
        yield row("p99 of latency", names, "ms", ours["meanwhile"]["p99_ms"], theirs["meanwhile"]["p99_ms"])
        yield row("from nothing to the end", names, "s", ours["seconds"], theirs["seconds"])
        yield row("rows that are not as they should be", allowed, "rows", wrong, 0, goal=0, difference=True)


def _migrated(database: Database, rows: int, bench: Bench, name: str) -> dict[str, Any]:
    """Create a table of *rows* rows, migrate it under load, and return what happened."""
    rest, broke = bench.times(10, 3), None
    migrate: Callable[[Operations], None] = _ours if name == OURS else _naive
    with _table(database, rows) as engine:
        with live_load.running(database.url, rows) as load:
            time.sleep(rest)
            first = time.monotonic()
            try:
                with engine.connect() as connection:
                    context = MigrationContext.configure(connection, opts={"transaction_per_migration": True})
                    with context.begin_transaction(_per_migration=True):
                        migrate(Operations(context))
            except (DBAPIError, PublicIdError) as error:
                broke = str(error).splitlines()[0]
            last = time.monotonic()
            time.sleep(rest)
        faults = _faults(engine)
    before: list[Sample] = [each for each in load.samples if each.due >= load.began and each.ended < first]
    facts = {
        "rows": rows,
        "seconds": round(last - first, 3),
        "broke_off": broke,
        "faults": faults,
        "before": summary(before),
        # to the end of the load, because a migration can also do harm afterwards
        "meanwhile": summary(each for each in load.samples if each.ended >= first),
    }
    bench.details[f"{database.name}: {name}"] = facts
    return {**facts, "load": load}


def _ours(op: Operations) -> None:
    add_public_id(op, TABLE, format=_FORMAT, lock_timeout=_LOCK_TIMEOUT)


def _naive(op: Operations) -> None:
    """Migrate without regard to the load. The ids are cheaper than ours: part of a hash."""
    is_postgresql, type_ = op.get_bind().dialect.name == "postgresql", sa.String(16)
    op.add_column(TABLE, sa.Column("public_id", type_))
    made = "substr(md5(random()::text || id), 1, 16)" if is_postgresql else "LEFT(SHA2(CONCAT(RAND(), id), 256), 16)"
    op.execute(f"UPDATE {TABLE} SET public_id = {made}")
    op.create_unique_constraint("uq_live_person_public_id", TABLE, ["public_id"])
    op.alter_column(TABLE, "public_id", existing_type=type_, nullable=False)


# --- the table


@contextmanager
def _table(database: Database, rows: int) -> Iterator[Engine]:
    """Create a table of *rows* rows without public ids, and provide an unguarded engine."""
    engine = create_engine(database.url)
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {TABLE}")
            _fill(connection, engine.name == "postgresql", rows)
        yield engine
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"DROP TABLE {TABLE}")
    finally:
        engine.dispose()


def _fill(connection: Connection, is_postgresql: bool, rows: int) -> None:
    key = "bigint GENERATED BY DEFAULT AS IDENTITY" if is_postgresql else "BIGINT UNSIGNED NOT NULL AUTO_INCREMENT"
    connection.exec_driver_sql(
        f"CREATE TABLE {TABLE} (id {key} PRIMARY KEY, name varchar(50) NOT NULL, email varchar(100) NOT NULL, "
        f"visits integer NOT NULL DEFAULT 0)"
    )
    connection.exec_driver_sql(f"INSERT INTO {TABLE} (name, email) VALUES ('person 1', '1@example.org')")
    there = 1
    while there < rows:
        more = min(there, rows - there, 200_000)
        connection.exec_driver_sql(
            f"INSERT INTO {TABLE} (id, name, email) SELECT id + {there}, CONCAT('person ', id + {there}), "
            f"CONCAT(id + {there}, '@example.org') FROM {TABLE} WHERE id <= {more}"
        )
        there += more
    if is_postgresql:
        connection.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('{TABLE}', 'id'), {rows})")
    connection.exec_driver_sql(f"CREATE INDEX ix_live_person_email ON {TABLE} (email)")
    connection.exec_driver_sql(f"{'VACUUM ANALYZE' if is_postgresql else 'ANALYZE TABLE'} {TABLE}").close()


def _faults(engine: Engine) -> dict[str, int]:
    """Count missing, duplicate and malformed ids of all rows in the database."""
    matches = "~" if engine.name == "postgresql" else "REGEXP"
    with engine.connect() as connection:
        columns = {column["name"]: column for column in sa.inspect(connection).get_columns(TABLE)}
        indexes = sa.inspect(connection).get_indexes(TABLE)
        if "public_id" not in columns:
            count = connection.exec_driver_sql(f"SELECT count(*) FROM {TABLE}").scalar_one()
            return {"rows": count, "without": count, "column not complete": 1}
        query = sa.text(
            f"SELECT count(*), count(*) - count(public_id), count(public_id) - count(DISTINCT public_id), "
            f"count(CASE WHEN NOT public_id {matches} :pattern THEN 1 END) FROM {TABLE}"
        )
        found = connection.execute(query, {"pattern": _FORMAT.pattern}).one()
    unique = any(index["unique"] and index["column_names"] == ["public_id"] for index in indexes)
    faults = dict(zip(("rows", "without", "not distinct", "malformed"), map(int, found), strict=True))
    return {**faults, "column not complete": int(columns["public_id"]["nullable"] or not unique)}
