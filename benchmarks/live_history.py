"""``op.add_public_id()`` on a table in use that has triggers, and beside transactions that others leave open.

One idle transaction has read the table before the migration begins, and one before its second half begins. Each holds
the locks of a reader for 20 seconds. The triggers keep the time of the last change and a row of each change.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

from sqlalchemy import Engine

from benchmarks.databases import Bench
from benchmarks.live_run import STALL, Marks, Outcome, add_public_ids, migrated
from benchmarks.live_table import TABLE
from benchmarks.measure import Comparison

__all__ = ["run"]

_IDLE = 20.0
"""Seconds that each idle transaction holds its locks."""
_AUDIT = "INSERT INTO live_audit (person, visits) VALUES (NEW.id, NEW.visits)"
_HISTORY = {
    "postgresql": [
        "DROP TABLE IF EXISTS live_audit",
        "CREATE TABLE live_audit (id bigserial PRIMARY KEY, person bigint, visits integer)",
        f"ALTER TABLE {TABLE} ADD COLUMN updated_at timestamptz",
        (
            "CREATE OR REPLACE FUNCTION live_touch() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN NEW.updated_at = now(); RETURN NEW; END $$"
        ),
        (
            f"CREATE OR REPLACE FUNCTION live_audit() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {_AUDIT}; RETURN NULL; END $$"
        ),
        f"CREATE TRIGGER live_touch BEFORE UPDATE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION live_touch()",
        f"CREATE TRIGGER live_audit AFTER UPDATE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION live_audit()",
    ],
    "mysql": [
        "DROP TABLE IF EXISTS live_audit",
        "CREATE TABLE live_audit (id BIGINT AUTO_INCREMENT PRIMARY KEY, person BIGINT UNSIGNED, visits INT)",
        (
            f"ALTER TABLE {TABLE} ADD COLUMN updated_at TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP "
            f"ON UPDATE CURRENT_TIMESTAMP"
        ),
        f"CREATE TRIGGER live_audit AFTER UPDATE ON {TABLE} FOR EACH ROW {_AUDIT}",
    ],
}


def run(bench: Bench) -> Iterator[Comparison]:
    """Migrate tables of two sizes on each server, beside idle transactions, and with triggers."""
    sizes = [bench.rows] if bench.rows else [bench.times(200_000, 20_000), bench.times(2_000_000, 50_000)]
    for database in bench.on("postgresql", "mysql", "mariadb"):
        history = _HISTORY["postgresql" if database.name == "postgresql" else "mysql"]
        for rows in sizes:
            idle, triggers = f"idle transactions, {rows:,} rows", f"triggers, {rows:,} rows"
            yield from _compared(database.name, migrated(database, rows, bench, idle, _beside_idle), bench)
            fire = partial(add_public_ids, update_triggers="fire")
            yield from _compared(database.name, migrated(database, rows, bench, triggers, fire, history), bench)


def _beside_idle(engine: Engine, marks: Marks) -> None:
    """Migrate beside one idle transaction from before the migration, and one from the end of the backfill."""
    _hold(engine)
    add_public_ids(engine, marks, contracting=partial(_hold, engine))


def _hold(engine: Engine) -> None:
    """Begin a transaction, read the table, and end the transaction later."""
    connection = engine.connect().execution_options(isolation_level="REPEATABLE READ")
    connection.exec_driver_sql(f"SELECT * FROM {TABLE} WHERE id = 1").all()
    threading.Timer(_IDLE, connection.close).start()


def _compared(database: str, outcome: Outcome, bench: Bench) -> Iterator[Comparison]:
    """Compare the errors, waits and rows of one migration with what is allowed."""
    bench.notes += outcome.notes(database)
    names = "op.add_public_id()", "allowed"
    wrong = sum(outcome.faults[name] for name in ("without", "not distinct", "malformed", "column not complete"))
    what = f"{outcome.name}, {database}"
    yield Comparison(f"failed statements, {what}", *names, "failed", [outcome.failed], [0], 0, difference=True)
    yield Comparison(f"longest statement, {what}", *names, "ms", [outcome.stall * 1e3], [STALL * 1e3], 1)
    yield Comparison(f"rows that are not as they should be, {what}", *names, "rows", [wrong], [0], 0, difference=True)
