"""Kinds of tables, missing rights and dependent objects that stop a migration before it has changed anything."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, inspect
from sqlalchemy.exc import DBAPIError, SAWarning
from support import command
from support.marks import on
from support.people import People, send
from support.refusals import refused
from support.rights import USER, user_with

from sqlalchemy_public_id import backfill
from sqlalchemy_public_id.errors import DryRun, MigrationRefused

pytestmark = pytest.mark.backend


# --- the table


@on("mysql", "mariadb")
def test_no_key(new_people: Callable[..., People]) -> None:
    """A table without a key that identifies its rows is refused if rows have to be filled, and accepted if empty."""
    people = new_people()
    people.execute("DROP TABLE person")
    people.execute("CREATE TABLE person (id integer, name varchar(50))")
    people.run("expand_public_id")
    people.add()
    people.execute("DROP TABLE person")
    people.execute("CREATE TABLE person (id integer UNIQUE, name varchar(50))")
    people.execute("INSERT INTO person (id) VALUES (1)")

    assert "no-key" in refused(people)


# --- rights and kinds of tables on PostgreSQL

PARTITIONED = [
    "DROP TABLE person",
    "CREATE TABLE person (id int, tenant int NOT NULL, name varchar(50)) PARTITION BY LIST (tenant)",
    "CREATE TABLE person_1 (name varchar(50), gone int, tenant int NOT NULL, id int)",
    "ALTER TABLE person_1 DROP COLUMN gone",
    "ALTER TABLE person ATTACH PARTITION person_1 FOR VALUES IN (1)",
    "INSERT INTO person VALUES (1, 1, 'Ada')",
]


@pytest.fixture
def role(engine: Engine, new_engine: Callable[..., Engine]) -> Iterator[Engine]:
    """An engine for a role that may connect, and nothing else."""
    with user_with(engine, "USAGE", "SCHEMA public") as url:
        yield new_engine(engine.name, url)


def as_role(people: People, role: Engine) -> People:
    return People(role, **people.options)


@on("postgresql")
def test_rights(new_people: Callable[..., People], role: Engine) -> None:
    """All missing rights of the role are reported, each with its remedy."""
    people = new_people()
    people.execute(f"GRANT SELECT ON person TO {USER}")
    people.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    found = []
    with pytest.raises(MigrationRefused) as caught:
        as_role(people, role).add()
    found = [str(obstacle) for obstacle in caught.value.obstacles]

    assert [obstacle.code for obstacle in caught.value.obstacles] == ["missing-right"] * 3
    assert "as postgres, or as a member of that role" in found[0]
    assert f"GRANT CREATE ON SCHEMA public TO {USER}" in found[1]
    people.execute(f"ALTER TABLE person OWNER TO {USER}")
    people.execute(f"GRANT CREATE ON SCHEMA public TO {USER}")
    as_role(people, role).add()
    people.check_complete(3)


@on("postgresql")
def test_table_that_may_not_be_read(new_people: Callable[..., People], role: Engine) -> None:
    """An owner without SELECT gets an error that names the missing right, before any row is read."""
    people = new_people()
    people.execute(f"ALTER TABLE person OWNER TO {USER}")
    people.execute(f"REVOKE SELECT ON person FROM {USER}")

    assert "GRANT SELECT, UPDATE ON person" in refused(as_role(people, role), reader=people.engine)["missing-right"]


@on("postgresql")
def test_owner_who_may_not_update(new_people: Callable[..., People], role: Engine) -> None:
    """Only a backfill needs the right to UPDATE: an owner without it expands and contracts."""
    people = new_people()
    people.execute(f"ALTER TABLE person OWNER TO {USER}")
    people.execute(f"GRANT CREATE ON SCHEMA public TO {USER}")
    people.execute(f"REVOKE UPDATE ON person FROM {USER}")
    own = as_role(people, role)

    own.run("expand_public_id")
    assert "GRANT SELECT, UPDATE ON person" in refused(own, reader=people.engine)["missing-right"]
    people.run("backfill_public_id")
    own.run("contract_public_id")

    people.check_complete(3)


@on("postgresql")
def test_check_that_old_rows_violate(new_people: Callable[..., People]) -> None:
    """A CHECK that is not valid could refuse the UPDATE of a row: it has to be validated before rows get ids."""
    people = new_people()
    people.execute("ALTER TABLE person ADD CONSTRAINT later CHECK (id > 1) NOT VALID")

    assert "VALIDATE CONSTRAINT later" in refused(people)["not-valid"]
    people.execute("DELETE FROM person WHERE id = 1")
    people.execute("ALTER TABLE person VALIDATE CONSTRAINT later")
    people.add()
    people.check_complete(2)


@on("postgresql")
def test_check_that_old_rows_of_a_partition_violate(new_people: Callable[..., People]) -> None:
    """A CHECK that is not valid is found in a partition, too, and one of the table is named for the table only."""
    people = new_people(1, unique_with=("tenant",))
    for statement in (
        *PARTITIONED,
        "ALTER TABLE person ADD CONSTRAINT early CHECK (id > 0) NOT VALID",
        "ALTER TABLE person_1 ADD CONSTRAINT later CHECK (name > 'B') NOT VALID",
    ):
        people.execute(statement)

    refusal = refused(people)["not-valid"]

    assert refusal.startswith("rows that violate early, later, which is NOT VALID, could get no id; ")
    people.execute("UPDATE person SET name = 'Bea'")
    people.execute(refusal.partition(", then ")[2])
    people.add()
    assert None not in people.ids()


@on("postgresql")
def test_row_level_security(new_people: Callable[..., People], role: Engine) -> None:
    """Row-level security is refused if it hides rows, which would get no id; old programs are not affected."""
    people = new_people()
    people.execute(f"GRANT CREATE ON SCHEMA public TO {USER}")
    people.execute(f"ALTER TABLE person OWNER TO {USER}")
    people.execute("ALTER TABLE person ENABLE ROW LEVEL SECURITY")
    people.execute("ALTER TABLE person FORCE ROW LEVEL SECURITY")
    people.execute("CREATE POLICY few ON person USING (id < 2) WITH CHECK (true)")

    assert "BYPASSRLS" in refused(as_role(people, role), reader=people.engine)["row-level-security"]
    people.execute("UPDATE person SET name = 'Ada' WHERE id = 3")
    people.execute("ALTER TABLE person NO FORCE ROW LEVEL SECURITY")
    as_role(people, role).add()
    people.check_complete(3)


@on("postgresql")
@pytest.mark.parametrize("protected", ["person", "person_1"], ids=["table", "partition"])
def test_backfill_under_row_level_security(engine: Engine, role: Engine, protected: str) -> None:
    """backfill.run() is refused if row-level security of the table or a partition hides rows, and fills none."""
    statements = [
        "CREATE TABLE person (id integer, public_id varchar(12)) PARTITION BY LIST (id)",
        "CREATE TABLE person_1 PARTITION OF person FOR VALUES IN (1, 2)",
        "INSERT INTO person VALUES (1, NULL), (2, NULL)",
        f"GRANT SELECT, UPDATE ON person, person_1 TO {USER}",
        f"CREATE POLICY few ON {protected} USING (id < 2)",
        f"ALTER TABLE {protected} ENABLE ROW LEVEL SECURITY",
    ]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            send(connection, statement)
        try:
            with pytest.raises(MigrationRefused, match=f"hides rows of {protected} .* BYPASSRLS") as caught:
                backfill.run(role, "person")
            assert [obstacle.code for obstacle in caught.value.obstacles] == ["row-level-security"]
            assert send(connection, "SELECT count(public_id) FROM person").scalar() == 0
            assert backfill.run(engine, "person").filled == 2  # a superuser sees all rows
        finally:
            send(connection, "DROP TABLE person")


@on("postgresql")
@pytest.mark.parametrize(
    "unidentified",
    ["ALTER TABLE person REPLICA IDENTITY NOTHING", "ALTER TABLE person DROP CONSTRAINT person_pkey"],
    ids=["no identity", "no key"],
)
def test_published_table(new_people: Callable[..., People], unidentified: str) -> None:
    """A published table on which PostgreSQL refuses UPDATE is refused, and accepted after its remedy."""
    people = new_people()
    people.execute(unidentified)
    people.execute("CREATE PUBLICATION all_people FOR TABLE person")
    try:
        remedy = refused(people)["replica-identity"]
        people.execute(remedy[remedy.index("ALTER TABLE") :])
        people.add()
    finally:
        people.execute("DROP PUBLICATION all_people")
    people.check_complete(3)


KEY = "ALTER TABLE person ADD PRIMARY KEY (id, tenant)"
FULL = "ALTER TABLE person{} REPLICA IDENTITY FULL"
NO_IDENTITY, LEFT_OUT, FILTERED = "without a replica identity", "few leaves out columns", "few selects rows of"
VIA_ROOT = " WITH (publish_via_partition_root)"
PUBLICATIONS: dict[str, tuple[list[str], str, str | None]] = {
    "list with the key": ([], "(id)", None),
    "list without the key": ([], "(name)", LEFT_OUT),
    "list, full identity": ([FULL.format("")], "(id, name)", LEFT_OUT),
    "filter by the key": ([], "WHERE (id > 0)", None),
    "filter by others": ([], "WHERE (id > 0 AND name > '')", FILTERED),
    "filter, full identity": ([FULL.format("")], "WHERE (name > '')", None),
    "filter by others, list": ([], "(id, name) WHERE (name > '')", FILTERED),
    "inserts by others": ([], "(name) WHERE (name > '') WITH (publish = insert)", None),
    "partition": ([*PARTITIONED], "", NO_IDENTITY),
    "partition, root": ([*PARTITIONED], VIA_ROOT, NO_IDENTITY),
    "partition, identity of the parent": ([*PARTITIONED, FULL.format("")], "", NO_IDENTITY),
    "partition, own identity": ([*PARTITIONED, FULL.format("_1")], VIA_ROOT, None),
    "partition, key": ([*PARTITIONED, KEY], VIA_ROOT, None),
    "partition, list": ([*PARTITIONED, KEY], f"(id, tenant) {VIA_ROOT}", None),
    "partition, list without the key": ([*PARTITIONED, KEY], f"(tenant, name) {VIA_ROOT}", LEFT_OUT),
    "partition, filter": ([*PARTITIONED, KEY], f"WHERE (id > 1) {VIA_ROOT}", None),
    "partition, filter by others": ([*PARTITIONED, KEY], f"WHERE (name > '') {VIA_ROOT}", FILTERED),
}
"""The table and its publication, and the obstacle; the columns of the partition are in another order."""


@on("postgresql")
@pytest.mark.parametrize("case", PUBLICATIONS)
def test_publications_that_refuse_updates(new_people: Callable[..., People], case: str) -> None:
    """A table is refused exactly if its publications, or those of its partitions, keep PostgreSQL from updating it."""
    statements, published, obstacle = PUBLICATIONS[case]
    people = new_people(1, unique_with=("tenant",) if PARTITIONED[0] in statements else ())
    for statement in statements:
        people.execute(statement)
    people.execute(f"CREATE PUBLICATION few FOR TABLE person {published}")
    try:
        if obstacle is not None:
            with pytest.raises(DBAPIError, match="cannot update table"):
                people.execute("UPDATE person SET id = id")
            refusal = refused(people)["replica-identity"]
            assert obstacle in refusal
            if "publish all columns" in refusal:
                people.execute("ALTER PUBLICATION few SET TABLE person")
            people.execute(refusal[refusal.index("ALTER TABLE") :])
        people.add()
    finally:
        people.execute("DROP PUBLICATION few")
    assert None not in people.ids()


# --- kinds of tables on MySQL and MariaDB

LOCKED = {
    "FULLTEXT": (", note text, FULLTEXT (note)", "", "there is a FULLTEXT index"),
    "SPATIAL": (", place point NOT NULL DEFAULT (point(1, 1)), SPATIAL INDEX (place)", "", "there is a SPATIAL index"),
    "indexed virtual column": (", v int AS (length(name)) VIRTUAL, INDEX (v)", "", "the column v is generated"),
    "stored column": (", v int AS (length(name)) STORED", "", "the column v is generated"),
}


@on("mysql", "mariadb")
@pytest.mark.parametrize("kind", [*LOCKED, pytest.param("MyISAM", marks=pytest.mark.slow)])  # MyISAM syncs each row
def test_tables_that_have_to_be_locked(new_people: Callable[..., People], engine: Engine, kind: str) -> None:
    """A table that the server changes only while writers wait is refused with the cause, and changed on request."""
    more, after, cause = LOCKED.get(kind, ("", "ENGINE=MyISAM", "the engine is MyISAM"))
    if kind == "SPATIAL" and engine.name == "mysql":
        more = more.replace("NOT NULL DEFAULT", "NOT NULL SRID 0 DEFAULT")
    people = new_people(more=more, after=after)
    if engine.name == "mysql" and "column" in kind:
        people.add()  # without blocking writers
        people.check_complete(3)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)  # SQLAlchemy does not know the type of the column place
        assert cause in refused(people)["needs-lock"]

        people.add(allow_lock=True)
        people.check_complete(3)
        assert cause in refused(people, "drop_public_id")["needs-lock"]
        people.run("drop_public_id", allow_lock=True)
        people.check_gone()


CHECKED = {
    "a date": (", since date, CONSTRAINT known CHECK (since > '2000-01-01')", "mysql"),
    "a list": (", kind enum('a', 'b') CHECK (kind <> 'b')", "mysql"),
    "a long text": (", note longtext CHECK (char_length(note) > 5)", "mysql"),
    "a text": (", note text CHECK (char_length(note) > 5)", ""),
    "a JSON text": (", note text CHECK (json_valid(note))", "mariadb"),
    "a JSON text of the table": (", note text, CHECK (json_valid(note))", ""),
    "a number": (", age int CHECK (age > 5)", ""),
    "the date of a text": (", since date, note text CHECK (note <> '`since`')", ""),
}
"""CHECKs, and the server that copies the table because of them, although an ALTER changes another column."""


@on("mysql", "mariadb")
@pytest.mark.parametrize("kind", CHECKED)
def test_checks_for_which_the_table_is_copied(new_people: Callable[..., People], engine: Engine, kind: str) -> None:
    """A table is refused exactly if the server copies it because of a CHECK, and is changed on request."""
    more, copies = CHECKED[kind]
    people = new_people(more=more)
    options = {"allow_lock": True} if engine.name == copies else {}
    if options:
        assert "CHECK" in refused(people)["needs-lock"]

    for operation in ("add_public_id", "loosen_public_id", "contract_public_id", "drop_public_id"):
        people.run(operation, **options)
    people.check_gone()


@on("mysql", "mariadb")
def test_backfill_needs_no_lock(new_people: Callable[..., People]) -> None:
    """A phase that alters nothing needs no consent to a lock: a backfill, and an expand that has run."""
    people = new_people(more=", FULLTEXT (name)")
    people.run("expand_public_id", allow_lock=True)

    people.run("expand_public_id")
    people.run("backfill_public_id")

    assert None not in people.ids()


@on("mysql", "mariadb")
def test_rebuild_while_writers_wait(new_people: Callable[..., People], engine: Engine) -> None:
    """If writers may wait, MySQL copies the table, because its rebuild in place can lose rows; the plan says so."""
    people = new_people()
    with pytest.raises(DryRun) as plan:
        people.add(allow_lock=True, dry_run=True)
    rebuild = next(step for step in plan.value.report.steps if "forbid NULL" in step.name)
    assert rebuild.statements[0].endswith(", ALGORITHM=COPY") == (engine.name == "mysql")
    assert rebuild.lock == "writers wait until it ends"

    people.add(allow_lock=True)
    people.check_complete(3)
    people.run("loosen_public_id", allow_lock=True)
    assert people.state().nullable


def _is_unversioned(people: People) -> bool:
    """Return True if MariaDB keeps no history of the ids."""
    with people.engine.connect() as connection:
        lines = send(connection, f"SHOW CREATE TABLE {people.name}").one()[1].splitlines()
    [own] = [line for line in lines if line.lstrip().startswith("`public_id`")]
    return "WITHOUT SYSTEM VERSIONING" in own


@on("mariadb")
def test_system_versioned_table(new_people: Callable[..., People]) -> None:
    """A system-versioned table without a history gets its ids, and the backfill adds no version of a row."""
    people = new_people(after="WITH SYSTEM VERSIONING")
    people.add()

    people.check_complete(3)
    with people.engine.connect() as connection:
        assert send(connection, "SELECT count(*) FROM person FOR SYSTEM_TIME ALL").scalar() == 3
    assert _is_unversioned(people)
    people.execute("UPDATE person SET name = 'Ada' WHERE id = 1")  # a version with an id
    people.run("loosen_public_id")
    assert _is_unversioned(people)
    people.add()
    people.run("drop_public_id")
    people.check_gone()


@on("mariadb")
def test_system_versioned_table_with_a_history(new_people: Callable[..., People]) -> None:
    """A table whose earlier row versions have no ids, or would get none in the backfill, is refused at once."""
    changed = ", changed timestamp DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
    people = new_people(more=changed, after="WITH SYSTEM VERSIONING")
    assert "earlier versions of its rows have no ids" in refused(people, allow_lock=True)["versioned"]
    people.execute("SET STATEMENT system_versioning_alter_history = KEEP FOR ALTER TABLE person DROP COLUMN changed")
    people.execute("UPDATE person SET name = 'Ada' WHERE id = 1")
    assert "earlier versions of its rows have no ids" in refused(people)["versioned"]
    people.execute("ALTER TABLE person DROP SYSTEM VERSIONING")
    people.add()
    people.check_complete(3)


@on("mysql", "mariadb")
def test_privileges(new_people: Callable[..., People], engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """All missing privileges of the user are reported together, with the GRANT."""
    people = new_people()
    with user_with(engine, "SELECT, ALTER, TRIGGER", "person") as url:
        limited = People(new_engine(engine.name, url))
        grant = f"GRANT CREATE, INSERT, UPDATE ON person TO '{USER}'@'%'"
        assert grant in refused(limited, reader=engine)["missing-right"]
        people.execute(grant)
        limited.add()
    people.check_complete(3)


@on("mysql", "mariadb")
def test_privileges_by_a_pattern(
    new_people: Callable[..., People], engine: Engine, new_engine: Callable[..., Engine]
) -> None:
    """Privileges on all databases whose names match a pattern count."""
    people = new_people()
    database = str(engine.url.database)
    pattern = database[:-1].replace("_", r"\_") + "%"
    with user_with(engine, "SELECT, ALTER, CREATE, INSERT, UPDATE, TRIGGER", f"`{pattern}`.*") as url:
        People(new_engine(engine.name, url)).add()
    people.check_complete(3)


# --- limits of a table

KEYS = ", ".join(f"KEY of_name_{number} (name)" for number in range(63))
"""With the primary key, the maximum number of indexes of a table."""


@on("mysql", "mariadb")
def test_table_with_all_indexes(new_people: Callable[..., People]) -> None:
    """A table with the maximum number of indexes is refused before it gets the column."""
    assert "refused" in refused(new_people(more=f", {KEYS}"))


@on("postgresql")
def test_table_with_all_columns_of_postgresql(new_people: Callable[..., People]) -> None:
    """A table that has reached the maximum number of columns is refused; dropped columns count as well."""
    people = new_people(more="".join(f", c{number} boolean" for number in range(1598)))
    people.execute("ALTER TABLE person DROP COLUMN c7")

    assert "has had 1600 columns" in refused(people)["too-many-columns"]


@on("postgresql")
def test_table_of_a_type(table: People) -> None:
    """A typed table is refused, because its columns are those of its type."""
    table.drop()
    table.execute('CREATE TYPE "Human" AS (id int, name text)')
    table.execute('CREATE TABLE person OF "Human" (PRIMARY KEY (id))')
    try:
        assert "ALTER TABLE person NOT OF" in refused(table)["typed"]
    finally:
        table.execute('DROP TYPE "Human" CASCADE')


@on("sqlite")
@pytest.mark.parametrize(("name", "columns"), [("note", "body"), ("note", "body, public_id"), ("note_data", "body")])
def test_table_of_a_module(table: People, name: str, columns: str) -> None:
    """A virtual table, and the tables of its module, are refused even without rows, with and without the column."""
    table.execute(f"CREATE VIRTUAL TABLE note USING fts5 ({columns})")

    with pytest.raises(MigrationRefused, match="of a module of SQLite"):
        People(table.engine, name).add()
    assert command.run("plan", table.engine.url, name).exit_code == 1


@on("postgresql", "mysql", "mariadb")
def test_collation_that_is_not_there(new_people: Callable[..., People]) -> None:
    """A collation that the database does not know is refused before the column is added."""
    people = new_people(1, more=", public_id varchar(12)")

    assert "no_such" in str(refused(people, collation="no_such"))


# --- dependants of the column

CREATE_TRIGGER = """
CREATE FUNCTION pass_on() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER shown BEFORE INSERT ON person FOR EACH ROW WHEN (NEW.public_id = 'x') EXECUTE FUNCTION pass_on()
"""


@pytest.fixture
def dependants(table: People) -> Iterator[People]:
    """A table of people; objects that come to depend on it are dropped with it."""
    yield table
    if table.engine.name == "postgresql":
        table.execute("DROP TABLE person CASCADE")
        table.execute("DROP FUNCTION IF EXISTS pass_on")


@on("postgresql")
@pytest.mark.parametrize(
    ("more", "dependant"),
    [
        ("", "CREATE VIEW shown AS SELECT id, public_id FROM person"),
        ("", "CREATE POLICY shown ON person USING (public_id <> 'izkpm55j334u')"),
        ("", "CREATE RULE shown AS ON INSERT TO person WHERE NEW.public_id = 'x' DO INSTEAD NOTHING"),
        ("", CREATE_TRIGGER),
        (", shown text GENERATED ALWAYS AS (upper(public_id)) STORED", "SELECT"),
    ],
    ids=["view", "policy", "rule", "trigger", "generated column"],
)
def test_dependants_of_the_type(dependants: People, more: str, dependant: str) -> None:
    """A column whose collation has to change, and on which other objects depend, is refused before its rows get ids."""
    dependants.create(2, more=f", public_id varchar(12){more}")
    dependants.execute(dependant)

    assert "dependants" in refused(dependants, collation="bytes")
    dependants.add()
    assert dependants.state().complete


@on("postgresql")
def test_dependants_of_column_and_index(dependants: People) -> None:
    """A column that a view or a foreign key needs is neither loosened nor partly dropped."""
    dependants.add()
    dependants.execute("CREATE VIEW shown AS SELECT public_id FROM person")
    dependants.execute("CREATE TABLE visit (of varchar(12) REFERENCES person (public_id))")
    try:
        of_loosen = refused(dependants, "loosen_public_id")["dependants"]
        dependants.run("loosen_public_id", keeps="unique")
        of_drop = refused(dependants, "drop_public_id")["dependants"]
    finally:
        dependants.execute("DROP VIEW shown")
        dependants.execute("DROP TABLE visit")

    assert "needs the unique index of the column" in of_loosen
    assert "view shown" in of_drop
    assert "visit_of_fkey" in of_drop
    dependants.run("drop_public_id")
    assert dependants.columns() == ["id", "name"]


@on("mysql", "mariadb")
def test_trigger_that_needs_the_column(table: People) -> None:
    """A trigger that uses the column prevents its drop, because each INSERT would fail; other triggers do not."""
    table.add()
    table.execute("CREATE TRIGGER other BEFORE UPDATE ON person FOR EACH ROW SET NEW.name = 'my public_id'")
    table.execute("CREATE TRIGGER lower BEFORE INSERT ON person FOR EACH ROW SET NEW . `Public_Id` = lower(NEW.name)")
    found = refused(table, "drop_public_id")["dependants"]
    table.execute("DROP TRIGGER lower")
    table.run("drop_public_id")

    assert "the trigger lower needs the column" in found
    assert table.columns() == ["id", "name"]


def test_primary_key_is_not_dropped(table: People) -> None:
    """A column of the primary key is not dropped as a column of public ids."""
    key = People(table.engine, table.name, column="id")

    assert "id is in the primary key of person" in refused(key, "drop_public_id")["dependants"]


def test_ids_that_are_the_key(engine: Engine) -> None:
    """Ids that are the primary key get a unique index of their own, and loosening drops it and keeps the key."""
    people = People(engine, keeps="not null", server_default="none")
    ascii_ = " CHARACTER SET ascii COLLATE ascii_bin" if engine.name in ("mysql", "mariadb") else ""
    people.drop()
    people.execute(f"CREATE TABLE person (public_id varchar(12){ascii_} NOT NULL PRIMARY KEY, name varchar(50))")

    def indexes() -> tuple[list[str | None], list[str]]:
        found = inspect(engine)
        return [index["name"] for index in found.get_indexes("person")], found.get_pk_constraint("person")[
            "constrained_columns"
        ]

    people.run("contract_public_id")
    assert indexes() == (["uq_person_public_id"], ["public_id"])
    people.run("loosen_public_id")
    assert indexes() == ([], ["public_id"])
    people.drop()


@on("mysql", "mariadb")
@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("contract_public_id", "needs the type of the column"),
        ("loosen_public_id", "needs the unique index"),
        ("drop_public_id", "needs the column"),
    ],
)
def test_foreign_keys_to_the_column(table: People, operation: str, words: str) -> None:
    """A foreign key that refers to the column, and would make an ALTER fail, is reported before the first ALTER."""
    charset = "latin1" if operation == "contract_public_id" else "ascii COLLATE ascii_bin"
    column = f"varchar(12) CHARACTER SET {charset}"
    table.create(0, more=f", public_id {column} NOT NULL, UNIQUE INDEX uq_person_public_id (public_id)")
    table.execute(
        f"CREATE TABLE visit (visitor {column}, CONSTRAINT visited FOREIGN KEY (visitor) REFERENCES person (public_id))"
    )
    try:
        found = refused(table, operation, collation="bytes")["dependants"]
    finally:
        table.execute("DROP TABLE visit")

    assert f"the foreign key visited of visit {words}" in found


@on("mysql", "mariadb")
def test_foreign_key_to_an_index_that_stays(table: People) -> None:
    """Loosening that keeps the unique index is not refused because of a foreign key that needs it."""
    column = "varchar(12) CHARACTER SET ascii COLLATE ascii_bin"
    table.create(0, more=f", public_id {column} NOT NULL, UNIQUE INDEX uq_person_public_id (public_id)")
    table.execute(f"CREATE TABLE visit (visitor {column}, FOREIGN KEY (visitor) REFERENCES person (public_id))")
    try:
        table.run("loosen_public_id", keeps="unique")
    finally:
        table.execute("DROP TABLE visit")

    assert table.state().valid


@on("mysql", "mariadb")
def test_foreign_key_that_sets_the_column_to_null(table: People) -> None:
    """A column that its own foreign key sets to NULL is refused before its rows get ids."""
    column = "public_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin"
    table.execute(f"CREATE TABLE issued (id int, {column} PRIMARY KEY)")
    table.create(1, more=f", {column}, FOREIGN KEY (public_id) REFERENCES issued (public_id) ON DELETE SET NULL")
    try:
        assert "sets the column to NULL" in refused(table)["dependants"]
    finally:
        table.drop()
        table.execute("DROP TABLE issued")
