"""Writes that bypass the flush never store the placeholder of a reference, whatever the driver makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import BigInteger, ForeignKey, MetaData, String, bindparam, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, foreign, mapped_column, relationship
from support.async_sessions import tell

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class Firm(PublicIdMixin, Base):
    __tablename__ = "firm"
    __public_id__ = NanoId(prefix="rbkfirm")
    code: Mapped[str] = mapped_column(String(90), unique=True)


class Offer(PublicIdMixin, Base):
    """Has three foreign keys, only one of which has a constraint that would reject an invalid key."""

    __tablename__ = "offer"
    __public_id__ = NanoId(prefix="rbkoffer")
    firm_id: Mapped[int | None] = mapped_column(ForeignKey(Firm.id))
    firm: Mapped[Firm | None] = relationship()
    firm_public_id: Mapped[str | None] = public_ref("firm")
    code: Mapped[str | None] = mapped_column(String(90))
    coded: Mapped[Firm | None] = relationship(primaryjoin=lambda: foreign(Offer.code) == Firm.code)
    coded_public_id: Mapped[str | None] = public_ref("coded")
    number: Mapped[int | None] = mapped_column(BigInteger)
    numbered: Mapped[Firm | None] = relationship(primaryjoin=lambda: foreign(Offer.number) == Firm.id)
    numbered_public_id: Mapped[str | None] = public_ref("numbered")


class Note(PublicIdMixin, Base):
    """Has no references, but a column into which a placeholder may be copied."""

    __tablename__ = "note"
    __public_id__ = NanoId(prefix="rbknote")
    text: Mapped[str | None] = mapped_column(String(90))


FIRM = "rbkfirm_000000000001"
KEYS = {"firm_public_id": "firm_id", "coded_public_id": "code", "numbered_public_id": "number"}
SQLALCHEMY = tuple(map(int, sqlalchemy.__version__.split(".")[:2]))
REFUSED = r"_public_id = 'rbkfirm_000000000001' is not known before the next flush"
BY_DRIVER = f"UnresolvedKey|{REFUSED}"
"""The error of a driver that does not know the type; the drivers of MySQL and MariaDB convert it to text."""


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    """Return a session with one firm, with the database in its most permissive mode."""
    create(Base.metadata)
    session.add(Firm(public_id=FIRM, code="x"))
    session.commit()
    if session.get_bind().dialect.name in ("mysql", "mariadb"):
        session.execute(text("SET sql_mode = ''"))
        session.commit()
    return session


@pytest.mark.backend
@pytest.mark.parametrize(("name", "key"), list(KEYS.items()))
def test_bulk_save_objects(db: Session, name: str, key: str) -> None:
    """``bulk_save_objects()`` raises with every driver, for the INSERT and for the UPDATE.

    This holds even if only the last object has a placeholder.
    """
    id = db.scalars(select(Firm.id)).one()
    db.add(stored := Offer())
    db.commit()
    new = [Offer(**{key: id}), Offer(**{key: id}), Offer(**{name: FIRM})]
    for objects in (new, [stored]):
        db.refresh(stored)
        setattr(stored, name, FIRM)
        with db.no_autoflush, pytest.raises(Exception, match=BY_DRIVER):
            db.bulk_save_objects(objects)
        db.rollback()

    assert db.scalars(select(getattr(Offer, key))).all() == [None]


several = bindparam("codes", expanding=True)
SENT: dict[str, Callable[[Session, Any], object]] = {
    "another model": lambda db, value: db.bulk_save_objects([Note(text=value)]),
    "a row": lambda db, value: db.execute(insert(Note), [{"text": "some"}, {"text": value}]),
    "a row of a table": lambda db, value: db.connection().execute(insert(Note.__table__), {"text": value}),
    "values": lambda db, value: db.execute(insert(Note).values(text=bindparam(None, value))),
    "text": lambda db, value: db.execute(text("SELECT 1 FROM firm WHERE code = :code"), {"code": value}),
    "parameter": lambda db, value: db.execute(select(Firm).where(Firm.code == bindparam("code")), {"code": value}),
    "list": lambda db, value: db.execute(select(Firm).where(Firm.code.in_(several)), {"codes": ["x", value]}),
    "literal": lambda db, value: db.execute(select(Firm).where(Firm.code == bindparam(None, value))),
    "raw": lambda db, value: db.connection().exec_driver_sql(*raw(db, (value,))),
    "raw rows": lambda db, value: db.connection().exec_driver_sql(*raw(db, [("some",), (value,)])),
}


def raw(session: Session, rows: Any) -> tuple[str, Any]:
    mark = "?" if session.get_bind().dialect.name == "sqlite" else "%s"
    return f"UPDATE offer SET code = {mark}", rows


@pytest.mark.backend
@pytest.mark.parametrize("name", SENT)
def test_a_copied_placeholder(db: Session, name: str) -> None:
    """A placeholder is rejected as a value of another column or model, and in a query, however it is sent."""
    waiting: Any = Offer(coded_public_id=FIRM).code
    db.connection()
    with pytest.raises(Exception, match=BY_DRIVER):
        SENT[name](db, waiting)
    db.rollback()

    assert db.scalars(select(Note)).all() == []


def test_no_text() -> None:
    """A placeholder cannot be converted to text, for example in a URL; ``repr()`` works."""
    waiting: Any = Offer(firm_public_id=FIRM).firm_id
    for write in (lambda: str(waiting), lambda: f"/firms/{waiting}", lambda: format(waiting)):
        with pytest.raises(ConfigurationError, match=REFUSED):
            write()

    assert FIRM in repr(waiting)


@pytest.mark.backend
def test_with_async_drivers(async_engine: AsyncEngine) -> None:
    """The asynchronous drivers do not send a placeholder, either."""

    async def story(session: AsyncSession) -> None:
        with pytest.raises(Exception, match=BY_DRIVER):
            await session.run_sync(lambda sync: sync.bulk_save_objects([Offer(), Offer(coded_public_id=FIRM)]))
        await session.rollback()
        assert await session.scalar(select(func.count()).select_from(Offer)) == 0

    tell(async_engine, Base.metadata, story)


@pytest.mark.backend
def test_rows_of_other_types(db: Session) -> None:
    """Rows can be a tuple, and each can be the mapping of a result row, as in SQLAlchemy."""
    read = db.execute(select(Firm.public_id.label("firm_public_id"))).mappings().all()
    db.execute(insert(Offer), read)
    db.execute(insert(Offer), ({"firm_public_id": FIRM}, {"firm_public_id": None}))

    assert db.scalars(select(Offer.firm_id).order_by(Offer.id)).all() == [*db.scalars(select(Firm.id))] * 2 + [None]


def test_mappings(db: Session) -> None:
    """``bulk_insert_mappings()`` and ``bulk_update_mappings()`` reject references; SQLAlchemy 2.0 ignores them."""
    db.add(Offer(code="x"))
    db.flush()
    id = db.scalars(select(Offer.id)).one()
    mapper: Any = Offer.__mapper__
    for send in (
        lambda: db.bulk_insert_mappings(mapper, [{"code": "y"}, {"firm_public_id": FIRM}]),
        lambda: db.bulk_update_mappings(mapper, [{"id": id, "code": "z", "firm_public_id": FIRM}]),
    ):
        savepoint = db.begin_nested()
        if SQLALCHEMY < (2, 1):  # the guide warns of this
            send()
        else:
            with pytest.raises(ConfigurationError, match=r"firm_public_id = '.*' cannot be used in values"):
                send()
        savepoint.rollback()

    db.expire_all()
    assert db.scalars(select(Offer.code)).all() == ["x"]
