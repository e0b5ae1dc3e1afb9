"""Lookups by public id: one row, 100 000 rows, and pages with a reference, compared with code by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, String, any_, bindparam, insert, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session

from sqlalchemy_public_id import NanoId, lookup
from tools.benchmarks.databases import ALL, Bench
from tools.benchmarks.measure import Comparison, Subject, compared
from tools.benchmarks.models import Order, PlainUser, User

__all__ = ["run"]

_AT_ONCE = 30_000
"""Ids in one hand-written statement: the best of 500, 2 000, 10 000 and 30 000 on every database."""
_PAGE = 50


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the lookups, in µs per lookup, per row, and per page."""
    rows, few, pages = bench.times(100_000, 2_000), bench.times(400, 100), bench.times(40, 5)
    for database in bench.on(*ALL):
        with database.engines() as (guarded, plain):
            ids = _filled(guarded, rows, pages)
            ours, select_, without = "lookup.get()", "hand-written SELECT", "the same without the library"
            one = {
                ours: _found(guarded, ids[:few], _get),
                select_: _found(guarded, ids[:few], _select_each(User)),
                without: _found(plain, ids[:few], _select_each(PlainUser)),
            }
            pairs = [(ours, select_, 1.03), (ours, without, None)]
            yield from compared(f"one row, {database.name}", one, pairs, bench.times(50, 2), few)

            ours, rival = "lookup.get_many()", f"by hand, {_AT_ONCE} ids a statement"
            many = {ours: _found(guarded, ids, _get_many), rival: _found(guarded, ids, _select_many(guarded))}
            what = f"{rows:,} ids, {database.name}"
            yield from compared(what, many, [(ours, rival, 1.05)], bench.times(15, 2), rows)

            ours, two, rival = "lookup.page(references=…)", "lookup.page()", "a JOIN by hand"
            ways = {ours: _page_with_references, two: _page, rival: _joined}
            reads = {name: _read(guarded, way, pages) for name, way in ways.items()}
            what = f"pages of {_PAGE} with a reference, {database.name}"
            yield from compared(what, reads, [(ours, rival, 1.05), (two, rival, None)], bench.times(24, 2), pages)


def _filled(engine: Engine, rows: int, pages: int) -> list[str]:
    """Store users, and orders that refer to them; return the ids of the users."""
    ids = NanoId().generate_many(rows)
    with engine.begin() as connection:
        for at in range(0, rows, 5_000):
            some = [{"public_id": each, "name": each, "email": f"{each}@example.org"} for each in ids[at : at + 5_000]]
            connection.execute(insert(User), some)
        keys = connection.scalars(select(User.id).order_by(User.id)).all()
        numbers = range(_PAGE * pages + 1)
        orders = zip(NanoId().generate_many(len(numbers)), numbers, strict=True)
        connection.execute(
            insert(Order),
            [{"public_id": each, "number": number, "user_id": keys[number * 7 % rows]} for each, number in orders],
        )
    return ids


# --- rows

Find = Callable[[Session, list[str]], "Sequence[Any]"]


def _get(session: Session, ids: list[str]) -> list[Any]:
    return [lookup.get(session, User, public_id) for public_id in ids]


def _get_many(session: Session, ids: list[str]) -> list[Any]:
    return list(lookup.get_many(session, User, ids).values())


def _select_each(model: Any) -> Find:
    def find(session: Session, ids: list[str]) -> list[Any]:
        return [session.scalars(select(model).where(model.public_id == each)).one_or_none() for each in ids]

    return find


def _select_many(engine: Engine) -> Find:
    if engine.name == "postgresql":
        query = select(User).where(User.public_id == any_(bindparam("ids", type_=ARRAY(String()))))
    else:
        query = select(User).where(User.public_id.in_(bindparam("ids", expanding=True, type_=String())))

    def find(session: Session, ids: list[str]) -> list[Any]:
        parts = [ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)]
        rows = {row.public_id: row for part in parts for row in session.scalars(query, {"ids": part})}
        return list(rows.values())

    return find


def _found(engine: Engine, ids: list[str], find: Find) -> Subject:
    """Find every row once, in a session without objects and with an open transaction."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        with Session(engine) as session:
            session.connection()
            found: list[Any] = []
            yield lambda: found.extend(find(session, ids))
            assert sorted(row.public_id for row in found) == sorted(ids)

    return subject


# --- pages

Read = Callable[[Session, Any], "tuple[list[tuple[int, str]], Any]"]


def _page_with_references(session: Session, after: Any) -> tuple[list[tuple[int, str]], Any]:
    """Read a page and its references in one statement."""
    page = lookup.page(session, Order, limit=_PAGE, after=after, references=[Order.user_public_id])
    return [(row.number, row.user_public_id) for row in page], page.next


def _page(session: Session, after: Any) -> tuple[list[tuple[int, str]], Any]:
    """Read a page in two statements: the first access to a reference fetches the ids of all users."""
    page = lookup.page(session, Order, limit=_PAGE, after=after)
    return [(row.number, row.user_public_id) for row in page], page.next


def _joined(session: Session, after: Any) -> tuple[list[tuple[int, str]], Any]:
    """Read a page with a join, and one more row to find out whether there is another page."""
    query = select(Order, User.public_id).join(Order.user).order_by(Order.id).limit(_PAGE + 1)
    if after is not None:
        query = query.where(Order.id > select(Order.id).where(Order.public_id == after).scalar_subquery())
    rows = session.execute(query).all()
    page = rows[:_PAGE]
    return [(row.number, public_id) for row, public_id in page], page[-1][0].public_id if len(rows) > _PAGE else None


def _read(engine: Engine, read: Read, times: int) -> Subject:
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
