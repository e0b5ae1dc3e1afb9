"""Many rows by their public ids, and a page of rows with the public ids of others, compared with the same by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from sqlalchemy import Engine, ForeignKey, String, any_, bindparam, insert, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from benchmarks.databases import ALL, Bench, Database
from benchmarks.measure import Comparison, Subject, together
from sqlalchemy_public_id import NanoId, PublicIdMixin, lookup
from sqlalchemy_public_id.references import eager, public_ref

__all__ = ["run"]

_CHUNKS = 500, 2_000, 10_000, 30_000
"""Ids in one hand-written statement. The best one is the rival."""
_PAGE = 50
_GOAL = 1.05


class Base(DeclarativeBase):
    """Tables of this suite."""


class Customer(PublicIdMixin, Base):
    """A row that is looked up, and referred to."""

    __tablename__ = "many_customer"
    name: Mapped[str] = mapped_column(String(50))


class Order(PublicIdMixin, Base):
    """A row of a page."""

    __tablename__ = "many_order"
    number: Mapped[int]
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[str] = public_ref("customer")


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare µs per row."""
    rows = bench.times(100_000, 2_000)
    for database in bench.on(*ALL):
        with database.engines() as (guarded, _):
            Base.metadata.create_all(guarded)
            try:
                ids = _filled(guarded, rows)
                yield from _many(bench, database, guarded, ids)
                yield from _pages(bench, database, guarded)
            finally:
                Base.metadata.drop_all(guarded)


def _filled(engine: Engine, rows: int) -> list[str]:
    ids, orders = NanoId().generate_many(rows), 5_000
    with engine.begin() as connection:
        for at in range(0, rows, 5_000):
            some = ids[at : at + 5_000]
            connection.execute(insert(Customer), [{"public_id": each, "name": f"name {each}"} for each in some])
        keys = connection.scalars(select(Customer.id).order_by(Customer.id)).all()
        order_ids = NanoId().generate_many(orders)
        connection.execute(
            insert(Order),
            [
                {"public_id": each, "number": number, "customer_id": keys[number * 7 % len(keys)]}
                for number, each in enumerate(order_ids)
            ],
        )
    return ids


# --- many rows


def _many(bench: Bench, database: Database, engine: Engine, ids: list[str]) -> Iterator[Comparison]:
    subjects = {"lookup.get_many()": _found(engine, ids, lookup.get_many)}
    subjects |= {f"by hand, {size} ids a statement": _found(engine, ids, _by_hand(engine, size)) for size in _CHUNKS}
    taken = together(subjects, bench.times(15, 2))
    ours, *rivals = subjects
    best = min(rivals, key=lambda name: median(taken[name].wall))
    yield Comparison.of_times(
        f"{len(ids):,} ids, {database.name}", (ours, best), (taken[ours], taken[best]), len(ids), _GOAL
    )


def _by_hand(engine: Engine, size: int) -> Callable[[Session, Any, list[str]], dict[str, Any]]:
    if engine.name == "postgresql":
        query = select(Customer).where(Customer.public_id == any_(bindparam("ids", type_=ARRAY(String()))))
    else:
        query = select(Customer).where(Customer.public_id.in_(bindparam("ids", expanding=True, type_=String())))

    def find(session: Session, model: Any, ids: list[str]) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for at in range(0, len(ids), size):
            rows.update((row.public_id, row) for row in session.scalars(query, {"ids": ids[at : at + size]}))
        return rows

    return find


def _found(engine: Engine, ids: list[str], find: Callable[..., dict[str, Any]]) -> Subject:
    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        with Session(engine) as session:
            session.connection()
            rows: dict[str, Any] = {}
            yield lambda: rows.update(find(session, Customer, ids))
            assert rows.keys() == set(ids)
            assert all(public_id == row.public_id for public_id, row in rows.items())

    return subject


# --- pages with references


def _pages(bench: Bench, database: Database, engine: Engine) -> Iterator[Comparison]:
    times = bench.times(40, 5)
    rival = "a JOIN by hand"
    one_statement = "lookup.page(references=…)"
    ways = {one_statement: _page_with_references, "lookup.page()": _page, "lookup.page() with eager()": _eager_page}
    ways[rival] = _joined
    taken = together({name: _read(engine, read, times) for name, read in ways.items()}, bench.times(24, 2))
    what = f"pages of {_PAGE} with a reference, {database.name}"
    for ours in list(ways)[:-1]:
        goal = _GOAL if ours == one_statement else None
        yield Comparison.of_times(what, (ours, rival), (taken[ours], taken[rival]), times, goal)


def _page_with_references(session: Session, after: Any) -> tuple[list[tuple[int, str]], Any]:
    """One statement."""
    page = lookup.page(session, Order, limit=_PAGE, after=after, references=[Order.customer_public_id])
    return [(row.number, row.customer_public_id) for row in page], page.next


def _page(session: Session, after: Any) -> tuple[list[tuple[int, str]], Any]:
    """Two statements: the first access fetches the ids of all customers."""
    page = lookup.page(session, Order, limit=_PAGE, after=after)
    return [(row.number, row.customer_public_id) for row in page], page.next


def _eager_page(session: Session, after: Any) -> tuple[list[tuple[int, str]], Any]:
    """Two statements, of which the second loads the customers."""
    page = lookup.page(session, select(Order).options(eager(Order.customer_public_id)), limit=_PAGE, after=after)
    return [(row.number, row.customer_public_id) for row in page], page.next


def _joined(session: Session, after: Any) -> tuple[list[tuple[int, str]], Any]:
    """Read one row more, to tell whether there is another page."""
    query = select(Order, Customer.public_id).join(Order.customer).order_by(Order.id).limit(_PAGE + 1)
    if after is not None:
        query = query.where(Order.id > select(Order.id).where(Order.public_id == after).scalar_subquery())
    rows = session.execute(query).all()
    page = rows[:_PAGE]
    return [(row.number, public_id) for row, public_id in page], page[-1][0].public_id if len(rows) > _PAGE else None


def _read(engine: Engine, read: Callable[[Session, Any], tuple[list[tuple[int, str]], Any]], times: int) -> Subject:
    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        with Session(engine) as session:
            session.connection()
            rows: list[tuple[int, str]] = []

            def work() -> None:
                after = None
                for _ in range(times):
                    page, after = read(session, after)
                    rows.extend(page)

            yield work
            assert [number for number, _ in rows] == list(range(_PAGE * times))

    return subject
