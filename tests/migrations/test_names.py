"""Tables, columns and schemas can have any name that the database accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from support.applied_remedies import paste
from support.clients import command_in, run_script
from support.odd_names import NAMES, beside
from support.people import People, send

from sqlalchemy_public_id import ConfigurationError, NanoId, audit

pytestmark = pytest.mark.backend

FORMAT = NanoId(prefix="p", separator="$public_id$", alphabet="ABCDEFGHIJKLMNOPQRSTUVWXYZ'%{}\":;`?")
ROWS = 7
SERVERS = ("postgresql", "mysql", "mariadb")
ODD = [pytest.param(name, id=what) for what, name in NAMES.items()]


@pytest.fixture(params=ODD)
def name(request: pytest.FixtureRequest, database: str) -> str:
    """Each name, except those that SQLAlchemy does not reflect."""
    if "\n" in request.param and database in {"mysql", "mariadb"}:
        pytest.skip(f"SQLAlchemy does not reflect it from {database}; test_refused has it")
    return str(request.param)


@pytest.fixture
def odd_people(new_people: Callable[..., People]) -> Callable[..., People]:
    """Create a table, and a column of public ids in it, with odd names."""

    def make(name: str, **options: Any) -> People:
        return new_people(ROWS, table=name, column=beside(name), **{"format": FORMAT, **options})

    return make


@pytest.fixture
def schema(engine: Engine, name: str, tmp_path: Path) -> Iterator[str]:
    """A schema with the odd name; on SQLite, an attached database."""
    if engine.name == "sqlite":
        attach = f"ATTACH ? AS {engine.dialect.identifier_preparer.quote_identifier(name)}"
        file = str(tmp_path / "other.db")
        event.listen(engine, "connect", lambda connection, record: connection.execute(attach, (file,)))
        yield name
        return
    made = name if engine.name == "postgresql" else f"{engine.url.database}_{name}"[:64].rstrip()
    quoted = People(engine, table="x", schema=made).name.removesuffix(".x")
    with engine.begin() as connection:
        send(connection, f"CREATE SCHEMA {quoted}")
    yield made
    with engine.begin() as connection:
        send(connection, f"DROP SCHEMA {quoted}" + " CASCADE" * (engine.name == "postgresql"))


def test_operations(odd_people: Callable[..., People], schema: str, name: str) -> None:
    """Each operation, and each script with its command, works with any name, up and down, and leaves nothing behind."""
    people = odd_people(name, schema=schema, comment=f"{name} of %s {{x}} $public_id$ :x")
    people.add()
    people.check_complete(ROWS)
    people.run("loosen_public_id")
    people.check_expanded()
    people.run("contract_public_id")
    people.check_complete(ROWS)
    assert looked_at(people).at_least("warning") == []
    people.run("drop_public_id")
    people.check_gone()

    if people.engine.name in SERVERS:
        sql = people.script("expand_public_id")
        run_script(people.engine, sql)
        people.check_expanded()
        words = command_in(sql)
        options = [words[words.index(f"--{option}") + 1] for option in ("schema", "column")]
        assert [*options, words[-1]] == [schema, people.column, name]
        run_script(people.engine, people.script("drop_public_id"))
        people.check_gone()


def looked_at(people: People) -> audit.Report:
    return audit.run(
        people.engine,
        schema=people.schema,
        tables=[people.table],
        column=people.column,
        formats={people.table: FORMAT},
        defaults=True,
    )


def test_audit(odd_people: Callable[..., People], engine: Engine, name: str) -> None:
    """An audit of a table with any name finds what is wrong, and nothing more; its remedies can be pasted."""
    people = odd_people(name)
    people.run("expand_public_id")

    found = {each.problem: each for each in looked_at(people).findings}
    paste(engine, found["missing-ids"].remedy)
    paste(engine, found["unique-missing"].remedy)

    assert found.keys() >= {"missing-ids", "nullable", "unique-missing"}
    assert ("default-missing" in found) == (engine.name == "sqlite")
    assert looked_at(people).at_least("warning") == []


@pytest.mark.parametrize(
    ("databases", "refused", "wrong"),
    [
        (("postgresql",), "n" * 64, "more than 63 bytes"),
        (("postgresql",), "ü" * 32, "more than 63 bytes"),
        (("mysql", "mariadb"), "n" * 65, "more than 64 characters"),
        (("mysql", "mariadb"), "blank ", "ends with a blank"),
        (("mysql", "mariadb"), "new\nline", "several lines"),
        (("postgresql", "mysql", "mariadb", "sqlite"), "nul\0", "NUL"),
        (("postgresql", "mysql", "mariadb", "sqlite"), "", "is empty"),
        (("postgresql", "mysql", "mariadb", "sqlite"), "line\n", "ends with a newline"),
    ],
)
@pytest.mark.parametrize("place", ["table", "column", "schema"])
def test_refused(
    engine: Engine, odd_people: Callable[..., People], databases: tuple[str, ...], refused: str, wrong: str, place: str
) -> None:
    """A name that the database does not accept is refused with the reason, before anything is done."""
    if engine.name not in databases or (place == "schema" and (not refused or "li" in refused)):
        pytest.skip("is a name here")
    people = odd_people("person")
    setattr(people, place, refused)

    with pytest.raises(ConfigurationError, match=f"{place}.*{wrong}"):
        people.add()
