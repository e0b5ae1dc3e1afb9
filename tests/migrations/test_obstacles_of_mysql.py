"""What stands in the way on MySQL and MariaDB: each fact of the catalogs, beside one that looks like it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine
from support.marks import on, since_mariadb
from support.people import People, send
from support.rights import USER, user_with

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import Consent
from sqlalchemy_public_id.migrations.databases import live_table, plan_for
from sqlalchemy_public_id.migrations.mysql.obstacles import obstacles_of_catalogs
from sqlalchemy_public_id.migrations.mysql.rights import missing_privileges
from sqlalchemy_public_id.migrations.operation import PHASES, examine
from sqlalchemy_public_id.migrations.plan import Migration
from sqlalchemy_public_id.migrations.state import State

pytestmark = pytest.mark.backend

on_both = on("mysql", "mariadb")

WANTED = ["UPDATE", "ALTER", "CREATE", "INSERT", "DROP"]
COLUMN = ", public_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin"


def obstacles(people: People, operation: str, **options: Any) -> list[Obstacle]:
    """Return the obstacles to an operation."""
    with people.engine.connect() as connection:
        plan = plan_for(PublicIdColumn.of("person", **options), connection.dialect)
        return [*examine(connection, plan, PHASES[operation]).obstacles]


@pytest.fixture
def elsewhere(new_people: Callable[..., People], table: People) -> Iterator[str]:
    """Another database, whose name begins with that of this one, and which is dropped after the test."""
    name = f"{table.engine.url.database}_else"
    table.execute(f"CREATE DATABASE {name}")
    yield name
    table.execute(f"DROP DATABASE {name}")


# --- a hidden column

OWN, THEIRS = "own", "upper('x')"
HIDDEN = State(exists=True, is_invisible=True)
SHOWN = State(exists=True)
FULL: dict[str, Any] = {"nullable": False}
SHOW, KEEP = "pass invisible=False", 'pass server_default="keep", or invisible=False'
LIST = 'pass invisible=False; or, if each INSERT lists its columns, stored_code="ignore"'
HIDE: dict[str, Any] = {"invisible": True}
CASES: list[tuple[str, State, dict[str, Any], str | None, str | None]] = [
    # a new column
    ("expand", State(), HIDE, None, None),
    ("add", State(), HIDE, LIST, None),
    ("add", State(), {}, None, None),
    ("add", State(), {**HIDE, "server_default": "none"}, SHOW, KEEP),
    ("add", State(), {**HIDE, "server_default": "drop"}, SHOW, KEEP),
    ("add", State(), {**HIDE, "server_default": "replace"}, LIST, None),
    ("add", State(), {**HIDE, "server_default": "none", "stored_code": "ignore"}, KEEP, KEEP),
    ("add", State(), {**HIDE, "stored_code": "ignore"}, None, None),
    # the contract of a column that is hidden
    ("contract", HIDDEN, {}, LIST, None),
    ("contract", HIDDEN, {"invisible": False}, None, None),
    ("contract", HIDDEN, {"server_default": "none"}, SHOW, KEEP),
    ("contract", replace(HIDDEN, default=THEIRS), {"server_default": "none"}, LIST, None),
    ("contract", replace(HIDDEN, default=OWN), {"server_default": "none"}, LIST, None),
    ("contract", replace(HIDDEN, default=OWN), {"server_default": "drop"}, SHOW, KEEP),
    ("contract", replace(HIDDEN, default=THEIRS), {"server_default": "drop"}, LIST, None),
    ("contract", replace(HIDDEN, default=OWN), {"server_default": "replace"}, LIST, None),
    ("contract", replace(HIDDEN, default=OWN, **FULL), {}, None, None),
    # a column that forbids NULL, and is hidden only now
    ("contract", replace(SHOWN, **FULL), HIDE, LIST, None),
    ("expand", replace(SHOWN, **FULL), HIDE, LIST, None),
    ("expand", replace(HIDDEN, **FULL), HIDE, None, None),
    ("loosen", replace(SHOWN, **FULL), HIDE, None, None),
    ("loosen", replace(SHOWN, **FULL), {**HIDE, "keeps": "unique"}, None, None),
    ("loosen", replace(SHOWN, **FULL), {**HIDE, "keeps": "not null"}, LIST, None),
    ("loosen", replace(SHOWN, **FULL), {**HIDE, "keeps": "all"}, LIST, None),
    ("loosen", SHOWN, {**HIDE, "keeps": "not null"}, None, None),
    ("drop", replace(SHOWN, **FULL), HIDE, None, None),
    ("backfill", HIDDEN, {"server_default": "none"}, None, None),
]


def remedy_for_hidden(connection: Connection, operation: str, state: State, options: dict[str, Any]) -> str | None:
    """Return the remedy for a hidden column in the *state* in which it would be, if there is an obstacle."""
    consent = Consent(**{name: value for name, value in options.items() if name == "stored_code"})
    target = PublicIdColumn.of("person", **{name: value for name, value in options.items() if name != "stored_code"})
    plan = plan_for(target, connection.dialect, consent)
    if state.default == OWN:
        state = replace(state, default=plan.defaults.expression(target.format))
    migration = Migration(live_table(connection, target), plan, PHASES[operation], state)
    found = [each.remedy for each in obstacles_of_catalogs(migration) if each.code == "implicit-default"]
    assert len(found) <= 1
    return found[0] if found else None


@on_both
def test_hidden_columns(new_people: Callable[..., People]) -> None:
    """A column may be hidden and forbid NULL if its default stays, and on MySQL only if each INSERT lists columns."""
    people = new_people(0, COLUMN)
    wrong = []
    with people.engine.connect() as connection:
        for operation, state, options, on_mysql, on_mariadb in CASES:
            found = remedy_for_hidden(connection, operation, state, options)
            if found != (on_mariadb if people.engine.name == "mariadb" else on_mysql):
                wrong.append((operation, state, options, found))

    assert wrong == []


# --- what others do to the table


@on_both
def test_copy_by_another_program(new_people: Callable[..., People], elsewhere: str) -> None:
    """Triggers of pt-online-schema-change stop every operation but a backfill, if they are on this table."""
    people = new_people(0, COLUMN)
    other = new_people(0, table="person_2")
    operations = ("add", "expand", "contract", "loosen", "drop", "backfill")

    def copied(operation: str) -> list[Obstacle]:
        return [each for each in obstacles(people, operation) if each.code == "table-copied"]

    create = "CREATE TRIGGER {} AFTER {} ON {} FOR EACH ROW SET @x = 1"
    other.execute(create.format("pt_osc_x_person_2_ins", "INSERT", "person_2"))
    people.execute(create.format("old_pt_osc_x_ins", "INSERT", "person"))
    people.execute(f"CREATE TABLE {elsewhere}.person (id bigint)")
    people.execute(create.format(f"{elsewhere}.pt_osc_x_person_ins", "INSERT", f"{elsewhere}.person"))
    assert copied("add") == []
    people.execute(create.format("pt_osc_x_person_upd", "UPDATE", "person"))
    people.execute(create.format("pt_osc_x_person_del", "DELETE", "person"))

    assert [len(copied(operation)) for operation in operations] == [1, 1, 1, 1, 1, 0]
    [obstacle] = copied("add")
    assert obstacle.problem.startswith("pt-online-schema-change is copying person;")
    assert obstacle.remedy.endswith("drop its triggers pt_osc_x_person_del, pt_osc_x_person_upd")


@on_both
def test_keys_and_indexes_that_do_not_count(new_people: Callable[..., People], elsewhere: str) -> None:
    """Foreign keys count if they refer to the ids of this table, from whatever database, and not to a namesake's."""
    people = new_people(0, f"{COLUMN} UNIQUE, other varchar(12) CHARACTER SET ascii COLLATE ascii_bin UNIQUE")
    here = people.engine.url.database
    type_ = "varchar(12) CHARACTER SET ascii COLLATE ascii_bin"
    key = "CREATE TABLE {}.{} (x {}, CONSTRAINT fk_{} FOREIGN KEY (x) REFERENCES {}.person ({}) {})"
    people.execute(f"CREATE TABLE {elsewhere}.person (public_id {type_} UNIQUE, id bigint, KEY wide (id, public_id))")
    people.execute(key.format(elsewhere, "a", type_, "a", elsewhere, "public_id", ""))
    try:
        people.execute(key.format(here, "fact_b", type_, "b", here, "other", ""))
        assert obstacles(people, "drop") == []
        people.execute(key.format(elsewhere, "c", type_, "c", here, "public_id", "ON DELETE SET NULL"))
        assert [each.code for each in obstacles(people, "contract")] == []
        [obstacle] = obstacles(people, "drop")
        assert obstacle.problem == "the foreign key fk_c of c needs the column"
        people.execute(f"DROP TABLE {elsewhere}.c")
        own = f"CONSTRAINT fk_own FOREIGN KEY (public_id) REFERENCES {elsewhere}.person (public_id)"
        people.execute(f"ALTER TABLE person ADD {own}")
        assert obstacles(people, "loosen") == []
        people.execute("ALTER TABLE person DROP FOREIGN KEY fk_own")
        for name, column in (("fk_z", "other"), ("fk_y", "public_id"), ("fk_x", "public_id")):
            key_of_ours = f"FOREIGN KEY ({column}) REFERENCES {elsewhere}.person (public_id)"
            people.execute(f"ALTER TABLE person ADD CONSTRAINT {name} {key_of_ours}")
        assert [each.problem.split()[3] for each in obstacles(people, "drop")] == ["fk_x", "fk_y"]
        for name in ("fk_x", "fk_y", "fk_z"):
            people.execute(f"ALTER TABLE person DROP FOREIGN KEY {name}")
    finally:
        people.execute("DROP TABLE IF EXISTS fact_b")
        people.execute(f"DROP TABLE IF EXISTS {elsewhere}.c")


@on_both
def test_order_of_wider_indexes(new_people: Callable[..., People]) -> None:
    """The indexes that would lose the column come in the order of their names; one of it alone loses nothing."""
    people = new_people(0, f"{COLUMN}, KEY b (id, public_id), KEY a (id, name, public_id), KEY c (public_id)")
    people.execute("CREATE INDEX d ON person (id, name)")

    assert [each.problem.split()[2] for each in obstacles(people, "drop")] == ["a", "b"]


# --- rights


@pytest.fixture
def lacking(new_people: Callable[..., People]) -> Iterator[Callable[..., list[str]]]:
    """Return which of five privileges on the table of people a user with SELECT alone lacks, after more grants."""
    people = new_people(0)
    with user_with(people.engine, "SELECT", "person") as url:
        engine = create_engine(url, poolclass=NullPool)

        def lacks(*statements: str, role: str = "", mode: str = "", schema: str | None = None) -> list[str]:
            for statement in statements:
                people.execute(statement)
            with engine.connect() as connection:
                send(connection, f"SET SESSION sql_mode = '{mode}'")
                if role:
                    send(connection, f"SET ROLE {role}")
                return missing_privileges(live_table(connection, PublicIdColumn.of("person", schema=schema)), WANTED)

        yield lacks


@on_both
def test_privileges(new_people: Callable[..., People], lacking: Callable[..., list[str]], elsewhere: str) -> None:
    """A privilege counts if it is on this table, its database or all of them, and not if it is on anything else."""
    people = new_people(0, table="person_2")
    people.execute(f"CREATE TABLE {elsewhere}.person (id bigint)")
    people.execute(f"CREATE USER other_{USER}")
    try:
        granted = f"GRANT ALL ON person TO other_{USER}"
        assert lacking(granted, f"GRANT ALL ON {elsewhere}.* TO {USER}", f"GRANT ALL ON person_2 TO {USER}") == WANTED
        assert lacking(schema=elsewhere) == []
        revoked = f"REVOKE ALL ON {elsewhere}.* FROM {USER}", f"GRANT DROP ON {elsewhere}.person TO {USER}"
        assert lacking(*revoked, schema=elsewhere) == WANTED[:-1]
    finally:
        people.execute(f"DROP USER other_{USER}")

    assert lacking(f"GRANT INSERT ON person TO {USER}") == ["UPDATE", "ALTER", "CREATE", "DROP"]
    assert lacking(f"GRANT ALTER ON {people.engine.url.database}.* TO {USER}") == ["UPDATE", "CREATE", "DROP"]
    assert lacking(f"GRANT CREATE ON *.* TO {USER}") == ["UPDATE", "DROP"]


@on_both
def test_privileges_of_a_role(lacking: Callable[..., list[str]], table: People) -> None:
    """What an active role grants counts, also by another role, and nothing else of a user with a role does."""
    outer, inner = (f"{name}_of_{USER}" for name in ("outer", "inner"))
    table.execute(f"CREATE ROLE {outer}, {inner}")
    try:
        assert lacking(f"GRANT {outer} TO {USER}", f"GRANT {inner} TO {outer}") == WANTED
        assert lacking(role=outer) == WANTED
        assert lacking(f"GRANT ALTER ON person TO {outer}", role=outer) == ["UPDATE", "CREATE", "INSERT", "DROP"]
        assert lacking(f"GRANT UPDATE, DROP ON person TO {inner}", role=outer) == ["CREATE", "INSERT"]
    finally:
        table.execute(f"DROP ROLE {outer}, {inner}")


@on_both
@pytest.mark.parametrize("mode", ["", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES"])
def test_privileges_in_a_mode(lacking: Callable[..., list[str]], table: People, mode: str) -> None:
    """Privileges by a pattern are the same in every SQL mode, and those on columns alone do not count."""
    pattern = str(table.engine.url.database).replace("_", r"\_")
    found = lacking(
        f"GRANT ALTER ON `{pattern}`.* TO {USER}", f"GRANT UPDATE (id, name) ON person TO {USER}", mode=mode
    )

    assert found == ["UPDATE", "CREATE", "INSERT", "DROP"]


@on("mariadb")
@since_mariadb(10, 11, "grants to PUBLIC")
def test_privileges_of_public(lacking: Callable[..., list[str]], table: People) -> None:
    """What MariaDB grants to PUBLIC counts, since 10.11."""
    try:
        assert lacking("GRANT ALTER, DROP ON person TO PUBLIC") == ["UPDATE", "CREATE", "INSERT"]
    finally:
        table.execute("REVOKE ALTER, DROP ON person FROM PUBLIC")


@on_both
def test_name_with_an_at_sign(table: People) -> None:
    """The privileges of a user are found, and the GRANT has the right name, also if the name has an at sign."""
    name = f"me@{USER}"
    here = str(table.engine.url.database)
    table.execute(f"CREATE USER '{name}'@'%'")
    try:
        table.execute(f"GRANT SELECT, ALTER ON person TO '{name}'@'%'")
        engine = create_engine(table.engine.url.set(username=name, password=None), poolclass=NullPool)
        with engine.connect() as connection:
            plan = plan_for(PublicIdColumn.of("person", schema=here), connection.dialect)
            found = {each.code: each for each in examine(connection, plan, PHASES["expand"]).obstacles}
    finally:
        table.execute(f"DROP USER '{name}'@'%'")

    problem, remedy = found["missing-right"].problem, found["missing-right"].remedy
    assert problem == f"{name}@% lacks the privileges CREATE, INSERT on person"
    assert remedy == f"GRANT CREATE, INSERT ON {here}.person TO '{name}'@'%'"


# --- the SQL mode


@on_both
@pytest.mark.parametrize(
    ("more", "has_backslash"),
    [
        (r"COMMENT 'a\\b'", True),
        (r"CHECK (public_id <> 'a\\b')", True),
        (r"DEFAULT (concat('a\\b', left(name, 1)))", True),
        (r"DEFAULT (upper('x')) COMMENT 'it''s' CHECK (public_id <> 'y')", False),
    ],
)
def test_mode_without_escapes(new_people: Callable[..., People], more: str, has_backslash: bool) -> None:
    """An ALTER in the mode NO_BACKSLASH_ESCAPES would change texts with a backslash, and is refused; others are not."""
    people = new_people(0, f"{COLUMN} {more}")

    def found(mode: str, operation: str) -> bool:
        with people.engine.connect() as connection:
            send(connection, f"SET SESSION sql_mode = '{mode}'")
            plan = plan_for(PublicIdColumn.of("person", server_default="none"), connection.dialect)
            report = examine(connection, plan, PHASES[operation])
            connection.invalidate()
        return "sql-mode" in {each.code for each in report.obstacles}

    escapes = "NO_BACKSLASH_ESCAPES"
    assert [found(escapes, each) for each in ("add", "contract", "loosen", "drop")] == [has_backslash] * 4
    assert [found(escapes, "backfill"), found("", "add")] == [False, False]


# --- the character set of the session


@on_both
@pytest.mark.parametrize(
    ("more", "has_others"),
    [
        ("COMMENT 'číslo?'", True),
        ("DEFAULT 'číslo'", True),
        ("COMMENT 'numéro?' CHECK (public_id <> 'numéro')", False),
    ],
)
def test_character_set_without_these_characters(
    new_people: Callable[..., People], new_engine: Callable[..., Engine], more: str, has_others: bool
) -> None:
    """A MODIFY in latin1 would write "?" for characters outside of it, and is refused; others are not."""
    found = _finder_of_character_sets(new_people, new_engine, more)

    assert [found("latin1", each) for each in ("add", "contract", "loosen")] == [has_others] * 3
    assert [found("latin1", each) for each in ("backfill", "drop")] == [False, False]
    assert not found("utf8mb4", "add")


@on("mariadb")
def test_character_set_of_a_check(new_people: Callable[..., People], new_engine: Callable[..., Engine]) -> None:
    """MariaDB stores the CHECK of a column with it, so that a MODIFY repeats its characters."""
    found = _finder_of_character_sets(new_people, new_engine, "CHECK (public_id <> 'číslo')")

    assert [found(charset, "add") for charset in ("latin1", "utf8mb4")] == [True, False]


def _finder_of_character_sets(
    new_people: Callable[..., People], new_engine: Callable[..., Engine], more: str
) -> Callable[[str, str], bool]:
    people = new_people(0, f", public_id varchar(12) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin {more}")
    url = people.engine.url

    def found(charset: str, operation: str) -> bool:
        engine = new_engine(people.engine.name, url.update_query_dict({"charset": charset}))
        with engine.connect() as connection:
            plan = plan_for(PublicIdColumn.of("person", server_default="none"), connection.dialect)
            report = examine(connection, plan, PHASES[operation])
        return "character-set" in {each.code for each in report.obstacles}

    return found


# --- locks and histories


@on_both
@pytest.mark.parametrize(
    ("more", "cause"),
    [
        (", v int AS (length(name)) VIRTUAL, w int, KEY v (w)", None),
        (", V int AS (length(name)) STORED, u int AS (length(name)) VIRTUAL, KEY a (u, id)", "V u"),
        (", at timestamp DEFAULT CURRENT_TIMESTAMP, KEY a (at)", None),
        (", x varchar(50) DEFAULT (upper('stored')), KEY a (x)", None),
    ],
)
def test_generated_columns(new_people: Callable[..., People], more: str, cause: str | None) -> None:
    """On MariaDB, a generated column that is stored or indexed makes writers wait; one that is neither does not."""
    people = new_people(0, more)
    new_people(0, ", v int AS (length(name)) VIRTUAL, KEY v (v)", table="person_2")
    found = [each.problem for each in obstacles(people, "expand") if each.code == "needs-lock"]

    if cause is None or people.engine.name == "mysql":
        assert found == []
    else:
        causes = ", ".join(f"the column {name} is generated, and stored or indexed" for name in cause.split())
        assert found == [f"writers would wait while {people.engine.dialect.name} changes person: {causes}"]


@on_both
def test_locks_without_the_column(new_people: Callable[..., People]) -> None:
    """A table that has to be locked is no obstacle to a loosening and a drop that have nothing to do."""
    people = new_people(0, ", FULLTEXT KEY (name)")

    def needs_lock(operation: str) -> bool:
        return "needs-lock" in {each.code for each in obstacles(people, operation)}

    assert [needs_lock(each) for each in ("expand", "loosen", "drop")] == [True, False, False]
    people.execute("ALTER TABLE person ADD COLUMN public_id varchar(12)")
    assert [needs_lock(each) for each in ("expand", "loosen", "drop")] == [True, True, True]


@on("mariadb")
def test_earlier_versions(new_people: Callable[..., People]) -> None:
    """Earlier versions of rows stop a contract if they have no ids, or if the backfill would make such versions."""
    changed = ", changed timestamp DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
    people = new_people(0, COLUMN + changed, after="WITH SYSTEM VERSIONING")
    here = people.engine.url.database

    def found() -> list[bool]:
        operations = ("add", "expand", "backfill", "contract", "loosen")
        codes = [{each.code for each in obstacles(people, operation)} for operation in operations]
        return ["versioned" in each for each in codes]

    people.execute("INSERT INTO person (name, public_id) VALUES ('a', 'Bn0Ev7cxM41w')")
    people.execute("UPDATE person SET name = 'b'")
    assert found() == [False] * 5
    people.execute("INSERT INTO person (name) VALUES ('c')")
    assert found() == [True, False, False, False, False]
    people.execute("UPDATE person SET public_id = 'Bn0Ev7cxM42w' WHERE name = 'c'")
    assert found() == [True, False, False, True, False]
    [obstacle] = [each for each in obstacles(people, "contract", schema=here) if each.code == "versioned"]
    assert obstacle.remedy.startswith(f"ALTER TABLE {here}.person DROP SYSTEM VERSIONING")
