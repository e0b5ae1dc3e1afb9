"""What MySQL and MariaDB say about a table and its stored programs: each fact, beside one that looks like it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine
from support.marks import on
from support.people import People, send
from support.refusals import refused
from support.rights import USER, user_with

from sqlalchemy_public_id import backfill
from sqlalchemy_public_id.errors import MigrationRefused, Obstacle
from sqlalchemy_public_id.migrations.consent import Consent
from sqlalchemy_public_id.migrations.databases import live_table, plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine
from sqlalchemy_public_id.migrations.state import Demand, IndexFacts

pytestmark = pytest.mark.backend

on_both = on("mysql", "mariadb")
COLUMN = ", public_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin"


@pytest.fixture
def kept(new_people: Callable[..., People]) -> Iterator[People]:
    """A table beside another one, to which a program of the test may copy rows by position."""
    people = new_people(2)
    people.execute("DROP TABLE IF EXISTS kept")
    people.execute("CREATE TABLE kept (id bigint, name varchar(50))")
    yield people
    people.drop()
    people.execute("DROP TABLE kept")


def create(people: People, statement: str, mode: str = "") -> None:
    """Create a program in a session with the SQL *mode*, which the program keeps."""
    with people.engine.connect() as connection:
        send(connection, f"SET SESSION sql_mode = '{mode}'")
        send(connection, statement)
        connection.invalidate()


def is_refused(people: People) -> bool:
    return any(each == "stored-code" for each in codes(people))


def codes(people: People) -> list[str]:
    return [obstacle.code for obstacle in obstacles(people)]


def obstacles(people: People, operation: str = "expand") -> Sequence[Obstacle]:
    with people.engine.connect() as connection:
        return examine(connection, plan_for(people.target, connection.dialect), PHASES[operation]).obstacles


# --- stored programs


COPIED = "INSERT INTO kept SELECT * FROM person WHERE id = 1"
QUOTED = COPIED.replace("person", '"person"')
BODIES: dict[str, tuple[str, str, bool]] = {
    "a name in quotes": ("ANSI_QUOTES", QUOTED, True),
    "a text in double quotes": ("", f'SET @x = "x; {COPIED}"', False),
    "a text in single quotes": ("ANSI_QUOTES", f"SET @x = 'x; {COPIED}'", False),
    "a backslash": ("NO_BACKSLASH_ESCAPES", f"BEGIN SET @x = 'a\\'; {COPIED}; END", True),
    "an escaped quote": ("", f"SET @x = 'a\\'; {COPIED}; '", False),
    "a quote in a text": ("", f"BEGIN SET @x = 'it\\'s'; {COPIED}; SET @x = 'y'; END", True),
    "a quote that is doubled": ("", f"BEGIN SET @x = 'it''s'; {COPIED}; SET @x = 'y'; END", True),
    "a double quote in a text": ("", f'BEGIN SET @x = "2\\""; {COPIED}; SET @x = "y"; END', True),
    "a text that ends with a backslash": ("", f"BEGIN SET @x = 'C:\\\\'; {COPIED}; SET @x = 'y'; END", True),
    "both": ("ANSI_QUOTES,NO_BACKSLASH_ESCAPES", f"BEGIN SET @x = 'a\\'; {QUOTED}; END", True),
    "a name in backquotes": ("", COPIED.replace("person", "`person`"), True),
    "a comment": ("", f"BEGIN /* {COPIED} */ SET @x = 1; # {COPIED}\nEND", False),
}


@on_both
@pytest.mark.parametrize("case", BODIES)
def test_modes(kept: People, case: str) -> None:
    """A program is read with the SQL mode in which it was created: what is a name, and where a text ends."""
    mode, body, copies = BODIES[case]
    create(kept, f"CREATE TRIGGER keep AFTER UPDATE ON person FOR EACH ROW {body}", mode)

    assert is_refused(kept) == copies


@on_both
@pytest.mark.parametrize(
    ("person", "archive", "copies"),
    [
        (None, "public_id varchar(12)", False),
        (None, "public_id varchar(12) INVISIBLE", True),
        ("secret int INVISIBLE", "public_id varchar(12)", False),
        ("secret int", "public_id varchar(12) INVISIBLE, ADD secret int", True),
    ],
    ids=["shown", "hidden in the archive", "hidden in the table", "shown in the table"],
)
def test_hidden_columns(kept: People, person: str | None, archive: str, copies: bool) -> None:
    """A hidden column, of the table or of another one, is not among those that a statement names by position."""
    if person:
        kept.execute(f"ALTER TABLE person ADD {person}")
    kept.execute(f"ALTER TABLE kept ADD {archive}")
    create(kept, f"CREATE TRIGGER keep AFTER UPDATE ON person FOR EACH ROW {COPIED}")

    assert is_refused(kept) == copies


@on_both
@pytest.mark.parametrize(
    "head",
    [
        "PROCEDURE theirs()",
        "FUNCTION theirs() RETURNS int",
        "EVENT theirs ON SCHEDULE EVERY 1 YEAR DISABLE DO",
    ],
    ids=lambda head: head.partition(" ")[0],
)
def test_quotes_in_the_texts_of_programs(kept: People, head: str) -> None:
    """A quote in a text, which the catalogs of MySQL show without its escape, does not hide what stands behind it."""
    kind, last = head.partition(" ")[0], "RETURN 1; " if head.startswith("FUNCTION") else ""
    create(kept, f"CREATE {head} BEGIN SET @x = 'it''s'; {COPIED}; SET @x = 'y'; {last}END")
    try:
        assert f"the {kind.lower()} theirs" in refused(kept, "expand_public_id")["stored-code"]
    finally:
        kept.execute(f"DROP {kind} theirs")


@on_both
def test_programs_of_other_databases(kept: People) -> None:
    """A program counts if it names the table of this database, wherever it is stored, and is named with its schema."""
    here = str(kept.engine.url.database)
    elsewhere = f"{here}_else"
    kept.execute(f"CREATE DATABASE {elsewhere}")
    try:
        kept.execute(f"CREATE TABLE {elsewhere}.person (id bigint)")
        create(kept, f"CREATE PROCEDURE {elsewhere}.their_own() INSERT INTO {here}.kept SELECT * FROM person")
        create(kept, f"CREATE PROCEDURE abroad() INSERT INTO kept SELECT * FROM {elsewhere}.person")
        assert not is_refused(kept)
        create(kept, f"CREATE PROCEDURE {elsewhere}.of_ours() INSERT INTO {here}.kept SELECT * FROM {here}.person")
        assert f"the procedure {elsewhere}.of_ours has" in refused(kept, "expand_public_id")["stored-code"]
        kept.execute(f"DROP PROCEDURE {elsewhere}.of_ours")
        create(kept, "CREATE PROCEDURE at_home() INSERT INTO kept SELECT * FROM person")
        assert "the procedure at_home has" in refused(kept, "expand_public_id")["stored-code"]
    finally:
        kept.execute(f"DROP DATABASE {elsewhere}")
        for name in ("at_home", "abroad"):
            kept.execute(f"DROP PROCEDURE IF EXISTS {name}")


@contextmanager
def limited(people: People) -> Iterator[Connection]:
    """Connect as a user who may migrate the table, and execute procedures without seeing them."""
    rights = "SELECT, INSERT, UPDATE, ALTER, CREATE"
    with user_with(people.engine, rights, people.table) as url:
        people.execute(f"GRANT EXECUTE ON {people.engine.url.database}.* TO {USER}")
        engine: Engine = create_engine(url)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()


@on_both
@pytest.mark.parametrize("count", [1, 3, 5])
def test_programs_that_are_hidden(kept: People, count: int) -> None:
    """A report names up to three programs that the user may not read, and the privileges that the user lacks."""
    names = [f"p{number}" for number in range(count)]
    for name in names:
        create(kept, f"CREATE PROCEDURE {name}() SELECT 1")
    try:
        with limited(kept) as connection:
            plan = plan_for(kept.target, connection.dialect)
            report = examine(connection, plan, PHASES["expand"])
    finally:
        for name in names:
            kept.execute(f"DROP PROCEDURE {name}")

    shown = ", ".join(f"procedure {name}" for name in names[:3]) + (" and 2 others" if count == 5 else "")
    missing = "triggers and events, which this user may not see without the privilege TRIGGER, EVENT"
    hidden = f"the {shown}, whose statements this user may not see as they were written"
    assert report.not_examined[:2] == (hidden, missing)
    assert [*report.not_examined[2:]] in ([], ["the triggers of other databases"])


@on_both
@pytest.mark.parametrize(
    ("of_role", "on_database", "missing"),
    [
        (None, True, ""),
        (None, False, "TRIGGER"),
        ("SELECT", False, "TRIGGER, EVENT"),
        ("EVENT", False, "TRIGGER"),
        ("TRIGGER, EVENT", False, ""),
    ],
)
def test_programs_of_other_tables(kept: People, of_role: str | None, on_database: bool, missing: str) -> None:
    """Triggers of other tables, and events, are not examined without the privilege on the database, also by a role."""
    role, database = f"role_of_{USER}", kept.engine.url.database
    kept.execute(f"CREATE ROLE {role}")
    try:
        with limited(kept) as connection:
            kept.execute(f"GRANT TRIGGER ON {'*' if on_database else 'person'} TO {USER}")
            if of_role is None:
                kept.execute(f"GRANT EVENT ON * TO {USER}")
            else:
                kept.execute(f"REVOKE TRIGGER ON person FROM {USER}")
                kept.execute(f"GRANT {of_role} ON {database}.* TO {role}")
                kept.execute(f"GRANT {role} TO {USER}")
                send(connection, f"SET ROLE {role}")
            report = examine(connection, plan_for(kept.target, connection.dialect), PHASES["expand"])
    finally:
        kept.execute(f"DROP ROLE {role}")

    found = [each.rpartition(" privilege ")[2] for each in report.not_examined if "without the privilege" in each]
    assert found == ([missing] if missing else [])


@on_both
@pytest.mark.parametrize(
    "grant",
    [
        "TRIGGER, EVENT ON `{database}`.*",
        "EXECUTE ON `{database}`.*",
        "ALTER ROUTINE ON `{database}`.*",
        "CREATE ROUTINE ON *.*",
        "SELECT ON `{database}`.*",
        "SELECT ON *.*",
        "ALL ON person",
        "ALL ON `{database}`.*",
    ],
)
def test_routines_that_are_not_listed(kept: People, grant: str) -> None:
    """Procedures and functions count as not examined if the server does not list them for the user."""
    create(kept, "CREATE PROCEDURE p() SELECT 1")
    try:
        with limited(kept) as connection:
            database = kept.engine.url.database
            kept.execute(f"REVOKE EXECUTE ON `{database}`.* FROM {USER}")
            kept.execute(f"GRANT {grant.format(database=database)} TO {USER}")
            connection.invalidate()
            listed = send(connection, "SELECT 1 FROM information_schema.ROUTINES WHERE ROUTINE_NAME = 'p'").all()
            report = examine(connection, plan_for(kept.target, connection.dialect), PHASES["expand"])
    finally:
        kept.execute("DROP PROCEDURE p")

    assert any("routines, which this user may not see" in each for each in report.not_examined) != bool(listed)


@on_both
@pytest.mark.parametrize(
    ("grant", "is_hidden"),
    [
        (None, True),
        ("TRIGGER ON person TO {user}", False),
        ("TRIGGER ON `{database}`.* TO {user}", False),
        ("TRIGGER ON *.* TO {user}", False),
        ("TRIGGER ON kept TO {user}", True),
        ("TRIGGER ON person TO {role}", False),
        ("EVENT ON `{database}`.* TO {role}", True),
    ],
)
def test_triggers_that_are_hidden(kept: People, grant: str | None, is_hidden: bool) -> None:
    """An UPDATE that may fire triggers which the user may not see is refused without consent; a GRANT helps."""
    role = f"role_of_{USER}"
    kept.execute("ALTER TABLE person ADD public_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin")
    kept.execute(f"CREATE ROLE {role}")
    try:
        with limited(kept) as connection:
            kept.execute(f"GRANT {role} TO {USER}")
            if grant is not None:
                kept.execute("GRANT " + grant.format(user=USER, role=role, database=kept.engine.url.database))
            if grant is not None and "role" in grant:
                send(connection, f"SET ROLE {role}")
            found = {}
            for wanted in ("refuse", "skip", "fire"):
                plan = plan_for(kept.target, connection.dialect, Consent(update_triggers=wanted))
                found[wanted] = [*examine(connection, plan, PHASES["backfill"]).obstacles]
            refusals: Any = (
                pytest.raises(MigrationRefused, match="may not see triggers") if is_hidden else nullcontext()
            )
            with refusals:
                backfill.run(connection, "person")
            backfill.run(connection, "person", update_triggers="fire")
    finally:
        kept.execute(f"DROP ROLE {role}")

    user = f"'{USER}'@'%'"
    remedy = f'GRANT TRIGGER ON person TO {user}, or pass update_triggers="fire" to accept this'
    expected = [remedy] if is_hidden else []
    remedies = {wanted: [each.remedy for each in obstacles] for wanted, obstacles in found.items()}
    assert remedies == {"refuse": expected, "skip": expected, "fire": []}


PROGRAMS = {
    "procedure": "CREATE PROCEDURE program() {}",
    "trigger": "CREATE TRIGGER program AFTER INSERT ON person FOR EACH ROW {}",
    "event": "CREATE EVENT program ON SCHEDULE EVERY 1 YEAR DISABLE DO {}",
}


@on_both
@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("condition", ["1", "'a'", "'a\\'b'"])
def test_programs_that_are_not_shown_as_written(
    kept: People, listen: Callable[..., Any], kind: str, condition: str
) -> None:
    """A program whose text may hide statements, and that the server does not show as written, is not examined."""
    create(kept, PROGRAMS[kind].format(f"BEGIN DO {condition}; INSERT INTO kept SELECT * FROM person; END"))

    def of_another(_: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> tuple[str, Any]:
        return statement.replace("program", "unknown") if "SHOW CREATE" in statement else statement, parameters

    listen(kept.engine, "before_cursor_execute", of_another, retval=True)
    try:
        with kept.engine.connect() as connection:
            report = examine(connection, plan_for(kept.target, connection.dialect), PHASES["expand"])
    finally:
        kept.execute(f"DROP {kind} program")

    is_read = condition == "1"
    assert [obstacle.code for obstacle in report.obstacles] == ["stored-code"] * is_read
    unseen = f"the {kind} program, whose statements this user may not see as they were written"
    assert (unseen in report.not_examined) != is_read


# --- the column and its indexes


@on_both
@pytest.mark.parametrize("operation", PHASES)
@pytest.mark.parametrize("null", ["NULL", "NOT NULL"])
def test_hidden_index(new_people: Callable[..., People], operation: str, null: str) -> None:
    """A plan that keeps a unique index says that look-ups do not use it, with the ALTER; one that is shown is taken."""
    people = new_people(0, f"{COLUMN} {null}, UNIQUE KEY `a-b` (public_id)")
    hidden, shown = ("INVISIBLE", "VISIBLE") if people.engine.name == "mysql" else ("IGNORED", "NOT IGNORED")

    def warnings() -> list[str]:
        with people.engine.connect() as connection:
            report = examine(connection, plan_for(people.target, connection.dialect), PHASES[operation])
        return [each for each in report.warnings if "is hidden" in each]

    assert warnings() == []
    people.execute(f"ALTER TABLE person ALTER INDEX `a-b` {hidden}")
    alter = f"ALTER TABLE person ALTER INDEX `a-b` {shown}"
    is_said = operation in {"add", "expand", "contract"}
    assert [each.rpartition(" before ")[2] for each in warnings()] == [alter] * is_said
    people.execute(alter)
    assert warnings() == []
    people.execute(f"ALTER TABLE person ADD UNIQUE KEY z (public_id), ALTER INDEX `a-b` {hidden}")
    assert warnings() == []


@on_both
def test_trigger_that_fills_the_column(new_people: Callable[..., People]) -> None:
    """Only a BEFORE INSERT trigger of the table that names the column can fill it."""
    people = new_people(0, COLUMN)
    found = []
    for when, name in [
        ("BEFORE INSERT", "public_id"),
        ("AFTER INSERT", "public_id"),
        ("BEFORE UPDATE", "public_id"),
        ("BEFORE INSERT", "name"),
    ]:
        value = f"NEW.{name} = 'x'" if when.startswith("BEFORE") else f"@x = NEW.{name}"
        people.execute(f"CREATE TRIGGER t {when} ON person FOR EACH ROW SET {value}")
        found.append(people.state().filled)
        people.execute("DROP TRIGGER t")

    assert found == [True, False, False, False]


@on("mariadb")
def test_quote_in_the_name_of_a_column_that_is_filled(new_people: Callable[..., People]) -> None:
    """A trigger names a column with its quotes doubled; MySQL shows them in other places."""
    people = new_people(0, ", `a``b` varchar(12)")
    people.execute("CREATE TRIGGER t BEFORE INSERT ON person FOR EACH ROW SET NEW.`a``b` = 'x'")

    assert People(people.engine, column="a`b").state().filled


@on_both
def test_triggers(new_people: Callable[..., People], engine: Engine) -> None:
    """Triggers for UPDATE fire in a backfill; those for new rows that name the column may refuse its ids."""
    people = new_people(0, COLUMN)
    for name, when in {"b": "AFTER UPDATE", "a": "BEFORE UPDATE", "c": "AFTER INSERT", "d": "BEFORE DELETE"}.items():
        row = "OLD" if "DELETE" in when else "NEW"
        people.execute(f"CREATE TRIGGER {name} {when} ON person FOR EACH ROW SET @x = {row}.PUBLIC_ID")
    people.execute("CREATE TRIGGER e BEFORE INSERT ON person FOR EACH ROW SET @x = NEW.name")
    with engine.connect() as connection:
        live = live_table(connection, people.target)
        assert live.update_triggers() == ["a", "b"]
        assert [*live.read_constraints()] == [Demand("the trigger c", None, why_not="only an INSERT runs it")]


@on("mysql")
def test_check_that_is_not_enforced(new_people: Callable[..., People], engine: Engine) -> None:
    """A CHECK of MySQL that is not enforced demands nothing; one that is can be evaluated, also if it has a quote."""
    people = new_people(
        0,
        f"{COLUMN}, CONSTRAINT a CHECK (public_id <> 'it''s'), CONSTRAINT b CHECK (public_id <> 'x') NOT ENFORCED",
    )
    with engine.connect() as connection:
        [demand] = live_table(connection, people.target).read_constraints()
        rows = "(SELECT 'it''s' AS public_id UNION ALL SELECT 'x') AS person"
        values = send(connection, f"SELECT {demand.expression} FROM {rows}").scalars().all()

    assert (demand.name, values) == ("the CHECK constraint a", [0, 1])


DEFAULTS = {
    "NULL": None,
    "'it''s'": "it's",
    "''": "",
    "'NULL '": "NULL ",
    "'NULL'": "NULL",
    r"'a\\b'": r"a\b",
}
"""The default as it is written, and its value."""


@on_both
@pytest.mark.parametrize("default", DEFAULTS)
def test_constant_default(new_people: Callable[..., People], default: str) -> None:
    """The default of a column is a literal that can be written again, also if it has quotes, or a backslash."""
    people = new_people(0, f"{COLUMN} DEFAULT {default}")
    found = people.state().default
    value = None
    if found is not None:
        with people.engine.connect() as connection:
            value = send(connection, f"SELECT {found}").scalar()

    assert value == DEFAULTS[default]


@on_both
@pytest.mark.parametrize("expression", ["concat('it''s', 'x')", "concat('a', '\\\\', 'b')", "upper('x')"])
def test_expression_as_default(new_people: Callable[..., People], expression: str) -> None:
    """The expression of a default has the texts that were written, whatever the catalogs escape."""
    people = new_people(0, f"{COLUMN} DEFAULT ({expression})")
    with people.engine.connect() as connection:
        values = send(connection, f"SELECT {people.state().default}, {expression}").one()

    assert values[0] == values[1]


@on_both
def test_indexes(new_people: Callable[..., People]) -> None:
    """An index of a prefix is no index of the column, and only alone it is one of its prefix."""
    people = new_people(0, COLUMN)
    for name, columns in {
        "a": "public_id",
        "b": "public_id(4)",
        "c": "public_id(4), name",
        "d": "name, public_id",
        "dd": "public_id, name(5)",
    }.items():
        people.execute(f"CREATE UNIQUE INDEX {name} ON person ({columns})")
    people.execute("CREATE FULLTEXT INDEX e ON person (name)")
    state = people.state()
    usual: dict[str, Any] = {"unique": True, "constraint": True, "kind": "btree"}
    assert [index for index in state.indexes if not index.primary and index.name < "e"] == [
        IndexFacts("a", columns=("public_id",), **usual),
        IndexFacts("b", prefix_of="public_id", prefix=4, **usual),
        IndexFacts("c", prefix=4, **usual),
        IndexFacts("d", columns=("name", "public_id"), **usual),
        IndexFacts("dd", prefix=5, **usual),
    ]
    [fulltext] = [index for index in state.indexes if index.name == "e"]
    assert (fulltext.unique, fulltext.kind, fulltext.columns) == (False, "fulltext", ("name",))
    assert state.unique is not None
    assert state.unique.name == "a"


COLLATIONS = {
    "mysql": {"0900_as_cs": True, "ja_0900_as_cs_ks": True, "0900_as_ci": False, "hu_0900_as_cs": False},
    "mariadb": {"uca1400_as_cs": True, "uca1400_nopad_as_cs": True, "uca1400_roman_ai_cs": False},
}


@pytest.mark.parametrize(
    ("database", "collation", "exact"),
    [(database, each, exact) for database, all_ in COLLATIONS.items() for each, exact in all_.items()],
    indirect=["database"],
)
def test_collations_with_case(new_people: Callable[..., People], collation: str, exact: bool) -> None:
    """A collation counts as exact if it distinguishes all ids, which are ASCII, though it may not compare bytes."""
    people = new_people(0, f", public_id varchar(12) COLLATE utf8mb4_{collation}")
    pairs = [("aB", "Ab"), ("ggy", "gyGy"), ("V", "u")]
    with people.engine.connect() as connection:
        query = f"SELECT _utf8mb4'{{}}' = _utf8mb4'{{}}' COLLATE utf8mb4_{collation}"
        equal = [connection.exec_driver_sql(query.format(*pair)).scalar() for pair in pairs]

    assert (people.state().exact, not any(equal)) == (exact, exact)
    [obstacle] = [each for each in obstacles(people, "contract") if each.code == "other-spellings"] or [None]
    assert ("such as aB and Ab" in str(obstacle)) == bool(equal[0])


@on_both
@pytest.mark.parametrize(
    ("type_", "exact"),
    [
        ("varchar(12) CHARACTER SET ascii COLLATE ascii_bin", True),
        ("varchar(12) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", True),
        ("varchar(12) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", False),
        ("varchar(12) CHARACTER SET latin1 COLLATE latin1_general_cs", True),
        ("binary(16)", True),
        ("bigint", True),
    ],
)
def test_types(new_people: Callable[..., People], type_: str, exact: bool) -> None:
    """The type of a column has its character set and collation; numbers and bytes have none, and are exact."""
    state = new_people(0, f", public_id {type_} NOT NULL COMMENT 'it''s' INVISIBLE DEFAULT 5").state()
    collation = type_.rpartition(" COLLATE ")[2] if "COLLATE" in type_ else None

    assert (state.exact, state.collation, state.nullable, state.comment) == (exact, collation, False, "it's")
    assert (state.type or "").replace("bigint(20)", "bigint") == type_
    assert state.is_invisible
