"""A backfill respects what an UPDATE would do to a row by itself: columns with ON UPDATE, and triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from support.marks import on
from support.people import People, send
from support.rights import USER, user_with

from sqlalchemy_public_id import NanoId, backfill
from sqlalchemy_public_id.errors import MigrationRefused

pytestmark = pytest.mark.backend

OLD = "2001-01-01 00:00:00"


@pytest.fixture
def people(engine: Engine) -> Iterator[People]:
    """A table of people with the time of their last change, and a table that counts changes."""
    made = People(engine)
    made.execute("DROP TABLE IF EXISTS changes")
    made.execute("CREATE TABLE changes (person_id integer)")
    by_itself = " ON UPDATE CURRENT_TIMESTAMP" if engine.name in {"mysql", "mariadb"} else ""
    made.create(200, f", changed timestamp DEFAULT '{OLD}'{by_itself}")
    yield made
    made.drop()
    made.execute("DROP TABLE changes")


def changed(people: People) -> int:
    """Return how many rows have another time of change than at the beginning."""
    with people.engine.connect() as connection:
        return int(send(connection, f"SELECT count(*) FROM person WHERE changed <> '{OLD}'").scalar_one())


def fired(people: People) -> int:
    with people.engine.connect() as connection:
        return int(send(connection, "SELECT count(*) FROM changes").scalar_one())


TRIGGERS = {
    "postgresql": [
        (
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN NEW.changed = now(); INSERT INTO changes VALUES (NEW.id); RETURN NEW; END$$"
        ),
        "CREATE TRIGGER note_change BEFORE UPDATE {of} ON person FOR EACH ROW EXECUTE FUNCTION note()",
    ],
    "sqlite": [
        (
            'CREATE TRIGGER "note_change" AFTER UPDATE {of} ON person BEGIN INSERT INTO changes VALUES (NEW.id); '
            "UPDATE person SET changed = CURRENT_TIMESTAMP WHERE id = NEW.id AND changed = OLD.changed; END"
        )
    ],
}
MYSQL = ["CREATE TRIGGER note_change AFTER UPDATE ON person FOR EACH ROW INSERT INTO changes VALUES (NEW.id)"]


def create_trigger(people: People, of: str = "") -> None:
    for statement in TRIGGERS.get(people.engine.name, MYSQL):
        people.execute(statement.replace("{of}", of))


@pytest.fixture(autouse=True)
def without_function(engine: Engine) -> Iterator[None]:
    yield
    if engine.name == "postgresql":
        with engine.begin() as connection:
            send(connection, "DROP FUNCTION IF EXISTS note() CASCADE")


@on("mysql", "mariadb")
@pytest.mark.parametrize(
    "options", [{}, {"format": NanoId(length=2), "on_duplicate": "replace"}], ids=["", "duplicates"]
)
def test_on_update(people: People, options: dict[str, Any]) -> None:
    """Columns with ON UPDATE CURRENT_TIMESTAMP keep their values, in the backfill and where ids are replaced."""
    people.options.update(options)
    people.add()

    assert changed(people) == 0
    people.check_complete(200)


@on("mysql", "mariadb")
@pytest.mark.parametrize("run", ["operation", "backfill"])
def test_dates_that_are_zero(people: People, run: str) -> None:
    """A zero date in a column with ON UPDATE CURRENT_TIMESTAMP is kept, although new rows may not have one."""
    with people.engine.connect() as connection:
        send(connection, "SET SESSION sql_mode = ''")
        send(connection, "UPDATE person SET changed = '0000-00-00 00:00:00' WHERE id < 3")
        connection.commit()
        connection.invalidate()
    if run == "backfill":
        people.execute("ALTER TABLE person ADD COLUMN public_id varchar(12)")

    people.add() if run == "operation" else backfill.run(people.engine, "person")

    assert changed(people) == 2
    assert None not in people.ids()


@pytest.mark.parametrize("run", ["operation", "backfill"])
def test_triggers_are_not_fired_in_silence(people: People, run: str) -> None:
    """A table with a trigger for UPDATE is refused by default, and nothing is changed."""
    create_trigger(people)
    if run == "backfill":
        people.execute("ALTER TABLE person ADD COLUMN public_id varchar(12)")

    with pytest.raises(
        MigrationRefused, match='the trigger note_change once for each row; pass update_triggers="fire"'
    ):
        people.add() if run == "operation" else backfill.run(people.engine, "person")

    assert ("public_id" in people.columns()) == (run == "backfill")
    assert fired(people) == 0


@on("sqlite")
def test_triggers_of_a_table_with_all_its_ids(people: People) -> None:
    """A backfill that has nothing to do is not refused."""
    people.add()
    create_trigger(people)

    assert backfill.run(people.engine, "person").filled == 0


def test_triggers_are_fired_on_request(people: People) -> None:
    """``update_triggers="fire"`` lets the triggers fire, once for each row."""
    create_trigger(people)

    people.add(update_triggers="fire")

    assert fired(people) == 200
    people.check_complete(200)


@on("postgresql", "sqlite")
@pytest.mark.parametrize("options", [{}, {"online": False}], ids=["online", "offline"])
def test_triggers_are_skipped_on_request(people: People, options: dict[str, Any]) -> None:
    """``update_triggers="skip"`` skips the triggers, which fire again afterwards."""
    create_trigger(people)

    people.add(update_triggers="skip", **options)

    assert (fired(people), changed(people)) == (0, 0)
    people.check_complete(200)
    people.execute("UPDATE person SET name = 'Ada' WHERE id = 1")
    assert (fired(people), changed(people)) == (1, 1)


REPLACED = {
    "on_duplicate": "UPDATE person SET public_id = 'izkpm55j334u' WHERE id < 3",
    "on_invalid": "UPDATE person SET public_id = 'invalid' WHERE id = 1",
}
"""Option → the statement after which it replaces ids."""


@pytest.mark.parametrize("option", REPLACED)
def test_triggers_and_ids_that_are_replaced(people: People, option: str) -> None:
    """Ids of a table with triggers for UPDATE are not replaced without consent; skipped triggers do not fire."""
    people.add()
    people.run("loosen_public_id")
    people.execute(REPLACED[option])
    create_trigger(people)

    with pytest.raises(MigrationRefused, match="note_change"):
        people.run("contract_public_id", **{option: "replace"})
    if people.engine.name in {"sqlite", "postgresql"}:
        people.run("contract_public_id", update_triggers="skip", **{option: "replace"})
        people.check_complete(200)

    assert fired(people) == 0


@on("mysql", "mariadb")
def test_triggers_that_cannot_be_skipped(people: People) -> None:
    """MySQL and MariaDB cannot skip triggers: ``"skip"`` is refused, and nothing is changed."""
    create_trigger(people)

    with pytest.raises(MigrationRefused, match="cannot skip the trigger note_change"):
        people.add(update_triggers="skip")

    assert "public_id" not in people.columns()


@pytest.mark.parametrize(
    ("database", "of", "then"),
    [
        *((database, "", "DELETE FROM person") for database in ("sqlite", "postgresql", "mysql", "mariadb")),
        *((database, "OF name, changed", "SELECT 1") for database in ("sqlite", "postgresql")),
        ("postgresql", "", "ALTER TABLE person DISABLE TRIGGER note_change"),
        ("postgresql", "", "ALTER TABLE person ENABLE REPLICA TRIGGER note_change"),
    ],
    indirect=["database"],
)
def test_triggers_that_would_not_fire(people: People, of: str, then: str) -> None:
    """A trigger is no obstacle if the table is empty, or if it is for other columns or does not fire in the session."""
    create_trigger(people, of)
    people.execute(then)

    people.add()

    assert fired(people) == 0


@on("postgresql")
def test_triggers_that_fire_always(people: People) -> None:
    """Triggers that fire for replicated changes, too, cannot be skipped."""
    create_trigger(people)
    people.execute("ALTER TABLE person ENABLE ALWAYS TRIGGER note_change")

    with pytest.raises(MigrationRefused, match="fires for replicated changes, too"):
        people.add(update_triggers="skip")


@on("postgresql")
def test_rules(people: People) -> None:
    """A rule for UPDATE is an obstacle like a trigger."""
    people.execute("CREATE RULE note_rule AS ON UPDATE TO person DO ALSO INSERT INTO changes VALUES (1)")

    with pytest.raises(MigrationRefused, match="note_rule"):
        people.add()


@on("postgresql")
def test_right_to_skip(people: People, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A role that may not skip triggers is refused before anything is changed; the error names the missing right."""
    if (engine.dialect.server_version_info or (0,))[0] < 15:
        pytest.skip("PostgreSQL 15 has the GRANT")
    create_trigger(people)
    with user_with(engine, "ALL", "SCHEMA public") as url:
        owner = People(new_engine(engine.name, url))
        people.execute(f"ALTER TABLE person OWNER TO {USER}")
        with pytest.raises(MigrationRefused, match="GRANT SET ON PARAMETER session_replication_role"):
            owner.add(update_triggers="skip")
        people.execute(f"GRANT SET ON PARAMETER session_replication_role TO {USER}")
        owner.add(update_triggers="skip")
        people.execute(f"REASSIGN OWNED BY {USER} TO CURRENT_USER")

    assert fired(people) == 0
    people.check_complete(200)
