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

from sqlalchemy_public_id import NanoId, audit, public_id_column
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
