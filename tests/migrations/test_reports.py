"""The report of a migration: its text, line by line, its estimate, and when it has which warning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.marks import on
from support.people import People

from sqlalchemy_public_id.errors import DryRun, Obstacle
from sqlalchemy_public_id.migrations.plan import Lock
from sqlalchemy_public_id.migrations.report import LOCKS, MigrationReport, PlannedStep, in_time
from sqlalchemy_public_id.migrations.table import LiveTable

LONG = "x" * 200 + "y" * 10 + "z" * 31
"""A line that is one character longer than the longest that is shown whole."""


def report(**facts: Any) -> MigrationReport:
    nothing: dict[str, Any] = dict.fromkeys(("steps", "rights", "triggers", "warnings", "obstacles"), ())
    usual = {"target": "shop.person.public_id", "database": "mysql", "rows": None, "size": None, "seconds": None}
    return MigrationReport(**{**nothing, **usual, **facts})


def test_text_of_a_report() -> None:
    """A report has a line for each of its parts, in the order in which they matter."""
    shown = report(
        rows=1234567,
        seconds=75,
        steps=(
            PlannedStep("expand", "add the column", "others wait", ("ALTER A\n  ADD B", "ALTER C")),
            PlannedStep("backfill", "set the ids", "writers wait"),
        ),
        rights=("ALTER", "UPDATE"),
        triggers=("note", "log"),
        warnings=("one thing", "another"),
        not_examined=("the function f",),
    )

    assert str(shown).splitlines() == [
        "shop.person.public_id on mysql, about 1,234,567 rows, about 1 min",
        "1. expand: add the column (lock: others wait)",
        "   ALTER A",
        "     ADD B",
        "   ALTER C",
        "2. backfill: set the ids (lock: writers wait)",
        "rights: ALTER, UPDATE",
        "trigger: note fires for an UPDATE",
        "trigger: log fires for an UPDATE",
        "warning: one thing",
        "warning: another",
        "not examined: the function f",
    ]


def test_text_without_steps() -> None:
    """A report without steps says so, or names the obstacles; it names no rights, and a table of no rows has some."""
    obstacle = Obstacle("needs-lock", "writers would wait", "pass allow_lock=True")

    assert str(report(rights=("ALTER",))) == "shop.person.public_id on mysql\nnothing is left to do"
    assert str(report(rows=0, seconds=0, rights=("ALTER",), obstacles=(obstacle,))).splitlines() == [
        "shop.person.public_id on mysql, about 0 rows, about 1 s",
        f"obstacle: {obstacle}",
    ]


@pytest.mark.parametrize("line", [LONG, LONG[1:]], ids=["241 characters", "240 characters"])
def test_long_line(line: str) -> None:
    """A line of more than 240 characters loses its middle, and the report says so; the dictionary has all of it."""
    shown = report(steps=(PlannedStep("expand", "set the default", "none", (f"short\n{line}",)),), rights=("ALTER",))
    lines = str(shown).splitlines()
    is_cut = len(line) > 240

    assert lines[3] == (f"   {'x' * 180} … {line[-50:]}" if is_cut else f"   {line}")
    assert ("lines of more than 240 characters are cut" in str(shown)) == is_cut
    assert shown.as_dict()["steps"][0]["statements"] == (f"short\n{line}",)


def test_times() -> None:
    """A time is rounded to seconds, minutes, or tenths of hours, and is never zero."""
    times = {0: "1 s", 0.6: "1 s", 1.6: "2 s", 59.4: "59 s", 60: "1 min", 89 * 60: "89 min", 90 * 60: "1.5 h"}
    assert {seconds: in_time(seconds) for seconds in times} == times


# --- what is in it


def planned(people: People, operation: str = "add_public_id", **options: Any) -> MigrationReport:
    with pytest.raises(DryRun) as caught:
        people.run(operation, dry_run=True, **options)
    assert caught.value.report.obstacles == ()
    return caught.value.report


@pytest.mark.backend
def test_estimate(new_people: Callable[..., People], monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate counts the rows for the backfill and for the index, each only if it is needed."""
    people = new_people(3)
    kind = people.engine.name
    for cls in LiveTable.__subclasses__():
        monkeypatch.setattr(cls, "estimate_rows", lambda live: 9_000_000)
    add = planned(people)
    expand = planned(people, "expand_public_id")
    people.run("expand_public_id")
    backfill = planned(people, "backfill_public_id")
    people.run("backfill_public_id")
    contract = planned(people, "contract_public_id")
    people.run("contract_public_id")
    done = planned(people)

    assert [each.seconds for each in (add, expand, backfill, contract, done)] == [198, 0, 180, 18, 0]
    assert {each.rows for each in (add, expand, backfill, contract, done)} == {9_000_000}
    assert add.size is None if kind == "sqlite" else add.size
    assert (add.target, add.database) == ("person.public_id", kind)
    assert {step.phase for step in backfill.steps} == {"backfill"}
    assert backfill.steps[0].lock == "writers of the same rows wait for the time of a batch"
    assert done.steps == ()
    for cls in LiveTable.__subclasses__():
        monkeypatch.setattr(cls, "estimate_rows", lambda live: None)
    assert (planned(people).rows, planned(people).seconds) == (None, None)


@pytest.mark.backend
def test_warning_of_a_sample(new_people: Callable[..., People], monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan says that it has read some ids only if there are more, and a contract that will read all of them."""
    people = new_people(3)

    def is_said(rows: int | None, operation: str) -> bool:
        for cls in LiveTable.__subclasses__():
            monkeypatch.setattr(cls, "estimate_rows", lambda live: rows)
        return "the ids of the first 100,000 rows" in str(planned(people, operation))

    before = is_said(100_001, "add_public_id")
    people.run("expand_public_id")
    people.run("backfill_public_id")
    cases = [(100_001, "add_public_id"), (100_001, "contract_public_id"), (100_000, "add_public_id")]
    cases += [(100_001, "expand_public_id"), (100_001, "loosen_public_id"), (0, "add_public_id")]
    found = [is_said(*case) for case in cases]
    people.run("contract_public_id")

    assert (before, found) == (False, [True, True, False, False, False, False])
    assert not is_said(100_001, "add_public_id")


@pytest.mark.backend
@on("mysql", "mariadb")
def test_deadlocks_of_readers(new_people: Callable[..., People]) -> None:
    """On MySQL and MariaDB, a plan with steps warns of deadlocks, and names the table."""
    people = new_people(3)
    before = planned(people)
    people.add()

    assert [each for each in before.warnings if "1213" in each] == [
        (
            "a transaction that reads person and then writes to it gets error 1213 while a step waits for its lock; "
            "the application has to repeat it, as after any deadlock"
        )
    ]
    assert planned(people).warnings == ()


@pytest.mark.backend
@on("mysql", "mariadb")
@pytest.mark.parametrize("allow_lock", [False, True])
def test_locks_of_the_steps(new_people: Callable[..., People], allow_lock: bool) -> None:
    """With ``allow_lock=True``, writers wait for a rewrite until it ends, and for other steps for milliseconds only."""
    people = new_people(3)
    steps = planned(people, allow_lock=allow_lock).steps

    assert [step.lock for step in steps] == [
        LOCKS[Lock.STRONG],
        LOCKS[Lock.STRONG],
        "writers of the same rows wait for the time of a batch",
        LOCKS[Lock.WRITERS if allow_lock else Lock.REWRITE],
    ]
    assert all(("LOCK=NONE" in sql) != allow_lock for step in steps for sql in step.statements)


@pytest.mark.backend
@on("sqlite", "postgresql")
def test_what_was_not_tried(new_people: Callable[..., People]) -> None:
    """A plan of an expand or a contract warns of what it could not try with new ids; other plans do not."""
    people = new_people(0, ", public_id varchar(30), CONSTRAINT of_both CHECK (name = 'x' OR public_id > '')")
    said = "the CHECK constraint of_both of person was not tried with new ids of public_id: it also needs other columns"
    operations = ("add", "expand", "contract", "loosen", "backfill")
    found = [said in planned(people, f"{each}_public_id", server_default="none").warnings for each in operations]

    assert found == [True, True, True, False, False]


@pytest.mark.backend
@on("sqlite", "postgresql")
def test_ids_that_are_refused(new_people: Callable[..., People]) -> None:
    """A CHECK that refuses new ids is an obstacle of the report, and no warning besides; there are no steps then."""
    people = new_people(0, ", public_id varchar(30), CONSTRAINT of_id CHECK (length(public_id) = 8)")
    with pytest.raises(DryRun) as caught:
        people.add(dry_run=True)
    report = caught.value.report

    assert [obstacle.code for obstacle in report.obstacles] == ["ids-refused"]
    assert (report.steps, report.warnings) == ((), ())
    assert str(report).count("the CHECK constraint of_id of person refuses new ids of public_id, such as '") == 1
