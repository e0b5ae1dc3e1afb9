"""``alembic upgrade --sql``: the script really runs, twice, and a linter has no objection."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from clients import give_script, run_script
from marks import on
from people import People, send
from sqlalchemy import Engine, exc

from sqlalchemy_public_id import ConfigurationError, NanoId

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "live-tables.md"
ALLOWED = dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", GUIDE.read_text().partition("squawk")[2], re.MULTILINE))
"""Rules of squawk that the script breaks, and why it may: what the guide says."""

OPTIONS: list[dict[str, Any]] = [
    {},
    {"unique": "constraint"},
    {"server_default": "drop"},
    {"format": NanoId(prefix="per", separator="'%", length=30)},
]


@pytest.fixture
def new_people(engine: Engine) -> Iterator[Callable[..., People]]:
    """Make a table; it is gone after the test."""
    made: list[People] = []

    def make(**options: Any) -> People:
        people = People(engine, **options)
        made.append(people)
        people.create(300)
        return people

    yield make
    for people in made:
        people.drop()


def script(people: People, *operations: str, **opts: Any) -> str:
    """What Alembic writes for migrations of *operations*, with more *opts* of ``context.configure()``."""
    output = io.StringIO()
    context = MigrationContext.configure(
        dialect_name=people.engine.dialect.name,
        opts={"as_sql": True, "output_buffer": output, "transaction_per_migration": True, **opts},
    )
    for operation in operations:
        with context.begin_transaction(_per_migration=True):
            people.say(Operations(context), operation)
    return output.getvalue()


servers = on("postgresql", "mysql", "mariadb")


@servers
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_script(new_people: Callable[..., People], options: dict[str, Any]) -> None:
    """The script ends where a migration with a connection ends."""
    people = new_people(**options)

    run_script(people.engine, script(people, "add_public_id"))

    people.check_complete(300)


@on("mysql", "mariadb")
@pytest.mark.filterwarnings("ignore:Did not recognize type 'point'")
@pytest.mark.parametrize("index", ["FULLTEXT KEY (name)", "SPATIAL KEY (place)"])
def test_script_that_may_lock(new_people: Callable[..., People], index: str) -> None:
    """With ``allow_lock=True``, the script changes a table that the server cannot change beside writers, and back."""
    people = new_people(allow_lock=True)
    people.create(0, more=f", place point NOT NULL, {index}")
    people.execute("INSERT INTO person (name, place) VALUES ('Ada', ST_GeomFromText('POINT(1 1)'))")

    run_script(people.engine, script(people, "add_public_id"))
    assert not people.state().nullable
    assert people.state().valid
    run_script(people.engine, script(people, "drop_public_id"))
    assert "public_id" not in people.columns()


@servers
@pytest.mark.parametrize("kind", ["partitions", "parent", "FULLTEXT", "MEMORY"])
def test_script_that_cannot_end(new_people: Callable[..., People], kind: str) -> None:
    """The script of a table that the database cannot change online stops before its first ALTER."""
    people = new_people()
    is_postgresql = people.engine.name == "postgresql"
    if is_postgresql != (kind == "parent") and kind != "partitions":
        pytest.skip("a kind of table of other databases")
    people.execute(f"DROP TABLE {people.name}")
    by = "PARTITION BY RANGE (id)" if is_postgresql else "PARTITION BY HASH (id) PARTITIONS 4"
    after = {"partitions": by, "MEMORY": "ENGINE=MEMORY"}.get(kind, "")
    index = ", FULLTEXT KEY (name)" if kind == "FULLTEXT" else ""
    people.execute(f"CREATE TABLE {people.name} (id integer PRIMARY KEY, name varchar(50){index}) {after}")
    if kind == "parent":
        people.execute(f"CREATE TABLE child () INHERITS ({people.name})")
    try:
        done = give_script(people.engine, script(people, "add_public_id"))
    finally:
        if kind == "parent":
            people.execute("DROP TABLE child")

    assert done.returncode
    assert {"FULLTEXT": "FULLTEXT", "MEMORY": "MEMORY"}.get(kind, "its unique index cannot be built") in done.stderr
    assert people.columns() == ["id", "name"]


@servers
@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
def test_phases(new_people: Callable[..., People], options: dict[str, Any]) -> None:
    """Scripts of the phases end there too, and the way down ends where it began."""
    people = new_people(**options)

    run_script(people.engine, script(people, "expand_public_id"))
    people.check_expanded()
    run_script(people.engine, script(people, "backfill_public_id"))
    run_script(people.engine, script(people, "contract_public_id"))
    people.check_complete(300)
    run_script(people.engine, script(people, "loosen_public_id"))
    people.check_expanded()
    run_script(people.engine, script(people, "drop_public_id"))
    people.check_gone()


@servers
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_twice(new_people: Callable[..., People], options: dict[str, Any]) -> None:
    """A script can be run again, and changes no id."""
    people = new_people(**options)
    sql = script(people, "add_public_id")
    run_script(people.engine, sql)
    ids = people.ids()

    run_script(people.engine, sql)

    people.check_complete(300)
    assert people.ids() == ids


@servers
def test_drop(new_people: Callable[..., People]) -> None:
    """The script of the way down leaves nothing behind."""
    people = new_people()
    people.add()

    run_script(people.engine, script(people, "drop_public_id"))

    people.check_gone()


@servers
def test_odd_names(new_people: Callable[..., People]) -> None:
    """Names are quoted in scripts too."""
    people = new_people(table='it\'s a "table"', column="select")

    run_script(people.engine, script(people, "add_public_id"))

    people.check_complete(300)


@servers
def test_percent_in_a_name(new_people: Callable[..., People]) -> None:
    """A percent sign in a name is written once."""
    people = new_people(table="100% sure")

    run_script(people.engine, script(people, "add_public_id"))

    people.check_complete(300)


@on("postgresql")
def test_script_after_an_invalid_index(new_people: Callable[..., People]) -> None:
    """The script takes an invalid index away that an earlier attempt has left."""
    people = new_people()
    people.run("expand_public_id")
    people.execute("UPDATE person SET public_id = 'twice'")
    with (
        people.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(exc.IntegrityError),
    ):
        connection.exec_driver_sql("CREATE UNIQUE INDEX CONCURRENTLY uq_person_public_id ON person (public_id)")
    people.execute("UPDATE person SET public_id = NULL")

    run_script(people.engine, script(people, "add_public_id"))

    people.check_complete(300)


@on("postgresql")
def test_psql_stops(new_people: Callable[..., People]) -> None:
    """psql stops at the first error, such as a lock timeout, and what comes after it is not executed."""
    people = new_people()
    people.execute("CREATE TABLE reached (id integer)")
    try:
        with people.engine.connect() as other:
            send(other, f"SELECT * FROM {people.name} FOR UPDATE")
            done = give_script(people.engine, script(people, "expand_public_id") + "DROP TABLE reached;")

        assert (done.returncode, people.columns()) == (3, ["id", "name"]), done.stderr
    finally:
        people.execute("DROP TABLE reached")


@on("postgresql")
def test_other_clients_than_psql(new_people: Callable[..., People]) -> None:
    """``public_id_psql=False`` in env.py leaves the command of psql out, which is an error for other clients."""
    people = new_people()
    written, without = (script(people, "add_public_id", **opts) for opts in ({}, {"public_id_psql": False}))
    command = "\\set ON_ERROR_STOP on\n\n"

    assert written.count(command) == 1
    assert without == written.replace(command, "")


KEYS = {
    "integer": ("id int unsigned PRIMARY KEY", "id", "n", 3),
    "negative": ("id bigint PRIMARY KEY", "id", "n - 6000", 3),
    "largest": ("id bigint unsigned PRIMARY KEY", "id", "18446744073709551615 - n", 3),
    "odd names": ("`a ``'%` int, `by` varchar(9), PRIMARY KEY (`a ``'%`, `by`)", "`a ``'%`, `by`", "n % 7, n", 3),
    "three columns": (
        "a date, b decimal(9, 2), c int, PRIMARY KEY (a, b, c)",
        "a, b, c",
        "DATE_ADD('2026-01-01', INTERVAL n % 2 DAY), n % 50 / 4, n",
        3,
    ),
    "text": ("id varchar(20) PRIMARY KEY", "id", "CONCAT('k''ä\\\\', n)", 3),
    "binary": ("id binary(16) PRIMARY KEY", "id", "UNHEX(SUBSTR(SHA2(n, 256), 1, 32))", 3),
    "datetime": ("id datetime(6) PRIMARY KEY", "id", "DATE_ADD('2026-01-01', INTERVAL n * 7 MICROSECOND)", 3),
    "a prefix": ("id varchar(20), PRIMARY KEY (id(9))", "id", "n", None),
    "an enumeration": ("a enum('y', 'x'), id int, PRIMARY KEY (a, id)", "a, id", "1 + n % 2, n", None),
    "none": ("id int", "id", "n", None),
}
"""The key, its columns, their values, and the batches for 12 000 rows if the procedure can walk along it."""


@on("mysql", "mariadb")
@pytest.mark.parametrize("key", KEYS)
def test_backfill_by_key(new_people: Callable[..., People], key: str) -> None:
    """The procedure passes each row once in the order of the key; without a key, it repeats to the last row."""
    people, (columns, names, value, batches) = new_people(), KEYS[key]
    people.drop()
    more = "name varchar(50), public_id varchar(12) COLLATE utf8mb4_bin"
    people.execute(f"CREATE TABLE person ({columns}, {more}) DEFAULT CHARACTER SET utf8mb4")
    limit = "max_recursive_iterations" if people.engine.name == "mariadb" else "cte_max_recursion_depth"
    numbers = "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 12000)"
    with people.engine.begin() as connection:
        send(connection, f"SET SESSION {limit} = 1000000")
        send(connection, f"INSERT INTO person ({names}) {numbers} SELECT {value} FROM c")
    sql = script(people, "backfill_public_id")
    counting = sql.replace("    COMMIT;\n", "    COMMIT;\n    SET @batches = @batches + 1;\n")

    run_script(people.engine, f"SET @batches = 1;\n{counting}\nCREATE TABLE batches SELECT @batches AS n;")

    with people.engine.begin() as connection:
        ids = list(send(connection, "SELECT public_id FROM person").scalars())
        counted = send(connection, "SELECT n FROM batches").scalar()
        send(connection, "DROP TABLE batches")
    assert (len(set(ids)), all(map(NanoId().is_valid, ids))) == (12_000, True)
    assert counted == (batches or 4)  # by repetition, the last batch finds no row


@on("mysql", "mariadb")
def test_time_of_the_last_change(new_people: Callable[..., People]) -> None:
    """A column that the server sets at each update keeps its value."""
    people = new_people()
    for name in ("changed", "also `changed`"):
        quoted = name.replace("`", "``")
        people.execute(f"ALTER TABLE person ADD COLUMN `{quoted}` timestamp DEFAULT '2020-02-02' ON UPDATE now()")

    run_script(people.engine, script(people, "add_public_id"))

    people.check_complete(300)
    with people.engine.connect() as connection:
        changed = send(
            connection, "SELECT count(*) FROM person WHERE changed = '2020-02-02' AND `also ``changed``` = changed"
        )
        assert changed.scalar() == 300


@on("mysql", "mariadb")
@pytest.mark.parametrize(
    ("version", "accepted"),
    [("10.5.28-MariaDB", False), ("10.9.8-MariaDB-1:10.9", False), ("10.10.0-MariaDB", True), ("8.0.13", True)],
)
def test_old_mariadb(new_people: Callable[..., People], version: str, accepted: bool) -> None:
    """A server without RANDOM_BYTES() refuses the script before it changes anything, and the message has the remedy."""
    people = new_people()
    sql = script(people, "add_public_id")
    assert "VERSION()" in sql

    done = give_script(people.engine, sql.replace("VERSION()", f"'{version}'"))

    assert (done.returncode == 0) is accepted
    if not accepted:
        assert 'has no RANDOM_BYTES() to generate ids with: pass server_default="none"' in done.stderr
        assert people.columns() == ["id", "name"]


@on("mysql", "mariadb")
def test_script_for_old_mariadb(new_people: Callable[..., People]) -> None:
    """A script that generates no ids is for old servers too."""
    people = new_people(server_default="none")

    assert "RANDOM_BYTES" not in script(people, "expand_public_id", "contract_public_id", "drop_public_id")


@on("mysql", "mariadb")
def test_check_digit(new_people: Callable[..., People]) -> None:
    """Where no script can make the ids, it says so."""
    people = new_people(format=NanoId(check_digit=True))

    with pytest.raises(ConfigurationError, match=r"run op\.backfill_public_id"):
        script(people, "add_public_id")


@on("sqlite")
@pytest.mark.parametrize("operation", ["add_public_id", "contract_public_id", "loosen_public_id"])
def test_sqlite(new_people: Callable[..., People], operation: str) -> None:
    """There is no script for SQLite, and the error says why."""
    people = new_people()

    with pytest.raises(ConfigurationError, match=r"SQLite has to copy; run the migration with a connection"):
        script(people, operation)


@on("postgresql")
def test_squawk(new_people: Callable[..., People], tmp_path: Path) -> None:
    """The linter squawk has no objection but those that are answered, and none is answered that it does not have."""
    found: dict[str, str] = {}
    for options in OPTIONS:
        people = new_people(**options)
        for operation in ("add_public_id", "expand_public_id", "contract_public_id", "loosen_public_id"):
            file = tmp_path / "migration.sql"
            file.write_text(script(people, operation))
            squawk = [str(Path(sys.executable).with_name("squawk")), "--reporter", "json", "--pg-version", "13"]
            done = subprocess.run([*squawk, str(file)], capture_output=True, text=True, timeout=60)
            lines = file.read_text().splitlines()
            found |= {report["rule_name"]: lines[report["line"]] for report in json.loads(done.stdout)}

    assert found.keys() == ALLOWED.keys(), found
