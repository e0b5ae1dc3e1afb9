"""Everything that stands in the way is reported before the first ALTER, and nothing is changed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, inspect
from sqlalchemy.exc import SAWarning
from support.dumps import dump
from support.marks import on
from support.people import People, send

from sqlalchemy_public_id import NanoId, Uuid7
from sqlalchemy_public_id.errors import DryRun, MigrationRefused
from sqlalchemy_public_id.migrating.table import FEW_ROWS

pytestmark = pytest.mark.backend

IDS = NanoId().generate_many(3)
ROLE = f"public_id_reader_{os.getpid()}"


def everything(engine: Engine) -> list[Any]:
    """Everything that the catalogs say, and the rows."""
    schema = {"sqlite": "main", "postgresql": "public"}.get(engine.name, str(engine.url.database))
    with engine.connect() as connection:
        return [*dump(connection, schema), *send(connection, "SELECT * FROM person ORDER BY id")]


def refused(
    people: People, operation: str = "add_public_id", reader: Engine | None = None, **options: Any
) -> dict[str, str]:
    """The obstacles of an operation, which has changed nothing, as the engine *reader* sees."""
    reader = reader or people.engine
    before = everything(reader)
    with pytest.raises(MigrationRefused) as caught:
        people.run(operation, **options)
    assert everything(reader) == before
    return {obstacle.code: str(obstacle) for obstacle in caught.value.obstacles}


# --- the column


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize(
    ("type_", "code"), [("varchar(8)", "too-short"), ("int", "wrong-type"), ("date", "wrong-type")]
)
def test_other_type(new_people: Callable[..., People], type_: str, code: str) -> None:
    """A column that cannot hold the ids is refused; what old programs write goes on working."""
    people = new_people(more=f", public_id {type_}")

    assert code in refused(people)
    people.write(1)


@on("postgresql", "mysql", "mariadb")
def test_strings_in_a_column_for_numbers(new_people: Callable[..., People], engine: Engine) -> None:
    """Ids that are strings and a column of UUIDs, or the other way round, are refused."""
    uuid = "uuid" if engine.name != "mysql" else "binary(16)"
    people = new_people(more=f", public_id {uuid}")
    assert "wrong-type" in refused(people)
    people.execute("ALTER TABLE person DROP COLUMN public_id")
    people.execute("ALTER TABLE person ADD COLUMN public_id varchar(36)")

    assert "wrong-type" in refused(people, format=Uuid7())


@pytest.mark.parametrize("default", ["''", "'x'", "'n/a (old)'"])
def test_constant_default(new_people: Callable[..., People], default: str) -> None:
    """A default that gives all rows one id is refused, also where the operation wants none of its own."""
    people = new_people(rows=0, more=f", public_id varchar(12) DEFAULT {default}")

    for server_default in ("keep", "none"):
        assert "constant-default" in refused(people, server_default=server_default)


def test_default_of_another_kind(new_people: Callable[..., People], engine: Engine) -> None:
    """A default that generates other ids is refused, and kept on request."""
    default = {"postgresql": "md5(random()::text)", "sqlite": "hex(random())"}.get(engine.name, "uuid()")
    people = new_people(rows=0, more=f", public_id varchar(36) DEFAULT ({default})", collation="bytes")

    assert 'server_default="none" to keep it' in refused(people)["foreign-default"]
    people.add(server_default="none")
    people.execute("INSERT INTO person (name) VALUES ('Ada')")
    assert len(people.ids()[0] or "") > 12


INDEXES = {
    "not unique": "CREATE INDEX uq_person_public_id ON person (public_id)",
    "partial": "CREATE UNIQUE INDEX uq_person_public_id ON person (public_id) WHERE id > 10",
    "another column": "CREATE UNIQUE INDEX uq_person_public_id ON person (id)",
    "two columns": "CREATE UNIQUE INDEX uq_person_public_id ON person (public_id, id)",
    "a prefix": "CREATE UNIQUE INDEX uq_person_public_id ON person (public_id(4))",
    "deferrable": "ALTER TABLE person ADD CONSTRAINT uq_person_public_id UNIQUE (public_id) DEFERRABLE",
}
ONLY = {"partial": {"postgresql", "sqlite"}, "a prefix": {"mysql", "mariadb"}, "deferrable": {"postgresql"}}


@pytest.mark.parametrize("index", INDEXES)
def test_index_of_the_name(new_people: Callable[..., People], engine: Engine, index: str) -> None:
    """An index that has the name, and does not keep duplicates out of the column, is not taken for the unique one."""
    if engine.name not in ONLY.get(index, {engine.name}):
        pytest.skip(f"{engine.name} has no such index")
    type_ = (
        "varchar(12) CHARACTER SET ascii COLLATE ascii_bin" if engine.name in {"mysql", "mariadb"} else "varchar(12)"
    )
    people = new_people(more=f", public_id {type_}")
    people.execute(INDEXES[index])

    assert "unique_name=" in refused(people)["wrong-index"]
    people.add(unique_name="another_name")
    assert people.state().nullable is False


def test_name_of_another_table(new_people: Callable[..., People], engine: Engine) -> None:
    """A name that an index of another table has is refused on databases whose names are those of the schema."""
    people, other = new_people(), new_people(table="user_role")
    other.execute("CREATE UNIQUE INDEX uq_person_public_id ON user_role (id)")

    if engine.name in {"mysql", "mariadb"}:
        people.add()
    else:
        assert "name-taken" in refused(people)


# --- ids that are there already


def with_ids(people: People, *ids: str) -> None:
    for key, id in enumerate(ids, 1):
        people.execute(f"UPDATE person SET public_id = '{id}' WHERE id = {key}")


def test_duplicates(new_people: Callable[..., People], caplog: pytest.LogCaptureFixture) -> None:
    """Ids that rows share are refused with an example, or replaced on request, and each is logged."""
    people = new_people()
    people.run("expand_public_id")
    with_ids(people, IDS[0], IDS[0], IDS[1])

    assert IDS[0] in refused(people)["duplicates"]
    assert "1 id is in several rows" in refused(people, "contract_public_id")["duplicates"]
    people.add(on_duplicate="replace")
    assert people.ids()[::2] == [IDS[0], IDS[1]]
    people.check_complete(3)
    assert f"the row 2 had '{IDS[0]}', and has '{people.ids()[1]}' now" in caplog.text


def test_duplicates_where_ids_are_replaced(new_people: Callable[..., People]) -> None:
    """Ids that rows share are refused before a malformed one of another row is replaced."""
    people = new_people()
    people.run("expand_public_id")
    with_ids(people, IDS[0], IDS[0], "no id")

    assert refused(people, "contract_public_id", on_invalid="replace").keys() == {"duplicates"}


@on("postgresql", "mysql", "mariadb")
def test_id_that_is_corrected_meanwhile(new_people: Callable[..., People]) -> None:
    """An id that somebody corrects just before it would be replaced stays."""
    people = new_people()
    people.run("expand_public_id")
    with_ids(people, IDS[0], "no id", IDS[1])
    migrating = create_engine(people.engine.url)

    @event.listens_for(migrating, "before_cursor_execute")
    def correct(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("UPDATE"):
            people.execute(f"UPDATE person SET public_id = '{IDS[2]}' WHERE id = 2")

    People(migrating).run("contract_public_id", on_invalid="replace")
    migrating.dispose()

    assert people.ids() == [IDS[0], IDS[2], IDS[1]]


@pytest.mark.parametrize("invalid", ["", "no id", "ÄÖÜ"])
def test_invalid_ids(new_people: Callable[..., People], caplog: pytest.LogCaptureFixture, invalid: str) -> None:
    """Ids that the format does not accept are refused, kept, or replaced, and each is logged."""
    people = new_people()
    type_ = (
        "varchar(12) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if people.engine.name in {"mysql", "mariadb"} else ""
    )
    people.run("expand_public_id")
    if type_:
        people.execute(f"ALTER TABLE person MODIFY COLUMN public_id {type_}")
    with_ids(people, IDS[0], invalid, IDS[1])

    assert repr(invalid) in refused(people)["invalid-ids"]
    if invalid.isascii():
        people.add(on_invalid="keep")
        assert people.ids() == [IDS[0], invalid, IDS[1]]
        return
    people.add(on_invalid="replace")
    assert people.ids()[::2] == [IDS[0], IDS[1]]
    people.check_complete(3)
    assert f"the row 2 had '{invalid}', and has '{people.ids()[1]}' now" in caplog.text


def test_everything_at_once(new_people: Callable[..., People]) -> None:
    """One error has all obstacles."""
    people = new_people(rows=1, more=", public_id varchar(12) DEFAULT 'x'", collation="bytes")
    people.execute("CREATE INDEX uq_person_public_id ON person (public_id)")

    assert refused(people).keys() == {"constant-default", "wrong-index"}


# --- the table


@on("mysql", "mariadb")
def test_no_key(new_people: Callable[..., People]) -> None:
    """A table whose rows no key tells apart is refused while they have to be filled, and accepted when it is empty."""
    people = new_people()
    people.execute("DROP TABLE person")
    people.execute("CREATE TABLE person (id integer, name varchar(50))")
    people.add()
    people.execute("DROP TABLE person")
    people.execute("CREATE TABLE person (id integer UNIQUE, name varchar(50))")
    people.execute("INSERT INTO person (id) VALUES (1)")

    assert "no-key" in refused(people)


# --- rights and kinds of tables on PostgreSQL


@pytest.fixture
def role(engine: Engine) -> Iterator[Engine]:
    """An engine of a role without any right but that to connect."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        send(connection, f"DROP ROLE IF EXISTS {ROLE}")
        send(connection, f"CREATE ROLE {ROLE} LOGIN")
        send(connection, f"GRANT USAGE ON SCHEMA public TO {ROLE}")
        made = create_engine(engine.url.set(username=ROLE))
        yield made
        made.dispose()
        send(connection, f"DROP OWNED BY {ROLE} CASCADE")
        send(connection, f"DROP ROLE {ROLE}")


def as_role(people: People, role: Engine) -> People:
    return People(role, **people.options)


@on("postgresql")
def test_rights(new_people: Callable[..., People], role: Engine) -> None:
    """Rights that the role lacks are all reported, each with what to do."""
    people = new_people()
    people.execute(f"GRANT SELECT ON person TO {ROLE}")
    people.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    found = []
    with pytest.raises(MigrationRefused) as caught:
        as_role(people, role).add()
    found = [str(obstacle) for obstacle in caught.value.obstacles]

    assert [obstacle.code for obstacle in caught.value.obstacles] == ["missing-right"] * 3
    assert "as postgres, or as a member of that role" in found[0]
    assert f"GRANT CREATE ON SCHEMA public TO {ROLE}" in found[1]
    people.execute(f"ALTER TABLE person OWNER TO {ROLE}")
    people.execute(f"GRANT CREATE ON SCHEMA public TO {ROLE}")
    as_role(people, role).add()
    people.check_complete(3)


@on("postgresql")
def test_row_level_security(new_people: Callable[..., People], role: Engine) -> None:
    """Rows that row-level security hides would get no id: refused, and old programs go on."""
    people = new_people()
    people.execute(f"GRANT CREATE ON SCHEMA public TO {ROLE}")
    people.execute(f"ALTER TABLE person OWNER TO {ROLE}")
    people.execute("ALTER TABLE person ENABLE ROW LEVEL SECURITY")
    people.execute("ALTER TABLE person FORCE ROW LEVEL SECURITY")
    people.execute("CREATE POLICY few ON person USING (id < 2) WITH CHECK (true)")

    assert "BYPASSRLS" in refused(as_role(people, role), reader=people.engine)["row-level-security"]
    people.execute("UPDATE person SET name = 'Ada' WHERE id = 3")
    people.execute("ALTER TABLE person NO FORCE ROW LEVEL SECURITY")
    as_role(people, role).add()
    people.check_complete(3)


@on("postgresql")
def test_published_without_identity(new_people: Callable[..., People]) -> None:
    """A published table whose updates PostgreSQL refuses is refused."""
    people = new_people()
    people.execute("CREATE PUBLICATION all_people FOR TABLE person")
    people.execute("ALTER TABLE person REPLICA IDENTITY NOTHING")
    try:
        assert "REPLICA IDENTITY DEFAULT" in refused(people)["replica-identity"]
        people.execute("ALTER TABLE person REPLICA IDENTITY DEFAULT")
        people.add()
    finally:
        people.execute("DROP PUBLICATION all_people")
    people.check_complete(3)


@on("postgresql")
def test_published_without_key(new_people: Callable[..., People]) -> None:
    """A published table without a key, whose updates PostgreSQL refuses, is refused until it has another identity."""
    people = new_people()
    people.execute("ALTER TABLE person DROP CONSTRAINT person_pkey")
    people.execute("CREATE PUBLICATION all_people FOR TABLE person")
    try:
        remedy = refused(people)["replica-identity"]
        people.execute(remedy[remedy.index("ALTER TABLE") :])
        people.add()
    finally:
        people.execute("DROP PUBLICATION all_people")
    people.check_complete(3)


@on("postgresql")
def test_dependants_of_the_column(new_people: Callable[..., People]) -> None:
    """A column that a view or a foreign key needs is not half dropped: nothing happens."""
    people = new_people()
    people.add()
    people.execute("CREATE VIEW shown AS SELECT public_id FROM person")
    people.execute("CREATE TABLE visit (of varchar(12) REFERENCES person (public_id))")
    try:
        found = refused(people, "drop_public_id")["dependants"]
    finally:
        people.execute("DROP VIEW shown")
        people.execute("DROP TABLE visit")

    assert "view shown" in found
    assert "visit_of_fkey" in found
    people.run("drop_public_id")
    assert "public_id" not in [column["name"] for column in inspect(people.engine).get_columns("person")]


# --- kinds of tables on MySQL and MariaDB

LOCKED = {
    "FULLTEXT": (", note text, FULLTEXT (note)", "", "there is a FULLTEXT index"),
    "SPATIAL": (", place point NOT NULL DEFAULT (point(1, 1)), SPATIAL INDEX (place)", "", "there is a SPATIAL index"),
    "indexed virtual column": (", v int AS (length(name)) VIRTUAL, INDEX (v)", "", "the column v is generated"),
    "stored column": (", v int AS (length(name)) STORED", "", "the column v is generated"),
}


@on("mysql", "mariadb")
@pytest.mark.parametrize("kind", [*LOCKED, pytest.param("MyISAM", marks=pytest.mark.slow)])  # each row is synced
def test_tables_that_have_to_be_locked(new_people: Callable[..., People], engine: Engine, kind: str) -> None:
    """A table that the server changes only while writers wait is refused with the cause, and changed on request."""
    more, after, cause = LOCKED.get(kind, ("", "ENGINE=MyISAM", "the engine is MyISAM"))
    if kind == "SPATIAL" and engine.name == "mysql":
        more = more.replace("NOT NULL DEFAULT", "NOT NULL SRID 0 DEFAULT")
    people = new_people(more=more, after=after)
    if engine.name == "mysql" and "column" in kind:
        people.add()  # beside writers
        people.check_complete(3)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)  # the type of a place
        assert cause in refused(people)["needs-lock"]

        people.add(allow_lock=True)
        people.check_complete(3)
        assert cause in refused(people, "drop_public_id")["needs-lock"]
        people.run("drop_public_id", allow_lock=True)
        people.check_gone()


@on("mysql", "mariadb")
def test_rebuild_while_writers_wait(new_people: Callable[..., People], engine: Engine) -> None:
    """If writers may wait, MySQL copies the table, because its rebuild in place can lose rows. The plan tells it."""
    people = new_people()
    with pytest.raises(DryRun) as plan:
        people.add(allow_lock=True, dry_run=True)
    rebuild = next(step for step in plan.value.report.steps if "forbid NULL" in step.name)
    assert rebuild.statements[0].endswith(", ALGORITHM=COPY") == (engine.name == "mysql")
    assert rebuild.lock == "writers may wait until it ends"

    people.add(allow_lock=True)
    people.check_complete(3)
    people.run("loosen_public_id", allow_lock=True)
    assert people.state().nullable


@on("mariadb")
@pytest.mark.parametrize("history", ["without history", "with history"])
def test_system_versioned_table(new_people: Callable[..., People], history: str) -> None:
    """A system-versioned table gets its ids, and the backfill adds no version of a row to its history."""
    people = new_people(after="WITH SYSTEM VERSIONING")
    if history == "with history":
        people.execute("UPDATE person SET name = 'Ada' WHERE id = 1")
        assert "earlier versions of its rows get the empty string" in refused(people)["needs-lock"]
        people.options["allow_lock"] = True
    people.add()

    people.check_complete(3)
    with people.engine.connect() as connection:
        versions = send(connection, "SELECT count(*) FROM person FOR SYSTEM_TIME ALL").scalar()
    assert versions == (4 if history == "with history" else 3)
    people.run("drop_public_id")
    people.check_gone()


@on("mysql", "mariadb")
def test_privileges(new_people: Callable[..., People], engine: Engine) -> None:
    """Privileges that the user lacks are reported together, with the GRANT."""
    people = new_people()
    user = f"'{ROLE}'@'%'"
    people.execute(f"CREATE USER {user}")
    limited = create_engine(engine.url.set(username=ROLE, password=None))
    try:
        people.execute(f"GRANT SELECT, ALTER ON person TO {user}")
        found = refused(People(limited), reader=engine)["missing-right"]
        assert f"GRANT CREATE, INSERT, UPDATE ON person TO {user}" in found
        people.execute(f"GRANT CREATE, INSERT, UPDATE ON person TO {user}")
        People(limited).add()
    finally:
        limited.dispose()
        people.execute(f"DROP USER {user}")
    people.check_complete(3)


# --- wide columns


@on("postgresql")
@pytest.mark.parametrize("type_", ["text", "varchar(36)"])
def test_wide_columns_are_kept(new_people: Callable[..., People], statements: Any, type_: str) -> None:
    """A wider type, and a collation whose change would rebuild an index, are kept: nothing is rewritten."""
    people = new_people(rows=FEW_ROWS + 1, more=f', public_id {type_} COLLATE "en-x-icu" UNIQUE')
    statements.clear()

    people.add()

    people.check_complete(FEW_ROWS + 1)
    assert not [statement for statement in statements if " TYPE " in statement]


def test_wide_column_of_few_rows(new_people: Callable[..., People], engine: Engine) -> None:
    """The length stays on every database, so that longer ids of an earlier format remain."""
    people = new_people(more=", public_id varchar(36)", collation="bytes")
    people.execute(f"UPDATE person SET public_id = '{'x' * 30}' WHERE id = 1")

    people.add(on_invalid="keep")

    assert people.ids()[0] == "x" * 30
    columns = {column["name"]: column for column in inspect(engine).get_columns("person")}
    assert getattr(columns["public_id"]["type"], "length", None) == 36
