"""Every format in a column of each database, stored as a number or as text: the attribute always shows the text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, String, delete, insert, inspect, literal, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_public_id import (
    ConfigurationError,
    InvalidPublicId,
    JetifyTypeId,
    Ksuid,
    ObjectId,
    PublicIdMixin,
    Snowflake,
    TypedId,
    Ulid,
    Uuid4,
    Uuid7,
    bulk,
    lookup,
    testing,
)
from sqlalchemy_public_id.formats import Format


class StoredId(TypedId, prefix="sto", format=Uuid7()): ...


FORMATS: dict[str, Any] = {
    "uuid7 prefixed": Uuid7(prefix="pst"),
    "uuid7 text": Uuid7(encoding="hyphenated", storage="text"),
    "uuid4": Uuid4(prefix="row", encoding="base58"),
    "typeid": JetifyTypeId("stored"),
    "ulid": Ulid(),
    "ulid text": Ulid(prefix="u", storage="text"),
    "ksuid": Ksuid(prefix="k", storage="native"),
    "ksuid text": Ksuid(),
    "snowflake": Snowflake(machine_id=7),
    "snowflake text": Snowflake(machine_id=7, prefix="s", storage="text"),
    "object id": ObjectId(prefix="oid"),
    "typed id": StoredId,
}
ONE_OF_EACH_TYPE = ["uuid7 prefixed", "uuid7 text", "ksuid text", "snowflake", "ksuid", "typed id"]
"""UUID, two lengths of VARCHAR, BIGINT, bytes, and a typed id; the other formats use the same Python code."""

pytestmark = pytest.mark.backend(declared_model=ONE_OF_EACH_TYPE)


class Model:
    """A model with ids of one format."""

    def __init__(self, declared: Any) -> None:
        class Base(DeclarativeBase):
            metadata = MetaData()

        class Row(PublicIdMixin, Base):
            __tablename__ = "stored_row"
            __public_id__ = declared
            name: Mapped[str | None] = mapped_column(String(20))

        self.Base, self.Row = Base, Row
        self.format: Format = declared if isinstance(declared, Format) else declared.id_format


@pytest.fixture(scope="module", params=FORMATS)
def declared_model(request: pytest.FixtureRequest) -> Iterator[Model]:
    """Yield the model for each format; module scope runs the tests of one format together, on the same table."""
    declared = Model(FORMATS[request.param])
    yield declared
    declared.Base.registry.dispose()


@pytest.fixture
def model(declared_model: Model, create: Callable[[MetaData], None]) -> Any:
    """Return the model for each format, whose table exists."""
    create(declared_model.Base.metadata)
    return declared_model


def rows(model: Any, count: int) -> list[Any]:
    return [model.Row(name=f"row {number}") for number in range(count)]


def pairs(session: Session, name: Any, value: Any) -> dict[Any, Any]:
    return {row[0]: row[1] for row in session.execute(select(name, value))}


def test_written_and_read(model: Any, engine: Engine) -> None:
    """Another session reads the id that the object showed before the flush, with its type; bad values raise."""
    with Session(engine) as session:
        made = rows(model, 20)
        session.add_all(made)
        early = made[0].public_id
        session.commit()
        shown = {row.name: row.public_id for row in made}
    with Session(engine) as session:
        read = {row.name: row.public_id for row in session.scalars(select(model.Row))}
        selected = session.scalars(select(model.Row.public_id)).all()

    assert read == shown
    assert read["row 0"] == early
    assert all(map(model.format.is_valid, read.values()))
    assert all(model.format.validate(text) == text for text in read.values())
    assert {type(text) for text in [*read.values(), *selected]} == {model.Row.__table__.c.public_id.type.python_type}
    for wrong in ("no such id", 5):
        with Session(engine) as session, pytest.raises(InvalidPublicId):
            session.execute(insert(model.Row.__table__).values(public_id=wrong))


def test_order(model: Any, session: Session) -> None:
    """ORDER BY and comparison operators order ids like their texts, however they are stored."""
    ids = model.format.generate_many(50)
    random.Random(1).shuffle(ids)
    session.execute(insert(model.Row), [{"public_id": text} for text in ids])
    id = model.Row.public_id
    middle = sorted(ids)[25]

    assert list(session.scalars(select(id).order_by(id))) == sorted(ids)
    assert list(session.scalars(select(id).order_by(id.desc()))) == sorted(ids, reverse=True)
    assert sorted(session.scalars(select(id).where(id > middle))) == sorted(ids)[26:]
    assert sorted(session.scalars(select(id).where(id <= middle))) == sorted(ids)[:26]
    assert sorted(session.scalars(select(id).where(id.between(min(ids), middle)))) == sorted(ids)[:26]


def test_core(model: Any, session: Session) -> None:
    """Core INSERTs of one row, of many rows and with several VALUES generate ids, and an UPDATE finds a row by id."""
    table = model.Row.__table__
    given = model.format.generate()
    session.execute(insert(table).values(name="one", public_id=given))
    session.execute(insert(table), [{"name": "two"}, {"name": "three"}])
    session.execute(insert(table).values([{"name": "four"}, {"name": "five"}]))
    session.execute(update(table).where(table.c.public_id == given).values(name="first"))

    found = pairs(session, table.c.name, table.c.public_id)

    assert found["first"] == given
    assert found.keys() == {"first", "two", "three", "four", "five"}
    assert len(set(found.values())) == 5
    assert all(map(model.format.is_valid, found.values()))


def test_collisions(model: Any, session: Session) -> None:
    """A taken id is generated again in flushes of one and of many rows, in Core, and in bulk."""
    (first,) = rows(model, 1)
    session.add(first)
    session.flush()
    taken = first.public_id
    table = model.Row.__table__

    with testing.collisions(model.Row, taken, times=2):
        session.add_all(rows(model, 1))
        session.flush()
    with testing.collisions(model.Row, taken, times=2):
        session.add_all(rows(model, 5))
        session.flush()
    with testing.collisions(model.Row, taken, times=2):
        session.execute(insert(table), [{"name": "x"}, {"name": "y"}])
    with testing.collisions(model.Row, taken, times=2):
        some = rows(model, 30)
        bulk.insert(session, some)
    with pytest.raises(IntegrityError), session.begin_nested():
        session.add(model.Row(public_id=taken))
        session.flush()

    read = pairs(session, table.c.id, table.c.public_id)
    assert len(read) == len(set(read.values())) == 39
    assert {row.id: row.public_id for row in some}.items() <= read.items()


def test_lookup(model: Any, session: Session) -> None:
    """The functions of ``lookup`` take and return the text, however ids are stored."""
    some = rows(model, 3)
    session.add_all(some)
    session.flush()
    ids = [row.public_id for row in some]
    session.expunge_all()

    assert lookup.get_one(session, model.Row, ids[0]).name == "row 0"
    assert list(lookup.get_many(session, model.Row, [*ids, "no such id"])) == ids
    assert lookup.keys_of(session, model.Row, ids) == {row.public_id: row.id for row in some}
    assert lookup.public_ids_of(session, model.Row, [row.id for row in some]) == {row.id: row.public_id for row in some}


@pytest.mark.parametrize("declared", [Ulid(), Ulid(storage="text"), Uuid4(encoding="hex")], ids=repr)
def test_other_letters(create: Callable[[MetaData], None], session: Session, declared: Any) -> None:
    """An id in other letter case finds its row, and the objects of the session are synchronized."""
    model = Model(declared)
    create(model.Base.metadata)
    one, two = rows(model, 2)
    session.add_all([one, two])
    session.commit()
    id, other, more = one.public_id, one.public_id.swapcase(), two.public_id.swapcase()

    assert other != id
    assert lookup.get_one(session, model.Row, other) is one
    assert lookup.get_many(session, model.Row, [other]) == {other: one}
    assert model.Row(public_id=other).public_id == id
    session.execute(update(model.Row).where(model.Row.public_id == other).values(name="changed"))
    assert one.name == "changed"
    session.execute(update(model.Row).where(model.Row.public_id.in_(iter([more]))).values(name="as well"))
    assert two.name == "as well"
    given = literal(other)
    session.execute(update(model.Row).where(model.Row.public_id == given).values(name="again"))
    assert (one.name, two.name) == ("again", "as well")
    found = [select(model.Row.name).where(model.Row.public_id <= text) for text in (given, id)]
    assert {*session.scalars(found[0])} == {*session.scalars(found[1])}
    one.public_id = other
    session.flush()
    assert one.public_id == id
    session.execute(delete(model.Row).where(model.Row.public_id == other))
    assert one not in session
    session.rollback()


STORED = {
    "uuid7 prefixed": ("UUID", "BINARY(16)", "BLOB"),
    "object id": ("BYTEA", "BINARY(12)", "BLOB"),
    "snowflake": ("BIGINT", "BIGINT", "BIGINT"),
    "uuid7 text": ("VARCHAR(36)", "VARCHAR(36)", "VARCHAR(36)"),
}


@pytest.mark.parametrize("name", STORED)
def test_column_types(engine: Engine, create: Callable[[MetaData], None], name: str) -> None:
    """The column type is the one that the documentation lists for the database."""
    create(Model(FORMATS[name]).Base.metadata)
    column = next(one for one in inspect(engine).get_columns("stored_row") if one["name"] == "public_id")
    postgresql, mysql, sqlite = STORED[name]

    expected = {"postgresql": postgresql, "sqlite": sqlite}.get(engine.name, mysql)
    assert column["type"].compile(engine.dialect).startswith(expected)
    assert not column["nullable"]


@pytest.mark.backend
@pytest.mark.parametrize("format", [Uuid7(), Snowflake(machine_id=1)], ids=["128 bits", "64 bits"])
def test_text_in_a_column_that_is_read_as_numbers(
    create: Callable[[MetaData], None], session: Session, format: Format
) -> None:
    """A format of numbers for a column that still holds text raises an error, which says how to keep the text."""

    class Old(DeclarativeBase): ...

    class Kept(PublicIdMixin, Old):
        __tablename__ = "kept"

    class New(DeclarativeBase): ...

    class Read(PublicIdMixin, New):
        __tablename__ = "kept"
        __public_id__ = format

    create(Old.metadata)
    session.add(Kept())
    session.flush()
    with pytest.raises(ConfigurationError, match=r"holds text, .* storage='text', .*\.accepting\(older_format\)"):
        session.scalars(select(Read)).all()
