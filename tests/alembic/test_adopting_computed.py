"""Ids that were computed from the key are stored once, while two versions of the program are at work at each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, Integer, String, inspect, select, text
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column
from support.marks import on
from support.people import migrating
from support.projects import Project

from sqlalchemy_public_id import NanoId, lookup, public_id_column
from sqlalchemy_public_id.alembic import add_public_id, contract_public_id, expand_public_id
from sqlalchemy_public_id.errors import BackfillIncomplete, MigrationRefused
from sqlalchemy_public_id.formats.alphabets import BASE62

pytestmark = pytest.mark.backend

HASHID = NanoId(length=8, alphabet=BASE62)
FORMAT = NanoId(prefix="tick").accepting(HASHID)
N, FACTOR = 62**8, 123_456_789_012_347


def encode(key: int) -> str:
    number, digits = key * FACTOR % N, ""
    for _ in range(8):
        number, digit = divmod(number, 62)
        digits = BASE62[digit] + digits
    return digits


def decode(link: str) -> int:
    if not HASHID.is_valid(link):
        return 0
    number = sum(BASE62.index(digit) * 62**place for place, digit in enumerate(reversed(link)))
    key = number * pow(FACTOR, -1, N) % N
    return key if key < 2**31 else 0


class Before(DeclarativeBase): ...


class Computes(Before):
    __tablename__ = "ticket"
    id = mapped_column(Integer, primary_key=True)


class Between(DeclarativeBase): ...


class ReadsBoth(Between):
    __tablename__ = "ticket"
    id = mapped_column(Integer, primary_key=True)
    public_id = mapped_column(String(17))


class After(DeclarativeBase): ...


class Generates(After):
    __tablename__ = "ticket"
    id = mapped_column(Integer, primary_key=True)
    public_id = public_id_column(FORMAT)


class Links:
    """All links that any version has shown, and the keys of their rows."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.keys: dict[str, int] = {}

    def insert(self, model: Any) -> None:
        with Session(self.engine) as session:
            row = model()
            session.add(row)
            session.commit()
            self.keys[self.link(row)] = row.id

    def link(self, row: Any) -> str:
        return getattr(row, "public_id", None) or encode(row.id)

    def find(self, session: Session, model: Any, link: str) -> Any:
        if model is Computes:
            return session.get(model, decode(link))
        stored = session.scalars(select(model).where(model.public_id == link)).one_or_none()
        computed = session.get(model, decode(link))
        return stored or (computed if computed is not None and computed.public_id is None else None)

    def take_turns(self, *models: Any) -> None:
        """Let all *models* insert, show all rows, and follow all links."""
        for model in models * 2:
            self.insert(model)
        for model in models:
            with Session(self.engine) as session:
                self.keys.update((self.link(row), row.id) for row in session.scalars(select(model)))
        for model in models:
            with Session(self.engine) as session:
                assert {link: self.find(session, model, link).id for link in self.keys} == self.keys


def fill(engine: Engine) -> None:
    table = Generates.metadata.tables["ticket"]
    with engine.begin() as connection:
        for key in connection.scalars(select(table.c.id).where(table.c.public_id.is_(None))).all():
            connection.execute(table.update().where(table.c.id == key).values(public_id=encode(key)))


def run(engine: Engine, operation: Any, **options: Any) -> None:
    with engine.connect() as connection, migrating(connection) as op:
        operation(op, "ticket", format=FORMAT, **options)


def test_computed_ids(new_project: Callable[..., Project], engine: Engine) -> None:
    """At each step all versions at work show the same link for a row, and in the end the column holds all links."""
    project, links = new_project(), Links(engine)
    Before.metadata.create_all(engine)
    links.take_turns(Computes)

    run(engine, expand_public_id, server_default="none")
    links.take_turns(Computes)
    assert project.differences(Between.metadata) == []
    links.take_turns(Computes, ReadsBoth)
    links.take_turns(ReadsBoth, Generates)
    with pytest.raises(BackfillIncomplete):
        run(engine, contract_public_id, server_default="none")
    fill(engine)
    links.take_turns(Generates)
    run(engine, contract_public_id, server_default="none")

    assert project.differences(After.metadata) == []
    assert project.check(After.metadata) is None
    with Session(engine) as session:
        found: dict[str, Any] = lookup.get_many(session, Generates, links.keys)
        assert {link: row.id for link, row in found.items()} == links.keys
        row = Generates()
        session.add(row)
        session.commit()
        assert FORMAT.prefix is not None
        assert row.public_id.startswith("tick_")
        assert lookup.get(session, Generates, encode(row.id)) is None


# --- strings by hand

NUMBERED = NanoId(prefix="INV", separator="-", length=4, alphabet="0123456789")
INVOICE = NanoId(prefix="inv").accepting(NUMBERED)
BY_HAND = ["INV-0001", "INV-0002", "INV-0002", "see Ada", None]


@pytest.fixture
def invoices(new_project: Callable[..., Project], engine: Engine) -> Project:
    project = new_project()
    key = {"sqlite": "integer PRIMARY KEY NOT NULL", "postgresql": "serial PRIMARY KEY"}
    project.execute(
        f"CREATE TABLE invoice (id {key.get(engine.name, 'integer AUTO_INCREMENT PRIMARY KEY')}, number varchar(30))"
    )
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO invoice (number) VALUES (:n)"), [{"n": number} for number in BY_HAND])
    return project


def adopt(engine: Engine, **options: Any) -> None:
    with engine.connect() as connection, migrating(connection) as op:
        add_public_id(op, "invoice", "number", format=INVOICE, collation="bytes", **options)


def numbers(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [*connection.scalars(text("SELECT number FROM invoice ORDER BY id"))]


def test_by_hand_is_refused(invoices: Project, engine: Engine) -> None:
    """Duplicates and strings that are no ids are refused together, and nothing was changed."""
    with pytest.raises(MigrationRefused) as caught:
        adopt(engine)

    assert [obstacle.code for obstacle in caught.value.obstacles] == ["duplicates", "invalid-ids"]
    assert numbers(engine) == BY_HAND


@pytest.mark.parametrize("on_invalid", ["keep", "replace"])
def test_by_hand_with_consent(invoices: Project, engine: Engine, on_invalid: Any) -> None:
    """With consent, only rows without an id, duplicates and invalid strings get new ones; both programs go on."""
    adopt(engine, on_duplicate="replace", on_invalid=on_invalid)

    found = numbers(engine)
    assert found[:2] == BY_HAND[:2]
    assert (found[3] == "see Ada") == (on_invalid == "keep")
    assert all(number.startswith("inv_") for number in (found[2], found[4]))
    invoices.execute("INSERT INTO invoice (number) VALUES ('INV-0003')")
    invoices.execute("INSERT INTO invoice (id) VALUES (100)")
    assert [INVOICE.is_valid(number) for number in numbers(engine)[5:]] == [True, True]
    with engine.connect() as connection:
        assert not next(each for each in inspect(connection).get_columns("invoice") if each["name"] == "number")[
            "nullable"
        ]


@on("mysql", "mariadb")
def test_letters_beyond_ascii(invoices: Project, engine: Engine) -> None:
    """A string that the column of ids cannot store is an obstacle, and no error in the middle of the migration."""
    invoices.execute("DELETE FROM invoice")
    invoices.execute("INSERT INTO invoice (number) VALUES ('für Ada')")

    with pytest.raises(MigrationRefused, match="für Ada"):
        adopt(engine, on_invalid="keep")

    assert numbers(engine) == ["für Ada"]
