"""A format that has changed without ``accepting()``: autogenerate replaces the default, which makes ids of before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table
from support.marks import since_mariadb
from support.people import People
from support.scripts import autogenerate, run, written

from sqlalchemy_public_id import NanoId, ObjectId, Uuid4, audit, public_id_column
from sqlalchemy_public_id.formats import BASE58, Format

pytestmark = [pytest.mark.backend, since_mariadb(10, 10, "RANDOM_BYTES()")]

OLD = NanoId(length=16)
NEW = [NanoId(length=12), NanoId(length=12, prefix="per"), NanoId(length=16, alphabet=BASE58)]


@pytest.fixture
def old_people(new_people: Callable[..., People]) -> People:
    """A table whose default generates ids of the old format."""
    people = new_people(3, format=OLD)
    people.add()
    return people


def declared(format: Format, **options: Any) -> MetaData:
    """Return the table with a column of *format*."""
    column = public_id_column(format, **options).column
    column.name = column.key = "public_id"
    metadata = MetaData()
    Table("person", metadata, Column("id", Integer, primary_key=True), column)
    return metadata


@pytest.mark.parametrize("new", NEW, ids=repr)
def test_default_of_the_former_format(old_people: People, new: Format) -> None:
    """The revision replaces the default, its downgrade restores it, and afterwards nothing is left to write."""
    engine = old_people.engine
    script = autogenerate(engine, declared(new))

    assert "op.expand_public_id(" in written(script)
    assert ".accepting(NanoId(length=16))" in written(script).replace("\n    # ", "")
    assert "server_default='replace'" in written(script)
    run(engine, script.upgrade_ops)
    run(engine, script.upgrade_ops)
    assert new.is_valid(old_people.written())
    assert "op." not in written(autogenerate(engine, declared(new)))
    run(engine, script.downgrade_ops)
    assert OLD.is_valid(old_people.written())
    assert old_people.state().complete


@pytest.mark.backend(nullable=[True])
@pytest.mark.parametrize("nullable", [True, False])
def test_unfinished_column(old_people: People, nullable: bool) -> None:
    """One operation completes the column and replaces its default, and notes what is dropped before it."""
    new = NEW[1]
    old_people.run("loosen_public_id", server_default="keep", keeps=None if nullable else "not null")
    old_people.execute("CREATE UNIQUE INDEX one_more ON person (public_id, id)")
    old_people.execute("DELETE FROM person")  # ids of the former format would be refused
    script = autogenerate(old_people.engine, declared(new))
    text = written(script).replace("\n    # ", " ")

    assert "op.add_public_id(" in text
    assert "server_default='replace'" in text
    assert f"declare {new.accepting(OLD)!r}" in text
    assert "Alembic drops one_more before" in text
    run(old_people.engine, script.upgrade_ops)
    assert old_people.state().complete
    assert new.is_valid(old_people.written())
    assert "op." not in written(autogenerate(old_people.engine, declared(new)))


WITHOUT_IDS = [
    (NanoId(length=16), NanoId(length=12, prefix="per")),
    (NanoId(length=16, alphabet=BASE58), NanoId(length=12, prefix="per")),
    (NanoId(length=16, prefix="per"), NanoId(length=12)),
    (NanoId(length=16, prefix="per"), NanoId(length=12, prefix="usr")),
    (NanoId(length=16, alphabet=BASE58), NanoId(length=12)),
    (Uuid4(encoding="hex", storage="text"), NanoId(length=12)),
    (ObjectId(storage="text", prefix="usr"), NanoId(length=12)),
]
"""Format of before, and the present one."""


@pytest.mark.backend(old=[OLD])
@pytest.mark.parametrize(("old", "new"), WITHOUT_IDS, ids=repr)
def test_table_without_ids(new_people: Callable[..., People], old: Format, new: Format) -> None:
    """The default alone tells the former format, whatever has changed: its kind, prefix, length or alphabet."""
    people = new_people(0, format=old)
    people.add()

    revision = written(autogenerate(people.engine, declared(new)))

    assert f".accepting({old!r})" in revision.replace("\n    # ", " ").replace("( ", "(")


def test_audit(old_people: People) -> None:
    """The audit reports such a default as an error, and its remedy replaces it."""
    (finding,) = [
        each
        for each in audit.run(old_people.engine, tables=["person"], formats={"person": NEW[0]}).findings
        if each.problem == "default-outdated"
    ]

    assert finding.severity == "error"
    assert finding.remedy is not None
    assert "--server-default replace" in str(finding.remedy)
    old_people.run("expand_public_id", format=NEW[0], server_default="replace")
    assert NEW[0].is_valid(old_people.written())


def test_accepted_format(old_people: People) -> None:
    """With ``accepting()``, look-ups find the ids of the former default, and it stays."""
    assert "op." not in written(autogenerate(old_people.engine, declared(NanoId(length=12).accepting(OLD))))


def test_default_of_the_project(old_people: People, caplog: pytest.LogCaptureFixture) -> None:
    """A default that this library has not written stays, and a warning names it, unless the model declares it."""
    engine = old_people.engine
    if engine.name == "sqlite":
        old_people.create(0, ", public_id varchar(16) NOT NULL DEFAULT ('own_' || lower('AB')) UNIQUE")
    elif engine.name == "postgresql":
        old_people.execute("ALTER TABLE person ALTER public_id SET DEFAULT 'own_' || lower('AB')")
    else:
        old_people.execute("ALTER TABLE person ALTER public_id SET DEFAULT (concat('own_', lower('AB')))")

    assert "op." not in written(autogenerate(engine, declared(OLD)))
    assert [each.levelno for each in caplog.records if "keeps its default" in each.message] == [logging.WARNING]
    caplog.clear()
    autogenerate(engine, declared(OLD, server_default="declared"))
    assert "keeps its default" not in caplog.text
