"""What an operation logs and raises: warnings of its plan, the attributes of its errors, and the same as its report."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine
from support.marks import on
from support.people import People, send

from sqlalchemy_public_id import ConfigurationError, NanoId
from sqlalchemy_public_id.errors import BackfillIncomplete, DryRun, LockNotAvailable, MigrationRefused
from sqlalchemy_public_id.migrations import PublicIdColumn, Timeouts, backfill, operation
from sqlalchemy_public_id.migrations.backfill import Progress
from sqlalchemy_public_id.migrations.databases import database_of, plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine, run_phases
from sqlalchemy_public_id.migrations.steps import list_statements
from sqlalchemy_public_id.migrations.stored_code.programs import StoredCode

pytestmark = pytest.mark.backend


@pytest.fixture
def people(new_people: Callable[..., People]) -> People:
    return new_people(10)


def patched(people: People, monkeypatch: pytest.MonkeyPatch, kind: str, **names: Any) -> None:
    """Let the plan or the session of the database answer something else."""
    cls = getattr(database_of(people.engine.dialect), kind)
    for name, value in names.items():
        monkeypatch.setattr(cls, name, value)


# --- the log


def test_warnings(people: People, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An operation logs the warnings of its plan, and the stored code that was not examined, before it begins."""
    code = StoredCode(not_examined=("the function f", "the event e"), elsewhere=("the triggers of others",))
    patched(
        people,
        monkeypatch,
        "plan",
        warnings=lambda plan, migration: iter(["one thing", "another 100% thing"]),
        read_stored_code=lambda plan, migration, change: code,
    )
    with pytest.raises(DryRun) as caught:
        people.run("expand_public_id", dry_run=True)
    assert caplog.messages == []
    with caplog.at_level(logging.INFO, "sqlalchemy_public_id"):
        people.run("expand_public_id")

    assert caplog.messages[:4] == [
        "one thing",
        "another 100% thing",
        "person.public_id: not examined: the function f",
        "person.public_id: not examined: the event e",
    ]
    assert [record.levelname for record in caplog.records[:4]] == ["WARNING"] * 4
    assert {record.levelname for record in caplog.records[4:]} == {"INFO"}
    assert caught.value.report.not_examined == ("the function f", "the event e", "the triggers of others")
    assert {*caught.value.report.warnings} >= {"one thing", "another 100% thing"}


@on("sqlite")
@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (Progress("person", 40, 50, 100, 8.0), "person: 40 rows filled, 5 a second, about 50 left"),
        (Progress("person", 40, 500, 100, 8.0), "person: 40 rows filled, 5 a second, about 0 left"),
        (Progress("person", 40, 50, None, 8.0), "person: 40 rows filled, 5 a second"),
        (Progress("person", 40, 50, 100, 8.0, finished=True), "person: 40 rows filled, 5 a second, about 0 left"),
        (Progress("person"), "person: 0 rows filled, 0 a second"),
    ],
    ids=["some left", "an estimate that was too low", "no estimate", "finished", "nothing yet"],
)
def test_progress_in_the_log(
    people: People, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, progress: Progress, said: str
) -> None:
    """Progress is logged every ten seconds: how many rows are filled, how fast, and how many are left, if known."""
    people.run("expand_public_id")
    clock = iter([0.0, 9.0, 10.0, 10.0, 19.5, 20.0, 20.0])
    monkeypatch.setattr(operation, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    def fill_rows(rows: Any, pace: Any, triggers: Any, report: Any) -> Progress:
        for _ in range(4):
            report(progress)
        return replace(progress, finished=True)

    monkeypatch.setattr(backfill, "fill_rows", fill_rows)
    with caplog.at_level(logging.INFO, "sqlalchemy_public_id"):
        people.run("backfill_public_id")

    assert [message for message in caplog.messages if "filled" in message] == [said, said]


# --- the report of an operation and that of a plan


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("session", {"read_only": property(lambda session: "the disk is read-only")}),
        ("session", {"is_stable": property(lambda session: False)}),
        ("plan", {"warnings": lambda plan, migration: iter([f"stable: {migration.is_stable}, {migration.runs}"])}),
    ],
    ids=["read-only", "a pooler", "warnings"],
)
@pytest.mark.parametrize("name", ["add", "contract"])
def test_reports(people: People, monkeypatch: pytest.MonkeyPatch, kind: str, names: Any, name: str) -> None:
    """The report of ``dry_run=True`` and that of ``public-id plan`` are equal, and know what the session says."""
    if name == "contract":
        people.run("expand_public_id")
        people.run("backfill_public_id")
    with people.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        plan, phases = plan_for(people.target, connection.dialect), PHASES[name]
        usual = examine(connection, plan, phases)
        patched(people, monkeypatch, kind, **names)
        report = examine(connection, plan, phases)
        with pytest.raises(DryRun) as caught:
            run_phases(connection, plan, phases, dry_run=True)

    assert report == caught.value.report
    assert (report == usual) == ("is_stable" in names and people.engine.name != "postgresql")
    if kind == "plan":
        assert report.warnings[0] == "stable: True, False"
    elif "read_only" in names:
        assert report.warnings[0].startswith("the disk is read-only: to migrate, ")
        assert report.warnings[1:] == usual.warnings
    else:
        assert [each.code for each in report.obstacles] == ["pooler"] * (people.engine.name == "postgresql")


def test_report_of_a_session_that_has_nothing_to_do(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing is left to do, a report does not warn of a session that cannot write."""
    people.add()
    patched(people, monkeypatch, "session", read_only=property(lambda session: "the disk is read-only"))
    with pytest.raises(DryRun) as caught:
        people.add(dry_run=True)

    assert (caught.value.report.steps, caught.value.report.warnings) == ((), ())


# --- errors


@pytest.mark.parametrize("name", ["contract", "loosen"])
def test_column_that_does_not_exist(people: People, name: str) -> None:
    """An operation that needs the column says which one to run first."""
    with pytest.raises(ConfigurationError) as caught:
        people.run(f"{name}_public_id")

    assert str(caught.value) == (
        "there is no column person.public_id; add it first, with op.expand_public_id('person')"
    )
    people.run("drop_public_id")


@pytest.mark.parametrize("schema", [None, "main"])
@pytest.mark.parametrize("name", ["backfill", "contract"])
@on("sqlite")
def test_rows_without_an_id(people: People, monkeypatch: pytest.MonkeyPatch, name: str, schema: str | None) -> None:
    """If rows are left without an id, the error has their number, and which column it is."""
    people.schema, people.options = schema, {"format": NanoId(length=9)}
    people.run("expand_public_id")
    people.execute("UPDATE person SET public_id = 'abcdefghi' WHERE id = 1")
    monkeypatch.setattr(backfill, "fill_rows", lambda *given: Progress("person"))
    monkeypatch.setattr(type(plan_for(people.target, people.engine.dialect)), "can_fill_stragglers", False)

    with pytest.raises(BackfillIncomplete) as caught:
        people.run(f"{name}_public_id")

    error = caught.value
    facts = error.table, error.column, error.schema, error.format, error.missing
    assert facts == ("person", "public_id", schema, NanoId(length=9), 9)


@on("postgresql")
def test_table_that_stays_locked(people: People, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """The error names the step, the attempts and who keeps the table locked, and so does the log of each attempt."""
    with engine.connect() as other:
        send(other, "SELECT * FROM person").all()
        with pytest.raises(LockNotAvailable) as caught:
            people.run("expand_public_id", lock_timeout=0.1, attempts=2)

    error = caught.value
    assert (error.step, error.table, error.attempts, error.timeout) == ("add the column", "person", 2, 0.1)
    [said] = [each for each in caplog.messages if "attempt" in each]
    assert said.startswith(f"person.public_id: the table is in use by {error.users.partition(' (')[0]} (")
    assert "; attempt 2 of 2 in 0." in said
    assert error.users.startswith("connection ")
    assert error.users in str(error)


@on("postgresql")
def test_namesake_that_is_locked(people: People, engine: Engine) -> None:
    """Users of the table of this name in another schema are not named."""
    people.execute("CREATE SCHEMA apart CREATE TABLE person (id bigint PRIMARY KEY)")
    try:
        apart = People(engine, schema="apart")
        with engine.connect() as other, engine.connect() as namesake:
            send(namesake, "SELECT * FROM public.person").all()
            send(other, "SELECT * FROM apart.person").all()
            number = send(other, "SELECT pg_backend_pid()").scalar()
            with pytest.raises(LockNotAvailable, match=f"connection {number} ") as caught:
                apart.run("expand_public_id", lock_timeout=0.05, attempts=1)
        assert caught.value.users.count("connection") == 1
    finally:
        people.execute("DROP SCHEMA apart CASCADE")


@on("sqlite")
def test_duplicates_inside_a_transaction(people: People) -> None:
    """With ``online=False``, a contract does not touch duplicates without consent, and replaces them with it."""
    people.run("expand_public_id")
    people.run("backfill_public_id")
    people.execute("UPDATE person SET public_id = 'izkpm55j334u' WHERE id < 3")
    with pytest.raises(MigrationRefused):
        people.run("contract_public_id", online=False)
    assert people.ids()[:2] == ["izkpm55j334u"] * 2
    people.run("contract_public_id", online=False, on_duplicate="replace")

    people.check_complete(10)
    assert people.ids()[0] == "izkpm55j334u"


# --- the statements of a plan


@on("mysql", "postgresql")
def test_listed_statements(people: People) -> None:
    """The statements of a plan begin with those for the settings, set a limit for each long step, and restore all."""
    people.run("expand_public_id")
    people.run("backfill_public_id")
    timeouts = Timeouts(lock_timeout=2, attempts=3, index_timeout=50)
    with people.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        plan = plan_for(PublicIdColumn.of("person"), connection.dialect)
        session = database_of(connection.dialect).session(connection, timeouts)
        during, before = session.changes()
        usual = session.lock_limit(2)
        steps = [step for _, step in plan.steps_of(["contract"]) if step.statements(people.state())]
        found = [*list_statements(steps, session, people.state())]

    expected = [*during]
    for step in steps:
        seconds = session.timeout_of(step, people.state())
        limit = [] if seconds == 2 else [session.lock_limit(seconds)]
        expected += [f"-- {step.name}", *([step.probe] if step.probe else ()), *limit]
        expected += [*step.statements(people.state()), *([usual] if limit else [])]
    assert during
    assert before
    assert usual in during
    assert found == [*expected, *before]
    assert {session.timeout_of(step, people.state()) for step in steps} == (
        {6} if people.engine.name == "mysql" else {2, 50}
    )
