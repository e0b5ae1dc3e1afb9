"""Tables of cases in which two things of a kind exist at once: the library is asked, and has to take the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine
from support.marks import SERVERS
from support.people import People, send

OWN = "uq_person_public_id"
"""The name that a migration gives the unique index."""
ALL = ("sqlite", *SERVERS)
NAMESAKE = "CREATE TABLE {other}.person (id int, name varchar(9), public_id varchar(12))"
"""The statement that creates the table ``person`` of the other schema."""
MYSQL = ("mysql", "mariadb")
PARTIAL = ("sqlite", "postgresql")
"""The databases with indexes of some rows, and with one name for indexes of all tables."""


@dataclass(frozen=True)
class OfTwo:
    """Two things of a kind beside a column of public ids, a question to the library, and the right answer."""

    things: tuple[str, ...]
    """The statements that make the two things; ``{other}`` is another schema, and on MySQL another database."""
    ask: Callable[[People], object]
    taken: object
    on: tuple[str, ...] = ALL
    undo: tuple[str, ...] = ()
    """The statements that drop what is neither the table nor in the other schema."""


def of_two(cases: Mapping[str, OfTwo]) -> pytest.MarkDecorator:
    """Run a test with the arguments *database* and *case* for each case, on each of its databases."""
    runs = [
        pytest.param(database, case, id=f"{name}-{database}") for name, case in cases.items() for database in case.on
    ]
    return pytest.mark.parametrize(("database", "case"), runs, indirect=["database"])


def answer(case: OfTwo, new_people: Callable[..., People]) -> Any:
    """Create people with a column of ids that are not unique yet, make the two things, and ask the library.

    Beside the people there is a table ``visit`` with a column ``person``.
    """
    people = new_people(more=", tenant int NOT NULL DEFAULT 1")
    people.run("expand_public_id")
    with _visits(people.engine), _other_schema(people.engine, case) as other:
        try:
            for statement in case.things:
                people.execute(statement.replace("{other}", other))
            return case.ask(people)
        finally:
            for statement in case.undo:
                people.execute(statement)


def unique(name: str, columns: str = "public_id", rest: str = "", table: str = "person") -> str:
    """Return the statement that creates a unique index."""
    return f"CREATE UNIQUE INDEX {name} ON {table} ({columns}){rest}"


def other_name(engine: Engine) -> str:
    """Return the name of the schema, or the database, that ``{other}`` stands for."""
    return f"{engine.url.database}_other"


@contextmanager
def _visits(engine: Engine) -> Iterator[None]:
    _execute(engine, "CREATE TABLE visit (person bigint)")
    try:
        yield
    finally:
        _execute(engine, "DROP TABLE visit")


@contextmanager
def _other_schema(engine: Engine, case: OfTwo) -> Iterator[str]:
    """Create the other schema if a case names it."""
    name = other_name(engine)
    if not any("{other}" in statement for statement in case.things):
        yield name
        return
    cascade = " CASCADE" if engine.name == "postgresql" else ""
    _execute(engine, f"CREATE SCHEMA {name}")
    try:
        yield name
    finally:
        _execute(engine, f"DROP SCHEMA {name}{cascade}")


def _execute(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        send(connection, statement)
