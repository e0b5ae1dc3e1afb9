"""Models mapped in every way are written, retried after a collision, and read back, on every database."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, Table, event, func, inspect, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.shapes import FOR_SERVERS, SHAPES, CrateId, Named

from sqlalchemy_public_id import PublicIdMixin, lookup, testing

pytestmark = pytest.mark.backend


def table_of(model: Any) -> Table:
    return inspect(model).local_table


def round_trip(bind: Any, model: Any, attributes: dict[str, type[str]]) -> None:
    """Write objects of *model*, alone and together, with and without collisions; find them by each public id."""
    with Session(bind) as session:
        objects = [model(name="first")]
        session.add_all(objects)
        session.commit()
        names = (f"number {number}" for number in itertools.count())
        for attribute in attributes:
            format = inspect(model).attrs[attribute].columns[0].type.id_format
            for rows in (1, 3):
                taken = getattr(objects[0], attribute)
                new = [model(name=next(names)) for _ in range(rows)]
                with testing.collisions(model, taken, times=3, attribute=attribute):
                    session.add_all(new)
                    session.flush()
                    assert format.generate() != taken, "the forced ids were not used"
                objects += new
        session.commit()
        written = [{name: getattr(each, name) for name in (*attributes, "name")} for each in objects]
    with Session(bind) as session:
        assert len(written) == session.scalar(select(func.count()).select_from(model))
        for row in written:
            for attribute, kind in attributes.items():
                found = lookup.get_one(session, model, row[attribute], attribute=attribute)
                assert row == {name: getattr(found, name) for name in row}
                assert type(getattr(found, attribute)) is type(row[attribute]) is kind


@pytest.mark.backend(name=FOR_SERVERS)
@pytest.mark.parametrize("name", SHAPES)
def test_round_trip(engine: Engine, create: Callable[[MetaData], None], name: str) -> None:
    """However a model is mapped, its objects get ids, are retried after a collision, and are found by their ids."""
    model, attributes = SHAPES[name]()
    create(table_of(model).metadata)

    round_trip(engine, model, attributes)


# --- schemas


@pytest.fixture
def other_schema(engine: Engine) -> Iterator[str]:
    """Yield a second schema: a database on MySQL and MariaDB, an attached file on SQLite."""
    name = f"public_id_other_{os.getpid()}"
    if engine.dialect.name == "sqlite":
        path = f"{engine.url.database}.other"
        attach = f"ATTACH DATABASE '{path}' AS {name}"
        event.listen(engine, "connect", lambda connection, record: connection.execute(attach))
        yield name
        return
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA IF EXISTS {name}"))
        connection.execute(text(f"CREATE SCHEMA {name}"))
    yield name
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {name}"))


def boxes(**options: Any) -> Any:
    """Return a model with a public id, and a second one with a foreign key to it."""

    class Base(DeclarativeBase):
        metadata = MetaData(**options)

    class Box(Named, PublicIdMixin, Base):
        __tablename__ = "box"

    class Crate(Named, PublicIdMixin[CrateId], Base):
        __tablename__ = "crate"
        box_id: Mapped[int | None] = mapped_column(ForeignKey(Box.id))

    return Box, Crate


def test_schema(other_schema: str, engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Models of two schemas work side by side, although their tables have the same name."""
    here, there = boxes(), boxes(schema=other_schema)
    create(here[0].metadata)
    create(there[0].metadata)

    round_trip(engine, here[0], {"public_id": str})
    round_trip(engine, there[0], {"public_id": str})


def test_schema_translate_map(other_schema: str, engine: Engine, create: Callable[[MetaData], None]) -> None:
    """If the engine translates the schema, everything is looked up in the translated one."""
    model, pointing = boxes()
    translated = engine.execution_options(schema_translate_map={None: other_schema})
    model.metadata.create_all(translated)
    try:
        round_trip(translated, model, {"public_id": str})
        round_trip(translated, pointing, {"public_id": CrateId})
    finally:
        model.metadata.drop_all(translated)


# --- what else a mapping brings
