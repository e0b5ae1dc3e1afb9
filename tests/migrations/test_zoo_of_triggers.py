"""What a plan says of triggers, functions and views, and what then happens to an old program, agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool
from support.marks import on
from support.people import send
from support.zoo_of_triggers import MYSQL, POSTGRESQL, SQLITE, Animal

from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import Consent, Triggers
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine, run_phases
from sqlalchemy_public_id.migrations.report import MigrationReport

pytestmark = [pytest.mark.backend, pytest.mark.slow]
BY_CODE = {"stored-code", "dependants", "refused"}
VOLATILE = {"at", "doc", "changed", "public_id", "words"}
"""Columns that differ from call to call, and that of the ids."""


@pytest.fixture
def zoo(engine: Engine) -> Iterator[Engine]:
    """Provide an engine for a schema of its own, with a table of invoices."""
    if engine.name == "sqlite":
        own, create, drop = engine, "", ""
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
        for statement in (
            "INSERT INTO invoice (id, total) VALUES (10, 5)",
            "UPDATE invoice SET total = 6 WHERE id = 10",
            "DELETE FROM invoice WHERE id = 10",
            *animal.calls,
        ):
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


def said(report: MigrationReport) -> list[str]:
    return [str(obstacle) for obstacle in report.obstacles if obstacle.code in BY_CODE]


def check(engine: Engine, animal: Animal) -> None:
    """Migrate the invoices there and back, and compare the plan with what happens."""
    triggers: Triggers = "fire" if engine.name in ("mysql", "mariadb") else "skip"
    ignore = Consent(update_triggers=triggers, stored_code="ignore")
    target = PublicIdColumn.of("invoice")
    plan = plan_for(target, engine.dialect, Consent(update_triggers=triggers))
    execute(engine, *animal.ddl)
    before = written(engine, animal)

    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        report = examine(connection, plan, PHASES["add"])
        run_phases(connection, plan_for(target, engine.dialect, ignore), PHASES["expand"])
    happened = harm(engine, animal, before)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        run_phases(connection, plan_for(target, engine.dialect, ignore), ["backfill", "contract"])
    happened = happened or harm(engine, animal, before)

    assert bool(report.not_examined) == animal.hidden or "other databases" in report.not_examined[0]
    assert animal.hidden or bool(said(report)) == bool(happened), (said(report), happened)

    execute(engine, *animal.after)
    try:
        before = written(engine, animal)
    except DBAPIError:
        assert happened
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        report = examine(connection, plan, PHASES["drop"])
        try:
            run_phases(connection, plan_for(target, engine.dialect, ignore), PHASES["drop"])
        except Exception as error:
            happened = str(error)
        else:
            happened = harm(engine, animal, before)

    assert animal.hidden or bool(said(report)) == bool(happened), (said(report), happened)


@on("postgresql")
@pytest.mark.parametrize("animal", POSTGRESQL.values(), ids=POSTGRESQL)
def test_postgresql(zoo: Engine, animal: Animal) -> None:
    """On PostgreSQL, a plan names exactly the programs that harm an old writer, or says that it cannot read them."""
    check(zoo, animal)


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
