"""Objects of one flush and their rows: matched by public id where one INSERT has many rows, and never otherwise."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import JSON, DateTime, Engine, Enum, MetaData, Numeric, String, event, func, insert, select
from sqlalchemy.exc import IntegrityError, InvalidRequestError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.types import TypeDecorator
from support.marks import fast_ways, on

from sqlalchemy_public_id import (
    ConfigurationError,
    JetifyTypeId,
    NanoId,
    ObjectId,
    PublicIdColumnMixin,
    PublicIdMixin,
    Snowflake,
    TypedId,
    Ulid,
    Uuid7,
    guard,
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
    """Two public ids, each of 32."""

    __tablename__ = "pair"
    __public_id__ = NARROW
    share_id: Mapped[str] = public_id_column(NARROW)
    name: Mapped[str | None] = mapped_column(String(50))


class Keyed(PublicIdColumnMixin, Base):
    """A key of two columns, of which the database makes none."""

    __tablename__ = "keyed"
    __public_id__ = NARROW
    region: Mapped[str] = mapped_column(String(5), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str | None] = mapped_column(String(50))
    stamp: Mapped[str | None] = mapped_column(String(50), server_default="now")


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Reading(PublicIdMixin, Base):
    """Columns whose values can be sent as arrays."""

    __tablename__ = "reading"
    name: Mapped[str | None] = mapped_column(String(50))
    number: Mapped[int | None]
    ratio: Mapped[float | None]
    price: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
    is_open: Mapped[bool | None]
    day: Mapped[date | None]
    hour: Mapped[time | None]
    moment: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    lasts: Mapped[timedelta | None]
    device: Mapped[UUID | None]
    default: Mapped[int] = mapped_column(default=lambda: 7)
    stamp: Mapped[str | None] = mapped_column(String(50), server_default="now")


class Tagged(PublicIdMixin, Base):
    """Columns whose values cannot."""

    __tablename__ = "tagged"
    colour: Mapped[Colour] = mapped_column(Enum(Colour))
    tags: Mapped[dict[str, Any]] = mapped_column(JSON)
    name: Mapped[str] = mapped_column(String(50), default=func.upper("default"))


class Dated(PublicIdMixin, Base):
    """A column whose default is computed by the database, in the INSERT."""

    __tablename__ = "dated"
    name: Mapped[str | None] = mapped_column(String(50))
    made: Mapped[datetime] = mapped_column(default=func.now())


class Lowered(TypeDecorator[str]):
    """A type whose values are read through an SQL expression."""

    impl = String(50)
    cache_ok = True

    def column_expression(self, column: Any) -> Any:
        return func.lower(column, type_=self)


class Labelled(PublicIdMixin, Base):
    """A value of the server that is returned through an SQL expression."""

    __tablename__ = "labelled"
    __mapper_args__ = {"eager_defaults": True}  # noqa: RUF012  # SQLAlchemy's own annotation is an instance variable
    name: Mapped[str | None] = mapped_column(String(50))
    label: Mapped[str | None] = mapped_column(Lowered, server_default="ABC")


class CardId(TypedId, prefix="card"):
    pass


FORMATS = {
    "nanoid": NanoId(),
    "check digit": NanoId(check_digit=True),
    "uuid": Uuid7(),
    "uuid text": Uuid7(storage="text"),
    "ulid": Ulid(),
    "typeid": JetifyTypeId(prefix="pet"),
    "snowflake": Snowflake(machine_id=1),
    "objectid": ObjectId(),
    "typed": CardId,
}


def model_of(format: Any) -> Any:
    """Return a model of its own base with ids of *format*."""

    class OtherBase(DeclarativeBase):
        metadata = MetaData()

    class Thing(PublicIdMixin, OtherBase):
        __tablename__ = "thing"
        __public_id__ = format
        name: Mapped[str | None] = mapped_column(String(50))

    return Thing


@pytest.fixture(autouse=True)
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def check(session: Session, objects: list[Any]) -> None:
    """Each object has the key and the name of the row with its public id."""
    model = type(objects[0])
    keys = model.__mapper__.primary_key
    rows = {row[0]: tuple(row[1:]) for row in session.execute(select(model.public_id, model.name, *keys))}
    names = [model.__mapper__.get_property_by_column(key).key for key in keys]
    for one in objects:
        assert rows[one.public_id] == (one.name, *(one.__dict__[name] for name in names))


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS.keys())
def test_formats(create: Callable[[MetaData], None], session: Session, format: Any) -> None:
    """Each object of a flush that needs several INSERTs has its own row, with the ids of every format."""
    thing = model_of(format)
    create(thing.metadata)
    objects = [thing(name=str(number)) for number in range(2500)]
    session.add_all(objects)
    session.flush()

    check(session, objects)


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS.keys())
def test_collisions_of_formats(create: Callable[[MetaData], None], session: Session, format: Any) -> None:
    """Of many objects, those whose ids are taken get others, also where ids are stored as numbers."""
    thing = model_of(format)
    create(thing.metadata)
    session.add(taken := thing(name="first"))
    session.flush()
    objects = [thing(name=str(number)) for number in range(50)]
    session.add_all(objects)
    with testing.collisions(thing, taken.public_id, times=3):
        session.flush()

    check(session, [taken, *objects])
    assert len({each.public_id for each in [taken, *objects]}) == 51


@pytest.mark.parametrize("column", ["odd name", "a.b", "a:b", "a[b]", "(x)", "1st", "größe"])
def test_names_that_drivers_escape(create: Callable[[MetaData], None], session: Session, column: str) -> None:
    """Many rows of a table whose columns have names that a parameter cannot have, with a collision."""

    class OtherBase(DeclarativeBase):
        metadata = MetaData()

    class Odd(PublicIdColumnMixin, OtherBase):
        __tablename__ = "odd"
        id: Mapped[int] = mapped_column("key of it", primary_key=True)
        name: Mapped[str | None] = mapped_column(column, String(50))

    create(OtherBase.metadata)
    session.add(taken := Odd(name="first"))
    session.flush()
    objects: list[Any] = [Odd(name=str(number)) for number in range(30)]
    session.add_all(objects)
    with testing.collisions(Odd, taken.public_id, times=2):
        session.flush()

    check(session, [taken, *objects])


@pytest.mark.parametrize("rows", [1, 5])
def test_column_that_is_called_like_the_id_of_another_row(
    create: Callable[[MetaData], None], session: Session, rows: int
) -> None:
    """``insert().values([…])`` calls the ids of its rows so; in any other INSERT, such a column is no public id."""

    class OtherBase(DeclarativeBase):
        metadata = MetaData()

    class Odd(PublicIdMixin, OtherBase):
        __tablename__ = "odd"
        name: Mapped[str | None] = mapped_column(String(50))
        public_id_m1: Mapped[int]

    create(OtherBase.metadata)
    session.add(taken := Odd(name="first", public_id_m1=0))
    session.flush()
    objects: list[Any] = [Odd(name=str(number), public_id_m1=number) for number in range(rows)]
    session.add_all(objects)
    with testing.collisions(Odd, taken.public_id):
        session.flush()

    check(session, [taken, *objects])


@pytest.mark.parametrize("model", [Pair, Keyed])
def test_narrow_formats(session: Session, model: Any) -> None:
    """With ids that collide in most flushes, in one column or in two, objects have their own rows."""
    number = 0
    for rows in (1, 8, 8, 8, 5):
        key = {"region": "eu"} if model is Keyed else {}
        objects = [
            model(name=str(number + at), **key, **({"number": number + at} if key else {})) for at in range(rows)
        ]
        number += rows
        session.add_all(objects)
        session.flush()
        check(session, objects)


@pytest.mark.parametrize("position", range(5))
def test_batches(session: Session, position: int) -> None:
    """Each batch of a flush may have a collision, also the last one, which may have one row."""
    session.connection(execution_options={"insertmanyvalues_page_size": 2})
    session.add(taken := Person(name="first"))
    session.flush()
    objects = [Person(name=str(number)) for number in range(5)]
    ids = Ulid().generate_many(5)
    session.add_all(objects)
    with testing.fixed_ids(Person, *ids[:position], taken.public_id, *ids[position:]):
        session.flush()

    check(session, [taken, *objects])


def test_columns_that_are_read_through_an_expression(session: Session) -> None:
    """A row whose id has collided returns what the others do."""
    session.add(taken := Labelled(name="first"))
    session.flush()
    objects = [Labelled(name=str(number)) for number in range(5)]
    session.add_all(objects)
    with testing.collisions(Labelled, taken.public_id, times=2):
        session.flush()

    check(session, [taken, *objects])
    assert {one.label for one in objects} == {"abc"}


def test_given_ids(session: Session) -> None:
    """Ids of the application and new ones stand in one flush."""
    objects = [Pair(name=str(number)) for number in range(20)]
    for one, public_id in zip(objects, "01234567", strict=False):
        one.public_id = public_id
    session.add_all(objects)
    session.flush()

    check(session, objects)
    assert [one.public_id for one in objects[:8]] == list("01234567")


def test_given_id_beside_a_made_one(session: Session) -> None:
    """Of two ids of a row, the made one is replaced, and the given one is not, in a flush of many rows."""
    session.add(Pair(name="first", public_id="0", share_id="1"))
    session.flush()
    with testing.fixed_ids(Pair, "0", "2", "3", "4", attribute="public_id"):
        objects = [Pair(name=str(number), share_id=share_id) for number, share_id in enumerate("234")]
        session.add_all(objects)
        session.flush()
    check(session, objects)

    session.add_all([Pair(name=str(number), share_id=share_id) for number, share_id in enumerate("516")])
    with pytest.raises(IntegrityError):
        session.flush()


def test_expressions(session: Session) -> None:
    """An object whose id is an SQL expression has its own row, between others."""
    objects = [Person(name=str(number)) for number in range(9)]
    objects[4].public_id = func.upper("01jd3v5xkq4b8y2n6m7r9s0tce")
    session.add_all(objects)
    session.flush()

    check(session, objects)
    assert objects[4].public_id == "01JD3V5XKQ4B8Y2N6M7R9S0TCE"


@fast_ways
def test_ids_in_another_spelling(session: Session) -> None:
    """Rows that are returned in the order of their parameters need ids as the format writes them, which SQLAlchemy
    finds in the result: it says which one it has not found."""
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


def test_without_the_guard(new_engine: Callable[..., Engine], engine: Engine) -> None:
    """Without the guard, objects have their own rows, and a collision is an error that leaves nothing behind."""
    own = new_engine(engine.dialect.name, engine.url)
    guard.uninstall(own)
    with Session(own) as session:
        objects = [Person(name=str(number)) for number in range(50)]
        session.add_all(objects)
        session.flush()
        check(session, objects)
        with pytest.raises(IntegrityError), session.begin_nested():
            for _ in range(2):  # 40 of 32 ids
                session.add_all(Pair(name=str(number)) for number in range(20))
                session.flush()
        assert session.scalar(select(func.count()).select_from(Pair)) == 0


def test_equal_given_ids(session: Session) -> None:
    """Two objects with the same given id are the error of the database, as ever."""
    id = Ulid().generate()
    session.add_all([Person(public_id=id), Person(name="between"), Person(public_id=id)])

    with pytest.raises(IntegrityError):
        session.flush()


def test_other_inserts(session: Session) -> None:
    """INSERTs of the application return what it asks for, in the order of its parameters."""
    if not session.get_bind().dialect.insert_executemany_returning_sort_by_parameter_order:
        pytest.skip(f"{session.get_bind().dialect.name} has no RETURNING")
    session.add(Person(name="first"))
    session.flush()
    rows = [{"name": str(number)} for number in range(30)]
    ordered: Any = insert(Person.__table__).returning(Person.__table__.c.name, sort_by_parameter_order=True)  # type: ignore[arg-type]  # a table

    result = session.execute(ordered, rows)

    assert list(result.keys()) == ["name"]
    assert result.scalars().all() == [row["name"] for row in rows]


@fast_ways
def test_expressions_in_the_order_of_parameters(session: Session) -> None:
    """Rows whose ids the database makes in their INSERT cannot be sorted by them: the INSERT is refused."""
    if not session.get_bind().dialect.insert_executemany_returning_sort_by_parameter_order:
        pytest.skip(f"{session.get_bind().dialect.name} has no RETURNING")
    expression: Any = insert(Person).values(public_id=func.upper(func.hex(func.randomblob(13))))
    ordered = expression.returning(Person.name, sort_by_parameter_order=True)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="leave the ids to the library"):
            session.execute(ordered, [{"name": "Ada"}, {"name": "Bea"}])


@on("sqlite")
def test_threads(new_engine: Callable[..., Engine]) -> None:
    """Sessions of several threads, each with a database of its own, share the compiled INSERT."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            own = new_engine("sqlite", "sqlite://")
            Base.metadata.create_all(own)
            with Session(own) as session:
                for _ in range(10):
                    objects = [Person(name=str(number)) for number in range(200)]
                    session.add_all(objects)
                    session.flush()
                    check(session, objects)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures


def reading(number: int) -> Reading:
    """Return an object with awkward values, every third of them None."""
    values: dict[str, Any] = {
        "name": f"{number} 'quoted' \"twice\" \\ {{}} , 100% \N{GRINNING FACE}",
        "number": number,
        "ratio": number / 7,
        "price": Decimal(number) / 4,
        "is_open": number % 2 == 0,
        "day": date(1999, 12, 31) + timedelta(number),
        "hour": time(number % 24, 59),
        "moment": datetime(2024, 2, 29, tzinfo=timezone.utc) + timedelta(hours=number),
        "lasts": timedelta(hours=number),
        "device": UUID(int=number),
    }
    missing = list(values)[number % 3 :: 3] if number % 2 else []
    return Reading(**values | dict.fromkeys(missing))


def stored(session: Session, objects: list[Any]) -> None:
    """Rows have the values of their objects."""
    names = [attribute.key for attribute in type(objects[0]).__mapper__.column_attrs]
    before = [{name: getattr(one, name) for name in names} for one in objects]
    session.expire_all()
    for one, values in zip(objects, before, strict=True):
        assert {name: _comparable(getattr(one, name)) for name in names} == {
            name: _comparable(value) for name, value in values.items()
        }


def _comparable(value: Any) -> Any:
    # MySQL, MariaDB and SQLite have no time zones, and some have no float of 64 bits
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return round(value, 3) if isinstance(value, float) else value


@pytest.mark.parametrize("empty", [False, True])
def test_types_in_many_rows(session: Session, empty: bool) -> None:
    """Values of every type arrive unchanged in many rows, also if a column has none."""
    objects = [Reading() if empty else reading(number) for number in range(1100)]
    session.add_all(objects)
    session.flush()

    check(session, objects)
    stored(session, objects)


def test_other_types_in_many_rows(session: Session) -> None:
    """So do enums and JSON, beside SQL expressions as defaults."""
    objects = [Tagged(colour=Colour.RED, tags={"number": [number]}) for number in range(30)]
    session.add_all(objects)
    session.flush()

    check(session, objects)
    stored(session, objects)


@pytest.mark.parametrize("rows", [2, 30])
def test_default_without_parameters(session: Session, rows: int) -> None:
    """A default such as ``func.now()`` has no parameter in the INSERT."""
    objects = [Dated(name=str(number)) for number in range(rows)]
    session.add_all(objects)
    session.flush()

    check(session, objects)


@pytest.mark.parametrize("level", ["READ COMMITTED", "SERIALIZABLE", "AUTOCOMMIT"])
def test_collisions_among_many_rows(new_engine: Callable[..., Engine], engine: Engine, level: str) -> None:
    """Collisions in a flush of many rows are retried at each isolation level, in two columns at once."""
    if engine.name == "sqlite" and level == "READ COMMITTED":
        pytest.skip("SQLite has no such level")
    own = new_engine(engine.dialect.name, engine.url, isolation_level=level)
    with Session(own) as session:
        for rows in (8, 20) if level != "AUTOCOMMIT" or engine.name == "sqlite" else (28,):
            objects = [Pair(name=str(number)) for number in range(rows)]
            session.add_all(objects)
            session.flush()
            check(session, objects)
        session.rollback()


@on("postgresql")
def test_statement_that_a_listener_changes(engine: Engine, session: Session) -> None:
    """A listener may add a comment to the statement, and copy its parameters."""

    def comment(*args: Any) -> tuple[str, Any]:
        return f"{args[2]} /* app */", dict(args[3]) if isinstance(args[3], dict) else args[3]

    event.listen(engine, "before_cursor_execute", comment, retval=True)
    try:
        objects = [Pair(name=str(number)) for number in range(20)]
        session.add_all(objects)
        session.flush()
        more = [Pair(name=str(number)) for number in range(10)]
        session.add_all(more)
        session.flush()
    finally:
        event.remove(engine, "before_cursor_execute", comment)

    check(session, objects + more)
