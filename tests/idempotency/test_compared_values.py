"""What ``insert_once()`` takes for the same value: what type and column make of it, and nothing else."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import (
    ARRAY,
    BINARY,
    CHAR,
    JSON,
    REAL,
    BigInteger,
    Date,
    DateTime,
    Double,
    Engine,
    Enum,
    Float,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Text,
    Time,
    TypeDecorator,
    Uuid,
    delete,
    event,
    func,
    select,
    text,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on
from support.stories import tell

from conftest import Statements
from sqlalchemy_public_id import IdempotencyConflict, PublicIdMixin
from sqlalchemy_public_id.asyncio.idempotency import insert_once as async_once
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend

ID = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
FIRST, SECOND = "izkpm55j334u", "8w0tnq3c5yzd"
NOON = datetime(2024, 5, 17, 12)
FRACTION = timedelta(seconds=0.9)
UTC, EAST = timezone.utc, timezone(timedelta(hours=9))


class Folded(TypeDecorator[str]):
    """A text that the database changes on its way in."""

    impl = String(40)
    cache_ok = True

    def bind_expression(self, bindvalue: Any) -> Any:
        return func.lower(bindvalue)


class Named(TypeDecorator[str]):
    """A number in the database, a text in the program."""

    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> int | None:
        return None if value is None else int(value.removeprefix("no. "))

    def process_result_value(self, value: int | None, dialect: Any) -> str | None:
        return None if value is None else f"no. {value}"


class Packed(TypeDecorator[UUID]):
    """A UUID in the program, bytes in the database."""

    impl = LargeBinary(16)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> bytes | None:
        return None if value is None else UUID(str(value)).bytes

    def process_result_value(self, value: Any, dialect: Any) -> UUID | None:
        return None if value is None else UUID(bytes=bytes(value))


class Absolute(TypeDecorator[float]):
    """A type of the program for a number, which changes what it is given."""

    impl = Float
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Any) -> float | None:
        return None if value is None else abs(value)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Base(DeclarativeBase):
    metadata = MetaData()


class Form(PublicIdMixin, Base):
    __tablename__ = "form"
    number: Mapped[Any | None] = mapped_column(Integer)
    small: Mapped[Any | None] = mapped_column(SmallInteger)
    big: Mapped[Any | None] = mapped_column(BigInteger().with_variant(mysql.BIGINT(unsigned=True), "mysql", "mariadb"))
    named: Mapped[Any | None] = mapped_column(Named)
    any_number: Mapped[Any | None] = mapped_column(Numeric)
    whole_number: Mapped[Any | None] = mapped_column(Numeric(10))
    price: Mapped[Any | None] = mapped_column(Numeric(24, 2))
    price_as_float: Mapped[Any | None] = mapped_column(Numeric(10, 2, asdecimal=False))
    unsigned: Mapped[Any | None] = mapped_column(
        Numeric(10, 2).with_variant(mysql.NUMERIC(10, 2, unsigned=True), "mysql", "mariadb")
    )
    plain: Mapped[Any | None] = mapped_column(Float)
    double: Mapped[Any | None] = mapped_column(Double)
    double_as_decimal: Mapped[Any | None] = mapped_column(Double(asdecimal=True))
    real: Mapped[Any | None] = mapped_column(REAL)
    single: Mapped[Any | None] = mapped_column(Float(24))
    precise: Mapped[Any | None] = mapped_column(Float(53))
    absolute: Mapped[Any | None] = mapped_column(Absolute)
    name: Mapped[Any | None] = mapped_column(String(40))
    note: Mapped[Any | None] = mapped_column(Text)
    fixed: Mapped[Any | None] = mapped_column(CHAR(5))
    loose: Mapped[Any | None] = mapped_column(
        String(40)
        .with_variant(String(40, collation="NOCASE"), "sqlite")
        .with_variant(mysql.VARCHAR(40, charset="utf8mb4", collation="utf8mb4_general_ci"), "mysql", "mariadb")
        .with_variant(String(40, collation="C"), "postgresql")
    )
    folded: Mapped[Any | None] = mapped_column(Folded)
    colour: Mapped[Any | None] = mapped_column(Enum(Colour))
    day: Mapped[Any | None] = mapped_column(Date)
    at: Mapped[Any | None] = mapped_column(DateTime)
    at_zone: Mapped[Any | None] = mapped_column(DateTime(timezone=True))
    at_milliseconds: Mapped[Any | None] = mapped_column(
        DateTime()
        .with_variant(mysql.DATETIME(fsp=3), "mysql", "mariadb")
        .with_variant(postgresql.TIMESTAMP(precision=3), "postgresql")
    )
    at_seconds: Mapped[Any | None] = mapped_column(
        DateTime().with_variant(sqlite.DATETIME(truncate_microseconds=True), "sqlite")
    )
    clock: Mapped[Any | None] = mapped_column(Time)
    lasted: Mapped[Any | None] = mapped_column(Interval)
    data: Mapped[Any | None] = mapped_column(JSON)
    photo: Mapped[Any | None] = mapped_column(LargeBinary)
    packed: Mapped[Any | None] = mapped_column(Packed)
    padded: Mapped[Any | None] = mapped_column(BINARY(4).with_variant(LargeBinary(), "postgresql"))
    flags: Mapped[Any | None] = mapped_column(Integer().with_variant(mysql.BIT(8), "mysql", "mariadb"))
    stamp: Mapped[Any | None] = mapped_column(DateTime().with_variant(mysql.TIMESTAMP(fsp=3), "mysql", "mariadb"))


class Special(PublicIdMixin, Base):
    """Columns of PostgreSQL."""

    __tablename__ = "special"
    ticket: Mapped[Any | None] = mapped_column(Uuid)
    machine: Mapped[Any | None] = mapped_column(String(40).with_variant(postgresql.MACADDR(), "postgresql"))
    address: Mapped[Any | None] = mapped_column(String(40).with_variant(postgresql.INET(), "postgresql"))
    numbers: Mapped[Any | None] = mapped_column(ARRAY(Integer).with_variant(JSON(), "sqlite", "mysql", "mariadb"))
    binary: Mapped[Any | None] = mapped_column(JSON().with_variant(postgresql.JSONB(), "postgresql"))


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    create(Base.metadata)
    return session


def is_repetition(db: Session, attribute: str, first: Any, again: Any, model: Any = Form) -> bool:
    """Whether a second insert with *again* is a repetition of one with *first*."""
    db.execute(delete(model))
    insert_once(db, model(public_id=FIRST, **{attribute: first}))
    db.commit()
    db.expunge_all()
    differing: tuple[str, ...] = ()
    try:
        insert_once(db, model(public_id=FIRST, **{attribute: again}))
    except IdempotencyConflict as conflict:
        differing = conflict.differing
    assert db.scalar(select(func.count()).select_from(model)) == 1  # the transaction goes on
    assert differing in ((), (attribute,))
    return not differing


SAME: list[tuple[str, Any, Any]] = [
    ("number", 5, 5.0),
    ("number", None, None),
    ("big", 2**63 - 1, 2**63 - 1),
    ("named", "no. 5", "5"),
    ("price", "9.99", Decimal("9.990")),
    ("price", 7, Decimal(7)),
    ("fixed", "EUR", "EUR  "),
    ("loose", "a", "a"),
    ("note", "  ü 𝄞 ' \\ % :x ", "  ü 𝄞 ' \\ % :x "),
    ("note", func.lower("ADA"), func.lower("EVE")),  # expressions are not compared
    ("folded", "Ada", "ADA"),
    ("colour", Colour.RED, "RED"),
    ("data", [5], [5.0]),
    ("data", {1: (1, 2)}, {1: (1, 2)}),
    ("photo", b"\xff\xd8", b"\xff\xd8"),
    ("packed", str(ID), ID),
    ("packed", ID, str(ID).upper()),
    ("padded", b"\xff", b"\xff"),
    ("flags", 5, 5),
    ("stamp", datetime(2024, 5, 17, 12, 0, 0, 123456), datetime(2024, 5, 17, 12, 0, 0, 123456)),
    ("data", {"b": [1, 2.5, None], "a": {"ü": True}}, {"a": {"ü": True}, "b": [1, 2.5, None]}),
    ("data", JSON.NULL, JSON.NULL),
    ("data", [], []),
]


def test_what_types_and_columns_change(db: Session) -> None:
    """Values are the same if type and column make the same of them."""
    assert [row for row in SAME if not is_repetition(db, *row)] == []


OTHER: list[tuple[str, Any, Any]] = [
    ("number", "5", 6),
    ("number", 5, "6"),
    ("number", "5", None),
    ("number", None, "5"),
    ("number", None, 0),
    ("number", 0, None),
    ("number", 1, "10"),
    ("big", 2**62, "4611686018427387905"),
    ("big", 2**62, str(2**62 - 1)),
    ("named", "no. 5", "6"),
    ("price", Decimal(10), Decimal("10.4")),
    ("price", "9.99", "9.98"),
    ("price_as_float", 10.0, 10.01),
    ("whole_number", Decimal(10), Decimal(11)),
    ("any_number", Decimal(10), Decimal(11)),
    ("plain", 1.5, 1.50002),
    ("plain", None, 1.5),
    ("double", 1700000000.0, 1700005000.0),
    ("double", 1.0, 1.0000000001),
    ("double_as_decimal", Decimal(1700000000), Decimal(1700005000)),
    ("real", 1.5, 1.50002),
    ("single", 1.5, 1.50002),
    ("precise", 1700000000.0, 1700005000.0),
    ("absolute", 1.5, -1.50002),
    ("name", 5, 6),
    ("name", 5, "5 "),
    ("name", "05", 5),
    ("name", "5.0", 5),
    ("name", "a", "A"),
    ("name", "", None),
    ("name", None, 5),
    ("name", "None", None),
    ("name", "true", 1),
    ("name", "é", "e"),
    ("note", "7", 70),
    ("note", "1", "1 "),
    ("fixed", "5", 50),
    ("loose", "a", "A"),
    ("loose", "5", 50),
    ("loose", "5 ", 5),
    ("folded", "ada", "eve"),
    ("colour", Colour.RED, Colour.BLUE),
    ("at", NOON, NOON + timedelta(seconds=1)),
    ("at", datetime(2024, 5, 17), date(2024, 5, 18)),
    ("at_zone", NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC) + timedelta(seconds=1)),
    ("at_milliseconds", NOON, NOON + timedelta(milliseconds=1)),
    ("day", date(2024, 5, 17), datetime(2024, 5, 18, 12)),
    ("day", date(2024, 5, 17), date(2024, 5, 18)),
    ("clock", time(12), time(12, 0, 1)),
    ("lasted", timedelta(seconds=1), timedelta(seconds=2)),
    ("data", [1, 2], [1]),
    ("data", [], {}),
    ("data", {"a": None}, {}),
    ("data", {"a": "5"}, {"a": 5}),
    ("photo", b"\xff\xd8", b"\x89PNG"),
    ("photo", b"\x00", b"\xff\xfe"),
    ("packed", str(ID), str(ID).replace("6", "7")),
    ("padded", b"\xff", b"\xfe"),
    ("flags", 5, 6),
    ("stamp", datetime(2024, 5, 17, 12, 0, 0, 123456), datetime(2024, 5, 17, 12, 0, 0, 124567)),
]


def test_another_value(db: Session) -> None:
    """Values that the database keeps apart conflict, whatever their type, also if a collation takes both for one."""
    assert [row for row in OTHER if is_repetition(db, *row)] == []


EXACT: list[tuple[str, Any, Any]] = [
    ("any_number", Decimal(10), Decimal("10.4")),
    ("any_number", Decimal("10.5"), Decimal(11)),
    ("plain", 1700000000.0, 1700000001.0),
    ("at", NOON, NOON + FRACTION),
    ("at", NOON, NOON + timedelta(microseconds=1)),
    ("at", NOON + timedelta(milliseconds=1), NOON + timedelta(microseconds=1900)),
    ("at_zone", NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC) + FRACTION),
    ("clock", time(12), time(12, 0, 0, 900000)),
    ("lasted", timedelta(seconds=1), timedelta(seconds=1) + FRACTION),
]


@on("sqlite", "postgresql")
def test_values_that_differ_by_what_is_kept(db: Session) -> None:
    """A column that keeps all digits tells values apart that differ in the last ones, also from whole ones."""
    assert [row for row in EXACT if is_repetition(db, *row)] == []


REPEATED: list[tuple[str, Any]] = [
    ("any_number", Decimal("10.4")),
    ("any_number", 1 / 3),
    ("whole_number", Decimal("10.4")),
    ("whole_number", Decimal("10.5")),
    ("price", Decimal("9.995")),
    ("price", Decimal("12345678901234567890.12")),
    ("price_as_float", 2 / 3),
    ("plain", 1234567.8912),
    ("plain", 1e-30),
    ("double", 1 / 3),
    ("double", 1.7976931348623157e308),
    ("double", -5e-300),
    ("double", Decimal("0.1")),
    ("double_as_decimal", Decimal(1) / 3),
    ("real", 1 / 3),
    ("precise", 1 / 3),
    ("absolute", -1 / 3),
    ("at", NOON + FRACTION),
    ("at", date(2024, 5, 17)),
    ("at_zone", (NOON + FRACTION).replace(tzinfo=UTC)),
    ("at_zone", NOON + FRACTION),
    ("at_milliseconds", NOON + timedelta(microseconds=1999)),
    ("at_milliseconds", NOON + timedelta(microseconds=499)),
    ("at_seconds", NOON + FRACTION),
    ("day", NOON),
    ("clock", time(12, 0, 0, 900000)),
    ("lasted", timedelta(days=3, seconds=1) + FRACTION),
    ("lasted", -FRACTION),
    ("data", {"a": [1, 1.0, True, None, "ü", 1e20, 2**53]}),
]


def test_value_that_is_sent_again(db: Session) -> None:
    """The same value is no conflict, whatever the column has made of it."""
    assert [row for row in REPEATED if not is_repetition(db, *row, row[1])] == []


@on("sqlite", "postgresql", "mysql")
def test_single_precision(db: Session) -> None:
    """So it is with a FLOAT of single precision, except on MariaDB, which shows a CAST to it with other digits."""
    assert is_repetition(db, "single", 1234567.8912, 1234567.8912)


@on("postgresql")
def test_numbers_of_postgresql(db: Session) -> None:
    """Infinity repeats itself, NaN is no number, and a NUMERIC has as many digits as it was given."""
    assert is_repetition(db, "single", float("inf"), float("inf"))
    assert not is_repetition(db, "double", float("nan"), 1.0)
    assert not is_repetition(db, "single", float("inf"), float("-inf"))
    assert not is_repetition(db, "any_number", Decimal(1), Decimal("1." + "0" * 40 + "1"))


Row = tuple[str, Any, Any, bool]
"""An attribute, the first value, another one, and whether both are the same for the database."""

TIMES: list[Row] = [
    ("day", "2024-01-01", "2024-01-01", True),
    ("day", "2024-01-01", date(2024, 1, 1), True),
    ("day", date(2024, 1, 1), "2024-01-01", True),
    ("day", "2024-01-01 05:00:00", "2024-01-01", True),
    ("day", "2024-01-01", "2024-01-02", False),
    ("day", "2024-01-01", None, False),
    ("at", "2024-01-01 05:00:00", "2024-01-01 05:00:00", True),
    ("at", "2024-01-01T05:00:00", datetime(2024, 1, 1, 5), True),
    ("at", "2024-01-01T05:00:00.9", "2024-01-01T05:00:00.9", True),
    ("at", "2024-01-01", date(2024, 1, 1), True),
    ("at", datetime(2024, 1, 1, 5), "2024-01-01 05:00:01", False),
    ("clock", "12:30", "12:30", True),
    ("clock", "12:30", time(12, 30), True),
    ("clock", "12:30", "12:31", False),
]


@on("postgresql", "mysql", "mariadb")
def test_times_as_text(db: Session) -> None:
    """A time as a text, which these databases take, is the time that they make of it. (For SQLite it is none.)"""
    assert [row for row in TIMES if is_repetition(db, *row[:3]) != row[3]] == []


@pytest.mark.parametrize(
    ("again", "same"),
    [
        ("2024-05-17T14:00:00+02:00", True),
        ("2024-05-17T12:00:00Z", True),
        (datetime(2024, 5, 17, 21, tzinfo=timezone(timedelta(hours=9))), True),
        ("2024-05-17T14:00:00+03:00", False),
        ("2024-05-17T12:00:00.000001Z", False),
    ],
)
@on("postgresql")
def test_instants_as_text(db: Session, again: Any, same: bool) -> None:
    """A time with a zone is an instant, however it is written."""
    assert is_repetition(db, "at_zone", "2024-05-17T14:00:00+02:00", again) == same


OF_POSTGRESQL: list[Row] = [
    ("ticket", str(ID), str(ID).upper(), True),
    ("ticket", str(ID), ID, True),
    ("ticket", ID, str(ID).replace("6", "7"), False),
    ("ticket", None, str(ID), False),
    ("address", IPv4Address("10.0.0.1"), IPv4Address("10.0.0.1"), True),
    ("address", "10.0.0.1", "10.0.0.1", True),
    ("address", "10.0.0.1", "10.0.0.2", False),
    ("machine", "08-00-2B-01-02-03", "08:00:2b:01:02:03", True),
    ("machine", "08-00-2B-01-02-03", "08:00:2b:01:02:04", False),
    ("numbers", ["1", "2"], (1, 2), True),
    ("numbers", (1, 2), (1, 3), False),
    ("numbers", (1, 2), (1, 2, 3), False),
    ("binary", {"a": 1e25, "b": 1}, {"b": 1, "a": 10**25}, True),
    ("binary", {"a": 10**25}, {"a": 10**25 + 1}, False),
]


@on("postgresql")
def test_types_of_postgresql(db: Session) -> None:
    """So it is with every type of the database."""
    assert [row for row in OF_POSTGRESQL if is_repetition(db, *row[:3], Special) != row[3]] == []


@on("mysql", "mariadb")
def test_cast_that_is_refused(db: Session, statements: Statements) -> None:
    """Where the database cannot be asked, Python decides, for this value alone, and the transaction goes on."""
    assert is_repetition(db, "unsigned", Decimal("9.99"), Decimal("9.99"))
    assert not is_repetition(db, "unsigned", Decimal("9.99"), Decimal("9.98"))
    assert [each for each in statements if "UNSIGNED)" in each]
    insert_once(db, Form(public_id=SECOND, unsigned=Decimal("9.99"), price=Decimal("9.994999")))
    again = Form(public_id=SECOND, unsigned=Decimal("9.98"), price=Decimal("9.994999"))
    with pytest.raises(IdempotencyConflict) as caught:
        insert_once(db, again)
    assert caught.value.differing == ("unsigned",)


OF_SQLITE: list[tuple[str, Any, Any]] = [
    ("number", 5, "5x"),
    ("number", 5, "5.7"),
    ("number", "x", 0),
    ("number", 50, "5_0"),
    ("name", "5", b"5"),
    ("name", b"5", "5"),
]


@on("sqlite")
def test_what_sqlite_takes_for_a_number(db: Session) -> None:
    """SQLite stores anything anywhere, and a CAST would find a number in it."""
    assert [row for row in OF_SQLITE if is_repetition(db, *row)] == []


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("value", [NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=EAST), NOON])
@on("postgresql")
def test_time_zones(db: Session, engine: Engine, zone: str, value: datetime) -> None:
    """PostgreSQL converts between times with and without a zone by the zone of the session; so does the comparison."""

    @event.listens_for(engine, "begin")
    def _(connection: Any) -> None:
        connection.execute(text(f"SET LOCAL TIME ZONE '{zone}'"))

    for attribute in ("at", "at_zone", "day"):
        assert is_repetition(db, attribute, value, value)
        assert not is_repetition(db, attribute, value, value + timedelta(days=1))


@on("sqlite", "mysql", "mariadb")
def test_time_zones_that_are_dropped(db: Session) -> None:
    """Elsewhere the zone is dropped, and the time on the clock counts."""
    for attribute in ("at", "at_zone"):
        assert is_repetition(db, attribute, NOON.replace(tzinfo=EAST), NOON.replace(tzinfo=EAST))
        assert not is_repetition(db, attribute, NOON.replace(tzinfo=EAST), NOON.replace(tzinfo=EAST, hour=13))


def test_serializer_of_the_engine(engine: Engine, create: Callable[[MetaData], None], new_engine: Any) -> None:
    """JSON is made as the engine makes it, of what the standard library cannot serialize, too."""
    create(Base.metadata)
    own = new_engine(engine.name, engine.url, json_serializer=lambda value: json.dumps(value, default=str))
    with Session(own) as session:
        assert is_repetition(session, "data", {"on": date(2024, 1, 1)}, {"on": date(2024, 1, 1)})
        assert is_repetition(session, "data", {"on": date(2024, 1, 1)}, {"on": "2024-01-01"})
        assert not is_repetition(session, "data", {"on": date(2024, 1, 1)}, {"on": date(2024, 1, 2)})


def test_async(async_engine: AsyncEngine) -> None:
    """Asynchronous drivers are asked as well."""
    values = {"number": 5, "price": Decimal("9.994999"), "folded": "Ada", "at": datetime(2024, 5, 17, 12, 0, 0, 600000)}

    async def story(session: AsyncSession) -> None:
        assert (await async_once(session, Form(public_id=FIRST, **values)))[1] is True
        await session.commit()
        assert (await async_once(session, Form(public_id=FIRST, **values)))[1] is False
        again = Form(public_id=FIRST, **values | {"number": 6, "price": Decimal(6)})
        with pytest.raises(IdempotencyConflict) as caught:
            await async_once(session, again)
        assert caught.value.differing == ("number", "price")
        assert (await async_once(session, again, compare=["folded"]))[1] is False

    tell(async_engine, Base.metadata, story)


def test_the_database_is_asked_once(db: Session, engine: Engine) -> None:
    """However many values have changed, one SELECT compares them, and only then there is one."""
    values = {"folded": "ADA", "price": Decimal("9.994999"), "small": 3}
    insert_once(db, Form(public_id=FIRST, **values))
    db.commit()
    sent: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *call: sent.append(call[2]))
    assert insert_once(db, Form(public_id=FIRST, **values))[1] is False

    assert len([statement for statement in sent if "value_0" in statement]) == 1
    sent.clear()
    assert insert_once(db, Form(public_id=FIRST, small=3))[1] is False
    assert not [statement for statement in sent if "value_0" in statement]
    with pytest.raises(IdempotencyConflict) as caught:
        insert_once(db, Form(public_id=FIRST, **values | {"folded": "eve", "small": 4}))
    assert caught.value.differing == ("small", "folded")
