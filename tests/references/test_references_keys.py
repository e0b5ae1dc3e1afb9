"""References through keys that are not a single integer: composite primary keys and text keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import CHAR, Engine, ForeignKey, MetaData, String, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, foreign, load_only, mapped_column, relationship
from support.marks import on

from sqlalchemy_public_id import NanoId, PublicIdMixin, ReferenceNotReadable, references
from sqlalchemy_public_id.references import public_ref

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Maker(PublicIdMixin, Base):
    __tablename__ = "maker"
    __public_id__ = NanoId(prefix="rckmaker")


class Line(Base):
    __tablename__ = "line"
    shelf: Mapped[str] = mapped_column(String(10), primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    note: Mapped[str | None] = mapped_column(String(50))
    maker_id: Mapped[int] = mapped_column(ForeignKey(Maker.id))
    maker: Mapped[Maker] = relationship(foreign_keys=maker_id)
    maker_public_id: Mapped[str] = public_ref("maker")
    second_id: Mapped[int | None] = mapped_column(ForeignKey(Maker.id))
    second: Mapped[Maker | None] = relationship(foreign_keys=second_id)
    second_public_id: Mapped[str | None] = public_ref("second")


MAKERS = [f"rckmaker_{number:012}" for number in range(10)]


@pytest.fixture
def fill(engine: Engine, create: Callable[[MetaData], None]) -> Callable[[int], None]:
    """Return a function that stores *number* lines on three shelves, each with a maker and the next maker."""

    def store(number: int) -> None:
        create(Base.metadata)
        with Session(engine) as session, session.begin():
            session.execute(insert(Maker), [{"public_id": each} for each in MAKERS])
            keys = {maker.public_id: maker.id for maker in session.scalars(select(Maker))}
            rows = [
                {"shelf": "abc"[at % 3], "place": at // 3}
                | {"maker_id": keys[MAKERS[at % 10]], "second_id": keys[MAKERS[(at + 1) % 10]]}
                for at in range(number)
            ]
            if rows:
                session.execute(insert(Line), rows)

    return store


def page(session: Session, *options: Any) -> list[Line]:
    return list(session.scalars(select(Line).order_by(Line.place, Line.shelf).options(*options)))


def shown(lines: list[Line]) -> list[tuple[str, str | None]]:
    return [(line.maker_public_id, line.second_public_id) for line in lines]


def wanted(number: int) -> list[tuple[str, str | None]]:
    return [(MAKERS[at % 10], MAKERS[(at + 1) % 10]) for at in range(number)]


@pytest.mark.parametrize(
    ("number", "way", "sent"), [(100, "expired", 2), (40, "loaded ahead", 2), (30, "deferred", 2), (1300, "expired", 4)]
)
def test_read_together(
    fill: Callable[[int], None], engine: Engine, statements: list[str], number: int, way: str, sent: int
) -> None:
    """One statement loads the foreign keys of all objects that lack them, and one loads the public ids.

    Of very many objects, some hundreds are loaded at a time, so that no database limit is reached.
    """
    fill(number)
    with Session(engine) as session:
        lines = page(session, *([load_only(Line.note)] if way == "deferred" else []))
        if way != "deferred":
            session.commit()
        statements.clear()
        if way == "loaded ahead":
            references.load(session, lines)
            assert len(statements) == sent

        assert shown(lines) == wanted(number)
        assert len(statements) == sent


class Padded(Base):
    __tablename__ = "padded"
    code: Mapped[str] = mapped_column(CHAR(6), primary_key=True)
    maker_id: Mapped[int] = mapped_column(ForeignKey(Maker.id))
    maker: Mapped[Maker] = relationship()
    maker_public_id: Mapped[str] = public_ref("maker")


class PaddedLine(Base):
    __tablename__ = "padded_line"
    code: Mapped[str] = mapped_column(CHAR(6), primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    maker_id: Mapped[int] = mapped_column(ForeignKey(Maker.id))
    maker: Mapped[Maker] = relationship()
    maker_public_id: Mapped[str] = public_ref("maker")


@pytest.mark.parametrize("model", [Padded, PaddedLine])
def test_keys_that_the_database_writes_in_another_way(fill: Callable[[int], None], engine: Engine, model: Any) -> None:
    """Rows with ``CHAR`` keys, which PostgreSQL pads with blanks, are found, too, though not together."""
    fill(0)
    with Session(engine) as session:
        makers = {maker.public_id: maker.id for maker in session.scalars(select(Maker))}
        other = {} if model is Padded else {"place": 1}
        rows = [model(code=f"c{at}", maker_id=makers[MAKERS[at]], **other) for at in range(3)]
        session.add_all(rows)
        session.commit()

        assert [row.maker_public_id for row in rows] == MAKERS[:3]


# --- keys that the database considers equal


class Spelled(PublicIdMixin, Base):
    """Has a text key; databases consider several spellings of it equal."""

    __tablename__ = "spelled"
    __public_id__ = NanoId(prefix="rckspelled")
    code: Mapped[str] = mapped_column(CHAR(6), unique=True)


class Speller(Base):
    __tablename__ = "speller"
    id: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str | None] = mapped_column(String(6))
    spelled: Mapped[Spelled | None] = relationship(primaryjoin=lambda: foreign(Speller.code) == Spelled.code)
    spelled_public_id: Mapped[str | None] = public_ref("spelled")


@on("mysql", "mariadb", "postgresql")
def test_foreign_keys_in_another_spelling(fill: Callable[[int], None], engine: Engine) -> None:
    """A foreign key finds the row whose key the database considers equal: by case on MySQL, by blanks on PostgreSQL."""
    fill(0)
    other = "eur   " if engine.dialect.name == "postgresql" else "EUR"
    with Session(engine) as session:
        spelled = Spelled(code="eur")
        session.add_all([spelled, Speller(code="eur"), Speller(code=other), Speller(code="usd"), Speller()])
        session.flush()
        id = spelled.public_id
        session.expunge_all()
        spellers = session.scalars(select(Speller).order_by(Speller.id)).all()

        assert [spellers[at].spelled_public_id for at in (0, 1, 3)] == [id, id, None]
        with pytest.raises(ReferenceNotReadable):
            spellers[2].spelled_public_id  # noqa: B018
        assert [speller.spelled is None for speller in spellers] == [False, False, True, True]


def test_a_new_row_of_a_text_key(fill: Callable[[int], None], engine: Engine) -> None:
    """A text key may refer to a row that is inserted later, and raises until then; the row's id can be assigned."""
    fill(0)
    with Session(engine, autoflush=False) as session:
        speller = Speller(code="jpy")
        session.add(speller)
        with pytest.raises(ReferenceNotReadable):
            speller.spelled_public_id  # noqa: B018
        spelled = Spelled(code="jpy")
        session.add(spelled)
        session.flush()

        assert speller.spelled_public_id == spelled.public_id

        other = Speller(spelled_public_id=spelled.public_id)
        session.add(other)
        session.flush()
        assert other.code in ("jpy", "jpy   ")
        found = select(Speller).where(Speller.spelled_public_id == spelled.public_id).order_by(Speller.id)
        assert session.scalars(found).all() == [speller, other]


class OnSQLite(DeclarativeBase):
    """Models with a collation that only SQLite has."""


class Currency(PublicIdMixin, OnSQLite):
    __tablename__ = "currency"
    __public_id__ = NanoId(prefix="rckcurrency")
    code: Mapped[str] = mapped_column(String(3, collation="NOCASE"), unique=True)


class Price(OnSQLite):
    __tablename__ = "price"
    id: Mapped[int] = mapped_column(primary_key=True)
    currency_code: Mapped[str] = mapped_column(ForeignKey(Currency.code))
    currency: Mapped[Currency] = relationship()
    currency_public_id: Mapped[str] = public_ref("currency")


@on("sqlite")
def test_foreign_key_in_another_case(create: Callable[[MetaData], None], session: Session) -> None:
    """A foreign key refers to the row whose key is equal in the collation of its column."""
    create(OnSQLite.metadata)
    euro = Currency(code="eur")
    session.add(euro)
    session.flush()
    session.add(Price(currency_code="EUR"))
    session.commit()
    expected = euro.public_id
    session.expunge_all()

    assert session.scalars(select(Price)).one().currency_public_id == expected
