"""Objects of one flush and their rows: matched by public id if one INSERT has many rows, and never otherwise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import JSON, Engine, MetaData, String, UniqueConstraint, event, func, insert, select
from sqlalchemy.exc import IntegrityError, InvalidRequestError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.types import TypeDecorator
from support.every_format import one_of_each
from support.marks import fast_ways, on
from support.members import TeamId
from support.shapes import new_base
from support.ways import flush

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    Ulid,
    public_id_column,
    testing,
)
from sqlalchemy_public_id.formats import CROCKFORD32

pytestmark = pytest.mark.backend

NARROW = NanoId(length=1, alphabet=CROCKFORD32)


class Base(DeclarativeBase):
    metadata = MetaData()


class Person(PublicIdMixin, Base):
    __tablename__ = "person"
    __public_id__ = Ulid(storage="text")
    name: Mapped[str | None] = mapped_column(String(50))


class Pair(PublicIdMixin, Base):
    """Two public ids with 32 possible values each."""

    __tablename__ = "pair"
    __public_id__ = NARROW
    share_id: Mapped[str] = public_id_column(NARROW)
    name: Mapped[str | None] = mapped_column(String(50))


class Keyed(PublicIdColumnMixin, Base):
    """A composite primary key of two columns, neither of which the database generates."""

    __tablename__ = "keyed"
    __public_id__ = NARROW
    region: Mapped[str] = mapped_column(String(5), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str | None] = mapped_column(String(50))
    stamp: Mapped[str | None] = mapped_column(String(50), server_default="now")


class Lowered(TypeDecorator[str]):
    """A type whose values are selected through an SQL expression."""

    impl = String(50)
    cache_ok = True

    def column_expression(self, column: Any) -> Any:
        return func.lower(column, type_=self)


class Tagged(PublicIdMixin, Base):
    """Values that need conversion for the driver, and server defaults, one of them selected through an expression."""

    __tablename__ = "tagged"
    __mapper_args__ = {"eager_defaults": True}  # noqa: RUF012  # SQLAlchemy's own annotation is an instance variable
    tags: Mapped[dict[str, Any]] = mapped_column(JSON)
    made: Mapped[datetime] = mapped_column(default=func.now())
    label: Mapped[str | None] = mapped_column(Lowered, server_default="ABC")
    name: Mapped[str | None] = mapped_column(String(50))


FORMATS = [*one_of_each(), TeamId]


@pytest.fixture(autouse=True)
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def named(count: int) -> list[dict[str, Any]]:
    return [{"name": str(number)} for number in range(count)]


def check(session: Session, objects: list[Any]) -> None:
    """Assert that each object has the key and the name of the row with its public id."""
    model = type(objects[0])
    keys = model.__mapper__.primary_key
    rows = {row[0]: tuple(row[1:]) for row in session.execute(select(model.public_id, model.name, *keys))}
    names = [model.__mapper__.get_property_by_column(key).key for key in keys]
    for one in objects:
        assert rows[one.public_id] == (one.name, *(one.__dict__[name] for name in names))


@pytest.mark.parametrize("format", FORMATS, ids=lambda each: getattr(each, "__name__", type(each).__name__))
def test_formats(create: Callable[[MetaData], None], session: Session, format: Any) -> None:
    """If a flush needs several INSERTs, taken ids are replaced, and each object belongs to its own row."""
    new = new_base()

    class Thing(PublicIdMixin, new):
        __tablename__ = "thing"
        __public_id__ = format
        name: Mapped[str | None] = mapped_column(String(50))

    create(new.metadata)
    [taken] = flush(session, Thing, [{"name": "first"}])
    with testing.collisions(Thing, taken.public_id, times=3):
        objects = flush(session, Thing, named(1100))

    check(session, [taken, *objects])
    assert len({each.public_id for each in [taken, *objects]}) == 1101


def test_names_that_drivers_escape(create: Callable[[MetaData], None], session: Session) -> None:
    """Collisions are retried in tables whose column names cannot be used as parameter names."""
    new = new_base()

    class Odd(PublicIdColumnMixin, new):
        __tablename__ = "odd"
        id: Mapped[int] = mapped_column("key of it", primary_key=True)
        name: Mapped[str | None] = mapped_column("odd name", String(50))
        a: Mapped[str | None] = mapped_column("a.b", String(50))
        b: Mapped[str | None] = mapped_column("a:b", String(50))
        c: Mapped[str | None] = mapped_column("a[b]", String(50))
        d: Mapped[str | None] = mapped_column("(x)", String(50))
        e: Mapped[str | None] = mapped_column("1st", String(50))
        f: Mapped[str | None] = mapped_column("größe", String(50))

    create(new.metadata)
    rows = [{letter: f"{letter}{number}" for letter in "abcdef"} | {"name": str(number)} for number in range(30)]
    [taken] = flush(session, Odd, named(1))
    with testing.collisions(Odd, taken.public_id, times=2):
        objects = flush(session, Odd, rows)

    check(session, [taken, *objects])
    session.expire_all()
    assert [{name: getattr(each, name) for name in row} for each, row in zip(objects, rows, strict=True)] == rows


@pytest.mark.parametrize("rows", [1, 5])
def test_column_that_is_called_like_the_id_of_another_row(
    create: Callable[[MetaData], None], session: Session, rows: int
) -> None:
    """A column with a name that ``insert().values([…])`` uses for a parameter of an id is no public id."""
    new = new_base()

    class Odd(PublicIdMixin, new):
        __tablename__ = "odd"
        name: Mapped[str | None] = mapped_column(String(50))
        public_id_m1: Mapped[int]

    create(new.metadata)
    [taken] = flush(session, Odd, [{"name": "first", "public_id_m1": 0}])
    with testing.collisions(Odd, taken.public_id):
        objects = flush(session, Odd, [{"name": str(number), "public_id_m1": number} for number in range(rows)])

    check(session, [taken, *objects])


def test_composite_keys(session: Session) -> None:
    """Objects with a composite key belong to their own rows, although ids collide in most flushes."""
    number = 0
    for rows in (1, 8, 8, 8, 5):
        keys = range(number, number + rows)
        check(session, flush(session, Keyed, [{"region": "eu", "number": key, "name": str(key)} for key in keys]))
        number += rows


@pytest.mark.parametrize("position", [0, 3, 4])
def test_batches(session: Session, position: int) -> None:
    """A collision is retried in any batch of a flush, including a last batch of one row."""
    session.connection(execution_options={"insertmanyvalues_page_size": 2})
    [taken] = flush(session, Person, named(1))
    ids = Ulid().generate_many(5)
    with testing.fixed_ids(Person, *ids[:position], taken.public_id, *ids[position:]):
        objects = flush(session, Person, named(5))

    check(session, [taken, *objects])


def test_values_that_are_converted(session: Session) -> None:
    """A row whose id has collided keeps its converted values and gets its server defaults like other rows."""
    [taken] = flush(session, Tagged, [{"tags": {}}])
    with testing.collisions(Tagged, taken.public_id, times=2):
        objects = flush(session, Tagged, [{"tags": {"number": [number]}} for number in range(30)])

    check(session, [taken, *objects])
    assert {one.label for one in objects} == {"abc"}
    session.expire_all()
    assert [one.tags for one in objects] == [{"number": [number]} for number in range(30)]
    assert all(isinstance(one.made, datetime) for one in objects)


def test_given_id_beside_a_made_one(session: Session) -> None:
    """If a row has a generated id and a given one, only the generated id is replaced in a flush of many rows."""
    flush(session, Pair, [{"public_id": "0", "share_id": "1"}])
    with testing.fixed_ids(Pair, "0", "2", "3", "4", attribute="public_id"):
        objects = flush(session, Pair, [{"name": share_id, "share_id": share_id} for share_id in "234"])
    check(session, objects)
    assert [one.share_id for one in objects] == list("234")
    with pytest.raises(IntegrityError):
        flush(session, Pair, [{"share_id": share_id} for share_id in "516"])


def test_ids_that_are_unique_for_a_tenant(create: Callable[[MetaData], None], session: Session) -> None:
    """Rows of one flush may share an id if the unique constraint includes another column."""
    new = new_base()

    class Tenanted(PublicIdMixin, new):
        __tablename__ = "tenanted"
        __table_args__ = (UniqueConstraint("name", "public_id"),)
        name: Mapped[str] = mapped_column(String(50))

    Tenanted.__table__.indexes.clear()
    create(new.metadata)
    public_id = NanoId().generate()
    objects = flush(session, Tenanted, [row | {"public_id": public_id} for row in named(2)])

    assert session.scalars(select(Tenanted.name).order_by(Tenanted.id)).all() == [each.name for each in objects]


def test_expressions(session: Session) -> None:
    """An object whose id is an SQL expression belongs to its own row, among other objects."""
    objects = [Person(name=str(number)) for number in range(9)]
    objects[4].public_id = func.upper("01jd3v5xkq4b8y2n6m7r9s0tce")
    session.add_all(objects)
    session.flush()

    check(session, objects)
    assert objects[4].public_id == "01JD3V5XKQ4B8Y2N6M7R9S0TCE"


@fast_ways
def test_ids_in_another_spelling(session: Session) -> None:
    """With ``sort_by_parameter_order``, ids must be written as the format writes them: SQLAlchemy looks for them
    in the result, and names the one that it has not found."""
    if not session.get_bind().dialect.insert_executemany_returning_sort_by_parameter_order:
        pytest.skip(f"{session.get_bind().dialect.name} has no RETURNING")
    ids = Ulid().generate_many(20)
    statement = insert(Person).returning(Person.id, Person.public_id, sort_by_parameter_order=True)
    rows = [{"public_id": id.lower(), "name": str(at)} for at, id in enumerate(ids)]
    with pytest.raises(InvalidRequestError, match=f"'{rows[0]['public_id']}' was not found"), session.begin_nested():
        session.execute(statement, rows)

    for row in rows:
        row["public_id"] = Ulid().validate(row["public_id"])
    assert [row.public_id for row in session.execute(statement, rows)] == ids


@fast_ways
def test_expressions_in_the_order_of_parameters(session: Session) -> None:
    """Rows cannot be sorted by ids that the database generates in their INSERT, so the INSERT is refused."""
    if not session.get_bind().dialect.insert_executemany_returning_sort_by_parameter_order:
        pytest.skip(f"{session.get_bind().dialect.name} has no RETURNING")
    expression: Any = insert(Person).values(public_id=func.upper(func.hex(func.randomblob(13))))
    ordered = expression.returning(Person.name, sort_by_parameter_order=True)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="let the library generate the ids"):
            session.execute(ordered, [{"name": "Ada"}, {"name": "Bea"}])


@pytest.mark.parametrize("level", ["READ COMMITTED", "SERIALIZABLE", "AUTOCOMMIT"])
def test_collisions_among_many_rows(new_engine: Callable[..., Engine], engine: Engine, level: str) -> None:
    """Collisions in a flush of many rows are retried in two columns at once, at each isolation level."""
    if engine.name == "sqlite" and level == "READ COMMITTED":
        pytest.skip("SQLite has no such level")
    own = new_engine(engine.dialect.name, engine.url, isolation_level=level)
    with Session(own) as session:
        for rows in (8, 20) if level != "AUTOCOMMIT" or engine.name == "sqlite" else (28,):
            check(session, flush(session, Pair, named(rows)))
        session.rollback()


@on("postgresql")
@pytest.mark.parametrize("form", ["{} -- app", "/* app RETURNING rows */ {}"])
def test_statement_that_a_listener_changes(engine: Engine, session: Session, form: str) -> None:
    """A listener may add any comment to the statement, and copy its parameters."""

    def comment(*args: Any) -> tuple[str, Any]:
        return form.format(args[2]), dict(args[3]) if isinstance(args[3], dict) else args[3]

    event.listen(engine, "before_cursor_execute", comment, retval=True)
    try:
        objects = flush(session, Pair, named(20)) + flush(session, Pair, named(10))
    finally:
        event.remove(engine, "before_cursor_execute", comment)

    check(session, objects)
