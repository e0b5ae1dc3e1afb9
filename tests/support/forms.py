"""Forms with a column of every type, to test which values ``insert_once()`` considers equal."""

from __future__ import annotations

import enum
from typing import Any
from uuid import UUID

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
    func,
    select,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_public_id import IdempotencyConflict, PublicIdMixin
from sqlalchemy_public_id.idempotency import insert_once

FIRST = "izkpm55j334u"


class Folded(TypeDecorator[str]):
    """A text that the database changes on INSERT."""

    impl = String(40)
    cache_ok = True

    def bind_expression(self, bindvalue: Any) -> Any:
        return func.lower(bindvalue)


class Named(TypeDecorator[str]):
    """A number in the database, a string in Python."""

    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> int | None:
        return None if value is None else int(value.removeprefix("no. "))

    def process_result_value(self, value: int | None, dialect: Any) -> str | None:
        return None if value is None else f"no. {value}"


class Packed(TypeDecorator[UUID]):
    """A UUID in Python, bytes in the database."""

    impl = LargeBinary(16)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> bytes | None:
        return None if value is None else UUID(str(value)).bytes

    def process_result_value(self, value: Any, dialect: Any) -> UUID | None:
        return None if value is None else UUID(bytes=bytes(value))


class Absolute(TypeDecorator[float]):
    """An application's type for numbers, which changes values on the way to the database."""

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
    """A model with a column of every type that all databases have."""

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
    """A model with the column types of PostgreSQL."""

    __tablename__ = "special"
    ticket: Mapped[Any | None] = mapped_column(Uuid)
    machine: Mapped[Any | None] = mapped_column(String(40).with_variant(postgresql.MACADDR(), "postgresql"))
    address: Mapped[Any | None] = mapped_column(String(40).with_variant(postgresql.INET(), "postgresql"))
    numbers: Mapped[Any | None] = mapped_column(ARRAY(Integer).with_variant(JSON(), "sqlite", "mysql", "mariadb"))
    binary: Mapped[Any | None] = mapped_column(JSON().with_variant(postgresql.JSONB(), "postgresql"))


def is_repetition(db: Session, attribute: str, first: Any, again: Any) -> bool:
    """Return True if a second insert with *again* counts as a repetition of one with *first*."""
    model = Form if hasattr(Form, attribute) else Special
    db.execute(delete(model))
    insert_once(db, model(public_id=FIRST, **{attribute: first}))
    db.commit()
    db.expunge_all()
    differing: tuple[str, ...] = ()
    try:
        insert_once(db, model(public_id=FIRST, **{attribute: again}))
    except IdempotencyConflict as conflict:
        differing = conflict.differing
    assert db.scalar(select(func.count()).select_from(model)) == 1  # the transaction is still usable
    assert differing in ((), (attribute,))
    return not differing
