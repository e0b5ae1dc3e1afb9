"""Pages of rows, and in orders, whose values are not those of a column of the model's table."""

from __future__ import annotations

import enum
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from sqlalchemy import (
    Enum,
    Float,
    ForeignKey,
    MetaData,
    Numeric,
    String,
    TypeDecorator,
    case,
    func,
    join,
    select,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.ext.declarative import ConcreteBase
from sqlalchemy.orm import DeclarativeBase, Mapped, ORMExecuteState, Session, aliased, mapped_column
from support.marks import fast_ways, on

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin, bigint_key, lookup, public_id_column

KEEP: dict[str, Any] = {"cursor_execution_options": {"include_deleted": True}}
"""Execution options with which the row of a cursor is read by itself."""


class Base(DeclarativeBase):
    metadata = MetaData()


class Size(enum.Enum):
    """Sizes, whose names are sorted differently."""

    small = 1
    medium = 2
    large = 3


class DecoratedSize(TypeDecorator[Size]):
    """A type of an application around an ENUM."""

    impl = Enum(Size)
    cache_ok = True


SIZES = String(20).with_variant(mysql.ENUM("small", "medium", "large"), "mysql", "mariadb")
FLAGS = String(20).with_variant(mysql.SET("small", "medium", "large"), "mysql", "mariadb")


class Shirt(PublicIdMixin, Base):
    """A model with numbers and sizes."""

    __tablename__ = "shirt"
    price: Mapped[Decimal] = mapped_column(Numeric(10, 2))
    number: Mapped[int]
    weight: Mapped[float] = mapped_column(Float)
    is_sold: Mapped[bool]
    decorated: Mapped[Size] = mapped_column(DecoratedSize)
    size: Mapped[str] = mapped_column(SIZES)
    flags: Mapped[Any] = mapped_column(FLAGS)


class Label(Base):
    """The rows of a table that a shirt may lack."""

    __tablename__ = "label"
    id: Mapped[int] = mapped_column(primary_key=True)
    shirt_id: Mapped[int] = mapped_column(ForeignKey(Shirt.id))
    rank: Mapped[int]


ORDERS: dict[str, Callable[[Any], Any]] = {
    "column": lambda shirt: shirt.price,
    "product": lambda shirt: shirt.price * shirt.number,
    "quotient": lambda shirt: shirt.price / shirt.number,
    "third": lambda shirt: (shirt.number / 3).desc(),
    "negative": lambda shirt: -shirt.weight,
    "absolute": lambda shirt: func.abs(shirt.weight),
    "boolean": lambda shirt: ~shirt.is_sold,
    "comparison": lambda shirt: (shirt.number > 3).desc(),
    "enum in a type": lambda shirt: shirt.decorated,
    "enum of MySQL": lambda shirt: shirt.size.desc(),
    "set of MySQL": lambda shirt: shirt.flags,
}


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    """A session with twelve shirts: each value occurs several times."""
    create(Base.metadata)
    sizes = [Size.medium, Size.large, Size.small]
    session.add_all(
        Shirt(
            price=Decimal("10.05") if at % 2 else Decimal("7.1"),
            number=at % 3 + 2,
            weight=0.1 * (at % 4),
            is_sold=bool(at % 2),
            decorated=sizes[at % 3],
            size=sizes[at % 3].name,
            flags={sizes[at % 3].name} if session.get_bind().dialect.name in ("mysql", "mariadb") else "small",
        )
        for at in range(12)
    )
    session.commit()
    return session


def walk(session: Session, rows: Any, order_by: Any, **options: Any) -> list[int]:
    """Return the keys on all pages of two rows, at most twice as many as there are."""
    keys: list[int] = []
    after = None
    while len(keys) < 30:
        page = lookup.page(session, rows, limit=2, order_by=order_by, after=after, **options)
        keys += [each.id for each in page]
        after = page.next
        if after is None:
            break
    return keys


@pytest.mark.backend
@pytest.mark.parametrize("options", [{}, KEEP], ids=["one statement", "a cursor of its own"])
@pytest.mark.parametrize("order", ORDERS)
def test_every_row_once(db: Session, order: str, options: dict[str, Any]) -> None:
    """Each row is on one page, in the order of the database, whatever the driver makes of a value on its way."""
    by = ORDERS[order](Shirt)
    expected = [*db.scalars(select(Shirt.id).order_by(by, Shirt.id))]

    assert walk(db, Shirt, by, **options) == expected
    alias = aliased(Shirt)
    assert walk(db, select(alias), ORDERS[order](alias), **options) == expected


def test_subquery_beside_a_cursor_of_its_own(db: Session) -> None:
    """An order by other rows is refused with options for the row of the cursor, which would also show these rows."""
    others = aliased(Shirt)
    largest = select(func.max(others.price)).where(others.number == Shirt.number).scalar_subquery()
    first = lookup.page(db, Shirt, limit=2, order_by=largest, **KEEP)

    with pytest.raises(ConfigurationError, match="no subquery, because the options would apply to its rows"):
        lookup.page(db, Shirt, limit=2, order_by=largest, after=first.next, **KEEP)
    assert len(walk(db, Shirt, largest)) == 12


@pytest.mark.parametrize("descending", [False, True])
def test_alias_of_a_subquery(db: Session, descending: bool) -> None:
    """A column that is never NULL in its table may be NULL in an alias of other rows."""
    number = case((Shirt.number > 3, Shirt.number)).label("number")
    rows = select(*[each for each in Shirt.__table__.c if each.name != "number"], number).subquery()
    redacted = aliased(Shirt, rows, adapt_on_names=True)
    by = redacted.number.desc() if descending else redacted.number

    assert walk(db, select(redacted), by) == [*db.scalars(select(redacted.id).order_by(by, redacted.id))]


def test_model_of_an_outer_join(create: Callable[[MetaData], None], session: Session) -> None:
    """A model of an outer join is sorted by the column of the other table, NULL included."""

    class Own(DeclarativeBase): ...

    class Person(PublicIdMixin, Own):
        __tablename__ = "person"

    class Seat(Own):
        __tablename__ = "seat"
        person_id: Mapped[int] = mapped_column(ForeignKey(Person.id), primary_key=True)
        rank: Mapped[int]

    class Seated(Own):
        __table__ = join(Person.__table__, Seat.__table__, isouter=True)
        id = Person.__table__.c.id
        public_id = Person.__table__.c.public_id
        seat_of = Seat.__table__.c.person_id
        rank: Mapped[int] = Seat.__table__.c.rank
        __mapper_args__: ClassVar[dict[str, Any]] = {"primary_key": [Person.__table__.c.id]}

    create(Own.metadata)
    session.add_all(Person() for _ in range(6))
    session.flush()
    session.add_all(Seat(person_id=at, rank=at % 2) for at in (2, 3, 6))
    session.commit()

    for by in (Seated.rank, Seated.rank.desc()):
        assert walk(session, Seated, by) == [*session.scalars(select(Seated.id).order_by(by, Seated.id))]


@fast_ways
@on("postgresql")
@pytest.mark.filterwarnings("ignore:Passing expression to ``distinct``")
@pytest.mark.parametrize("way", ["distinct", *(["ext"] if hasattr(postgresql, "distinct_on") else [])])
def test_distinct_on(db: Session, way: str) -> None:
    """A statement with DISTINCT ON is refused; an alias of its rows has the rows of the statement."""
    statement: Any = select(Shirt)
    by = Shirt.number
    statement = statement.distinct(by) if way == "distinct" else statement.ext(postgresql.distinct_on(by))
    firsts = aliased(Shirt, statement.order_by(by, Shirt.id).subquery())

    assert walk(db, select(firsts), firsts.number) == [1, 2, 3]
    with pytest.raises(ConfigurationError, match="has a DISTINCT ON"):
        lookup.page(db, statement, limit=2)


@pytest.mark.parametrize("find", [lookup.page, lookup.get, lookup.get_many])
def test_group_by(db: Session, find: Callable[..., Any]) -> None:
    """A statement that chooses a row of each group is refused; groups by the key, such as those of a join, are not."""
    ids = [*db.scalars(select(Shirt.public_id).order_by(Shirt.id))]
    passed: list[Any] = {lookup.page: [], lookup.get: [ids[1]], lookup.get_many: [ids[:2]]}[find]
    with pytest.raises(ConfigurationError, match="GROUP BY without the key of Shirt"):
        find(db, select(Shirt).group_by(Shirt.number), *passed, **({} if passed else {"limit": 2}))

    db.add_all(Label(shirt_id=at, rank=1) for at in (1, 2, 2, 2, 5, 5))
    several = select(Shirt).join(Label).group_by(Shirt.id, Shirt.number).having(func.count() > 1)
    assert walk(db, several, None) == [2, 5]
    assert lookup.get(db, several, ids[1]).id == 2
    assert lookup.get(db, several, ids[0]) is None


@pytest.mark.backend
@pytest.mark.parametrize("count", [True, 5, 100])
@pytest.mark.parametrize("rows", ["model", "join", "groups"])
def test_count_beside_a_listener(db: Session, listen: Callable[..., None], rows: str, count: Any) -> None:
    """The number of rows leaves out those that a listener hides by a condition of its own."""
    db.add_all(Label(shirt_id=at, rank=1) for at in (1, 2, 2, 3, 4, 4, 4))
    db.commit()
    statement = {
        "model": select(Shirt),
        "join": select(Shirt).join(Label),
        "groups": select(Shirt).join(Label).group_by(*Shirt.__table__.c).having(func.count() > 1),
    }[rows]

    def hide(state: ORMExecuteState) -> None:
        entities = [each["entity"] for each in state.statement.column_descriptions] if state.is_select else []
        if Shirt in entities:
            state.statement = state.statement.where(~Shirt.is_sold)

    listen(db, "do_orm_execute", hide)
    expected = {"model": 6, "join": 2, "groups": 0}[rows]
    page = lookup.page(db, statement, limit=50, count=count)

    assert len({each.id for each in page}) == expected
    assert page.total == (expected if count is True else min(expected, count))


def test_order_of_concrete_tables(create: Callable[[MetaData], None], session: Session) -> None:
    """A base whose tables are concrete is sorted by a column that all of them have."""

    class Own(DeclarativeBase): ...

    class Pet(ConcreteBase, PublicIdMixin, Own):
        __tablename__ = "pet"
        name: Mapped[str] = mapped_column(String(20))
        __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "pet", "concrete": True}

    class Dog(Pet):
        __tablename__ = "dog"
        id: Mapped[int] = bigint_key()
        public_id: Mapped[str] = public_id_column(NanoId())
        name: Mapped[str] = mapped_column(String(20))
        __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "dog", "concrete": True}

    create(Own.metadata)
    session.add_all([Pet(name="b"), Dog(name="c"), Pet(name="d"), Dog(name="a")])
    session.commit()
    names: list[str] = []
    after = None
    while True:
        page = lookup.page(session, Pet, limit=1, order_by=Pet.name, after=after)
        names += [each.name for each in page]
        after = page.next
        if after is None:
            break

    assert names == ["a", "b", "c", "d"]


def test_empty_lock(db: Session, listen: Callable[..., None]) -> None:
    """An empty dictionary of options locks the row, as it does in ``session.get()``."""
    sent: list[Any] = []
    shirt = lookup.page(db, Shirt, limit=1)[0]
    listen(db, "do_orm_execute", lambda state: sent.append(state.statement))
    for lock in ({}, True, False, None):
        assert lookup.get(db, Shirt, shirt.public_id, with_for_update=lock) is shirt

    assert ["FOR UPDATE" in str(each.compile(dialect=mysql.dialect())) for each in sent] == [True, True, False, False]
