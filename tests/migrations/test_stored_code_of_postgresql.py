"""The catalogs of PostgreSQL say which functions see the rows of a table, and by which names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine
from support.marks import on
from support.people import People, send

from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine

pytestmark = [pytest.mark.backend, on("postgresql")]

COPY = "BEGIN INSERT INTO kept SELECT {}; RETURN NULL; END"
HAS = "has 'INSERT INTO kept SELECT"


def function(name: str, body: str, returns: str = "trigger", arguments: str = "", language: str = "plpgsql") -> str:
    return f"CREATE FUNCTION {name}({arguments}) RETURNS {returns} LANGUAGE {language} AS $$ {body} $$"


def trigger(name: str, on_: str = "person", event: str = "INSERT", call: str = "seen()", each: str = "ROW") -> str:
    return f"CREATE TRIGGER {name} AFTER {event} ON {on_} FOR EACH {each} EXECUTE FUNCTION {call}"


CASES: dict[str, tuple[list[str], str, list[str]]] = {
    "two triggers": (
        [function("seen", COPY.format("NEW.*")), trigger("b"), trigger("a")],
        "add",
        [f"the function seen() of the triggers a, b {HAS} NEW.*'"],
    ),
    "a trigger that is off": (
        [function("seen", COPY.format("NEW.*")), trigger("a"), "ALTER TABLE person DISABLE TRIGGER a"],
        "add",
        [],
    ),
    "a trigger that is always on": (
        [function("seen", COPY.format("NEW.*")), trigger("a"), "ALTER TABLE person ENABLE ALWAYS TRIGGER a"],
        "add",
        [f"the function seen() of the trigger a {HAS} NEW.*'"],
    ),
    "old rows of a statement": (
        [
            function("seen", COPY.format("* FROM gone")),
            trigger("a", "person REFERENCING OLD TABLE AS gone", "DELETE", each="STATEMENT"),
        ],
        "add",
        [f"the function seen() of the trigger a {HAS} * FROM gone'"],
    ),
    "a trigger of another table": (
        [
            function("seen", "BEGIN PERFORM id FROM person; INSERT INTO kept SELECT NEW.*; RETURN NULL; END"),
            "CREATE TABLE another (id bigint, name text)",
            trigger("a", "another"),
        ],
        "add",
        [],
    ),
    "a row as an argument": (
        [function("seen", "BEGIN INSERT INTO kept SELECT r.*; END", "void", "n int, r person")],
        "add",
        [f"the function seen(integer,person) {HAS} r.*'"],
    ),
    "a row of another table as an argument": (
        [function("seen", "BEGIN PERFORM id FROM person; INSERT INTO kept SELECT r.*; END", "void", "r kept")],
        "add",
        [],
    ),
    "rows that a function returns": (
        [
            function("seen", "SELECT * FROM person", "SETOF person", language="sql"),
            function("kept_too", "BEGIN PERFORM id FROM person; INSERT INTO kept SELECT * FROM seen(); END", "void"),
        ],
        "add",
        ["the function kept_too() has 'INSERT INTO kept SELECT * FROM seen()'"],
    ),
    "declared columns": (
        [function("seen", "SELECT * FROM person", "TABLE (a bigint, b varchar)", language="sql")],
        "add",
        ["the function seen() has 'SELECT * FROM person'"],
    ),
    **{
        f"columns in {arguments}": (
            [function("seen", "SELECT id, name FROM person; SELECT * FROM person", "record", arguments, "sql")],
            "add",
            [f"the function seen({given}) has 'SELECT * FROM person'"],
        )
        for arguments, given in {
            "OUT a bigint, OUT b varchar": "",
            "INOUT a bigint, OUT b varchar": "bigint",
            "INOUT a bigint, INOUT b varchar": "bigint,character varying",
            "OUT a bigint, OUT b varchar, IN c integer": "integer",
        }.items()
    },
    "the column of an argument": (
        [function("seen", "SELECT $1.public_id", "text", "person", language="sql")],
        "drop",
        ["the function seen(person) needs the column"],
    ),
    "the column of a row in parentheses": (
        [function("seen", "BEGIN PERFORM length((NEW).public_id); RETURN NULL; END"), trigger("a")],
        "drop",
        ["the function seen() of the trigger a needs the column"],
    ),
    "the column in a condition": (
        [function("seen", "BEGIN UPDATE person SET name = 'x' WHERE (public_id = 'x' OR id = 2); END", "void")],
        "drop",
        ["the function seen() needs the column"],
    ),
    "the name as an argument of a trigger": (
        [function("seen", "BEGIN RETURN NULL; END"), trigger("a", call="seen('x', 'public_id')")],
        "drop",
        ["the trigger a needs the column"],
    ),
    "another name as an argument of a trigger": (
        [function("seen", "BEGIN RETURN NULL; END"), trigger("a", call="seen('public_id_of')")],
        "drop",
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_functions(new_people: Callable[..., People], engine: Engine, case: str) -> None:
    """Each function that sees the rows is named with its triggers, and no other one."""
    statements, operation, found = CASES[case]
    people = new_people(0, more=", public_id varchar(12)" if operation == "drop" else "")
    phases: dict[str, Any] = PHASES
    with engine.connect() as connection:
        for statement in ("CREATE TABLE kept (id bigint, name varchar(50))", *statements):
            send(connection, statement)
        report = examine(connection, plan_for(people.target, engine.dialect), phases[operation])
        connection.rollback()

    assert [obstacle.problem.partition(": ")[0] for obstacle in report.obstacles] == found


def test_table_without_columns(new_people: Callable[..., People]) -> None:
    """A table without columns, which PostgreSQL accepts, gets public ids, and loses them again."""
    people = new_people(0)
    people.execute("DROP TABLE person")
    people.execute("CREATE TABLE person ()")
    people.execute("INSERT INTO person DEFAULT VALUES")

    people.add()
    assert people.state().complete
    people.run("drop_public_id")

    assert people.columns() == []
