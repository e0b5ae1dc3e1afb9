"""What passes the flush by never stores the placeholder of a reference, whatever the driver would make of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import BigInteger, ForeignKey, MetaData, String, bindparam, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, foreign, mapped_column, relationship

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin, bulk
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class Firm(PublicIdMixin, Base):
    __tablename__ = "firm"
    __public_id__ = NanoId(prefix="rbkfirm")
    code: Mapped[str] = mapped_column(String(90), unique=True)


class Offer(PublicIdMixin, Base):
    """Three foreign keys, of which only one has a constraint that would refuse nonsense."""

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
    """No references, but a column to which somebody may copy a placeholder."""

    __tablename__ = "note"
    __public_id__ = NanoId(prefix="rbknote")
    text: Mapped[str | None] = mapped_column(String(90))


FIRM = "rbkfirm_000000000001"
KEYS = {"firm_public_id": "firm_id", "coded_public_id": "code", "numbered_public_id": "number"}
SQLALCHEMY = tuple(map(int, sqlalchemy.__version__.split(".")[:2]))
REFUSED = r"_public_id = 'rbkfirm_000000000001' waits for the next flush"
BY_DRIVER = f"UnresolvedKey|{REFUSED}"
"""What a driver says that knows no such type; those of MySQL and MariaDB ask for its text."""


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    """A session with one firm in the database, which lets everything through where it can be told to."""
    create(Base.metadata)
    session.add(Firm(public_id=FIRM, code="x"))
    session.commit()
    if session.get_bind().dialect.name in ("mysql", "mariadb"):
        session.execute(text("SET sql_mode = ''"))
        session.commit()
    return session


def offers(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(Offer)) or 0


@pytest.mark.backend
@pytest.mark.parametrize(("name", "key"), list(KEYS.items()))
def test_bulk_save_objects(db: Session, name: str, key: str) -> None:
    """``bulk_save_objects()`` is refused with every driver, also where only the last one waits."""
    id = db.scalars(select(Firm.id)).one()
    new = [Offer(**{key: id}), Offer(**{key: id}), Offer(**{name: FIRM})]
    with pytest.raises(Exception, match=BY_DRIVER):
        db.bulk_save_objects(new)
    db.rollback()

    assert offers(db) == 0


@pytest.mark.parametrize(("name", "key"), list(KEYS.items()))
def test_bulk_save_objects_of_a_change(db: Session, name: str, key: str) -> None:
    """So it is for the UPDATE of objects that are stored."""
    stored = Offer()
    db.add(stored)
    db.commit()
    db.refresh(stored)
    setattr(stored, name, FIRM)
    with db.no_autoflush, pytest.raises(Exception, match=BY_DRIVER):
        db.bulk_save_objects([stored])
    db.rollback()

    assert db.scalars(select(getattr(Offer, key))).one() is None


def test_a_copied_placeholder(db: Session) -> None:
    """A placeholder is no value for other columns, nor for other models."""
    waiting: Any = Offer(coded_public_id=FIRM).code
    for send in (
        lambda: db.bulk_save_objects([Note(text=waiting)]),
        lambda: db.execute(insert(Note), [{"text": "some"}, {"text": waiting}]),
        lambda: db.connection().execute(insert(Note.__table__), {"text": waiting}),
        lambda: db.execute(insert(Note).values(text=bindparam(None, waiting))),
    ):
        with pytest.raises(Exception, match=BY_DRIVER):
            send()
        db.rollback()

    assert db.scalars(select(Note)).all() == []


@pytest.mark.backend
def test_a_placeholder_in_a_query(db: Session) -> None:
    """Nor is it one to search with, whichever way it comes to the driver."""
    waiting: Any = Offer(coded_public_id=FIRM).code
    db.connection()
    several = bindparam("codes", expanding=True)
    for search in (
        lambda: db.execute(text("SELECT 1 FROM firm WHERE code = :code"), {"code": waiting}),
        lambda: db.execute(select(Firm).where(Firm.code == bindparam("code")), {"code": waiting}),
        lambda: db.execute(select(Firm).where(Firm.code.in_(several)), {"codes": ["x", waiting]}),
        lambda: db.execute(select(Firm).where(Firm.code == bindparam(None, waiting))),
    ):
        with pytest.raises(Exception, match=BY_DRIVER):
            search()
        db.rollback()


@pytest.mark.backend
def test_raw_statements(db: Session) -> None:
    """No driver takes it in a statement of its own, either."""
    waiting: Any = Offer(coded_public_id=FIRM).code
    mark = "?" if db.get_bind().dialect.name == "sqlite" else "%s"
    for rows in ((waiting,), [("some",), (waiting,)]):
        with pytest.raises(Exception, match=BY_DRIVER):
            db.connection().exec_driver_sql(f"UPDATE offer SET code = {mark}", rows)
        db.rollback()


def test_no_text() -> None:
    """A placeholder cannot become part of a text, a URL for example; it can be looked at."""
    waiting: Any = Offer(firm_public_id=FIRM).firm_id
    for write in (lambda: str(waiting), lambda: f"/firms/{waiting}", lambda: format(waiting)):
        with pytest.raises(ConfigurationError, match=REFUSED):
            write()

    assert FIRM in repr(waiting)


@pytest.mark.backend
def test_with_async_drivers(async_engine: AsyncEngine) -> None:
    """The asynchronous drivers send no placeholder either."""

    async def main() -> int | None:
        async with async_engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
            await connection.run_sync(Base.metadata.create_all)
        try:
            async with AsyncSession(async_engine) as session:
                with pytest.raises(Exception, match=BY_DRIVER):
                    await session.run_sync(lambda sync: sync.bulk_save_objects([Offer(), Offer(coded_public_id=FIRM)]))
                await session.rollback()
                return await session.scalar(select(func.count()).select_from(Offer))
        finally:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
            await async_engine.dispose()

    assert asyncio.run(main()) == 0


@pytest.mark.backend
def test_the_ways_that_work(db: Session) -> None:
    """``add_all()``, ``bulk.insert()`` and ``insert(Model)`` find the keys that ``bulk_save_objects()`` does not."""
    db.add_all([Offer(firm_public_id=FIRM, coded_public_id=FIRM)])
    db.flush()
    bulk.insert(db, [Offer(firm_public_id=FIRM, coded_public_id=FIRM) for _ in range(3)])
    db.execute(insert(Offer), [{"firm_public_id": FIRM, "coded_public_id": FIRM}] * 2)

    assert db.scalars(select(Offer.firm_public_id)).all() == [FIRM] * 6
    assert db.scalars(select(Offer.code)).all() == ["x"] * 6


def test_mappings(db: Session) -> None:
    """``bulk_insert_mappings()`` and ``bulk_update_mappings()`` refuse references; SQLAlchemy 2.0 does not ask them."""
    db.add(Offer(code="x"))
    db.flush()
    id = db.scalars(select(Offer.id)).one()
    mapper: Any = Offer.__mapper__
    for send in (
        lambda: db.bulk_insert_mappings(mapper, [{"code": "y"}, {"firm_public_id": FIRM}]),
        lambda: db.bulk_update_mappings(mapper, [{"id": id, "code": "z", "firm_public_id": FIRM}]),
    ):
        savepoint = db.begin_nested()
        if SQLALCHEMY < (2, 1):  # a warning in the guide
            send()
        else:
            with pytest.raises(ConfigurationError, match=r"firm_public_id = '.*' cannot stand in values"):
                send()
        savepoint.rollback()

    db.expire_all()
    assert db.scalars(select(Offer.code)).all() == ["x"]
