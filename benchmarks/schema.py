"""Public ids for all 91 tables of a schema in use, by one revision of Alembic, and by ``public-id add --all``.

Four writers insert and update rows of all tables meanwhile. Each command is a process of its own, as a user calls it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError

from benchmarks.databases import Bench, Database
from benchmarks.live_run import STALL
from benchmarks.measure import Comparison
from benchmarks.schema_models import TABLES, Before

__all__ = ["run"]

_ROOT = Path(__file__).parents[1]
_WRITERS, _PER_SECOND = 4, 50
_MODELS = "benchmarks.schema_models:Base"


def run(bench: Bench) -> Iterator[Comparison]:
    """Add public ids to all tables, in both ways, beside the writers."""
    rows = bench.rows or bench.times(20_000, 200)
    for database in bench.on("postgresql", "mysql", "mariadb"):
        for name, way in {"alembic": _by_alembic, "public-id": _by_command}.items():
            with _tables(database, rows) as engine:
                with _writing(engine) as load:
                    taken = way(database)
                    time.sleep(1)
                wrong = _count_wrong(engine)
            steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in taken.items())
            bench.notes.append(
                f"{database.name}, {len(TABLES)} tables of {rows:,} rows, {name}: {steps}; {load.statements:,} "
                f"statements of writers, {len(load.failed)} failed, the longest {load.longest * 1e3:.0f} ms; "
                f"{wrong} tables are not complete"
            )
            bench.details[f"{database.name}: {name}"] = {"rows": rows, "seconds": taken, "failed": load.failed}
            ours = name, "allowed"
            failed, longest = [float(len(load.failed))], [load.longest * 1e3]
            yield Comparison(f"failed statements, {database.name}", *ours, "failed", failed, [0.0], 0, True)
            yield Comparison(f"longest statement, {database.name}", *ours, "ms", longest, [STALL * 1e3], 1)
            yield Comparison(f"incomplete tables, {database.name}", *ours, "tables", [float(wrong)], [0.0], 0, True)


def _by_alembic(database: Database) -> dict[str, float]:
    """Write a revision and run it; return the seconds of each command."""
    with tempfile.TemporaryDirectory(prefix="public-id-bench-") as folder:
        template = str(_ROOT / "alembic_templates" / "generic")
        _call(database, folder, "alembic", "init", "-t", template, "migrations")
        ini, env = Path(folder, "alembic.ini"), Path(folder, "migrations", "env.py")
        url = database.url.render_as_string(hide_password=False).replace("%", "%%")
        lines = ini.read_text().splitlines()
        ini.write_text("\n".join(f"sqlalchemy.url = {url}" if "sqlalchemy.url" in line else line for line in lines))
        models = "from benchmarks.schema_models import Base\ntarget_metadata = Base.metadata"
        env.write_text(env.read_text().replace("target_metadata = None", models))
        return {
            step.split()[0]: _call(database, folder, "alembic", *step.split())
            for step in ("revision --autogenerate -m ids", "upgrade head", "check")
        }


def _by_command(database: Database) -> dict[str, float]:
    """Look, and add public ids to all tables; return the seconds of each command."""
    module = "sqlalchemy_public_id.cli"
    return {
        "plan": _call(database, str(_ROOT), module, "plan", "--all", "--models", _MODELS),
        "add": _call(database, str(_ROOT), module, "add", "--all", "--models", _MODELS, "--jobs", "2"),
    }


def _call(database: Database, folder: str, *command: str) -> float:
    """Run ``python -m`` *command* in *folder*, and return its seconds."""
    url = database.url.render_as_string(hide_password=False)
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "src")])
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "DATABASE_URL": url, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return round(time.monotonic() - began, 1)


@contextmanager
def _tables(database: Database, rows: int) -> Iterator[Engine]:
    """Create the tables without public ids, each with *rows* rows, and drop them afterwards."""
    engine = create_engine(database.url, pool_size=_WRITERS + 1)
    values = ", ".join(f"('person {number}', 0)" for number in range(min(rows, 100)))
    Before.metadata.drop_all(engine)
    Before.metadata.create_all(engine)
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("DROP TABLE IF EXISTS alembic_version"))
            for name in TABLES:
                connection.execute(text(f"INSERT INTO {name} (name, visits) VALUES {values}"))
                there = min(rows, 100)
                while there < rows:
                    more = min(there, rows - there)
                    copy = f"INSERT INTO {name} (name, visits) SELECT name, visits FROM {name} LIMIT {more}"
                    connection.execute(text(copy))
                    there += more
                connection.execute(text(f"{'ANALYZE' if engine.name == 'postgresql' else 'ANALYZE TABLE'} {name}"))
        yield engine
    finally:
        Before.metadata.drop_all(engine)
        engine.dispose()


@dataclass
class _Load:
    statements: int = 0
    failed: list[str] = field(default_factory=list)
    longest: float = 0.0


@contextmanager
def _writing(engine: Engine) -> Iterator[_Load]:
    """Let the writers work during the block."""
    load, stop = _Load(), threading.Event()
    writers = [threading.Thread(target=_write, args=(engine, load, stop)) for _ in range(_WRITERS)]
    for writer in writers:
        writer.start()
    try:
        yield load
    finally:
        stop.set()
        for writer in writers:
            writer.join()


def _write(engine: Engine, load: _Load, stop: threading.Event) -> None:
    chance = random.Random()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while not stop.wait(chance.uniform(0.5, 1.5) / _PER_SECOND):
            name = chance.choice(TABLES)
            update = f"UPDATE {name} SET visits = visits + 1 WHERE id = :id"
            insert = f"INSERT INTO {name} (name, visits) VALUES ('old program', :id)"
            began = time.monotonic()
            try:
                connection.execute(text(chance.choice([insert, update])), {"id": chance.randint(1, 100)})
            except DBAPIError as error:
                load.failed.append(str(error.orig).splitlines()[0])
            load.statements += 1
            load.longest = max(load.longest, time.monotonic() - began)


def _count_wrong(engine: Engine) -> int:
    """Return how many tables have a column of public ids that is not unique, or may be NULL."""
    wrong = 0
    for name in TABLES:
        columns = {column["name"]: column for column in inspect(engine).get_columns(name)}
        unique = [index["column_names"] for index in inspect(engine).get_indexes(name) if index["unique"]]
        wrong += "public_id" not in columns or bool(columns["public_id"]["nullable"]) or ["public_id"] not in unique
    return wrong
