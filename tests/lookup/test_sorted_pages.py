"""``lookup.page(order_by=…)``: every row once, in the order of the database, forwards and backwards."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import JSON, Float, ForeignKey, MetaData, Numeric, String, TypeDecorator, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    column_property,
    joinedload,
    mapped_column,
    relationship,
    with_loader_criteria,
)

from sqlalchemy_public_id import (
    ConfigurationError,
    InvalidCursor,
    NanoId,
    PublicIdMixin,
    PublicIdNotFound,
    _private,
    lookup,
)
from sqlalchemy_public_id.formats.alphabets import MAX_LENGTH
from sqlalchemy_public_id.references import public_ref

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("rows")]


class Base(DeclarativeBase):
    metadata = MetaData()


class EmptyIsNone(TypeDecorator[str]):
    """Legacy data in which an empty text means ``None``; only the database knows which values are NULL."""

    impl = String(20)
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: object) -> str | None:
        return value or None


class Masked(TypeDecorator[str]):
    """A type that loses a part of each value, but turns no value into ``None``."""

    impl = String(20)
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: object) -> str | None:
        return value and f"***{value[-1]}"


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Person(PublicIdMixin, Base):
    __tablename__ = "person"
    name: Mapped[str] = mapped_column(String(20))


class Ticket(PublicIdMixin, Base):
    """Has columns with many equal values, and with NULL."""

    __tablename__ = "ticket"
    priority: Mapped[int]
    title: Mapped[str | None] = mapped_column(String(20))
    weight: Mapped[float | None] = mapped_column(Float(24))
    price: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
    colour: Mapped[Colour | None]
    due: Mapped[datetime | None]
    is_open: Mapped[bool]
    cleared: Mapped[str | None] = mapped_column(EmptyIsNone)
    masked: Mapped[str | None] = mapped_column(Masked)
    data: Mapped[Any] = mapped_column(JSON().with_variant(JSONB(), "postgresql"))
    owner_id: Mapped[int | None] = mapped_column(ForeignKey(Person.id))
    owner: Mapped[Person | None] = relationship()
    owner_public_id: Mapped[str | None] = public_ref("owner")


DOUBLE: Any = column_property(Ticket.priority * 2)
Ticket.double = DOUBLE
TITLES = [None, "a", "B", "b", "ä", "a ", ""]
RANKS: list[Any] = [{"rank": None}, {"rank": 1}, {"rank": 2}, {}]
ROWS = 40


@pytest.fixture
def rows(create: Callable[[MetaData], None], session: Session) -> None:
    create(Base.metadata)
    people = [Person(name=name) for name in ("Ada", "Bob", "Ada")]
    session.add_all(
        Ticket(
            priority=number % 3,
            title=TITLES[number % 7],
            weight=None if number % 5 == 0 else number % 4 / 3,
            price=None if number % 4 == 0 else Decimal(number % 6) / 3,
            colour=[None, *Colour][number % 3],
            due=None if number % 3 == 0 else datetime(2026, 1, 1) + timedelta(microseconds=number % 5),
            is_open=number % 2 == 0,
            owner=[None, *people][number % 4],
            cleared=["", "a", "b", None][number % 4],
            masked=["", "a", "b", None][number % 4],
            data=RANKS[number % 4],
        )
        for number in range(ROWS)
    )
    session.commit()


ORDERS: dict[str, Callable[[], Any]] = {
    "keys": list,
    "descending": lambda: Ticket.priority.desc(),
    "two": lambda: [Ticket.priority.desc(), Ticket.is_open],
    "nullable": lambda: Ticket.title,
    "nullable, descending": lambda: Ticket.title.desc(),
    "nulls first": lambda: Ticket.weight.nulls_first(),
    "nulls last": lambda: Ticket.weight.nulls_last(),
    "descending, nulls first": lambda: [Ticket.price.desc().nulls_first(), Ticket.weight],
    "descending, nulls last": lambda: [Ticket.price.desc().nulls_last(), Ticket.due.asc()],
    "single precision": lambda: [Ticket.weight.desc(), Ticket.price],
    "enum": lambda: (Ticket.colour, Ticket.due.desc()),
    "expression": lambda: func.coalesce(Ticket.price, 1),
    "public id": lambda: Ticket.public_id.desc(),
    "masked": lambda: Ticket.masked,
    "empty is none": lambda: Ticket.cleared,
    "empty is none, descending": lambda: Ticket.cleared.desc(),
    "null of json": lambda: Ticket.data["rank"].desc(),
    "negation": lambda: [~Ticket.is_open, -Ticket.priority],
    "column property": lambda: [Ticket.double.desc(), Ticket.title],
    "reference": lambda: [Ticket.owner_public_id.desc(), Ticket.title],
}


def expected(session: Session, order: Any, *, newest_first: bool = False) -> list[str]:
    """Return all ids as the database sorts them, with NULL where the order of the terms puts it."""
    terms: list[Any] = []
    for each in order if isinstance(order, (list, tuple)) else [order]:
        text = str(each).upper()
        column = each
        while getattr(column, "modifier", None) is not None:
            column = column.element
        if "NULLS" in text:
            terms.append(column.is_(None).desc() if "NULLS FIRST" in text else column.is_(None))
        terms.append(column.desc() if " DESC" in text else column)
    key = Ticket.id.desc() if newest_first else Ticket.id
    return list(session.scalars(select(Ticket.public_id).order_by(*terms, key)))


def walk(session: Session, rows: Any, **options: Any) -> list[str]:
    """Return the ids of all pages, read forwards."""
    ids: list[str] = []
    cursor: str | None = None
    for _ in range(ROWS):
        page = lookup.page(session, rows, after=cursor, **options)
        ids += [row.public_id for row in page]
        assert page.has_more == (page.next is not None)
        if page.next is None:
            return ids
        cursor = page.next
    raise AssertionError("the pages do not end")


def walk_back(session: Session, rows: Any, last: str, **options: Any) -> list[str]:
    """Return the ids of all pages before *last*, read backwards."""
    ids: list[str] = []
    cursor: str | None = last
    while cursor is not None:
        page = lookup.page(session, rows, before=cursor, **options)
        ids = [row.public_id for row in page] + ids
        cursor = page.previous
    return ids


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest, database: str) -> Any:
    """Return each order that the database supports; MySQL and MariaDB compare JSON as text."""
    if request.param == "null of json" and database in ("mysql", "mariadb"):
        pytest.skip("JSON is compared with text")
    return ORDERS[request.param]()


@pytest.mark.parametrize(("limit", "newest_first"), [(7, False), (1, True)])
def test_every_row_once(session: Session, order: Any, limit: int, newest_first: bool) -> None:
    """All pages together contain every row once, in the order of the database; ties are in the order of the keys."""
    ids = walk(session, Ticket, limit=limit, order_by=order, newest_first=newest_first)

    assert ids == expected(session, order, newest_first=newest_first)


def test_backwards(session: Session, order: Any) -> None:
    """Pages read backwards from the last row are the same rows in the same order."""
    ids = expected(session, order)

    assert walk_back(session, Ticket, ids[-1], limit=6, order_by=order) == ids[:-1]


def test_backwards_from_the_end(session: Session, order: Any) -> None:
    """A page after the last row leads back to all rows, in each order; one before the first row leads on to them."""
    ids = expected(session, order)
    end = lookup.page(session, Ticket, limit=6, after=ids[-1], order_by=order)
    beginning = lookup.page(session, Ticket, limit=6, before=ids[0], order_by=order)
    first = lookup.page(session, Ticket, limit=6, after=beginning.next, order_by=order)

    assert (len(end), len(beginning)) == (0, 0)
    assert walk_back(session, Ticket, str(end.previous), limit=6, order_by=order) == ids
    assert [row.public_id for row in first] == ids[:6]


def test_pairs_of_orders(session: Session) -> None:
    """Pages are correct for each pair of columns, directions and positions of NULL."""
    columns = [Ticket.priority, Ticket.title, Ticket.weight, Ticket.due]
    forms: list[Callable[[Any], Any]] = [
        lambda column: column,
        lambda column: column.desc(),
        lambda column: column.desc().nulls_first(),
        lambda column: column.nulls_last(),
    ]
    pairs = itertools.product(itertools.permutations(columns, 2), forms, forms)
    orders = [[one(first), other(second)] for (first, second), one, other in pairs]
    wrong = [each for each in orders if walk(session, Ticket, limit=15, order_by=each) != expected(session, each)]
    assert [[*map(str, order)] for order in wrong] == []


def owner_name() -> Any:
    return select(Person.name).where(Person.id == Ticket.owner_id).scalar_subquery()


def test_column_of_another_table(session: Session) -> None:
    """A page can be sorted by a subquery of another table; a joined column, which may repeat a row, is rejected."""
    order = [owner_name().desc(), Ticket.priority]
    ids = walk(session, Ticket, limit=4, order_by=order)
    assert ids == expected(session, order)

    other = aliased(Person)
    for rows, column in (
        (select(Ticket).join(Ticket.owner), Person.name),
        (select(Ticket).join(Ticket.owner.of_type(other)), func.lower(other.name)),
    ):
        with pytest.raises(ConfigurationError, match="a join can repeat a row at several places"):
            lookup.page(session, rows, limit=4, order_by=[column])


def test_column_property_of_an_alias(session: Session) -> None:
    """A page can be sorted by an expression that is mapped as an attribute, on an alias, too."""
    alias = aliased(Ticket)
    ids = walk(session, select(alias), limit=7, order_by=[alias.double, alias.priority])
    assert ids == expected(session, Ticket.double)


@pytest.mark.parametrize("missing", ["", "_for_update_arg", "_with_options"])
def test_count_of_any_statement(session: Session, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Counting locks no rows, and works even if SQLAlchemy's private attributes of a statement are missing."""
    monkeypatch.setattr(_private, "available", lambda owner, name: name != missing)
    visible = with_loader_criteria(Ticket, lambda model: model.is_open)
    repeated = select(Ticket).join(Person, Person.id > 0).options(joinedload(Ticket.owner))
    statements = [
        select(Ticket),
        select(Ticket).options(visible),
        select(Ticket).with_for_update().options(visible),
        repeated.with_for_update(of=Ticket),
        select(Ticket).where(Ticket.is_open).group_by(Ticket.id),
        select(aliased(Ticket)).distinct(),
    ]
    totals = [lookup.page(session, statement, limit=5, count=True).total for statement in statements]
    assert totals == [ROWS, 20, 20, ROWS, 20, ROWS]


@pytest.mark.parametrize("order", [lambda: Ticket.priority, lambda: func.coalesce(Ticket.priority, 0)])
def test_filters_do_not_hold_for_cursors(session: Session, order: Callable[[], Any]) -> None:
    """A cursor whose row no longer matches a filter is still valid; one that ``where`` hides is not."""
    open_ = select(Ticket).where(Ticket.is_open)
    page = lookup.page(session, open_, limit=5, order_by=order())
    page[-1].is_open = False
    session.flush()

    assert len(lookup.page(session, open_, limit=100, order_by=order(), after=page.next)) == 15
    with pytest.raises(InvalidCursor) as caught:
        lookup.page(session, Ticket, limit=5, order_by=order(), after=page.next, where=Ticket.is_open)
    assert isinstance(caught.value, PublicIdNotFound)
    assert caught.value.field == "after"
    page[0].is_open = False  # and is not flushed
    with pytest.raises(InvalidCursor):
        lookup.page(session, Ticket, limit=5, order_by=order(), after=page[0].public_id, where=Ticket.is_open)


@pytest.mark.parametrize("order", [None, Ticket.priority, Ticket.title, -Ticket.priority], ids=str)
@pytest.mark.parametrize("where", [None, Ticket.is_open | True], ids=["", "where"])
def test_loader_criteria(session: Session, listen: Callable[..., None], order: Any, where: Any) -> None:
    """Session criteria apply to the rows of each page; a cursor whose row they hide meanwhile is no longer valid.

    It is valid with an execution option by which the program leaves them out.
    """

    def hide(state: Any) -> None:
        if state.is_select and not state.is_column_load and not state.execution_options.get("include_closed"):
            state.statement = state.statement.options(with_loader_criteria(Ticket, Ticket.is_open))

    listen(session, "do_orm_execute", hide)
    options: Any = {"order_by": order, "where": where}
    ids = walk(session, Ticket, limit=3, **options)
    page = lookup.page(session, Ticket, limit=2, **options)
    page[-1].is_open = False
    session.flush()
    with pytest.raises(InvalidCursor, match="after: no Ticket has the public id"):
        lookup.page(session, Ticket, limit=100, after=page.next, **options)
    options["cursor_execution_options"] = {"include_closed": True}
    following = lookup.page(session, Ticket, limit=100, after=page.next, **options)

    assert len(ids) == ROWS / 2
    assert [ticket.public_id for ticket in following] == ids[2:]


def test_count(session: Session, statements: list[str]) -> None:
    """``count=True`` counts the rows of all pages with one more statement, and counts rows that a join repeats once."""
    session.connection()
    statements.clear()
    page = lookup.page(session, Ticket, limit=5, count=True, order_by=Ticket.priority)

    assert page.total == ROWS
    assert len(statements) == 2
    assert lookup.page(session, Ticket, limit=5).total is None
    assert lookup.page(session, select(Ticket).where(Ticket.priority == 1), limit=5, count=True).total == 13
    assert lookup.page(session, Ticket, limit=5, count=True, where=Ticket.is_open).total == 20
    repeated = select(Ticket).join(Person, Person.id > 0)
    assert lookup.page(session, repeated, limit=5, count=True).total == ROWS


def test_count_stops(session: Session, statements: list[str]) -> None:
    """``count=`` with a number counts up to it: the total is the number of rows, or this number if there are more."""
    every = select(Ticket)
    repeated = select(Ticket).join(Person, Person.id > 0)
    totals = [
        lookup.page(session, rows, limit=5, count=most).total
        for rows in (every, repeated)
        for most in (1, ROWS - 1, ROWS, ROWS + 1, 2**31 - 1)
    ]
    statements.clear()
    lookup.page(session, Ticket, limit=5, count=7)

    assert totals == [1, ROWS - 1, ROWS, ROWS, ROWS] * 2
    assert "LIMIT" in statements[-1]
    assert len(statements) == 2


@pytest.mark.parametrize("count", [0, -1, 1.5, "all", None, 2**31])
def test_counts_that_are_none(session: Session, statements: list[str], count: Any) -> None:
    """Anything but a boolean or a number from 1 is refused, before any SQL."""
    statements.clear()
    with pytest.raises(ConfigurationError, match=r"count is .*, expected True, False, or the number of rows"):
        lookup.page(session, Ticket, limit=5, count=count)
    assert statements == []


@pytest.mark.parametrize(("order", "number"), [(Ticket.priority, 1), (Ticket.title, 2)], ids=["NOT NULL", "NULL"])
def test_statements(session: Session, statements: list[str], order: Any, number: int) -> None:
    """A page sorted by columns that are never NULL takes one statement; by nullable columns, it takes two."""
    session.connection()
    first = lookup.page(session, Ticket, limit=5, order_by=order)
    statements.clear()
    lookup.page(session, Ticket, limit=5, order_by=order, after=first.next)
    assert len(statements) == number


PARITY = Ticket.priority % 2


@pytest.mark.parametrize(
    "order",
    [None, PARITY.desc(), [PARITY, Ticket.title], Ticket.priority % 3, PARITY.nulls_last()],
    ids=["by key", "descending", "longer", "by another value", "NULL last"],
)
def test_cursor_of_another_order(session: Session, order: Any) -> None:
    """A cursor is rejected in another order, even by another literal; a public id is a valid cursor in any order."""
    page = lookup.page(session, Ticket, limit=5, order_by=PARITY)
    assert lookup.page(session, Ticket, limit=5, order_by=PARITY, after=page.next)
    with pytest.raises(InvalidCursor, match="in another order; begin with the first page") as caught:
        lookup.page(session, Ticket, limit=5, order_by=order, after=page.next)
    assert caught.value.value == page.next
    lookup.page(session, Ticket, limit=5, order_by=order, after=page[-1].public_id)


@pytest.mark.parametrize("cursor", ["", "~", "a" * 5000, 7, "0" * 12, "0" * 12 + "~ffff", "é~0000"], ids=type)
@pytest.mark.parametrize("order", [None, Ticket.priority, Ticket.title], ids=["by key", "NOT NULL", "NULL"])
def test_cursors_that_are_none(session: Session, order: Any, cursor: Any) -> None:
    """An invalid cursor raises an error that names the argument, and no other error, which would be a 500."""
    with pytest.raises(InvalidCursor) as caught:
        lookup.page(session, Ticket, limit=5, order_by=order, before=cursor)
    assert caught.value.field == "before"


@pytest.mark.parametrize("order", ["priority", [Ticket.priority, "title"], [None], [[Ticket.priority]], Ticket.owner])
def test_orders_that_are_none(session: Session, order: Any) -> None:
    """Names of columns, relationships and other values are rejected with the reason."""
    with pytest.raises(ConfigurationError, match="expected attributes of the model"):
        lookup.page(session, Ticket, limit=5, order_by=order)


def test_rows_that_change_places(session: Session) -> None:
    """A page begins at the current position of the cursor's row."""
    page = lookup.page(session, Ticket, limit=5, order_by=Ticket.priority)
    page[-1].priority = 99
    session.flush()

    assert not lookup.page(session, Ticket, limit=5, order_by=Ticket.priority, after=page.next)


class Scroll(PublicIdMixin, Base):
    """Has ids of the greatest length."""

    __tablename__ = "scroll"
    __public_id__ = NanoId(MAX_LENGTH)
    title: Mapped[str] = mapped_column(String(20))


def test_ids_of_the_greatest_length(session: Session) -> None:
    """A cursor of an order is accepted, however long the id in it is."""
    session.add_all(Scroll(title=title) for title in "acb")
    session.flush()

    first = lookup.page(session, Scroll, limit=2, order_by=Scroll.title)
    second = lookup.page(session, Scroll, limit=2, order_by=Scroll.title, after=first.next)

    assert [row.title for row in (*first, *second)] == ["a", "b", "c"]
