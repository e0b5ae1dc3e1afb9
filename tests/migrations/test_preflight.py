"""A migration reports everything that stands in its way before the first ALTER, and changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, String, create_engine, event, inspect
from sqlalchemy.exc import IntegrityError
from support.marks import on
from support.people import People, send
from support.refusals import refused

from sqlalchemy_public_id import NanoId, Uuid4, Uuid7
from sqlalchemy_public_id.errors import DryRun, MigrationRefused
from sqlalchemy_public_id.migrations import backfill, existing_ids
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine
from sqlalchemy_public_id.migrations.table import FEW_ROWS

pytestmark = pytest.mark.backend

IDS = NanoId().generate_many(3)


# --- the table


@pytest.mark.parametrize("operation", PHASES)
def test_temporary_table_in_front(new_people: Callable[..., People], operation: str) -> None:
    """A temporary table that hides the table is the only obstacle that is named; another one is none."""
    people = new_people(3, ", public_id varchar(12)")
    complete = "public_id varchar(12) NOT NULL UNIQUE"
    create = f"CREATE TEMPORARY TABLE {{}} (id int PRIMARY KEY, name varchar(50), {complete})"

    def found() -> list[str]:
        plan = plan_for(people.target, connection.dialect)
        return [each.code for each in examine(connection, plan, PHASES[operation]).obstacles]

    with people.engine.connect() as connection:
        send(connection, create.format("other"))
        without = found()
        send(connection, create.format("person"))
        hidden = found()
        connection.invalidate()

    assert "temporary" not in without
    assert hidden == ["temporary"]


def test_temporary_table_in_front_of_a_backfill(new_people: Callable[..., People]) -> None:
    """A backfill does not fill a temporary table of its connection; the remedy lets it fill the table."""
    people = new_people(3, ", public_id varchar(12)")
    with people.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        send(connection, "CREATE TEMPORARY TABLE person (id int PRIMARY KEY, public_id varchar(12))")
        with pytest.raises(MigrationRefused, match="a temporary table of this connection hides person") as refusal:
            backfill.run(connection, "person")
        [obstacle] = refusal.value.obstacles
        send(connection, obstacle.remedy.partition(", or ")[0])
        assert backfill.run(connection, "person").filled == 3


# --- the column


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize(
    ("type_", "code"), [("varchar(8)", "too-short"), ("int", "wrong-type"), ("date", "wrong-type")]
)
def test_other_type(new_people: Callable[..., People], type_: str, code: str) -> None:
    """A column that cannot hold the ids is refused, and old programs can still write."""
    people = new_people(more=f", public_id {type_}")

    assert code in refused(people)
    people.write(1)


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("length", [20, 12])
def test_char(new_people: Callable[..., People], engine: Engine, length: int) -> None:
    """On PostgreSQL, a CHAR that adds blanks to an id is refused, and the remedy works; one that ids fill is kept."""
    binary = {} if engine.name == "postgresql" else {"collation": "bytes"}
    people = new_people(more=f", public_id char({length})", **binary)
    if engine.name == "postgresql" and length > 12:
        assert f"type_=sa.String({length})" in refused(people)["wrong-type"]
        assert "wrong-type" in refused(people, "contract_public_id")
        with people.migrating() as op:
            op.alter_column("person", "public_id", type_=String(length))

    people.add()

    people.check_complete(3)


@on("postgresql", "mysql", "mariadb")
def test_strings_in_a_column_for_numbers(new_people: Callable[..., People], engine: Engine) -> None:
    """Ids that are strings are refused in a column of UUIDs, and UUIDs in a column of strings."""
    uuid = "uuid" if engine.name != "mysql" else "binary(16)"
    people = new_people(more=f", public_id {uuid}")
    assert "wrong-type" in refused(people)
    people.execute("ALTER TABLE person DROP COLUMN public_id")
    people.execute("ALTER TABLE person ADD COLUMN public_id varchar(36)")

    assert "wrong-type" in refused(people, format=Uuid7())


@pytest.mark.parametrize("default", ["''", "'x'", "'n/a (old)'"])
@pytest.mark.parametrize("server_default", ["keep", "none"])
def test_constant_default(new_people: Callable[..., People], default: str, server_default: str) -> None:
    """A default that gives all rows one id is refused, also with ``server_default="none"``."""
    people = new_people(rows=0, more=f", public_id varchar(12) DEFAULT {default}")

    assert "constant-default" in refused(people, server_default=server_default)


@pytest.mark.parametrize("null", ["NULL", "null"])
def test_default_null(new_people: Callable[..., People], null: str) -> None:
    """DEFAULT NULL does not count as a default, in whatever case it was written."""
    people = new_people(more=f", public_id varchar(12) DEFAULT {null}", collation="bytes")

    people.add()

    people.check_complete(3)


OTHER_DEFAULTS = {
    "postgresql": ["md5(random()::text)"],
    "sqlite": ["hex(random())", "lower(hex(randomblob(16)))"],
    "mysql": ["uuid()", "lower(hex(random_bytes(16)))"],
    "mariadb": ["uuid()", "lower(hex(random_bytes(16)))"],
}
"""Defaults that generate other ids; the library's own ones use random bytes as well."""


@pytest.mark.parametrize(
    ("database", "default"),
    [(database, default) for database, defaults in OTHER_DEFAULTS.items() for default in defaults],
    indirect=["database"],
)
def test_default_of_another_kind(new_people: Callable[..., People], default: str) -> None:
    """A default that generates other ids is refused, and kept with ``server_default="none"``."""
    people = new_people(rows=0, more=f", public_id varchar(36) DEFAULT ({default})", collation="bytes")

    assert 'server_default="none" to keep it' in refused(people)["foreign-default"]
    people.add(server_default="none")
    people.write(1)
    assert len(people.ids()[0] or "") > 12


@on("postgresql")
def test_uuids_for_a_format_with_a_prefix(new_people: Callable[..., People]) -> None:
    """A default that makes UUIDs generates other ids than a format that puts a prefix before them."""
    people = new_people(rows=0, more=", public_id varchar(41) DEFAULT gen_random_uuid()::text", collation="bytes")

    as_made = Uuid4(encoding="hyphenated", storage="text")

    assert "foreign-default" in refused(people, format=as_made.prefixed("doc"))
    people.add(format=as_made)


INDEXES = {
    "not unique": "CREATE INDEX uq_person_public_id ON person (public_id)",
    "partial": "CREATE UNIQUE INDEX uq_person_public_id ON person (public_id) WHERE id > 10",
    "another column": "CREATE UNIQUE INDEX uq_person_public_id ON person (id)",
    "two columns": "CREATE UNIQUE INDEX uq_person_public_id ON person (public_id, id)",
    "a prefix": "CREATE UNIQUE INDEX uq_person_public_id ON person (public_id(4))",
    "other letters": "CREATE INDEX UQ_Person_Public_Id ON person (public_id)",
    "deferrable": "ALTER TABLE person ADD CONSTRAINT uq_person_public_id UNIQUE (public_id) DEFERRABLE",
}
ONLY = {
    "partial": {"postgresql", "sqlite"},
    "a prefix": {"mysql", "mariadb"},
    "other letters": {"sqlite", "mysql", "mariadb"},
    "deferrable": {"postgresql"},
}


@pytest.mark.parametrize("index", INDEXES)
def test_index_of_the_name(new_people: Callable[..., People], engine: Engine, index: str) -> None:
    """An index that has the name, but allows duplicates in the column, is not taken for the unique index."""
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
    """The name of an index of another table is refused on databases where it has to be unique in the schema."""
    people, other = new_people(), new_people(table="user_role")
    other.execute("CREATE UNIQUE INDEX uq_person_public_id ON user_role (id)")

    if engine.name in {"mysql", "mariadb"}:
        people.add()
    else:
        assert "name-taken" in refused(people)


@on("sqlite")
@pytest.mark.parametrize("create", ["INDEX UQ_Person_Public_Id ON shelf (place)", "TABLE UQ_PERSON_PUBLIC_ID (place)"])
def test_name_in_other_letters(new_people: Callable[..., People], create: str) -> None:
    """On SQLite, where names are unique in the whole file, a name that differs only in case is taken as well."""
    people = new_people()
    people.execute("CREATE TABLE shelf (place)")
    people.execute(f"CREATE {create}")

    assert refused(people).keys() == {"name-taken"}


@on("postgresql")
def test_check_of_the_name(new_people: Callable[..., People]) -> None:
    """A CHECK of the project with the name of the temporary CHECK is an obstacle, and stays if no CHECK is needed."""
    name = "ck_person_public_id_not_null"
    people = new_people(more=f", CONSTRAINT {name} CHECK (id > 0)")

    assert f"RENAME CONSTRAINT {name}" in refused(people)["name-taken"]
    people.add(online=False)
    assert [check["name"] for check in inspect(people.engine).get_check_constraints("person")] == [name]


@on("postgresql")
@pytest.mark.parametrize("valid", ["", " NOT VALID"], ids=["validated", "not valid"])
def test_check_of_an_interrupted_contract(new_people: Callable[..., People], valid: str) -> None:
    """The temporary CHECK of a contract that was interrupted is no obstacle: the next run continues with it."""
    people = new_people()
    for operation in ("expand_public_id", "backfill_public_id"):
        people.run(operation)
    name = "ck_person_public_id_not_null"
    people.execute(f"ALTER TABLE person ADD CONSTRAINT {name} CHECK (public_id IS NOT NULL){valid}")

    people.run("contract_public_id")

    people.check_complete(3)


def test_plain_index_on_the_column(new_people: Callable[..., People], engine: Engine) -> None:
    """An index of the application on the column alone is dropped with it."""
    people = new_people()
    people.add()
    people.execute("CREATE INDEX own ON person (public_id)")

    people.run("drop_public_id")

    assert inspect(engine).get_indexes("person") == []


# --- ids that are there already


def with_ids(people: People, *ids: str) -> None:
    for key, id in enumerate(ids, 1):
        people.execute(f"UPDATE person SET public_id = '{id}' WHERE id = {key}")


def test_duplicates(new_people: Callable[..., People], caplog: pytest.LogCaptureFixture) -> None:
    """Ids that rows share are refused with an example, also by a dry run, or replaced on request, and logged."""
    people = new_people()
    people.run("expand_public_id")
    with_ids(people, IDS[0], IDS[0], IDS[1])
    people.execute("UPDATE person SET name = 'Ada' WHERE id = 1")  # which PostgreSQL stores behind the others

    assert IDS[0] in refused(people)["duplicates"]
    assert "1 id is in several rows" in refused(people, "contract_public_id")["duplicates"]
    with pytest.raises(DryRun) as planned:
        people.run("contract_public_id", dry_run=True)
    assert [obstacle.code for obstacle in planned.value.report.obstacles] == ["duplicates"]
    people.add(on_duplicate="replace")
    assert people.ids()[::2] == [IDS[0], IDS[1]]
    people.check_complete(3)
    assert f"the row 2 had '{IDS[0]}', and has '{people.ids()[1]}' now" in caplog.text


@on("postgresql")
def test_duplicates_after_a_failed_build(new_people: Callable[..., People]) -> None:
    """Ids that rows share are found before anything is changed, although an INVALID index is left of an earlier try."""
    people = new_people()
    people.run("expand_public_id")
    with_ids(people, IDS[0], IDS[0], IDS[1])
    build = "CREATE UNIQUE INDEX CONCURRENTLY uq_person_public_id ON person (public_id)"
    autocommit = people.engine.execution_options(isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection, pytest.raises(IntegrityError):
        send(connection, build)

    with pytest.raises(DryRun) as planned:
        people.add(dry_run=True)
    assert [obstacle.code for obstacle in planned.value.report.obstacles] == ["duplicates"]


def test_duplicates_where_ids_are_replaced(new_people: Callable[..., People]) -> None:
    """Ids that rows share are refused before a malformed one of another row is replaced."""
    people = new_people()
    people.run("expand_public_id")
    with_ids(people, IDS[0], IDS[0], "no id")

    assert refused(people, "contract_public_id", on_invalid="replace").keys() == {"duplicates"}


@on("postgresql", "mysql", "mariadb")
def test_id_that_is_corrected_meanwhile(new_people: Callable[..., People]) -> None:
    """An id that another session corrects just before it would be replaced is kept."""
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
    """Ids that the format does not accept are refused, kept, or replaced; each replacement is logged."""
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
    """A single error reports all obstacles."""
    people = new_people(rows=1, more=", public_id varchar(12) DEFAULT 'x'", collation="bytes")
    people.execute("CREATE INDEX uq_person_public_id ON person (public_id)")

    assert refused(people).keys() == {"constant-default", "wrong-index"}


@pytest.mark.parametrize("number", [1, 3, 5])
def test_number_of_malformed_ids(new_people: Callable[..., People], number: int) -> None:
    """The message has the number of malformed ids, and the first three of them."""
    people = new_people(6)
    people.run("expand_public_id")
    with_ids(people, *(f"bad{key}" for key in range(1, number + 1)))

    sentence = refused(people)["invalid-ids"]

    assert ("1 id is not of the format " if number == 1 else f"{number} ids are not of the format ") in sentence
    assert [key for key in range(1, 7) if f"'bad{key}'" in sentence] == [*range(1, min(number, 3) + 1)]


@pytest.mark.parametrize("window", [2, 20_000], ids=["many windows", "one window"])
def test_number_that_python_counts(
    new_people: Callable[..., People], monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Ids that Python has to check are read in windows, and each one is counted and replaced once."""
    monkeypatch.setattr(existing_ids, "_WINDOW", window)
    people = new_people(6, format=NanoId(check_digit=True), server_default="none")
    good = people.format.generate_many(2)
    people.run("expand_public_id")
    with_ids(people, "bad1", good[0], "bad3", "bad4", good[1], "bad6")

    assert "4 ids are not of the format " in refused(people)["invalid-ids"]
    people.add(on_invalid="replace")
    assert [people.ids()[1], people.ids()[4]] == good
    people.check_complete(6)


def test_no_free_id_for_a_duplicate(new_people: Callable[..., People], engine: Engine) -> None:
    """If the format has fewer ids than the table has rows, replacing duplicates ends with an error."""
    people = new_people(5, format=NanoId(1, alphabet="ab"), server_default="none")
    people.run("expand_public_id")
    with_ids(people, *"aabba")
    sent = itertools.count()

    @event.listens_for(engine, "before_cursor_execute")
    def count(*arguments: Any) -> None:
        assert next(sent) < 2_000, "it goes on for ever"

    with pytest.raises(IntegrityError):
        people.add(on_duplicate="replace")


def test_number_of_duplicates(new_people: Callable[..., People]) -> None:
    """The message has the number of ids that rows share, not the number of these rows."""
    people = new_people(7)
    people.run("expand_public_id")
    with_ids(people, *"aaabbcc")

    assert "3 ids are in several rows" in refused(people, on_invalid="keep")["duplicates"]


# --- wide columns


@on("postgresql")
@pytest.mark.parametrize("type_", ["text", "varchar(36)"])
def test_wide_columns_are_kept(new_people: Callable[..., People], statements: Any, type_: str) -> None:
    """A wider type is kept, and so is a collation whose change would rebuild an index: nothing is rewritten."""
    people = new_people(rows=FEW_ROWS + 1, more=f', public_id {type_} COLLATE "en-x-icu" UNIQUE')
    statements.clear()

    people.add()

    people.check_complete(FEW_ROWS + 1)
    assert not [statement for statement in statements if " TYPE " in statement]


def test_wide_column_of_few_rows(new_people: Callable[..., People], engine: Engine) -> None:
    """Every database keeps the length of a wider column, so that longer ids of an earlier format remain."""
    people = new_people(more=", public_id varchar(36)", collation="bytes")
    people.execute(f"UPDATE person SET public_id = '{'x' * 30}' WHERE id = 1")

    people.add(on_invalid="keep")

    assert people.ids()[0] == "x" * 30
    columns = {column["name"]: column for column in inspect(engine).get_columns("person")}
    assert getattr(columns["public_id"]["type"], "length", None) == 36


@on("sqlite")
def test_duplicates_under_an_index_that_is_not_unique(new_people: Callable[..., People]) -> None:
    """Ids that rows share are refused if the index of the column is not unique."""
    people = new_people(more=", public_id varchar(12)")
    people.execute("CREATE INDEX old ON person (public_id)")
    with_ids(people, IDS[0], IDS[0], IDS[1])

    assert refused(people, "contract_public_id").keys() == {"duplicates"}
