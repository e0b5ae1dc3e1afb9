"""What an obstacle says: the exact problem, with the names of this table, and a remedy that fits it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Engine, event, inspect, text
from support.marks import on
from support.people import People, migrating, send
from support.refusals import refused
from support.rights import USER, user_with

from sqlalchemy_public_id import NanoId, Snowflake, Uuid4
from sqlalchemy_public_id.errors import ConfigurationError, DryRun
from sqlalchemy_public_id.formats import Format

pytestmark = pytest.mark.backend

IDS = NanoId().generate_many(2)
NAME = "there is an index uq_person_public_id, which"
RENAME = "rename or drop it, or pass unique_name= with another name"
ADD = "add nothing in an earlier revision, or pass unique_with= with the columns that it has"
FORBID = "forbid NULL in an earlier revision: op.alter_column('person', 'NAME', nullable=False)"
TENANT = ", tenant int NOT NULL DEFAULT 1"
INDEX = "INDEX uq_person_public_id ON person"


@on("sqlite")
@pytest.mark.parametrize(
    ("more", "index", "options", "sentence"),
    [
        (", public_id", f"{INDEX} (public_id)", {}, f"{NAME} is not unique; {RENAME}"),
        (", public_id", f"UNIQUE {INDEX} (public_id) WHERE id > 1", {}, f"{NAME} is partial; {RENAME}"),
        (", public_id", f"UNIQUE {INDEX} (id)", {}, f"{NAME} is not on public_id alone; {RENAME}"),
        (
            f", public_id{TENANT}",
            f"UNIQUE {INDEX} (id)",
            {"unique_with": ("tenant",)},
            f"{NAME} is not on public_id and tenant; {RENAME}",
        ),
        (
            "",
            "",
            {"unique_with": ("nothing",)},
            f"person has no column nothing, with which public_id should be unique; {ADD}",
        ),
        (
            "",
            "",
            {"unique_with": ("NAME",)},
            f"NAME may be NULL, so two rows with NULL may have equal ids; {FORBID}",
        ),
    ],
    ids=["not unique", "partial", "another column", "others", "no column", "nullable"],
)
def test_unique_index(
    new_people: Callable[..., People], more: str, index: str, options: dict[str, Any], sentence: str
) -> None:
    """An index that is not the unique one, and a column that ids cannot be unique with, are named with the defect."""
    people = new_people(more=more, unique_name="uq_person_public_id")
    if index:
        people.execute(f"CREATE {index}")

    assert refused(people, "expand_public_id", **options) == {"wrong-index": sentence}
    assert refused(people, "contract_public_id" if more else "add_public_id", **options) == {"wrong-index": sentence}


@pytest.mark.parametrize(
    ("key", "with_", "is_refused"),
    [
        ("tenant, id", ("tenant",), False),
        ("tenant", ("tenant",), True),
        ("tenant, id", ("id", "tenant"), True),
        ("tenant", ("id",), False),
    ],
)
def test_key_among_the_others(
    new_people: Callable[..., People], engine: Engine, key: str, with_: tuple[str, ...], is_refused: bool
) -> None:
    """Ids may be unique with a part of the primary key, but not with all of it, in whatever case it is named."""
    people = new_people(0)
    people.drop()
    key = key.title()
    people.execute(f"CREATE TABLE person (Tenant int NOT NULL, Id int NOT NULL, name varchar(50), PRIMARY KEY ({key}))")
    names = with_ if engine.name == "postgresql" else tuple(name.upper() for name in with_)

    if is_refused:
        problem = refused(people, unique_with=names)["wrong-index"]
        assert f"unique_with contains the primary key {', '.join(sorted(with_))}, so that" in problem
    else:
        people.add(unique_with=names)
        assert not {column["name"]: column for column in inspect(engine).get_columns("person")}["public_id"]["nullable"]


@on("sqlite", "postgresql")
def test_ids_in_another_case(new_people: Callable[..., People]) -> None:
    """Ids that differ from new ones by their case only are refused with a remedy that keeps them; others without it."""
    people = new_people(2, format=NanoId(ignore_case=True))
    people.run("expand_public_id")
    people.execute(f"UPDATE person SET public_id = '{people.format.generate().upper()}' WHERE id = 1")
    by_case = refused(people, "add_public_id")["invalid-ids"]
    people.execute("UPDATE person SET public_id = 'no id' WHERE id = 1")

    assert "; write those in another case like new ids, with UPDATE and lower() or upper(), or pass the" in by_case
    assert "another case" not in refused(people, "add_public_id")["invalid-ids"]


@on("sqlite", "postgresql")
def test_duplicates_of_a_tenant(new_people: Callable[..., People]) -> None:
    """Ids that rows of one tenant share are named with the column that they have to be unique with."""
    people = new_people(3, more=f"{TENANT}, public_id varchar(12)")
    people.execute(f"UPDATE person SET public_id = '{IDS[0]}', tenant = id / 3")

    sentence = refused(people, unique_with=("tenant",))["duplicates"]

    assert sentence.startswith(f"1 id is in several rows with equal tenant, such as '{IDS[0]}'; correct the rows")
    people.execute(f"UPDATE person SET public_id = '{IDS[1]}' WHERE id = 2")
    people.add(unique_with=("tenant",))


TRIGGER = "CREATE TRIGGER {} AFTER UPDATE ON person BEGIN SELECT 1; END"


@on("sqlite")
def test_triggers_by_their_number(new_people: Callable[..., People]) -> None:
    """One trigger, and several ones, are named with both ways to accept them, before a backfill only."""
    people = new_people()
    people.execute(TRIGGER.format("one"))
    end = 'once for each row; pass update_triggers="fire" to accept this, or update_triggers="skip" to fire none'
    assert refused(people) == {"update-triggers": f"the backfill would fire the trigger one {end}"}
    people.execute(TRIGGER.format("two"))

    assert refused(people) == {"update-triggers": f"the backfill would fire the triggers one, two {end}"}
    people.run("expand_public_id")
    people.run("backfill_public_id", update_triggers="skip")
    people.run("contract_public_id")
    people.check_complete(3)


@on("sqlite")
@pytest.mark.parametrize(
    ("value", "consent", "fires"),
    [
        ("no id", {"on_invalid": "replace"}, True),
        (IDS[0], {"on_duplicate": "replace"}, True),
        (IDS[0], {"on_duplicate": "replace", "on_invalid": "replace"}, True),
        (IDS[1], {"on_duplicate": "replace", "on_invalid": "replace"}, False),
        ("no id", {"on_duplicate": "replace", "on_invalid": "keep"}, False),
    ],
    ids=["invalid", "duplicate", "duplicate or invalid", "valid", "invalid and kept"],
)
def test_triggers_before_ids_are_replaced(
    new_people: Callable[..., People], value: str, consent: dict[str, Any], fires: bool
) -> None:
    """A contract that will replace an id is refused because of a trigger that this fires, and no other."""
    people = new_people(2, server_default="drop", more=", public_id varchar(12)")
    people.execute(f"UPDATE person SET public_id = CASE id WHEN 1 THEN '{IDS[0]}' ELSE '{value}' END")
    people.execute(TRIGGER.format("one"))

    if fires:
        assert refused(people, "contract_public_id", **consent).keys() == {"update-triggers"}
    else:
        people.run("contract_public_id", **consent)
        assert people.ids() == [IDS[0], value]


@on("postgresql", "mysql", "mariadb")
def test_remedy_for_a_type(new_people: Callable[..., People], engine: Engine) -> None:
    """A column that is too short has to be widened, and a CHAR be changed, by the operation that is named."""
    people = new_people(0, more=", public_id varchar(8)")
    end = "it in an earlier revision: op.alter_column('person', 'public_id', type_=sa.String({}))"

    assert refused(people)["too-short"].endswith("; widen " + end.format(12))
    if engine.name == "postgresql":
        people.execute("ALTER TABLE person ALTER public_id TYPE char(20)")
        assert refused(people)["wrong-type"].endswith("; change " + end.format(20))


@on("sqlite")
def test_remedy_for_a_default(new_people: Callable[..., People]) -> None:
    """A default of another kind is named as the table has it, and the remedy drops it from the column of this table."""
    drop = "drop the default: op.alter_column('person', 'public_id', server_default=None)"
    people = new_people(0, more=", public_id DEFAULT 'x'")

    assert refused(people) == {"constant-default": f"the default 'x' gives all rows the same id; {drop}"}


@on("postgresql")
@pytest.mark.parametrize(
    ("default", "says"),
    [
        ("'x'", {"constant-default": "the default 'x'::text of the domain code gives all rows the same id; {}"}),
        (
            "md5('x')",
            {
                "foreign-default": "the default md5('x'::text) of the domain code generates other ids than NanoId(); "
                '{}, or pass server_default="none" to keep it'
            },
        ),
    ],
)
def test_remedy_for_a_default_of_a_domain(
    new_people: Callable[..., People], default: str, says: dict[str, str]
) -> None:
    """The default of a domain is one of the column, and the remedy overrides it in this table alone."""
    people = new_people(0)
    people.execute(f"CREATE DOMAIN code AS text DEFAULT {default}")
    try:
        people.execute('ALTER TABLE person ADD public_id code COLLATE "C"')
        override = "override it: op.alter_column('person', 'public_id', server_default=sa.text('NULL'))"
        assert refused(people) == {code: sentence.format(override) for code, sentence in says.items()}
        with people.migrating() as op:
            op.alter_column("person", "public_id", server_default=text("NULL"))
        people.add()
        people.write(2)
        people.check_complete(2)
    finally:
        people.execute("DROP DOMAIN code CASCADE")


# --- SQLite


@on("sqlite")
@pytest.mark.parametrize(
    ("format", "type_"), [(NanoId(), "TEXT"), (Snowflake(machine_id=1), "INTEGER"), (Uuid4(), "BLOB")], ids=str
)
def test_type_in_a_strict_table(table: People, format: Format, type_: str) -> None:
    """The column of a STRICT table gets one of the few types that it accepts: the one that stores the ids."""
    table.drop()
    table.execute("CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT) STRICT")
    table.write(2)

    table.add(format=format, server_default="none")

    with table.engine.connect() as connection:
        kinds = send(connection, "SELECT DISTINCT typeof(public_id) FROM person").scalars().all()
        types = (
            send(connection, "SELECT type FROM pragma_table_info('person') WHERE name = 'public_id'").scalars().all()
        )
    assert types == [type_]
    assert kinds == [type_.lower()]


@on("sqlite")
@pytest.mark.parametrize("is_constrained", [False, True], ids=["index", "constraint"])
def test_foreign_keys_before_a_drop(engine: Engine, table: People, is_constrained: bool) -> None:
    """With foreign keys on, a drop is refused only if it has to copy the table that others refer to."""
    more = ", public_id varchar(12) UNIQUE" if is_constrained else ", public_id varchar(12)"
    table.create(2, more=more)
    table.execute("CREATE TABLE card (owner INT REFERENCES person (id) ON DELETE CASCADE)")
    table.execute("INSERT INTO card VALUES (1)")
    engine.dispose()
    event.listen(engine, "connect", lambda driver, record: driver.execute("PRAGMA foreign_keys=ON"))

    if is_constrained:
        assert refused(table, "drop_public_id").keys() == {"foreign-keys"}
    else:
        table.run("drop_public_id")
        assert table.columns() == ["id", "name"]
    with engine.connect() as connection:
        assert send(connection, "SELECT owner FROM card").all() == [(1,)]


@on("sqlite")
def test_foreign_keys_that_every_connection_has_on(engine: Engine, table: People) -> None:
    """A project that turns foreign keys on for all engines, and off for the migration, is not refused by its copies."""
    table.create(2)
    table.execute("CREATE TABLE card (owner INT REFERENCES person (id))")
    table.execute("INSERT INTO card VALUES (1)")

    def turn_on(driver: Any, record: Any) -> None:
        driver.execute("PRAGMA foreign_keys=ON")

    event.listen(Engine, "connect", turn_on)
    try:
        engine.dispose()
        with table.migrating() as op:
            op.get_bind().exec_driver_sql("PRAGMA foreign_keys=OFF")
            table.say(op, "add_public_id")
    finally:
        event.remove(Engine, "connect", turn_on)

    table.check_complete(2)


@on("sqlite")
def test_remedy_for_foreign_keys(engine: Engine, table: People) -> None:
    """The two calls that the obstacle names, before context.configure(), let the operation run; one of them does not.

    A statement begins a transaction, which Alembic then takes for one of the program.
    """
    table.create(2)
    table.execute("CREATE TABLE card (owner INT REFERENCES person (id))")
    engine.dispose()
    event.listen(engine, "connect", lambda driver, record: driver.execute("PRAGMA foreign_keys=ON"))
    remedy = str(refused(table, "add_public_id")["foreign-keys"]).partition("before context.configure(), call ")[2]
    calls = remedy.split(" and ")

    for number in (1, 2):
        with engine.connect() as connection:
            for call in calls[:number]:
                eval(call, {"connection": connection})
            with (
                pytest.raises(ConfigurationError, match="commit what you execute before")
                if number == 1
                else nullcontext(),
                migrating(connection) as op,
            ):
                table.say(op, "add_public_id")

    table.check_complete(2)


# --- PostgreSQL


@on("postgresql")
def test_each_right_for_its_phase(
    new_people: Callable[..., People], engine: Engine, new_engine: Callable[..., Engine]
) -> None:
    """An owner who may create nothing in the schema expands, backfills, loosens and drops; the contract needs it."""
    people = new_people()
    people.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with user_with(engine, "USAGE", "SCHEMA public") as url:
        people.execute(f"ALTER TABLE person OWNER TO {USER}")
        people.execute(f"ALTER SEQUENCE person_id_seq OWNER TO {USER}")
        own = People(new_engine(engine.name, url))
        own.run("expand_public_id")
        own.run("backfill_public_id")
        refusal = refused(own, "contract_public_id", reader=engine)
        own.run("loosen_public_id")
        own.run("drop_public_id")
        people.execute("ALTER TABLE person OWNER TO CURRENT_USER")

    assert refusal == {
        "missing-right": f"{USER} may not create an index in the schema public; GRANT CREATE ON SCHEMA public TO {USER}"
    }
    people.check_gone()


@on("postgresql")
def test_names_that_are_not_needed(new_people: Callable[..., People]) -> None:
    """The name of the index, or of the temporary CHECK, may belong to something else if the migration needs neither."""
    people = new_people(0, more=", public_id varchar(12) CONSTRAINT old UNIQUE", server_default="none")
    people.execute("CREATE TABLE uq_person_public_id (id int)")
    try:
        people.run("contract_public_id")
    finally:
        people.execute("DROP TABLE uq_person_public_id")
    assert people.state().complete

    check = "CONSTRAINT ck_person_public_id_not_null CHECK (id > 0)"
    people.create(0, more=f", public_id varchar(12) NOT NULL, {check}")
    people.run("contract_public_id")
    assert people.state().complete


@on("postgresql")
@pytest.mark.parametrize("columns", ["", " (id, name)"], ids=["whole", "columns"])
def test_published_columns(new_people: Callable[..., People], columns: str) -> None:
    """A new column, and its drop, are announced to the subscribers of the whole table, with what they have to do."""
    people = new_people()
    people.execute(f"CREATE PUBLICATION few FOR TABLE person{columns}")
    try:
        added = warnings_of(people, "expand_public_id")
        people.run("expand_public_id")
        again = warnings_of(people, "add_public_id")
        dropped = warnings_of(people, "drop_public_id")
    finally:
        people.execute("DROP PUBLICATION few")

    _check_announcements(added, dropped, is_whole=not columns)
    assert again == []


def _check_announcements(added: list[str], dropped: list[str], *, is_whole: bool) -> None:
    start = "person is published in few: subscribers"
    first = f"{start} stop until their tables have the column; add it there first: ALTER TABLE person ADD COLUMN "
    last = (
        f"{start} keep the column, and new rows have no ids there; first: "
        "ALTER TABLE person ALTER COLUMN public_id DROP NOT NULL"
    )
    assert [each.startswith(first + "public_id VARCHAR(12)") for each in added] == [True] * is_whole
    assert dropped == [last] * is_whole


@on("postgresql")
@pytest.mark.parametrize("via_root", [False, True], ids=["partitions", "root"])
def test_published_partitions(new_people: Callable[..., People], *, via_root: bool) -> None:
    """The subscribers of a partitioned table are warned, whether its partitions are published or the table itself."""
    people = new_people(0, unique_with=("tenant",))
    people.execute("DROP TABLE person")
    people.execute("CREATE TABLE person (id int, tenant int, PRIMARY KEY (id, tenant)) PARTITION BY LIST (tenant)")
    people.execute("CREATE TABLE person_1 PARTITION OF person FOR VALUES IN (1)")
    people.execute("CREATE TABLE person_2 PARTITION OF person FOR VALUES IN (2)")
    people.execute(f"CREATE PUBLICATION few FOR TABLE person WITH (publish_via_partition_root = {via_root})")
    try:
        added = warnings_of(people, "expand_public_id")
        people.run("expand_public_id")
        dropped = warnings_of(people, "drop_public_id")
    finally:
        people.execute("DROP PUBLICATION few")

    _check_announcements(added, dropped, is_whole=True)


def warnings_of(people: People, operation: str) -> list[str]:
    """Return the warnings about publications in the report of a dry run."""
    with pytest.raises(DryRun) as caught:
        people.run(operation, dry_run=True)
    return [each for each in caught.value.report.warnings if "published" in each]


@on("postgresql")
def test_unchecked_rows(new_people: Callable[..., People]) -> None:
    """Several constraints that are not valid are named with a remedy for each, before a backfill only."""
    people = new_people()
    people.execute('ALTER TABLE person ADD CONSTRAINT "Later" CHECK (id > 0) NOT VALID')
    people.execute("ALTER TABLE person ADD CONSTRAINT early CHECK (id > 0) NOT VALID")

    people.run("expand_public_id")

    assert refused(people, "backfill_public_id")["not-valid"] == (
        'rows that violate "Later", early, which is NOT VALID, could get no id; correct the rows, then '
        'ALTER TABLE person VALIDATE CONSTRAINT "Later"; ALTER TABLE person VALIDATE CONSTRAINT early'
    )
    people.execute("UPDATE person SET public_id = left(md5(id::text), 12)")
    people.run("contract_public_id", on_invalid="keep")
    assert people.state().complete


@on("postgresql")
def test_several_dependants(new_people: Callable[..., People]) -> None:
    """What needs the column is listed in the order of its names, and its number decides the verb."""
    people = new_people()
    people.add()
    people.execute("CREATE VIEW b AS SELECT public_id FROM person")
    one = refused(people, "drop_public_id")["dependants"]
    people.execute('CREATE VIEW "A" AS SELECT public_id FROM person')
    two = refused(people, "drop_public_id")["dependants"]
    people.execute('DROP VIEW b, "A"')

    assert one == "view b needs the column; drop or change that first"
    assert two == 'view "A", view b need the column; drop or change that first'
