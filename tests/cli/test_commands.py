"""A whole migration from the command line: one table and many, pauses, and the exit status."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import OperationalError
from support.command import run
from support.connections import count_waiting, monitor, number_of
from support.marks import on
from support.people import People
from support.private_servers import wait_until

from sqlalchemy_public_id import ConfigurationError, NanoId
from sqlalchemy_public_id.backfill import MaxLag, MaxLoad

pytestmark = pytest.mark.backend

SERVERS = ("postgresql", "mysql", "mariadb")
DONE, REFUSED, UNUSABLE, INTERRUPTED = 0, 1, 2, 130
"""The exit statuses."""


@pytest.fixture
def people(engine: Engine) -> Iterator[People]:
    made = People(engine)
    made.create(100)
    yield made
    made.drop()


@pytest.fixture(autouse=True)
def url(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of the database, which is also in the environment."""
    text = engine.url.render_as_string(hide_password=False)
    monkeypatch.setenv("DATABASE_URL", text)
    return text


# --- one table


def test_phases(people: People) -> None:
    """``expand``, ``backfill`` and ``contract`` make the column complete; ``loosen`` and ``drop`` are the way back."""
    expanded = run("expand", "person")
    people.check_expanded()
    filled = run("backfill", "person")
    contracted = run("contract", "person")
    people.check_complete(100)
    loosened = run("loosen", "person")
    people.check_expanded()
    dropped = run("drop", "person", "--yes")

    assert [each.exit_code for each in (expanded, filled, contracted, loosened, dropped)] == [DONE] * 5
    assert "person.public_id" in contracted.stdout
    assert "person.public_id: build the unique index" in contracted.stderr
    assert people.columns() == ["id", "name"]


def test_add(people: People) -> None:
    """``add`` runs all phases, with the options of the operation; a second run changes nothing."""
    people.options["format"] = NanoId(prefix="per")
    done = run("add", "person", "--format", "NanoId(prefix='per')", "--lock-timeout", "2", "--batch-seconds", "0.1")
    again = run("add", "person", "--format", "NanoId(prefix='per')")

    assert (done.exit_code, again.exit_code) == (DONE, DONE), done.stderr
    people.check_complete(100)
    assert "add the column" in done.stderr
    assert again.stderr == ""


def test_url_of_the_environment(people: People, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first argument is the URL if it contains ``://``; otherwise DATABASE_URL is used."""
    from_the_environment = run("plan", "person")
    assert run("audit", "--table", "person").exit_code == DONE
    monkeypatch.delenv("DATABASE_URL")

    assert run("plan", url, "person").stdout == from_the_environment.stdout
    assert run("audit", url, "--table", "person").exit_code == DONE
    missing = run("plan", "person")
    assert missing.exit_code == UNUSABLE
    assert "write it after the command, or set DATABASE_URL" in missing.stderr


def test_refusals(people: People) -> None:
    """An obstacle or unfilled rows exit with 1; a column or table that does not exist, or no table argument, with 2."""
    early = [run(*words, "person") for words in (["contract"], ["loosen"], ["loosen", "--dry-run"])]
    run("expand", "person")
    people.execute("UPDATE person SET public_id = NULL")
    incomplete = run("contract", "person")
    people.execute("UPDATE person SET public_id = 'izkpm55j334u'")
    refused = run("contract", "person")

    assert (incomplete.exit_code, refused.exit_code) == (REFUSED, REFUSED)
    assert "100 rows of person have no public_id yet" in incomplete.stderr
    assert "1 obstacle, and nothing was changed" in refused.stderr
    assert [result.exit_code for result in early] == [UNUSABLE] * 3
    assert ["there is no column person.public_id" in result.stderr for result in early] == [True] * 3
    assert run("expand", "nobody").exit_code == UNUSABLE
    assert run("expand").exit_code == UNUSABLE
    assert run("expand", "person", "--all").exit_code == UNUSABLE


@on(*SERVERS)
def test_locked_table(people: People) -> None:
    """If another session keeps the table locked, the exit status is 1, and the messages name it, if the server does."""
    with people.engine.begin() as connection:
        connection.execute(text("SELECT count(*) FROM person"))
        number = number_of(connection)
        is_postgresql = people.engine.name == "postgresql"
        query = "SELECT count(*) FROM performance_schema.metadata_locks"  # empty without a performance schema
        is_named = is_postgresql or bool(connection.scalar(text(query)))
        locked = run("expand", "person", "--attempts", "2", "--lock-timeout", "0.2")

    assert locked.exit_code == REFUSED
    user = f"connection {number} ({people.engine.url.username}, {'idle in transaction' if is_postgresql else 'Sleep'}, "
    assert ("the table is in use by " + user in locked.stderr) is is_named
    assert "; attempt 2 of 2 in 0." in locked.stderr
    assert "could not add the column: no lock within 0.2 s in 2 attempts; " in locked.stderr
    find = "find the transaction that holds it (pg_stat_activity, SHOW PROCESSLIST), end it, and run"
    assert ("; the table is in use by " + user if is_named else find) in locked.stderr
    assert people.columns() == ["id", "name"]


def test_dry_run(people: People) -> None:
    """``--dry-run`` prints the steps of the phase, or its obstacles, and changes nothing."""
    steps = run("expand", "person", "--dry-run")

    assert steps.exit_code == DONE
    assert "expand: add the column" in steps.stdout
    assert "contract:" not in steps.stdout
    assert people.columns() == ["id", "name"]
    people.execute("CREATE INDEX uq_other ON person (name)")
    obstacle = run("add", "person", "--unique-name", "uq_other", "--dry-run")
    assert obstacle.exit_code == REFUSED
    assert "obstacle: " in obstacle.stdout
    people.add()
    assert "drop: drop the column" in run("drop", "person", "--dry-run").stdout


def test_drop_asks(people: People) -> None:
    """``drop`` asks before it deletes ids; any answer but yes keeps them."""
    people.add()

    for answer in ("n\n", ""):
        kept = run("drop", "person", given=answer)
        assert kept.exit_code == REFUSED
        assert kept.stderr.endswith("public-id: nothing was dropped; answer y, or pass --yes\n")
    assert "public_id" in people.columns()
    assert run("drop", "person", given="y\n").exit_code == DONE
    assert people.columns() == ["id", "name"]


# --- pauses


def test_pause_file(people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the pause file exists, no batch begins; the log says so, once."""
    people.run("expand_public_id")
    pause = tmp_path / "pause"
    pause.touch()
    meanwhile: list[set[str | None]] = []

    def rest(seconds: float) -> None:
        meanwhile.append({*people.ids()})
        if len(meanwhile) == 2:
            pause.unlink()

    monkeypatch.setattr(time, "sleep", rest)
    result = run("backfill", "person", "--pause-file", pause)

    assert result.exit_code == DONE
    assert meanwhile[:2] == [{None}, {None}]
    assert result.stderr.startswith(f"waiting: the file {pause} exists\ncontinuing\nperson: ")
    assert result.stderr.count("waiting") == 1
    assert None not in people.ids()


@on("sqlite")
def test_two_reasons_to_wait(people: People, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill that waits for a replica and for a file says both, and continues when neither is in the way."""
    people.run("expand_public_id")
    pause = tmp_path / "pause"
    pause.touch()
    lags = [20.0, 20.0, 2.0]
    monkeypatch.setattr(MaxLag, "lag", lambda *_: lags.pop(0) if len(lags) > 1 else lags[0])
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 4:
            pause.unlink()

    monkeypatch.setattr(time, "sleep", rest)
    result = run("backfill", "person", "--replica", url, "--pause-file", pause)

    assert result.exit_code == DONE
    assert result.stderr.splitlines()[:2] == [
        "waiting: the replica is 20.0 s behind",
        f"waiting: the file {pause} exists",
    ]
    assert len(rests) >= 4
    assert None not in people.ids()


@on("sqlite")
@pytest.mark.parametrize("is_lost", [True, False])
def test_error_of_a_connection(people: People, monkeypatch: pytest.MonkeyPatch, is_lost: bool) -> None:
    """After an error, the command says that it can be repeated if the connection was lost."""

    def fail(*_: object, **__: object) -> None:
        raise OperationalError("UPDATE", {}, Exception("broken pipe"), connection_invalidated=is_lost)

    monkeypatch.setattr("sqlalchemy_public_id.cli.operations.run_backfill", fail)
    result = run("backfill", "person", "--format", "NanoId")

    again = "; run the same command again to continue" if is_lost else ""
    assert result.exit_code == UNUSABLE
    assert result.stderr.endswith(f": broken pipe{again}\n")


@on("sqlite")
def test_backfill_beside_a_trigger(people: People) -> None:
    """A backfill of a table with a trigger for UPDATE needs the consent that its option gives."""
    people.run("expand_public_id")
    people.execute("CREATE TRIGGER person_changed AFTER UPDATE ON person BEGIN SELECT 1; END")

    refused = run("backfill", "person")
    done = run("backfill", "person", "--update-triggers", "fire")

    assert (refused.exit_code, done.exit_code) == (REFUSED, DONE)
    assert "pass --update-triggers fire" in refused.stderr
    assert None not in people.ids()


@on("sqlite")
def test_plan_with_consent(people: People) -> None:
    """A plan takes the consent of the migration, as the migration itself does, and has no obstacle then."""
    people.execute("ALTER TABLE person ADD public_id varchar(12)")
    people.execute("UPDATE person SET public_id = 'izkpm55j334u' WHERE id < 3")

    for options, status in (((), REFUSED), (("--on-duplicate", "replace"), DONE)):
        assert run("plan", "person", *options).exit_code == status
        assert run("add", "person", *options, "--dry-run").exit_code == status


@on("sqlite")
def test_max_lag(people: People, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--max-lag`` is the number of seconds that the replica may be behind."""
    asked: list[tuple[float, str]] = []

    def lag(wait: MaxLag, connection: Connection) -> float:
        asked.append((wait.seconds, str(wait.replica.url)))
        return 2.0

    monkeypatch.setattr(MaxLag, "lag", lag)
    people.run("expand_public_id")

    assert run("backfill", "person", "--replica", url, "--max-lag", "3").exit_code == DONE
    assert {*asked} == {(3.0, url)}


@on("sqlite")
def test_max_lag_without_a_replica(people: People) -> None:
    """``--max-lag`` without ``--replica`` is refused, because nothing would wait."""
    people.run("expand_public_id")

    result = run("backfill", "person", "--max-lag", "3")

    assert result.exit_code == UNUSABLE
    assert "--max-lag needs --replica URL" in result.stderr
    assert None in people.ids()


@on(*SERVERS)
def test_max_load(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--max-load`` waits while other sessions execute more statements than that, and then continues."""
    people.run("expand_public_id")
    is_postgresql = people.engine.name == "postgresql"
    hold = "SELECT pg_advisory_lock(40)" if is_postgresql else "SELECT GET_LOCK(DATABASE(), 120)"
    wait = (
        "SELECT pg_advisory_xact_lock(40)"
        if is_postgresql
        else "SELECT GET_LOCK(DATABASE(), 120), RELEASE_LOCK(DATABASE())"
    )
    workers = [
        threading.Thread(target=people.execute, args=(wait,)) for _ in range(14)
    ]  # with one more connection, as many as the pool allows
    with monitor(people.engine) as holder:
        holder.exec_driver_sql(hold)
        for worker in workers:
            worker.start()
        wait_until(lambda: count_waiting(holder) == 14, "the workers")
        with people.engine.connect() as connection:
            assert MaxLoad(0).running(connection) >= 14
            assert not MaxLoad(1000)(connection)
        monkeypatch.setattr(time, "sleep", lambda seconds: holder.invalidate())  # the workers end while it waits
        result = run("backfill", "person", "--max-load", "12")
    for worker in workers:
        worker.join()

    assert result.exit_code == DONE, result.stderr
    assert "waiting: other sessions execute " in result.stderr
    assert None not in people.ids()


@on("sqlite")
@pytest.mark.parametrize("statements", [3, 0])
def test_load_of_sqlite(people: People, statements: int) -> None:
    """SQLite reports neither load nor lag, so both are refused before the first batch; it would wait for ever."""
    people.run("expand_public_id")
    result = run("backfill", "person", "--max-load", statements)

    assert result.exit_code == UNUSABLE
    assert "sqlite does not report its load" in result.stderr
    with pytest.raises(ConfigurationError, match="expected a number of 0 or more"):
        MaxLoad(-1)
    with people.engine.connect() as connection, pytest.raises(ConfigurationError, match="is not a replica"):
        MaxLag(people.engine).lag(connection)


@on("postgresql")
def test_replica_that_does_not_answer(people: People) -> None:
    """A replica that cannot be reached counts as behind; a server that is not a replica is refused."""
    gone = create_engine(people.engine.url.set(port=1))
    with people.engine.connect() as connection:
        assert MaxLag(gone)(connection)
        with pytest.raises(ConfigurationError, match="is not a replica"):
            MaxLag(people.engine)(connection)


@on("postgresql")
def test_load_that_is_hidden(people: People, role: str) -> None:
    """PostgreSQL hides the statements of other roles from this one, and the error names the missing right."""
    with people.engine.connect() as other, people.engine.connect() as blind:
        other.execute(text("SELECT 1"))  # a session whose statement is hidden
        blind.execute(text(f"SET LOCAL ROLE {role}"))
        with pytest.raises(ConfigurationError, match=f"GRANT pg_read_all_stats TO {role}"):
            MaxLoad(10).running(blind)


# --- many tables

MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy_public_id import NanoId, PublicIdMixin

class Base(DeclarativeBase): ...

class Plain(Base):
    __tablename__ = "plain"
    id: Mapped[int] = mapped_column(primary_key=True)

for number in range(6):
    type(
        f"Many{number}",
        (PublicIdMixin, Base),
        {"__tablename__": f"many_{number}", "__public_id__": NanoId(prefix=f"m{number}"), "__module__": __name__},
    )
"""
MANY = [f"many_{number}" for number in range(6)]


@pytest.fixture
def many(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, People]]:
    """Six tables that models describe, and one that no model describes."""
    tables = {name: People(engine, name, format=NanoId(prefix=f"m{name[-1]}")) for name in [*MANY, "other"]}
    _drop(tables)
    for table in tables.values():
        table.create(20)
    (tmp_path / "many_models.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "many_models", raising=False)
    yield tables
    _drop(tables)


def _drop(tables: dict[str, People]) -> None:
    for table in tables.values():
        table.execute(f"DROP TABLE IF EXISTS {table.table}")
    tables["other"].drop()  # also drops the functions


def _is_complete(table: People) -> bool:
    return table.state().complete and all(map(table.format.is_valid, table.ids()))


OF_MODELS = ("--all", "--models", "many_models:Base")


def test_all_tables_of_models(many: dict[str, People]) -> None:
    """``--all --models`` works on each table of the models with public ids, with its format, and on no other table."""
    codes = [run(phase, *OF_MODELS, "--jobs", 3).exit_code for phase in ("expand", "backfill", "contract")]

    assert codes == [DONE] * 3
    assert [name for name, table in many.items() if not _is_complete(table)] == ["other"]
    assert many["other"].columns() == ["id", "name"]
    assert run("drop", *OF_MODELS, "--yes").exit_code == DONE
    assert {tuple(table.columns()) for table in many.values()} == {("id", "name")}


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_of_several_tables(many: dict[str, People], jobs: int) -> None:
    """Each table prints its progress, although no table prints more than a line every few seconds, and the last one."""
    run("expand", *OF_MODELS)
    result = run("backfill", *OF_MODELS, "--jobs", jobs)

    lines = [line.split(": ")[0] for line in result.stderr.splitlines() if " rows/s" in line]
    assert {name: lines.count(name) for name in many if name != "other"} == dict.fromkeys(MANY, 2)


@pytest.mark.parametrize("jobs", [1, 2])
def test_error_of_one_table(many: dict[str, People], jobs: int) -> None:
    """A table that cannot be migrated does not stop the others; the same command migrates it once it can be."""
    many["many_2"].execute("CREATE INDEX uq_many_2_public_id ON many_2 (name)")
    result = run("add", *OF_MODELS, "--jobs", jobs)

    assert result.exit_code == REFUSED, result.stderr
    assert result.stderr.count("many_2.public_id: ") == 1
    assert "public-id: many_2.public_id: 1 obstacle, and nothing was changed:" in result.stderr
    last = "public-id: 1 of 6 tables failed: many_2; do what is said about each above, and run the same command again"
    assert result.stderr.splitlines()[-1] == last
    assert _is_complete(many["many_5"])
    assert many["many_2"].columns() == ["id", "name"]
    on_table = " ON many_2" if many["many_2"].engine.name in ("mysql", "mariadb") else ""
    many["many_2"].execute(f"DROP INDEX uq_many_2_public_id{on_table}")
    again = run("add", *OF_MODELS)
    assert again.exit_code == DONE
    assert "many_5" not in again.stderr
    assert _is_complete(many["many_2"])


@on("sqlite")
def test_backfill_of_a_wider_column(many: dict[str, People]) -> None:
    """A column that is wider than its ids is filled if models describe it, which tell the format."""
    many["many_0"].execute("ALTER TABLE many_0 ADD public_id varchar(40)")
    many["other"].execute("ALTER TABLE other ADD public_id varchar(40)")

    assert run("backfill", "many_0", *OF_MODELS[1:]).exit_code == DONE
    assert all(map(many["many_0"].format.is_valid, many["many_0"].ids()))
    assert run("backfill", "other").exit_code == UNUSABLE
    assert run("backfill", "other", "--format", "NanoId").exit_code == DONE


def test_all_needs_models(many: dict[str, People]) -> None:
    """No command changes a table that is not named: ``--all`` needs models, which describe the columns."""
    without = run("expand", "--all")
    described = run("expand", *OF_MODELS, "--format", "NanoId")
    unknown = run("expand", "other", "--models", "many_models:Base")

    assert (without.exit_code, described.exit_code, unknown.exit_code) == (UNUSABLE, UNUSABLE, UNUSABLE)
    assert "--all needs --models" in without.stderr
    assert "leave out --format, or leave out --models" in described.stderr
    assert "the models declare no unique public id for other" in unknown.stderr
    assert {tuple(table.columns()) for table in many.values()} == {("id", "name")}


OF_TWO_METADATA = """
from sqlalchemy import MetaData, Table
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy_public_id import NanoId, PublicIdMixin

class Base(DeclarativeBase): ...

class Elsewhere(Base):
    __abstract__ = True
    metadata = MetaData()

class One(PublicIdMixin, Base):
    __tablename__ = "many_1"
    __public_id__ = NanoId(prefix="m1")

class Two(PublicIdMixin, Elsewhere):
    __tablename__ = "many_2"
    __public_id__ = NanoId(prefix="m2")

class Empty(DeclarativeBase): ...

Table("many_3", Empty.metadata)
"""


@pytest.fixture
def of_two_metadata(many: dict[str, People], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module, one of whose models has a metadata of its own."""
    (tmp_path / "two_metadata.py").write_text(OF_TWO_METADATA)
    monkeypatch.delitem(sys.modules, "two_metadata", raising=False)
    return "two_metadata"


@on("sqlite")
@pytest.mark.parametrize(("base", "changed"), [("Base", ["many_1", "many_2"]), ("Elsewhere", ["many_2"])])
def test_models_with_a_metadata_of_their_own(
    many: dict[str, People], of_two_metadata: str, base: str, changed: list[str]
) -> None:
    """``--all --models`` works on the tables of all subclasses, also of those with a metadata of their own."""
    assert run("add", "--all", "--models", f"{of_two_metadata}:{base}").exit_code == DONE

    assert [name for name, table in many.items() if table.columns() != ["id", "name"]] == changed
    assert all(_is_complete(many[name]) for name in changed)


@on("sqlite")
@pytest.mark.parametrize("command", ["plan", "add"])
def test_models_of_another_database(
    many: dict[str, People], of_two_metadata: str, engine: Engine, command: str
) -> None:
    """``--all`` leaves out tables with a metadata of their own that the database lacks, and says so."""
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE many_2")

    result = run(command, "--all", "--models", f"{of_two_metadata}:Base")

    assert (result.exit_code, "many_2" in result.stdout) == (DONE, False)
    assert "left out: many_2" in result.stderr
    result = run(command, "many_2", "--models", f"{of_two_metadata}:Base")
    assert result.exit_code != DONE
    assert "there is no table 'many_2'" in result.output


@on("sqlite")
def test_audit_of_models_with_a_metadata_of_their_own(many: dict[str, People], of_two_metadata: str) -> None:
    """``audit --models`` also takes the formats of models with a metadata of their own."""
    run("add", "many_2", "--format", 'NanoId(prefix="other")')

    result = run("audit", "--table", "many_2", "--models", f"{of_two_metadata}:Base")

    assert result.exit_code == REFUSED
    assert "(expected m2_ and 12 of 0-9 a-z)" in result.stdout


@on("sqlite")
@pytest.mark.parametrize("command", ["plan", "add"])
def test_models_without_public_ids(many: dict[str, People], of_two_metadata: str, command: str) -> None:
    """Models without public ids are an error: there is nothing that the command could work on."""
    result = run(command, "--all", "--models", f"{of_two_metadata}:Empty")

    assert result.exit_code == UNUSABLE
    assert "no model of Empty has a unique public id" in result.stderr


@on("postgresql")
def test_plan_of_another_schema(many: dict[str, People]) -> None:
    """``plan --all --schema`` examines all tables of that schema, and none of the default schema."""
    many["other"].execute("CREATE SCHEMA public_id_attic")
    try:
        many["other"].execute("CREATE TABLE public_id_attic.chest (id int PRIMARY KEY)")
        result = run("plan", "--all", "--schema", "public_id_attic")
    finally:
        many["other"].execute("DROP SCHEMA public_id_attic CASCADE")

    lines = [line.split()[0] for line in result.stdout.splitlines() if "public_id " in line]
    assert (result.exit_code, lines) == (DONE, ["public_id_attic.chest.public_id"])


def test_plan_of_a_schema(many: dict[str, People]) -> None:
    """``plan --all`` prints a line for each table, and the obstacles of all tables."""
    many["many_1"].add()
    many["many_4"].execute("CREATE INDEX uq_many_4_public_id ON many_4 (name)")
    result = run("plan", "--all")
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if "public_id " in line}

    assert result.exit_code == REFUSED
    assert {f"{name}.public_id" for name in many} <= lines.keys()
    assert lines["many_3.public_id"].endswith(" nothing")
    assert lines["many_1.public_id"].endswith(" it is done")
    assert lines["many_4.public_id"].endswith(" wrong-index")
    assert "many_4.public_id: " in result.stdout
    assert "tables, " in result.stderr
    assert result.stderr.startswith(f"{len(lines)} tables, {len(lines) - 1} without obstacles, about ")
    assert "other.public_id" not in run("plan", *OF_MODELS).stdout
    plan = json.loads(run("plan", "many_3", "--json").stdout)
    assert [*dict.fromkeys(step["phase"] for step in plan["steps"])] == ["expand", "backfill", "contract"]
    locks = [step["lock"].startswith("all others wait for milliseconds") for step in plan["steps"]]
    assert re.search(rf" {sum(locks)}   nothing$", lines["many_3.public_id"])
    if many["other"].engine.name == "sqlite":
        assert "many" not in run("plan", "--all", "--schema", "temp").stdout


@on("sqlite")
def test_plan_of_a_table_that_cannot_be_read(many: dict[str, People]) -> None:
    """A table that cannot be examined gets a line of its own, and the other tables are examined."""
    result = run("plan", "many_0", "gone", "many_1", "--output", "table")

    assert result.exit_code == REFUSED
    assert "gone.public_id: there is no table 'gone'" in result.stdout
    assert result.stdout.count(" nothing\n") == 2


@on("sqlite")
def test_plan_on_a_lost_connection(many: dict[str, People], monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is lost ends the plan with an error: no table counts as one that cannot be read."""

    def lose(connection: Connection, *_: object) -> None:
        connection.invalidate()
        raise OperationalError("SELECT 1", {}, Exception("server closed the connection"))

    monkeypatch.setattr("sqlalchemy_public_id.cli.plan.examine", lose)
    result = run("plan", "many_0", "many_1")

    assert (result.exit_code, result.stdout) == (UNUSABLE, "")
    assert result.stderr.endswith(": server closed the connection\n")


@on(*SERVERS)
def test_collation(people: People) -> None:
    """``--collation bytes`` changes the collation of an existing column, which otherwise stays."""
    people.execute("ALTER TABLE person ADD COLUMN public_id varchar(12)")
    changed = {"postgresql": 'COLLATE "C"'}.get(people.engine.name, "ascii_bin")

    assert changed in run("plan", "person", "--collation", "bytes").stdout
    assert changed not in run("plan", "person").stdout
