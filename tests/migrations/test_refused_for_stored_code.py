"""A migration that would break the code that the database stores is refused; the remedies and the consent work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import DBAPIError
from support.marks import on
from support.people import People, send
from support.refusals import refused
from support.rights import user_with

from sqlalchemy_public_id.errors import DryRun
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine

pytestmark = pytest.mark.backend

COPY = {
    "postgresql": "CREATE TRIGGER keep AFTER INSERT ON person FOR EACH ROW EXECUTE FUNCTION keep()",
    "sqlite": "CREATE TRIGGER keep AFTER INSERT ON person BEGIN INSERT INTO kept SELECT * FROM person; END",
}
ELSEWHERE = (
    "CREATE TRIGGER keep AFTER INSERT ON person FOR EACH ROW INSERT INTO kept SELECT * FROM person WHERE id = NEW.id"
)


@pytest.fixture
def history(new_people: Callable[..., People], engine: Engine) -> Iterator[People]:
    """Create a table, and another one with the same columns, to which a trigger of the test may copy rows."""
    people = new_people(0)
    people.execute("DROP TABLE IF EXISTS kept")
    people.execute("CREATE TABLE kept (id bigint, name varchar(50))")
    yield people
    people.drop()
    if engine.name == "postgresql":
        people.execute("DROP FUNCTION IF EXISTS keep")
    people.execute("DROP TABLE kept")


@pytest.fixture
def kept(history: People, engine: Engine) -> People:
    """Create a table whose trigger copies new rows by position."""
    if engine.name == "postgresql":
        body = "BEGIN INSERT INTO kept SELECT NEW.*; RETURN NULL; END"
        history.execute(f"CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    history.execute(COPY.get(engine.name, ELSEWHERE))
    return history


def test_refusal(kept: People) -> None:
    """A trigger that copies rows by position refuses the operation, which then changes nothing."""
    assert "keep" in refused(kept)["stored-code"]
    kept.write(1)


def test_advice_to_hide_the_column(kept: People, engine: Engine) -> None:
    """Where a column can be hidden, a new one may be; for one that is there, it is no advice."""
    assert ("or pass invisible=True" in refused(kept)["stored-code"]) == (engine.name in ("mysql", "mariadb"))
    for table in ("person", "kept"):
        kept.execute(f"ALTER TABLE {table} ADD public_id varchar(12)")
    if engine.name != "postgresql":  # which stores NULL in columns for which an INSERT has no value
        assert "invisible" not in refused(kept, "drop_public_id")["stored-code"]


def test_consent(kept: People) -> None:
    """With consent the migration runs, whatever the trigger then does."""
    kept.add(stored_code="ignore")

    assert kept.state().complete


EVENTS = {
    "INSERT": "INSERT INTO person (name) VALUES ('x')",
    "UPDATE": "UPDATE person SET name = 'x' WHERE id = 1",
    "DELETE": "DELETE FROM person WHERE id = 1",
}


@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
@pytest.mark.parametrize(
    ("event", "row"), [("INSERT", "NEW"), ("UPDATE", "OLD"), ("UPDATE", "NEW"), ("DELETE", "OLD")], ids=str
)
def test_each_event(history: People, engine: Engine, event: str, row: str, when: str) -> None:
    """A trigger of any event that copies the old or the new row by position is named, and fails afterwards."""
    history.write(3)
    copied = f"INSERT INTO kept SELECT * FROM person WHERE id = {row}.id"
    head = f"CREATE TRIGGER keep {when} {event} ON person FOR EACH ROW"
    if engine.name == "postgresql":
        body = f"BEGIN INSERT INTO kept SELECT {row}.*; RETURN {row}; END"
        history.execute(f"CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    trigger = {"postgresql": f"{head} EXECUTE FUNCTION keep()", "sqlite": f"{head} BEGIN {copied}; END"}
    history.execute(trigger.get(engine.name, f"{head} {copied}"))
    history.execute(EVENTS[event])

    assert "keep" in refused(history, update_triggers="fire")["stored-code"]
    history.run("expand_public_id", stored_code="ignore")
    engine.dispose()  # a connection may go on with the trigger as it was compiled
    with pytest.raises(DBAPIError):
        history.execute(EVENTS[event].replace("= 1", "= 2"))


PLPGSQL = "LANGUAGE plpgsql AS $$"
LOOP = "DECLARE n bigint; BEGIN FOR n IN QUERY LOOP NULL; END LOOP; RETURN 1"
FIRES = " CREATE TRIGGER program BEFORE INSERT ON person FOR EACH ROW EXECUTE FUNCTION program()"
PROGRAMS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "postgresql": {
        "function": (f"CREATE FUNCTION program() RETURNS bigint {PLPGSQL} BEGIN RETURN (QUERY); END $$", "FUNCTION"),
        "function in SQL": ("CREATE FUNCTION program() RETURNS bigint LANGUAGE sql AS $$ QUERY $$", "FUNCTION"),
        "loop": (
            f"CREATE FUNCTION program() RETURNS bigint {PLPGSQL} {LOOP}; END $$",
            "FUNCTION",
        ),
        "procedure": (
            f"CREATE PROCEDURE program() {PLPGSQL} DECLARE n bigint; BEGIN QUERY INTO n; END $$",
            "PROCEDURE",
        ),
        "trigger": (
            f"CREATE FUNCTION program() RETURNS trigger {PLPGSQL} BEGIN PERFORM (QUERY); RETURN NEW; END $$;{FIRES}",
            "FUNCTION",
        ),
        "view": ("CREATE VIEW program AS QUERY", "VIEW"),
    },
    "mysql": {
        "function": ("CREATE FUNCTION program() RETURNS bigint READS SQL DATA RETURN (QUERY)", "FUNCTION"),
        "cursor": (
            "CREATE PROCEDURE program() BEGIN DECLARE c CURSOR FOR QUERY; OPEN c; CLOSE c; END",
            "PROCEDURE",
        ),
        "procedure": ("CREATE PROCEDURE program() BEGIN SET @found = (QUERY); END", "PROCEDURE"),
        "event": ("CREATE EVENT program ON SCHEDULE EVERY 1 YEAR DISABLE DO SET @found = (QUERY)", "EVENT"),
        "trigger": ("CREATE TRIGGER program BEFORE INSERT ON person FOR EACH ROW SET @found = (QUERY)", "TRIGGER"),
        "view": ("CREATE VIEW program AS QUERY", "VIEW"),
    },
    "sqlite": {
        "trigger": (
            "CREATE TRIGGER program AFTER INSERT ON person BEGIN INSERT INTO tag (id) QUERY; END",
            "TRIGGER",
        ),
        "view": ("CREATE VIEW program AS QUERY", "VIEW"),
    },
}
"""A kind of stored program with a query, and what a DROP calls it; those of MariaDB are those of MySQL."""
CALLS = {
    "FUNCTION": "SELECT program()",
    "PROCEDURE": "CALL program()",
    "VIEW": "SELECT * FROM program",
    "TRIGGER": "INSERT INTO person (name) VALUES ('x')",
    "EVENT": "SELECT 1",
}
QUERIES = {
    "an alias": "SELECT p.id AS public_id FROM person p JOIN tag t ON t.id = p.id LIMIT 1",
    "an alias that sorts": "SELECT p.id public_id FROM person p ORDER BY public_id LIMIT 1",
    "a column with its table": "SELECT t.public_id FROM person p JOIN tag t ON t.id = p.id LIMIT 1",
    "a column alone": "SELECT public_id FROM person p JOIN tag t ON t.id = p.id LIMIT 1",
}


@pytest.fixture
def tags(history: People) -> Iterator[People]:
    """Create a table of tags with a column ``public_id`` beside the table that gets one."""
    history.execute("DROP TABLE IF EXISTS tag")
    history.execute("CREATE TABLE tag (id bigint, public_id bigint)")
    yield history
    history.execute("DROP TABLE tag")


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
@pytest.mark.parametrize(
    ("database", "kind"),
    [
        *((database, kind) for database, programs in PROGRAMS.items() for kind in programs),
        *(("mariadb", kind) for kind in PROGRAMS["mysql"]),
    ],
    indirect=["database"],
)
def test_name_of_the_column(tags: People, engine: Engine, kind: str, query: str) -> None:
    """A query that has the name of the column for something else goes on, unless the name becomes ambiguous."""
    create, dropped = PROGRAMS.get(engine.name, PROGRAMS["mysql"])[kind]
    call = CALLS["TRIGGER" if kind == "trigger" else dropped]
    # the servers store which column of which table a view shows
    breaks = query == QUERIES["a column alone"] and (kind != "view" or engine.name == "sqlite")
    tags.execute(create.replace("QUERY", query))
    try:
        tags.execute(call)
        if breaks:
            assert "program" in refused(tags)["stored-code"]
        tags.add(**({"stored_code": "ignore"} if breaks else {}))
        engine.dispose()
        with pytest.raises(DBAPIError, match=r"(?i)ambiguous") if breaks and kind != "event" else nullcontext():
            tags.execute(call)
        if not breaks:
            tags.run("drop_public_id")
            engine.dispose()
            tags.execute(call)
    finally:
        if kind == "trigger":
            tags.drop()
        tags.execute(f"DROP {dropped} IF EXISTS program")


@on("postgresql")
def test_first_remedy(kept: People) -> None:
    """The statement that the obstacle names makes the table of the history ready, and old writers go on."""
    obstacle = refused(kept)["stored-code"]
    kept.execute(obstacle.partition("first (")[2].partition("), or")[0])

    kept.add()

    kept.write(2)
    kept.check_complete(2)


@on("postgresql", "mysql", "mariadb")
def test_drop(table: People, engine: Engine) -> None:
    """A trigger that names the column refuses its drop, unless it is dropped first."""
    table.add()
    body = "BEGIN NEW.name := NEW.public_id; RETURN NEW; END"
    if engine.name == "postgresql":
        table.execute(f"CREATE FUNCTION set_name() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
        table.execute("CREATE TRIGGER name BEFORE INSERT ON person FOR EACH ROW EXECUTE FUNCTION set_name()")
    else:
        table.execute("CREATE TRIGGER name BEFORE INSERT ON person FOR EACH ROW SET NEW.name = NEW.public_id")

    assert "name" in refused(table, "drop_public_id")["dependants"]
    table.execute("DROP TRIGGER name" + " ON person; DROP FUNCTION set_name" * (engine.name == "postgresql"))
    table.run("drop_public_id")
    table.check_gone()


@on("postgresql")
def test_dynamic_sql(new_people: Callable[..., People]) -> None:
    """What cannot be read is said in the report of a dry run."""
    people = new_people(0)
    body = "BEGIN EXECUTE format('INSERT INTO %I SELECT $1.*', 'x') USING NEW; RETURN NULL; END"
    people.execute(f"CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    people.execute("CREATE TRIGGER keep AFTER INSERT ON person FOR EACH ROW EXECUTE FUNCTION keep()")

    with pytest.raises(DryRun) as caught:
        people.add(dry_run=True)

    assert caught.value.report.not_examined == (
        "the function keep() of the trigger keep, which executes SQL that it builds as a string",
    )
    people.drop()
    people.execute("DROP FUNCTION keep")


@on("postgresql")
def test_other_language(new_people: Callable[..., People], engine: Engine) -> None:
    """A function that names the table, in a language that is not read, is said to be not examined."""
    people = new_people(0)
    people.execute("CREATE LANGUAGE unread HANDLER plpgsql_call_handler")
    for name, body in (("named", "INSERT INTO person VALUES (1, 'x');"), ("unrelated", "NULL;")):
        people.execute(f"CREATE FUNCTION {name}() RETURNS void LANGUAGE unread AS $$ BEGIN {body} END $$")
    with engine.connect() as connection:
        report = examine(connection, plan_for(people.target, engine.dialect), PHASES["add"])
    people.execute("DROP LANGUAGE unread CASCADE")

    assert report.not_examined == ("the function named(), which is written in unread",)


@on("sqlite")
def test_temporary_triggers(new_people: Callable[..., People], engine: Engine) -> None:
    """Temporary triggers and views of the connection that name the table are said to be not examined."""
    people = new_people(0)
    with engine.connect() as connection:
        for statement in (
            "CREATE TEMP TRIGGER note AFTER INSERT ON person BEGIN INSERT INTO kept VALUES (NEW.id); END",
            "CREATE TEMP VIEW kept AS SELECT * FROM Person",
            "CREATE TEMP VIEW unrelated AS SELECT 1",
        ):
            send(connection, statement)
        report = examine(connection, plan_for(people.target, engine.dialect), PHASES["add"])
        for left in ("TRIGGER note", "VIEW kept", "VIEW unrelated"):
            send(connection, f"DROP {left}")

    assert report.not_examined == ("the trigger note, which is temporary", "the view kept, which is temporary")


OF_SQLITE = {
    "in other letters": (
        ["CREATE TRIGGER keep AFTER INSERT ON PERSON BEGIN INSERT INTO kept SELECT * FROM Person; END"],
        ["the trigger keep of person"],
        [],
    ),
    "fired by another": (
        [
            "CREATE TABLE log (what)",
            "CREATE TRIGGER first AFTER INSERT ON person BEGIN INSERT INTO log VALUES (1); END",
            "CREATE TRIGGER keep AFTER INSERT ON log BEGIN INSERT INTO kept SELECT * FROM person; END",
        ],
        ["the trigger keep of log"],
        [],
    ),
    "beside a generated column": (
        [
            "ALTER TABLE person ADD COLUMN twice AS (id * 2)",
            "ALTER TABLE kept ADD COLUMN twice",
            "CREATE TRIGGER keep AFTER DELETE ON person BEGIN INSERT INTO kept SELECT * FROM person; END",
            "CREATE TRIGGER note AFTER INSERT ON person BEGIN INSERT INTO kept SELECT * FROM person; END",
        ],
        ["the trigger keep of person", "the trigger note of person"],
        [],
    ),
    "of a view": (
        [
            "CREATE VIEW names AS SELECT name FROM person",
            "CREATE TRIGGER named INSTEAD OF INSERT ON names BEGIN INSERT INTO person (name) VALUES (NEW.name); END",
        ],
        [],
        [],
    ),
    "with a function of the application": (
        [
            "CREATE VIEW names AS SELECT f(name) FROM PERSON",
            "CREATE VIEW others AS SELECT f(id) FROM kept",
            "CREATE TRIGGER named AFTER INSERT ON person BEGIN SELECT f(NEW.name) FROM person; END",
        ],
        [],
        [
            "the trigger named of person, as it needs the application (no such function: f)",
            "the view names, as it needs the application (no such function: f)",
        ],
    ),
}


@on("sqlite")
@pytest.mark.parametrize("kind", OF_SQLITE)
def test_programs_of_sqlite(history: People, engine: Engine, kind: str) -> None:
    """What breaks on SQLite is named once, and what needs the application is said to be not examined."""
    statements, broken, not_examined = OF_SQLITE[kind]
    with engine.connect() as connection:
        for statement in statements:
            send(connection, statement)
        report = examine(connection, plan_for(history.target, engine.dialect), PHASES["add"])
        connection.rollback()

    assert sorted(obstacle.problem.partition(":")[0] for obstacle in report.obstacles) == broken
    assert sorted(report.not_examined) == not_examined


@on("postgresql")
@pytest.mark.parametrize("of", ["visit", "visit_1"])
@pytest.mark.parametrize("each", ["ROW", "STATEMENT"])
def test_triggers_of_partitions(engine: Engine, of: str, each: str) -> None:
    """A trigger of a partition, or of the partitioned table, for rows or for statements, is read."""
    refers = "REFERENCING NEW TABLE AS added" if each == "STATEMENT" else ""
    rows = "SELECT * FROM added" if each == "STATEMENT" else "SELECT NEW.*"
    body = f"BEGIN INSERT INTO kept {rows}; RETURN NULL; END"
    with engine.connect() as connection:
        for statement in (
            "CREATE TABLE visit (id bigint, year int, PRIMARY KEY (id, year)) PARTITION BY LIST (year)",
            "CREATE TABLE visit_1 PARTITION OF visit FOR VALUES IN (1)",
            "CREATE TABLE kept (id bigint, year int)",
            f"CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
            f"CREATE TRIGGER keep AFTER INSERT ON {of} {refers} FOR EACH {each} EXECUTE FUNCTION keep()",
        ):
            send(connection, statement)
        target = PublicIdColumn.of("visit", unique_with=("year",))
        report = examine(connection, plan_for(target, engine.dialect), PHASES["add"])
        connection.rollback()

    (obstacle,) = report.obstacles
    assert obstacle.code == "stored-code"
    assert "the function keep() of the trigger keep has 'INSERT INTO kept SELECT" in str(obstacle)


@on("mysql", "mariadb")
def test_events_and_other_databases(new_people: Callable[..., People], engine: Engine) -> None:
    """Events, and programs of other databases, are read; MariaDB's triggers of other databases are not examined."""
    people, own, other = new_people(0), engine.url.database, f"{engine.url.database}_kept"
    people.execute(f"CREATE DATABASE {other}")
    into = f"INSERT INTO {own}.person VALUES (1, 'x')"
    try:
        people.execute("CREATE EVENT yearly ON SCHEDULE EVERY 1 YEAR DISABLE DO INSERT INTO person VALUES (1, 'x')")
        people.execute(f"CREATE TABLE {other}.source (id int)")
        people.execute(f"CREATE TRIGGER {other}.copied AFTER INSERT ON {other}.source FOR EACH ROW {into}")
        people.execute(f"CREATE PROCEDURE {other}.written() {into}")
        people.execute(f"CREATE EVENT {other}.weekly ON SCHEDULE EVERY 1 WEEK DISABLE DO {into}")
        with engine.connect() as connection:
            report = examine(connection, plan_for(people.target, engine.dialect), PHASES["add"])
    finally:
        people.execute(f"DROP DATABASE {other}")
        people.execute("DROP EVENT IF EXISTS yearly")

    found = {str(obstacle).partition(" has ")[0] for obstacle in report.obstacles}
    triggers = {f"the trigger {other}.copied"} if engine.name == "mysql" else set[str]()
    assert found == {"the event yearly", f"the procedure {other}.written", f"the event {other}.weekly", *triggers}
    assert report.not_examined == (() if engine.name == "mysql" else ("the triggers of other databases",))


@on("postgresql", "mysql", "mariadb")
def test_role_without_rights(table: People, engine: Engine) -> None:
    """A role that may not read the table gets a report of what it lacks."""
    with user_with(engine) as url:
        reader = create_engine(url)
        if engine.name != "postgresql":
            with engine.begin() as connection:
                connection.exec_driver_sql(f"GRANT INSERT ON person TO {url.username}")
        with reader.connect() as connection:
            report = examine(connection, plan_for(table.target, connection.dialect), PHASES["add"])
        reader.dispose()

    assert "missing-right" in {obstacle.code for obstacle in report.obstacles}
    assert engine.name == "postgresql" or "TRIGGER" in "".join(report.not_examined)


@on("postgresql")
def test_statistics_that_are_not_loaded(table: People) -> None:
    """A plan goes on if ``pg_stat_statements`` is created, and its library is not loaded."""
    table.execute("CREATE EXTENSION pg_stat_statements")
    try:
        with pytest.raises(DryRun) as caught:
            table.add(dry_run=True)
    finally:
        table.execute("DROP EXTENSION pg_stat_statements")

    assert caught.value.report.warnings == ()
