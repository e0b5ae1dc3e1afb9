"""What ``insert_once`` takes for the same value: what the column makes of it on this database, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import (
    JSON,
    REAL,
    Date,
    DateTime,
    Double,
    Engine,
    Float,
    Interval,
    MetaData,
    Numeric,
    Time,
    TypeDecorator,
    delete,
    event,
    text,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on

from sqlalchemy_public_id import IdempotencyConflict, PublicIdMixin
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend


class Absolute(TypeDecorator[float]):
    """A type of the program for a number, which changes what it is given."""

    impl = Float
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Any) -> float | None:
        return None if value is None else abs(value)


class Base(DeclarativeBase):
    metadata = MetaData()


MILLISECONDS = (
    DateTime()
    .with_variant(mysql.DATETIME(fsp=3), "mysql", "mariadb")
    .with_variant(postgresql.TIMESTAMP(precision=3), "postgresql")
)


class Measure(PublicIdMixin, Base):
    __tablename__ = "measure"
    any_number: Mapped[Any | None] = mapped_column(Numeric)
    whole_number: Mapped[Any | None] = mapped_column(Numeric(10))
    price: Mapped[Any | None] = mapped_column(Numeric(24, 2))
    price_as_float: Mapped[Any | None] = mapped_column(Numeric(10, 2, asdecimal=False))
    plain: Mapped[Any | None] = mapped_column(Float)
    double: Mapped[Any | None] = mapped_column(Double)
    double_as_decimal: Mapped[Any | None] = mapped_column(Double(asdecimal=True))
    real: Mapped[Any | None] = mapped_column(REAL)
    single: Mapped[Any | None] = mapped_column(Float(24))
    precise: Mapped[Any | None] = mapped_column(Float(53))
    absolute: Mapped[Any | None] = mapped_column(Absolute)
    at: Mapped[Any | None] = mapped_column(DateTime)
    at_zone: Mapped[Any | None] = mapped_column(DateTime(timezone=True))
    at_milliseconds: Mapped[Any | None] = mapped_column(MILLISECONDS)
    day: Mapped[Any | None] = mapped_column(Date)
    clock: Mapped[Any | None] = mapped_column(Time)
    lasted: Mapped[Any | None] = mapped_column(Interval)
    data: Mapped[Any | None] = mapped_column(JSON)
    at_seconds: Mapped[Any | None] = mapped_column(
        DateTime().with_variant(sqlite.DATETIME(truncate_microseconds=True), "sqlite")
    )


FIRST = "izkpm55j334u"
NOON = datetime(2024, 5, 17, 12)
FRACTION = timedelta(seconds=0.9)
UTC = timezone.utc
EAST = timezone(timedelta(hours=9))


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    create(Base.metadata)
    return session


def is_repetition(db: Session, attribute: str, first: Any, again: Any) -> bool:
    """Whether a second insert with *again* is a repetition of one with *first*."""
    db.execute(delete(Measure))
    insert_once(db, Measure(public_id=FIRST, **{attribute: first}))
    db.commit()
    db.expunge_all()
    differing: tuple[str, ...] = ()
    try:
        insert_once(db, Measure(public_id=FIRST, **{attribute: again}))
    except IdempotencyConflict as conflict:
        differing = conflict.differing
    assert differing in ((), (attribute,))
    return not differing


OTHER: list[tuple[str, Any, Any]] = [
    ("price", Decimal(10), Decimal("10.4")),
    ("price", Decimal("10.00"), Decimal("10.01")),
    ("price_as_float", 10.0, 10.01),
    ("whole_number", Decimal(10), Decimal(11)),
    ("any_number", Decimal(10), Decimal(11)),
    ("plain", 1.5, 1.50002),
    ("double", 1700000000.0, 1700005000.0),
    ("double", 1.0, 1.0000000001),
    ("double_as_decimal", Decimal(1700000000), Decimal(1700005000)),
    ("real", 1.5, 1.50002),
    ("single", 1.5, 1.50002),
    ("precise", 1700000000.0, 1700005000.0),
    ("absolute", 1.5, -1.50002),
    ("at", NOON, NOON + timedelta(seconds=1)),
    ("at_zone", NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC) + timedelta(seconds=1)),
    ("at_milliseconds", NOON, NOON + timedelta(milliseconds=1)),
    ("day", date(2024, 5, 17), datetime(2024, 5, 18, 12)),
    ("day", date(2024, 5, 17), date(2024, 5, 18)),
    ("at", datetime(2024, 5, 17), date(2024, 5, 18)),
    ("clock", time(12), time(12, 0, 1)),
    ("lasted", timedelta(seconds=1), timedelta(seconds=2)),
    ("data", [1, 2], [1]),
    ("data", {"a": None}, {}),
    ("data", "1", 1),
]


def test_values_that_every_database_keeps_apart(db: Session) -> None:
    """Two values are a conflict if the column holds either."""
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


@on("postgresql")
def test_numeric_keeps_everything(db: Session) -> None:
    """A NUMERIC of PostgreSQL has as many digits as it was given."""
    assert not is_repetition(db, "any_number", Decimal(1), Decimal("1." + "0" * 40 + "1"))


REPEATED: list[tuple[str, Any]] = [
    ("any_number", Decimal("10.4")),
    ("any_number", 1 / 3),
    ("any_number", 7),
    ("whole_number", Decimal("10.4")),
    ("whole_number", Decimal("10.5")),
    ("price", Decimal("9.995")),
    ("price", Decimal("-9.985")),
    ("price", Decimal("12345678901234567890.12")),
    ("price", 1 / 3),
    ("price_as_float", 2 / 3),
    ("plain", 1234567.8912),
    ("plain", 1e-30),
    ("double", 1 / 3),
    ("double", 1.7976931348623157e308),
    ("double", -5e-300),
    ("double", 0.0),
    ("double", Decimal("0.1")),
    ("double_as_decimal", Decimal(1) / 3),
    ("double_as_decimal", Decimal("1e-12")),
    ("real", 1 / 3),
    ("precise", 1 / 3),
    ("absolute", -1 / 3),
    ("at", NOON + FRACTION),
    ("at", NOON + timedelta(microseconds=1)),
    ("at", date(2024, 5, 17)),
    ("at_zone", (NOON + FRACTION).replace(tzinfo=UTC)),
    ("at_zone", NOON + FRACTION),
    ("at_milliseconds", NOON + timedelta(microseconds=1999)),
    ("at_milliseconds", NOON + timedelta(microseconds=499)),
    ("at_seconds", NOON + FRACTION),
    ("day", date(2024, 5, 17)),
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
def test_numbers_that_are_none(db: Session) -> None:
    """Infinity repeats itself, and NaN is no number."""
    assert is_repetition(db, "single", float("inf"), float("inf"))
    assert not is_repetition(db, "double", float("nan"), 1.0)
    assert not is_repetition(db, "single", float("inf"), float("-inf"))


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
