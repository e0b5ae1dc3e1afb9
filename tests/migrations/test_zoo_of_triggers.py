"""What a plan says of triggers, functions and views, and what then happens to an old program, agree."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool
from support.marks import on
from support.people import send
from support.zoo_of_triggers import MYSQL, POSTGRESQL, SQLITE, Animal

from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import Consent, Triggers
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine, run_phases
from sqlalchemy_public_id.migrations.plan import Phase, Plan
from sqlalchemy_public_id.migrations.report import MigrationReport

pytestmark = pytest.mark.backend
BY_CODE = {"stored-code", "dependants", "refused"}
WRITES = (
    "INSERT INTO invoice (id, total) VALUES (10, 5)",
    "UPDATE invoice SET total = 6 WHERE id = 10",
    "DELETE FROM invoice WHERE id = 10",
)
VOLATILE = {"at", "doc", "changed", "public_id", "words"}
"""Columns that differ from call to call, and that of the ids."""


@pytest.fixture
def zoo(engine: Engine) -> Iterator[Engine]:
    """Provide an engine for a schema of its own, with a table of invoices."""
    if engine.name == "sqlite":
        # a connection of a pool may compile a trigger for the columns that it saw last
        own, create, drop = create_engine(engine.url, poolclass=NullPool), "", ""
    elif engine.name == "postgresql":
        own = create_engine(engine.url, connect_args={"options": "-csearch_path=zoo"}, poolclass=NullPool)
        create, drop = "CREATE SCHEMA zoo", "DROP SCHEMA zoo CASCADE"
    else:
        name = f"{engine.url.database}_zoo"
        own = create_engine(engine.url.set(database=name), poolclass=NullPool)
        create, drop = f"CREATE DATABASE {name}", f"DROP DATABASE {name}"
    with engine.begin() as connection:
        if create:
            connection.execute(text(create))
    execute(own, "CREATE TABLE invoice (id bigint PRIMARY KEY, total int)", "INSERT INTO invoice VALUES (1, 3), (2, 5)")
    yield own
    with engine.begin() as connection:
        if drop:
            connection.execute(text(drop))


def execute(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            send(connection, statement)


def written(engine: Engine, animal: Animal) -> list[Any]:
    """Insert, change and delete a row as the old program does, on a new connection; return what was stored."""
    stored: list[Any] = []
    with engine.connect() as connection:
        connection.begin()
        for statement in (*WRITES, *animal.calls):
            send(connection, statement)
            stored += [statement, *_history(connection)]
        connection.rollback()
    return stored


def _history(connection: Connection) -> list[Any]:
    rows: list[Any] = []
    for table in ("h", "invoice"):
        if connection.dialect.has_table(connection, table):
            found = send(connection, f"SELECT * FROM {table}").mappings().all()
            rows += sorted(str([value for key, value in row.items() if key not in VOLATILE]) for row in found)
    return rows


def harm(engine: Engine, animal: Animal, before: list[Any]) -> str:
    """Return how the old program is harmed; an empty string if it is not."""
    try:
        after = written(engine, animal)
    except DBAPIError as error:
        return str(error.orig)
    return "" if after == before else f"it stored {after} instead of {before}"


class OldWriter:
    """A thread in which the old program writes rows and commits, on one connection, until it is stopped."""

    def __init__(self, engine: Engine, animal: Animal) -> None:
        self.engine, self.animal = engine, animal
        self.rounds, self.error = 0, ""
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    def _write(self) -> None:
        with self.engine.connect() as connection:
            while not self.stopping.is_set():
                try:
                    with connection.begin():
                        for statement in (*WRITES, *self.animal.calls, "DELETE FROM invoice WHERE id >= 10"):
                            send(connection, statement)
                except DBAPIError as error:
                    self.error = self.error or str(error.orig)
                self.rounds += 1
                time.sleep(0.002)

    def wait(self) -> None:
        """Wait until the program has written twice, of which it began the second time after this call."""
        enough, deadline = self.rounds + 2, time.monotonic() + 60
        while self.rounds < enough:
            assert time.monotonic() < deadline, "the old program does not go on"
            time.sleep(0.001)

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()


@contextmanager
def old_writer(engine: Engine, animal: Animal) -> Iterator[OldWriter]:
    """Run the old program meanwhile, and restore the history afterwards."""
    with engine.connect() as connection:
        kept = connection.dialect.has_table(connection, "h") and "h" not in inspect(connection).get_view_names()
    if kept:
        execute(engine, "CREATE TABLE kept AS SELECT * FROM h")
    writer = OldWriter(engine, animal)
    try:
        writer.wait()
        yield writer
    finally:
        writer.stop()
        if kept:
            with engine.connect() as connection:
                rows = send(connection, "SELECT count(*) FROM kept").scalar()
            # an INSERT without rows would fail, too, if h has a trigger that writes into the invoices by position
            restore = ["INSERT INTO h SELECT * FROM kept"] if rows else []
            execute(engine, "DELETE FROM h", *restore, "DROP TABLE kept")


def run_beside(writer: OldWriter, plan: Plan, *phases: Phase) -> None:
    """Run each phase while the old program writes, which writes after it, too."""
    for phase in phases:
        with writer.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            run_phases(connection, plan, [phase])
        writer.wait()


def said(report: MigrationReport) -> list[str]:
    return [str(obstacle) for obstacle in report.obstacles if obstacle.code in BY_CODE]


def check(engine: Engine, animal: Animal) -> None:
    """Migrate the invoices there and back beside the old program, and compare the plan with what happens."""
    triggers: Triggers = "fire" if engine.name in ("mysql", "mariadb") else "skip"
    ignore = Consent(update_triggers=triggers, stored_code="ignore")
    target = PublicIdColumn.of("invoice")
    plan = plan_for(target, engine.dialect, Consent(update_triggers=triggers))
    execute(engine, *animal.ddl)
    before = written(engine, animal)

    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        report = examine(connection, plan, PHASES["add"])
    with old_writer(engine, animal) as writer:
        run_beside(writer, plan_for(target, engine.dialect, ignore), *PHASES["expand"])
    happened = writer.error or harm(engine, animal, before)
    with old_writer(engine, animal) as writer:
        run_beside(writer, plan_for(target, engine.dialect, ignore), "backfill", "contract")
    happened = happened or writer.error or harm(engine, animal, before)

    assert bool(report.not_examined) == animal.hidden or "other databases" in report.not_examined[0]
    assert animal.hidden or bool(said(report)) == bool(happened), (said(report), happened)

    execute(engine, *animal.after)
    failed_before = False
    try:
        before = written(engine, animal)
    except DBAPIError:
        assert happened
        failed_before = True
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        report = examine(connection, plan, PHASES["drop"])
    with old_writer(engine, animal) as writer:
        try:
            run_beside(writer, plan_for(target, engine.dialect, ignore), *PHASES["drop"])
        except Exception as error:
            happened = str(error)
        else:
            happened = "" if failed_before else writer.error
    happened = happened or harm(engine, animal, before)

    assert animal.hidden or bool(said(report)) == bool(happened), (said(report), happened)


@pytest.mark.slow
@on("postgresql")
@pytest.mark.parametrize("animal", POSTGRESQL.values(), ids=POSTGRESQL)
def test_postgresql(zoo: Engine, animal: Animal) -> None:
    """On PostgreSQL, a plan names exactly the programs that harm an old writer, or says that it cannot read them."""
    check(zoo, animal)


@pytest.mark.slow
@on("mysql", "mariadb")
@pytest.mark.parametrize("animal", MYSQL.values(), ids=MYSQL)
def test_mysql(zoo: Engine, animal: Animal) -> None:
    """On MySQL and MariaDB, a plan names exactly the programs that harm an old writer."""
    check(zoo, animal)


@on("sqlite")
@pytest.mark.parametrize("animal", SQLITE.values(), ids=SQLITE)
def test_sqlite(zoo: Engine, animal: Animal) -> None:
    """On SQLite, a plan names exactly the triggers and views that harm an old program."""
    check(zoo, animal)
