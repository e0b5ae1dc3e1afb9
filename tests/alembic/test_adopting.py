"""Ids that existed before the library: the model adopts them, while the old program is still running."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import CHAR, Engine, Integer, String, Uuid, inspect, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on
from support.people import migrating
from support.projects import Project, upgrade_of
from support.raw_uuids import HYPHENATED, RawUuid, of_uuid, type_of_uuid

from sqlalchemy_public_id import NanoId, Uuid4, Uuid7, lookup, public_id_column
from sqlalchemy_public_id.alembic import add_public_id
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats.alphabets import URLSAFE64

pytestmark = pytest.mark.backend


NANOID = NanoId(length=21, alphabet=URLSAFE64)


class Programs:
    """The old program, which generates ids itself, and the new one, which adopts them; both use the column ``code``."""

    def __init__(
        self, engine: Engine, type_: Any, make: Callable[[], Any] | None, format: Format, **options: Any
    ) -> None:
        class Before(DeclarativeBase): ...

        class Old(Before):
            __tablename__ = "invoice"
            id = mapped_column(Integer, primary_key=True)
            code = mapped_column(type_, default=make, unique=True, **{"nullable": False, **options})

        class After(DeclarativeBase): ...

        class New(After):
            __tablename__ = "invoice"
            id = mapped_column(Integer, primary_key=True)
            public_id: Mapped[str] = public_id_column(format, name="code")

        self.engine, self.old, self.new, self.format = engine, Old, New, format
        Before.metadata.create_all(engine)
        self.metadata = After.metadata
        self.links: list[object] = []
        """All ids, as the old program reads them."""

    def text(self, code: Any) -> str:
        """Return the text that the new program shows for an id of the old one."""
        if not isinstance(code, uuid.UUID):
            return str(code)
        hyphenated = str(code)
        return self.format.validate(hyphenated if self.format.is_valid(hyphenated) else code.hex)

    def insert_old(self) -> None:
        with Session(self.engine) as session:
            row = self.old()
            session.add(row)
            session.commit()
            self.links.append(row.code)

    def insert_new(self) -> None:
        with Session(self.engine) as session:
            row = self.new()
            session.add(row)
            session.commit()
            key = row.id
        with Session(self.engine) as session:  # the old program reads it, too
            self.links.append(session.get_one(self.old, key).code)

    def take_turns(self) -> None:
        """Let both programs insert rows and look up all links."""
        for _ in range(2):
            self.insert_old()
            self.insert_new()
        with Session(self.engine) as session:
            assert len(session.scalars(select(self.old).where(self.old.code.in_(self.links))).all()) == len(self.links)
        with Session(self.engine) as session:
            texts = [self.text(code) for code in self.links]
            assert [*lookup.get_many(session, self.new, texts)] == texts
            assert all(lookup.get(session, self.new, text) for text in texts)


def adopt(project: Project, programs: Programs) -> list[str]:
    """Upgrade, downgrade and upgrade again, with both programs at work at each step; return the statements."""
    written = project.files(programs.metadata)
    for _ in written:
        programs.take_turns()
        project.upgrade("+1")
    programs.take_turns()
    assert project.check(programs.metadata) is None
    project.downgrade()
    programs.take_turns()
    project.upgrade()
    programs.take_turns()
    assert project.check(programs.metadata) is None
    statements = [statement.replace("batch_op.", "op.") for file in written for statement in upgrade_of(file)]
    return [statement for statement in statements if statement != "pass" and not statement.startswith("with ")]


@pytest.fixture
def project(new_project: Callable[..., Project], engine: Engine) -> Project:
    """A project, with ``render_as_batch=True`` on SQLite."""
    made = new_project()
    if engine.name == "sqlite":
        made.configure("render_as_batch=True,")
    return made


def test_uuid_column(project: Project, engine: Engine) -> None:
    """A column of SQLAlchemy's Uuid() keeps its type; only a collation that ignores case is changed."""
    programs = Programs(engine, Uuid(), uuid.uuid4, of_uuid(engine))
    programs.insert_old()

    statements = adopt(project, programs)

    if type_of_uuid(engine) != "UUID" and engine.name in {"mysql", "mariadb"}:
        assert statements[0].startswith("op.contract_public_id(")
        assert "collation='bytes'" in statements[0]
    else:
        assert statements == []


@on("postgresql", "mariadb")
def test_uuid_column_that_may_be_null(project: Project, engine: Engine) -> None:
    """A nullable column of the type UUID is filled, and keeps its type."""
    if type_of_uuid(engine) != "UUID":
        pytest.skip("SQLAlchemy before 2.1 does not use the type UUID of MariaDB")
    programs = Programs(engine, Uuid(), uuid.uuid4, of_uuid(engine), nullable=True)
    project.execute("INSERT INTO invoice (code) VALUES (NULL)")

    assert adopt(project, programs)[0].startswith("op.add_public_id('invoice', 'code', ")

    with engine.connect() as connection:
        types = {column["name"]: column["type"] for column in inspect(connection).get_columns("invoice")}
    assert isinstance(types["code"], Uuid)


def test_uuid_column_gains_a_prefix(project: Project, engine: Engine) -> None:
    """A column of numbers stores no prefix, so the ids gain one without a change of rows; old links stay valid."""
    format = Uuid4(prefix="inv").accepting(Uuid4(encoding="hyphenated"))
    programs = Programs(engine, RawUuid(), uuid.uuid4, format)
    programs.insert_old()

    adopt(project, programs)

    code: Any = programs.links[0]
    with Session(engine) as session:
        row = lookup.get_one(session, programs.new, str(code))
        assert row.public_id.startswith("inv_")
        assert lookup.get(session, programs.new, row.public_id) is row


def test_uuid_text(project: Project, engine: Engine) -> None:
    """UUIDs as hyphenated text are adopted as they are; new ids may have another version."""
    format = Uuid7(encoding="hyphenated", storage="text").accepting(HYPHENATED)
    programs = Programs(engine, CHAR(36), lambda: str(uuid.uuid4()), format)
    programs.insert_old()

    statements = adopt(project, programs)

    assert len(statements) == (engine.name in {"mysql", "mariadb"})  # the collation


def test_nanoid_column_gains_a_prefix(project: Project, engine: Engine) -> None:
    """The column is widened with its own collation first; if MySQL needs another one, a second revision changes it."""
    format = NanoId(length=21, alphabet=URLSAFE64, prefix="inv", separator=".").accepting(NANOID)
    programs = Programs(engine, String(21), NANOID.generate, format)
    programs.insert_old()
    written = project.files(programs.metadata)
    for at, file in enumerate(written):
        if at == 0:
            assert "length=25" in file
            assert "collation" not in file
        project.upgrade("+1")
        programs.take_turns()

    assert len(written) == (2 if engine.name in {"mysql", "mariadb"} else 1)
    assert project.check(programs.metadata) is None


@on("postgresql")
def test_widened_column_keeps_its_collation(project: Project, engine: Engine) -> None:
    """A column that is too short for the new ids keeps the collation that it was created with."""
    format = NanoId(length=21, alphabet=URLSAFE64, prefix="inv", separator=".").accepting(NANOID)
    programs = Programs(engine, String(21, collation="C"), NANOID.generate, format)
    project.files(programs.metadata)

    project.upgrade()

    with engine.connect() as connection:
        [code] = [column for column in inspect(connection).get_columns("invoice") if column["name"] == "code"]
    assert (code["type"].length, code["type"].collation) == (25, "C")


@on("postgresql")
@pytest.mark.parametrize(
    ("type_", "storage", "nullable"), [(Uuid(), "native", False), (Uuid(), "native", True), (String(36), "text", False)]
)
def test_default_of_the_database(project: Project, engine: Engine, type_: Any, storage: str, nullable: bool) -> None:
    """A default of PostgreSQL that generates ids of the format is kept."""
    format = Uuid4(encoding="hyphenated", storage=storage)
    programs = Programs(engine, type_, None, format, nullable=nullable, server_default=text("gen_random_uuid()"))
    programs.insert_old()
    if nullable:
        project.execute("INSERT INTO invoice (code) VALUES (NULL)")

    assert len(adopt(project, programs)) == nullable

    with engine.connect() as connection:
        defaults = {column["name"]: column["default"] for column in inspect(connection).get_columns("invoice")}
    assert "gen_random_uuid()" in defaults["code"]


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


def add(engine: Engine, **options: Any) -> None:
    with engine.connect() as connection, migrating(connection) as op:
        add_public_id(op, "invoice", "number", format=INVOICE, collation="bytes", **options)


def numbers(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [*connection.scalars(text("SELECT number FROM invoice ORDER BY id"))]


def test_by_hand_is_refused(invoices: Project, engine: Engine) -> None:
    """Duplicates and malformed strings are refused together, and nothing is changed."""
    with pytest.raises(MigrationRefused) as caught:
        add(engine)

    assert [obstacle.code for obstacle in caught.value.obstacles] == ["duplicates", "invalid-ids"]
    assert numbers(engine) == BY_HAND


@pytest.mark.parametrize("on_invalid", ["keep", "replace"])
def test_by_hand_with_consent(invoices: Project, engine: Engine, on_invalid: Any) -> None:
    """With consent, only missing, duplicate and (on request) malformed ids are replaced; both programs keep working."""
    add(engine, on_duplicate="replace", on_invalid=on_invalid)

    found = numbers(engine)
    assert found[:2] == BY_HAND[:2]
    assert (found[3] == "see Ada") == (on_invalid == "keep")
    assert all(number.startswith("inv_") for number in (found[2], found[4]))
    invoices.execute("INSERT INTO invoice (number) VALUES ('INV-0003')")
    invoices.execute("INSERT INTO invoice (id) VALUES (100)")
    assert [INVOICE.is_valid(number) for number in numbers(engine)[5:]] == [True, True]
    with engine.connect() as connection:
        nullable = {column["name"]: column["nullable"] for column in inspect(connection).get_columns("invoice")}
    assert not nullable["number"]


@on("mysql", "mariadb")
def test_letters_beyond_ascii(invoices: Project, engine: Engine) -> None:
    """A string that the column of ids cannot store is an obstacle, not an error in the middle of the migration."""
    invoices.execute("DELETE FROM invoice")
    invoices.execute("INSERT INTO invoice (number) VALUES ('für Ada')")

    with pytest.raises(MigrationRefused, match="für Ada"):
        add(engine, on_invalid="keep")

    assert numbers(engine) == ["für Ada"]
