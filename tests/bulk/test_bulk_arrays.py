"""``bulk.insert()`` of many rows on PostgreSQL: arrays store what a flush stores, or the flush does the work."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from sqlalchemy import Column, Engine, ForeignKey, MetaData, TypeDecorator, UniqueConstraint, func, select, types
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import fast_ways, on
from support.rows import agree
from support.shapes import new_base
from support.ways import flush, insert_in_bulk, numbers

from sqlalchemy_public_id import (
    NanoId,
    ObjectId,
    PublicIdMixin,
    PublicIdType,
    Snowflake,
    Uuid7,
    bulk,
    public_id_column,
    testing,
)

pytestmark = [pytest.mark.backend, on("postgresql"), fast_ways]

ROWS = 30


class Doubled(TypeDecorator[int]):
    """A type defined by the program."""

    impl = types.Integer
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Any) -> int | None:
        return None if value is None else value * 2

    def process_result_value(self, value: int | None, dialect: Any) -> int | None:
        return None if value is None else value // 2


class Base(DeclarativeBase):
    metadata = MetaData()


class Plain(PublicIdMixin, Base):
    """One column of each type that is sent in an array."""

    __tablename__ = "plain"
    text: Mapped[str | None] = mapped_column(types.Text)
    string: Mapped[str | None] = mapped_column(types.String(20))
    char: Mapped[str | None] = mapped_column(types.CHAR(3))
    small: Mapped[int | None] = mapped_column(types.SmallInteger)
    number: Mapped[int | None]
    big: Mapped[int | None] = mapped_column(types.BigInteger)
    ratio: Mapped[float | None] = mapped_column(types.Double)
    price: Mapped[Decimal | None] = mapped_column(types.Numeric(10, 2))
    flag: Mapped[bool | None] = mapped_column(types.Boolean)
    day: Mapped[date | None] = mapped_column(types.Date)
    at: Mapped[datetime | None] = mapped_column(types.DateTime)
    zoned: Mapped[datetime | None] = mapped_column(types.DateTime(timezone=True))
    hour: Mapped[time | None] = mapped_column(types.Time)
    span: Mapped[timedelta | None] = mapped_column(types.Interval)
    key: Mapped[uuid.UUID | None] = mapped_column(types.Uuid)
    served: Mapped[str | None] = mapped_column(types.String(20), server_default="served")


class Native(PublicIdMixin, Base):
    """Ids of each storage."""

    __tablename__ = "native"
    __public_id__ = Uuid7()
    object_id: Mapped[str] = public_id_column(ObjectId())
    snowflake: Mapped[str] = public_id_column(Snowflake(machine_id=1))
    few: Mapped[str] = public_id_column(NanoId(length=2, alphabet="0123456789"))
    number: Mapped[int | None]


class Checked(PublicIdMixin, Base):
    __tablename__ = "checked"
    __table_args__ = (UniqueConstraint("number", deferrable=True),)
    number: Mapped[int]


class Made(PublicIdMixin, Base):
    __tablename__ = "made"
    name: Mapped[str] = mapped_column(types.String(20))
    made: Mapped[int | None] = mapped_column(default=lambda: 7)
    computed: Mapped[int | None] = mapped_column(default=func.abs(-5))


class Hidden(PublicIdMixin, Base):
    """A table with a column that is not mapped."""

    __tablename__ = "hidden"
    __table_args__ = (Column("hidden", types.Integer, default=lambda: 7),)
    __mapper_args__: ClassVar[dict[str, Any]] = {"exclude_properties": ["hidden"]}
    name: Mapped[str] = mapped_column(types.String(20))


LONG = "a" * 70


class Long(PublicIdMixin, Base):
    __tablename__ = "long"
    locals()[f"{LONG}a"] = mapped_column("one", types.Integer, key=f"{LONG}a")
    locals()[f"{LONG}b"] = mapped_column("two", types.Integer, key=f"{LONG}b")


@pytest.fixture(autouse=True)
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def plain(number: int) -> Plain:
    if number % 3 == 0:
        return Plain(number=number)
    return Plain(
        text=f"ünïcode {number} {{}},\"'\\ %s :x",
        string="a" * 20,
        char="abc",
        small=-number,
        number=number,
        big=2**62 + number,
        ratio=number / 7,
        price=Decimal("12.34") + number,
        flag=number % 2 == 0,
        day=date(2026, 11, 22),
        at=datetime(2026, 11, 22, 1, 2, 3, number),
        zoned=datetime(2026, 11, 22, 1, 2, 3, number, tzinfo=timezone.utc),
        hour=time(1, 2, 3, number),
        span=timedelta(days=number, microseconds=5),
        key=uuid.uuid4(),
        served=None if number % 2 else "own",
    )


def test_types(session: Session, statements: list[str]) -> None:
    """Each object agrees with its row, whatever the column types; rows with the same columns take one statement."""
    objects = sorted((plain(number) for number in range(3 * ROWS)), key=lambda each: each.served is None)
    statements.clear()
    bulk.insert(session, objects)

    assert [sql.startswith("INSERT") and "unnest" in sql for sql in statements] == [True, True]
    agree(session, objects)


LEFT_TO_THE_FLUSH: dict[str, tuple[Any, Any]] = {
    "document": (types.JSON(), {"a": 1}),
    "enumeration": (types.Enum("red", "blue", name="colour"), "red"),
    "array": (types.ARRAY(types.Integer), [1]),
    "type of the program": (Doubled(), 7),
}


@pytest.mark.parametrize("name", LEFT_TO_THE_FLUSH)
def test_types_that_are_left_to_the_flush(
    create: Callable[[MetaData], None], session: Session, statements: list[str], name: str
) -> None:
    """Documents, enumerations, arrays and types of the program are inserted by the unit of work."""
    type_, value = LEFT_TO_THE_FLUSH[name]

    class Other(PublicIdMixin, new_base()):
        __tablename__ = "other"
        value: Mapped[Any] = mapped_column(type_)

    create(Other.metadata)
    statements.clear()
    objects = insert_in_bulk(session, Other, [{"value": value}] * ROWS)
    assert not any("unnest" in sql for sql in statements)
    session.expire_all()

    assert [each.value for each in objects] == [value] * ROWS
    session.rollback()


def test_native_ids(session: Session) -> None:
    """Rows with ids that are stored as numbers, and with several ids, are retried even if one id collides often."""
    objects = [each for batch in range(3) for each in insert_in_bulk(session, Native, numbers(ROWS, batch * ROWS))]

    agree(session, objects)
    assert len({each.few for each in objects}) == 3 * ROWS


STRINGS = ["", "\x1f", "a\x1fb", "ünï", "NULL", "null", "{}", '"', "\\", " ", "\t\n", "%s", ":x", "€" * 20]


@pytest.mark.parametrize("values", [STRINGS, [""]], ids=["all", "empty"])
def test_strings(session: Session, values: list[str]) -> None:
    """Strings of every kind are stored unchanged, also in a row that is retried after a collision."""
    [taken] = flush(session, Plain, [{}])
    rows = [dict.fromkeys(("text", "string"), values[at % len(values)]) for at in range(ROWS)]
    with testing.collisions(Plain, taken.public_id):
        objects = insert_in_bulk(session, Plain, rows)

    agree(session, objects)
    session.expire_all()
    assert [{"text": each.text, "string": each.string} for each in objects] == rows


@pytest.mark.parametrize("value", [{"string": "a" * 21}, {"char": "abcd"}, {"small": 40_000}, {"text": "a\0"}])
def test_values_that_do_not_fit(session: Session, value: dict[str, Any]) -> None:
    """A value that does not fit the column raises and is not truncated."""
    with pytest.raises((DBAPIError, DataError)):
        insert_in_bulk(session, Plain, [{}] * ROWS + [value])
    session.rollback()
    assert session.scalar(select(func.count()).select_from(Plain)) == 0


def test_ids_of_the_application(session: Session) -> None:
    """A given id that is passed twice or is already taken raises the IntegrityError of the database, which names it."""
    taken = NanoId().generate()
    session.add(Plain(public_id=taken))
    session.commit()
    for ids in ([taken], [twice := NanoId().generate(), twice]):
        with pytest.raises(IntegrityError) as caught:
            first, last = NanoId().generate_many(ROWS), NanoId().generate_many(ROWS)
            insert_in_bulk(session, Plain, [{"public_id": id} for id in (*first, *ids, *last)])
        session.rollback()
        assert f"({ids[0]}) already exists" in str(caught.value.orig)

    assert session.scalar(select(func.count()).select_from(Plain)) == 1


@pytest.mark.parametrize("level", ["REPEATABLE READ", "AUTOCOMMIT"])
def test_other_transactions(new_engine: Callable[..., Engine], engine: Engine, level: str) -> None:
    """At other isolation levels collided rows cannot be skipped, so the unit of work inserts all rows."""
    with Session(new_engine("postgresql", engine.url, isolation_level=level)) as session:
        objects = [plain(number) for number in range(ROWS)]
        bulk.insert(session, objects)
        session.commit()
        agree(session, objects)


def test_deferrable_constraint(session: Session) -> None:
    """ON CONFLICT does not support deferrable constraints, so the unit of work inserts the rows."""
    agree(session, insert_in_bulk(session, Checked, numbers(ROWS)))


MIXED: dict[str, list[Any]] = {
    "zoned": [datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5))), datetime(2026, 1, 1, 12)],
    "at": [datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))],
    "ratio": [1, 0.5],
    "price": [Decimal("1.25"), 3],
    "day": [date(2026, 1, 1), datetime(2026, 1, 1, 12)],
    "big": [1, 2**62],
}


@pytest.mark.parametrize("name", MIXED)
def test_values_of_several_types(session: Session, name: str) -> None:
    """A column with values of several Python types is stored as a flush stores it."""
    values = [MIXED[name][number % 2] for number in range(ROWS)]
    for write in (flush, insert_in_bulk):
        write(session, Plain, [{"number": at, name: value} for at, value in enumerate(values)])
    column = getattr(Plain, name)
    rows = session.execute(select(Plain.number, column).order_by(Plain.number, Plain.id)).all()

    assert len(rows) == 2 * ROWS
    assert [row[1] for row in rows[::2]] == [row[1] for row in rows[1::2]]


def test_defaults(new_engine: Callable[..., Engine], engine: Engine, session: Session) -> None:
    """Column defaults are applied, also to unmapped columns and on engines without "insertmanyvalues"."""
    for bind in (engine, new_engine("postgresql", engine.url, use_insertmanyvalues=False)):
        with Session(bind) as other:
            for model in (Made, Hidden):
                insert_in_bulk(other, model, [{"name": "a"}] * ROWS)
            other.commit()

    assert set(session.execute(select(Made.made, Made.computed))) == {(7, 5)}
    assert set(session.scalars(select(Hidden.__table__.c.hidden))) == {7}


class Account(PublicIdMixin, Base):
    """Refers to public ids of other rows, with a default for one of them."""

    __tablename__ = "account"
    plan: Mapped[str | None] = mapped_column(
        PublicIdType(NanoId()), ForeignKey("checked.public_id"), default=lambda: "izkpm55j334u"
    )
    parent: Mapped[str | None] = mapped_column(PublicIdType(NanoId()), ForeignKey("checked.public_id"))


def test_default_of_a_column_with_ids_of_others(session: Session) -> None:
    """The default of a column with other rows' ids is called for each row, as in a flush."""
    flush(session, Checked, [{"public_id": "izkpm55j334u", "number": 1}])
    objects = insert_in_bulk(session, Account, [{}] * ROWS)

    assert {(each.plan, each.parent) for each in objects} == {("izkpm55j334u", None)}
    agree(session, objects)


def test_long_keys(session: Session) -> None:
    """Columns whose keys start with the same 63 characters, the longest name in PostgreSQL, are kept apart."""
    rows = [{f"{LONG}a": number, f"{LONG}b": -number} for number in range(ROWS)]
    agree(session, insert_in_bulk(session, Long, rows))


def test_rows_that_draw_one_id(session: Session) -> None:
    """Of rows that draw the same id, one keeps it and each of the others gets an id of its own."""
    with testing.fixed_ids(Plain, "a" * 12, "b" * 12, "a" * 12, "a" * 12):
        rows = [Plain(number=number) for number in range(ROWS)]
        bulk.insert(session, rows)

    agree(session, rows)
    stored = dict(session.execute(select(Plain.public_id, Plain.number)).all())
    assert stored == {row.public_id: row.number for row in rows}
    assert len(stored) == ROWS
