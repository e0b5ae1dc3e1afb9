"""The backfill fills every row once, whatever its key, beside other workers and writers, and resumes after a stop."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, select
from support.clocks import clock_at
from support.marks import on
from support.people import People, send

import sqlalchemy_public_id.migrations.backfill
from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdCollision, Snowflake, Ulid, backfill
from sqlalchemy_public_id.backfill import MaxLoad, Progress
from sqlalchemy_public_id.errors import ClockMovedBack, MigrationRefused
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations.databases import live_table, rows_of
from sqlalchemy_public_id.migrations.postgresql.rows import lock_of_window
from sqlalchemy_public_id.migrations.rows import Rows

pytestmark = pytest.mark.backend

MODULE: Any = sqlalchemy_public_id.migrations.backfill
ROWS = 3_000
KEYS = {
    "id integer PRIMARY KEY": "n",
    "a integer, b varchar(9), c integer, PRIMARY KEY (a, b, c)": "n % 7, n % 50, n",
    "id varchar(20) PRIMARY KEY": "n * 700001",
}
"""Columns of a key, and the values of the row n; tests/migrations/test_zoo_of_keys.py has other types."""
KEY = next(iter(KEYS))
ULID, SNOWFLAKE = Ulid(storage="text"), Snowflake(machine_id=1, storage="text")


@pytest.fixture
def people(engine: Engine) -> Iterator[People]:
    """A table that the test creates and fills."""
    table = People(engine)
    yield table
    table.drop()


def make(people: People, rows: int = ROWS, key: str = KEY, more: str = "", length: int = 16) -> None:
    """Create the table, expanded, with rows that have no id."""
    people.drop()
    people.execute(f"CREATE TABLE person (public_id varchar({length}), {key}{more})")
    numbers = f"WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows}) "
    names = "a, b, c" if key.startswith("a ") else "id"
    select = f"SELECT {KEYS[key]} FROM c WHERE {rows} > 0"
    with people.engine.begin() as connection:
        if people.engine.name in {"mysql", "mariadb"}:
            limit = "max_recursive_iterations" if people.engine.name == "mariadb" else "cte_max_recursion_depth"
            send(connection, f"SET SESSION {limit} = 1000000")
            send(connection, f"INSERT INTO person ({names}) {numbers}{select}")
        else:
            send(connection, f"{numbers}INSERT INTO person ({names}) {select}")


def ids(people: People) -> list[str | None]:
    with people.engine.connect() as connection:
        return list(send(connection, "SELECT public_id FROM person").scalars())


def is_full(people: People, rows: int = ROWS, format: Format | None = None) -> bool:
    found = ids(people)
    return len(set(found)) == len(found) == rows and all(map((format or NanoId()).is_valid, found))


# --- rows and keys


@pytest.mark.parametrize("window", [100, MODULE.WINDOW], ids=["many windows", "many batches"])
@pytest.mark.parametrize("key", KEYS)
def test_keys(
    people: People, key: str, window: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One sweep gives each row an id, whatever its key, in a table of many windows and in a window of many batches."""
    monkeypatch.setattr(MODULE, "WINDOW", window)
    make(people, key=key)

    progress = backfill.run(people.engine, "person")

    assert (progress.filled, progress.finished) == (ROWS, True)
    assert is_full(people)
    assert "looking for them again" not in caplog.text


@on("postgresql")
def test_parent_of_other_tables(people: People) -> None:
    """A table from which others inherit is refused, because rows of two tables may have one ctid."""
    people.drop()
    people.execute("CREATE TABLE person (id integer PRIMARY KEY, public_id varchar(12))")
    people.execute("CREATE TABLE pupil () INHERITS (person)")
    try:
        with pytest.raises(ConfigurationError, match="other tables inherit from person; fill these tables one by one"):
            backfill.run(people.engine, "person")
    finally:
        people.execute("DROP TABLE pupil")


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows(people: People, rows: int) -> None:
    """A table with few rows, or none, is done at once."""
    make(people, rows)

    progress = backfill.run(people.engine, "person")

    assert (progress.filled, progress.finished, progress.left) == (rows, True, 0)


@pytest.mark.parametrize(
    ("database", "columns", "error"),
    [
        ("mysql", "name varchar(9) UNIQUE, public_id varchar(12)", r"person has no primary key, .*; add one"),
        ("mariadb", "name varchar(9) UNIQUE, public_id varchar(12)", r"person has no primary key, .*; add one"),
        ("sqlite", "id integer", r"no column 'public_id'; add it first, with op\.expand_public_id"),
        ("sqlite", "", r"no table 'person'"),
    ],
    indirect=["database"],
)
def test_table_that_cannot_be_filled(people: People, columns: str, error: str) -> None:
    """Without a key that identifies the rows, without the column, or without the table, the error says what to do."""
    people.drop()
    if columns:
        people.execute(f"CREATE TABLE person ({columns})")

    with pytest.raises(ConfigurationError, match=error):
        backfill.run(people.engine, "person")


# --- stopping, waiting, progress


def test_stop_and_go_on(people: People) -> None:
    """A backfill that is stopped between two batches reports how far it got; the next run fills the rest."""
    make(people)
    asked = iter([False, True])

    progress = backfill.run(people.engine, "person", should_stop=lambda: next(asked))

    assert not progress.finished
    assert 0 < progress.filled < ROWS
    assert sum(id is not None for id in ids(people)) == progress.filled
    assert backfill.run(people.engine, "person").filled == ROWS - progress.filled
    assert is_full(people)


def test_wait_while(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """``wait_while`` is called before each batch, and the backfill waits while it returns True."""
    make(people)
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    answers = iter([True, True, False, True] + [False] * 99)

    backfill.run(people.engine, "person", wait_while=lambda connection: next(answers), pause=0)

    assert [pause for pause in waited if pause >= 1] == [1.0, 1.0, 1.0]
    assert is_full(people)


@on("sqlite")
def test_stop_while_it_waits(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill that waits can be stopped: ``should_stop`` is asked each time before ``wait_while``."""
    make(people, 10)
    monkeypatch.setattr(MODULE, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: None))
    asked: list[str] = []

    def should_stop() -> bool:
        asked.append("stop")
        return len(asked) > 4

    progress = backfill.run(
        people.engine,
        "person",
        wait_while=lambda connection: len(asked) < 20 and not asked.append("wait"),
        should_stop=should_stop,
    )

    assert (asked, progress.filled, progress.finished) == (["stop", "wait"] * 2 + ["stop"], 0, False)


class _Running(MaxLoad):
    """A server of which three other sessions run a statement."""

    def running(self, connection: Connection) -> int:
        return 3


def test_load_at_the_limit(people: People) -> None:
    """A backfill waits while there are more statements than the limit, and not while there are as many."""
    with people.engine.connect() as connection:
        assert [_Running(most)(connection) for most in (0, 2, 3, 4)] == [True, True, False, False]


def test_no_pause_in_a_transaction(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``online=False``, an operation does not pause between its batches: its transaction holds locks."""
    slept: list[float] = []
    monkeypatch.setattr(MODULE, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    make(people)

    people.run("backfill_public_id", online=False, pause=1e6)

    assert {*slept} == {0.0}
    assert is_full(people)


def test_progress(people: People) -> None:
    """Progress grows until all rows are filled, and never has a negative number of rows left."""
    make(people)
    told: list[Progress] = []

    backfill.run(people.engine, "person", on_progress=told.append)

    assert [step.filled for step in told] == sorted(step.filled for step in told)
    assert told[-1].finished
    assert told[-1].filled == ROWS
    assert {step.table for step in told} == {"person"}
    if people.engine.name == "sqlite":  # which counts the rows, while servers may have no estimate yet
        assert {step.total for step in told} == {ROWS}
        assert (told[0].left, told[-1].left) == (ROWS, 0)
    assert all(step.rate > 0 for step in told)
    assert [step.finished for step in told].count(True) == 1
    assert Progress("person", seen=20_000, total=ROWS).left == 0  # total is an estimate, seen counts windows


def test_batches_follow_the_time_they_take(people: People) -> None:
    """Batches grow while they take less than ``batch_seconds``, and shrink while they take more."""
    make(people)
    grown: list[Progress] = []
    backfill.run(people.engine, "person", on_progress=grown.append, batch_seconds=30, pause=0)
    people.execute("UPDATE person SET public_id = NULL")
    shrunk: list[Progress] = []
    backfill.run(people.engine, "person", on_progress=shrunk.append, batch_seconds=1e-6, pause=0)

    assert grown[0].batch == 2_000
    assert shrunk[0].batch == 500
    assert min(step.batch for step in shrunk) == 50


# --- others


def test_workers(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several workers on one table fill each row exactly once; on a server, they share the work."""
    monkeypatch.setattr(MODULE, "WINDOW", 500)
    make(people, 6_000)
    workers = 3
    together = threading.Barrier(workers)
    done: list[Progress] = []

    def work() -> None:
        together.wait()
        done.append(backfill.run(people.engine, "person", pause=0.5))

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(done) == workers
    assert sum(progress.filled for progress in done) == 6_000
    assert is_full(people, 6_000)
    assert sum(progress.filled > 0 for progress in done) > (people.engine.name != "sqlite")


@on("postgresql", "mysql", "mariadb")
def test_namesakes(people: People, new_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """While a table is filled, its namesake in another database or schema can be filled, too."""
    monkeypatch.setattr(MODULE, "_WITHOUT_CLAIM", 2.0)
    url, place = people.engine.url, f"{people.engine.url.database}_namesake"
    if people.engine.name == "postgresql":
        other = new_engine("postgresql", url.update_query_dict({"options": f"-csearch_path={place}"}))
        kind = "SCHEMA"
    else:
        other, kind = new_engine(people.engine.name, url.set(database=place)), "DATABASE"
    found: list[Progress] = []

    def meanwhile(progress: Progress) -> None:
        if not found:
            deadline = time.monotonic() + 60
            found.append(backfill.run(other, "person", should_stop=lambda: time.monotonic() > deadline))

    people.execute(f"CREATE {kind} {place}")
    try:
        make(People(other))
        make(people)
        backfill.run(people.engine, "person", on_progress=meanwhile)

        assert found[0].finished
        assert is_full(People(other))
        assert is_full(people)
        if people.engine.name == "postgresql":  # where a claim ends with its batch, before on_progress is called
            make(people)
            with other.connect() as holder:
                first = lock_of_window(rows_of(live_table(holder, people.target)), None)
                assert holder.scalar(select(first))
                assert backfill.run(people.engine, "person").finished
    finally:
        other.dispose()
        people.execute(f"DROP {kind} {place}{' CASCADE' if kind == 'SCHEMA' else ''}")


def test_rows_written_meanwhile(people: People) -> None:
    """Rows that are inserted, deleted or given an id during the backfill cause no error."""
    make(people)
    numbers = iter(range(ROWS + 1, ROWS + 99))

    def write(progress: Progress) -> None:
        with people.engine.begin() as connection:
            number = next(numbers)
            send(connection, f"INSERT INTO person (id, public_id) VALUES ({number}, 'given{number}')")
            send(connection, f"DELETE FROM person WHERE id = {2 * ROWS - number}")
            send(connection, f"UPDATE person SET public_id = 'mine{number}' WHERE id = {number - ROWS + 2_500}")

    before = backfill.run(people.engine, "person", should_stop=lambda: True)
    backfill.run(people.engine, "person", on_progress=write)

    found = Counter(ids(people))
    assert before.filled == 0
    assert None not in found
    assert found["given3001"] == 1
    assert max(found.values()) == 1


@on("postgresql", "mysql", "mariadb")
def test_row_that_is_locked(people: People) -> None:
    """Locked rows are filled in a later sweep, and the other rows do not wait for them."""
    make(people, 200)
    with people.engine.connect() as other:
        send(other, "SELECT * FROM person WHERE id = 50 FOR UPDATE")
        timer = threading.Timer(0.3, other.rollback)
        timer.start()
        progress = backfill.run(people.engine, "person")
        timer.join()

    assert progress.finished
    assert is_full(people, 200)


@on("postgresql")
def test_row_that_gets_a_reference(people: People) -> None:
    """A row is filled while another transaction inserts a row that refers to it."""
    make(people, 200)
    with people.engine.connect() as other:
        send(other, "SELECT * FROM person WHERE id = 50 FOR KEY SHARE")  # as the check of a foreign key does
        progress = backfill.run(people.engine, "person")

    assert (progress.finished, progress.filled) == (True, 200)


@pytest.mark.slow
@on("postgresql", "mysql", "mariadb")
def test_row_that_stays_locked(people: People) -> None:
    """If a row stays locked, the backfill does not hang: it ends, and reports that it is not finished."""
    make(people, 200)
    with people.engine.connect() as other:
        send(other, "SELECT * FROM person WHERE id = 50 FOR UPDATE")
        progress = backfill.run(people.engine, "person")
        other.rollback()

    assert (progress.finished, progress.filled) == (False, 199)
    assert backfill.run(people.engine, "person").finished


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("window", [100, MODULE.WINDOW], ids=["the first of several windows", "all rows"])
def test_claims_that_stay(
    people: People, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, window: int
) -> None:
    """If other processes keep the claims of all rows that are left, the backfill waits for a while, logs it, and ends
    unfinished.
    """
    monkeypatch.setattr(MODULE, "WINDOW", window)
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(MODULE, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(MODULE, "_WITHOUT_CLAIM", 0.6)
    rows = 200 if window > 200 else 1_000
    make(people, rows)
    with people.engine.connect() as other, rows_of(live_table(other, people.target)).claim(None) as is_ours:
        if people.engine.name == "postgresql":
            is_ours = bool(other.scalar(select(lock_of_window(rows_of(live_table(other, people.target)), None))))
        progress = backfill.run(people.engine, "person")

    assert is_ours
    assert not progress.finished
    assert progress.filled == 0 if window > 200 else 0 < progress.filled < rows
    assert 0.6 < now < 1
    waiting, ending = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "person.public_id: waiting for other processes" in waiting
    assert "other processes have claimed all rows without an id, so this one ends" in ending
    assert backfill.run(people.engine, "person").finished


@on("mysql")
def test_claims_that_end_one_by_one(
    people: People, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If a claim ends and its rows are filled, the backfill waits for the next one as long as for the first."""
    monkeypatch.setattr(MODULE, "WINDOW", 100)
    now, first = 5.0, ExitStack()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now > 5.45:
            first.close()

    monkeypatch.setattr(MODULE, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(MODULE, "_WITHOUT_CLAIM", 0.6)
    make(people, 200)
    with people.engine.connect() as one, people.engine.connect() as other, first:
        first.enter_context(rows_of(live_table(one, people.target)).claim(None))
        with rows_of(live_table(other, people.target)).claim((100,)):
            progress = backfill.run(people.engine, "person", pause=0)

    waiting = "person.public_id: waiting for other processes, which have claimed all rows without an id"
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert (progress.filled, progress.finished) == (100, False)
    assert now > 5.45 + 0.6
    assert messages[:-1] == [waiting, waiting]
    assert "so this one ends" in messages[-1]


@on("mysql", "mariadb")
def test_claims_in_two_databases(people: People, new_engine: Callable[..., Engine]) -> None:
    """While rows of a table are claimed, those of a table with its name in another database are free."""
    name = f"{people.engine.url.database}_two"
    people.execute(f"CREATE DATABASE {name}")
    two = People(new_engine(people.engine.name, people.engine.url.set(database=name)))
    try:
        make(people, 10)
        make(two, 10)
        with people.engine.connect() as other, rows_of(live_table(other, people.target)).claim(None) as is_ours:
            progress = backfill.run(two.engine, "person")
    finally:
        people.execute(f"DROP DATABASE {name}")

    assert is_ours
    assert (progress.finished, progress.filled) == (True, 10)


@on("sqlite")
def test_file_that_stays_locked(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another connection keeps the SQLite file locked, the backfill ends after a few attempts, and not a hundred."""
    slept: list[float] = []
    monkeypatch.setattr(MODULE, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    make(people, 200)
    with people.engine.connect() as other, people.engine.connect() as connection:
        send(connection.execution_options(isolation_level="AUTOCOMMIT"), "PRAGMA busy_timeout=1")
        send(other, "BEGIN IMMEDIATE")
        progress = backfill.run(connection, "person")
        other.rollback()

    assert (progress.filled, progress.finished, progress.batch) == (0, False, 50)
    assert len([each for each in slept if each]) == MODULE._SWEEPS
    assert backfill.run(people.engine, "person").finished


@on("sqlite")
def test_file_that_is_locked_again_and_again(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill that fills rows in each of its sweeps goes on, although others interrupt all of them."""
    monkeypatch.setattr(MODULE, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: None))
    monkeypatch.setattr(MODULE, "_SMALLEST", 1)
    monkeypatch.setattr(MODULE, "_LARGEST", 1)
    make(people, 1_100)
    calls = count()

    with people.engine.connect() as other, people.engine.connect() as connection:
        send(connection.execution_options(isolation_level="AUTOCOMMIT"), "PRAGMA busy_timeout=1")

        def lock_twice_of_three_times(_: Connection) -> bool:
            number = next(calls) % 3
            if number == 1:
                send(other, "BEGIN IMMEDIATE")  # until the call after the next one
            elif not number and other.in_transaction():
                other.rollback()
            return False

        progress = backfill.run(connection, "person", wait_while=lock_twice_of_three_times, pause=0)

    assert (progress.filled, progress.finished) == (1_100, True)


@on("postgresql")
def test_no_setting_of_the_session(people: People, statements: Any) -> None:
    """On PostgreSQL, a backfill takes no session lock and changes no session setting, which a pooler would keep."""
    make(people)
    statements.clear()

    backfill.run(people.engine, "person")

    sent = "; ".join(map(str, statements))
    assert "pg_try_advisory_xact_lock" in sent
    assert not any(word in sent for word in ("pg_try_advisory_lock", "set_config"))
    assert not statements.starting("SET")


@on("postgresql")
def test_no_claim_in_the_transaction_of_the_caller(people: People) -> None:
    """Inside the caller's transaction, no claim is held until COMMIT: other processes skip the locked rows."""
    make(people, 200)
    with people.engine.connect() as connection:
        assert backfill.run(connection, "person").finished
        locks = send(connection, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert locks.scalar() == 0
        connection.rollback()


@on("mysql", "mariadb")
def test_pooler_that_loses_the_claim(people: People) -> None:
    """If the server does not find a claim on its release, a pooler is in between, and the error names the remedy."""
    make(people, 200)

    with pytest.raises(ConfigurationError, match="connect to the server itself"):
        backfill.run(
            people.engine,
            "person",
            wait_while=lambda connection: bool(send(connection, "DO RELEASE_ALL_LOCKS()").close()),
        )


# --- collisions


def test_collisions(people: People) -> None:
    """With a unique index, and a format that has few more ids than there are rows, every row still gets an id."""
    format = NanoId(length=1)
    make(people, 30)
    people.execute("CREATE UNIQUE INDEX uq_person_public_id ON person (public_id)")

    assert backfill.run(people.engine, "person", format=format).filled == 30
    assert is_full(people, 30, format)


def test_other_violation(people: People) -> None:
    """A violation of another constraint is raised as it is, and not taken for a collision."""
    make(people, 5, more=", CHECK (public_id = 'only this')")

    with pytest.raises(Exception, match=r"(?i)check|constraint") as caught:
        backfill.run(people.engine, "person")

    assert not isinstance(caught.value, PublicIdCollision)


# --- a clock that jumps


@pytest.mark.parametrize("jump", [3600, -3600])
def test_clock_that_jumps_an_hour(people: People, jump: int) -> None:
    """When the clock of the machine jumps, ids with a time go on, and the backfill waits for nothing."""
    make(people, length=26)
    with clock_at(datetime(2026, 11, 29)) as clock:

        def advance(progress: Progress) -> None:
            clock.now += 1 if progress.filled > 10 else 1000 * jump

        began = time.monotonic()
        backfill.run(people.engine, "person", format=ULID, on_progress=advance)

    assert is_full(people, format=ULID)
    assert time.monotonic() - began < 60


def test_snowflakes_after_the_clock_moved_back(people: People) -> None:
    """Snowflakes end the backfill with ClockMovedBack; a run after the clock has caught up fills the other rows."""
    make(people, length=26)
    with clock_at(datetime(2026, 11, 29)) as clock:

        def turn_back(progress: Progress) -> None:
            clock.now -= 3_600_000

        with pytest.raises(ClockMovedBack):
            backfill.run(people.engine, "person", format=SNOWFLAKE, on_progress=turn_back)
        some = sum(each is not None for each in ids(people))
        clock.now += 3_600_001
        backfill.run(people.engine, "person", format=SNOWFLAKE)

    assert 0 < some < ROWS
    assert is_full(people, format=SNOWFLAKE)


# --- transactions


def test_in_the_transaction_of_the_caller(people: People) -> None:
    """On a connection inside a transaction, everything happens in that transaction, and can be rolled back."""
    make(people)

    with people.engine.connect() as connection:
        transaction = connection.begin()
        if people.engine.name == "sqlite":
            send(connection, "BEGIN")
        assert backfill.run(connection, "person").filled == ROWS
        transaction.rollback()

    assert set(ids(people)) == {None}


def test_connection_goes_back_as_it_was(people: People) -> None:
    """A connection goes back to the pool without AUTOCOMMIT mode, and with its own timeouts."""
    make(people)
    backfill.run(people.engine, "person")

    with people.engine.connect() as connection:
        send(connection, "DELETE FROM person WHERE id = 1")
        connection.rollback()
        assert send(connection, "SELECT count(*) FROM person").scalar() == ROWS
        if people.engine.name in {"mysql", "mariadb"}:
            assert send(connection, "SELECT @@innodb_lock_wait_timeout").scalar() == 50


def test_memory(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backfill holds at most the keys of one window in memory."""
    monkeypatch.setattr(MODULE, "WINDOW", 200)
    make(people, 2_000)
    fetched: list[int] = []
    original = Rows.missing

    def missing(*arguments: Any) -> Any:
        found = original(*arguments)
        fetched.append(len(found))
        return found

    monkeypatch.setattr(Rows, "missing", missing)
    backfill.run(people.engine, "person")

    assert max(fetched, default=0) == (0 if people.engine.name == "postgresql" else 200)
    assert is_full(people, 2_000)


@on("sqlite")
def test_trigger_that_spells_the_column_in_another_case(people: People) -> None:
    """A trigger ``UPDATE OF public_id`` fires for the column ``Public_Id``, and is refused like any other."""
    people.drop()
    people.execute('CREATE TABLE person (id integer PRIMARY KEY, "Public_Id" varchar(12))')
    people.execute("INSERT INTO person (id) VALUES (1)")
    people.execute("CREATE TRIGGER note_it AFTER UPDATE OF public_id ON person BEGIN SELECT 1; END")

    with pytest.raises(MigrationRefused) as caught:
        backfill.run(people.engine, "person", "Public_Id")
    assert [obstacle.code for obstacle in caught.value.obstacles] == ["update-triggers"]


def test_again(people: People) -> None:
    """A second run fills nothing."""
    make(people)
    backfill.run(people.engine, "person")
    before = ids(people)

    assert backfill.run(people.engine, "person").filled == 0
    assert ids(people) == before


def test_rows_that_have_ids(people: People) -> None:
    """A row that has an id keeps it."""
    make(people)
    people.execute("UPDATE person SET public_id = 'x' WHERE id = 1500")

    progress = backfill.run(people.engine, "person")

    assert progress.filled == ROWS - 1
    assert ids(people).count("x") == 1


@on("postgresql", "mysql", "mariadb")
def test_statements(people: People, statements: Any) -> None:
    """A batch is one UPDATE; a window costs two reads and a claim in addition."""
    make(people, ROWS - 1)
    statements.clear()

    backfill.run(people.engine, "person", batch_seconds=60)

    assert len(statements.starting("UPDATE") + statements.starting("WITH")) == 2  # of 1000 and 1999 rows
    # each query of the catalogs of MariaDB needs another one for its warnings
    assert len(statements) < (40 if people.engine.name == "mariadb" else 32)
