"""Whatever is written, in whatever order, and whatever collides, fails or is rolled back: objects and rows agree."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, MetaData, delete, event, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, make_transient, mapped_column

from sqlalchemy_public_id import NanoId, PublicIdMixin, bulk, testing

pytestmark = [pytest.mark.backend, pytest.mark.slow]


class Base(DeclarativeBase):
    metadata = MetaData()


class Item(PublicIdMixin, Base):
    """A hundred ids in all, so that many collide without being forced to."""

    __tablename__ = "item"
    __public_id__ = NanoId(length=2, alphabet="0123456789")
    number: Mapped[int] = mapped_column(unique=True)


FULL = 80
"""How many rows there may be: in a fuller table a row may use up its retries."""

table = Item.__table__
Rows = list[dict[str, Any]]


def add_all(session: Session, rows: Rows) -> list[Item]:
    items = [Item(**row) for row in rows]
    session.add_all(items)
    session.flush()
    return items


def add_one_by_one(session: Session, rows: Rows) -> list[Item]:
    return [item for row in rows for item in add_all(session, [row])]


def add_with_early_ids(session: Session, rows: Rows) -> list[Item]:
    items = [Item(**row) for row in rows]
    assert all(item.public_id for item in items)
    session.add_all(items)
    session.flush()
    return items


def merge(session: Session, rows: Rows) -> list[Item]:
    items = [session.merge(Item(**row)) for row in rows]
    session.flush()
    return items


def bulk_insert(session: Session, rows: Rows) -> list[Item]:
    items = [Item(**row) for row in rows]
    bulk.insert(session, items)
    return items


def insert_returning(session: Session, rows: Rows) -> list[Item]:
    if not session.get_bind().dialect.insert_executemany_returning:
        return insert_model(session, rows)
    items = list(session.scalars(insert(Item).returning(Item), rows))
    for item in items:
        make_transient(item)  # a rollback would not: for the session, they were loaded
    return items


def insert_model(session: Session, rows: Rows) -> list[Item]:
    session.execute(insert(Item), rows)
    return []


def insert_table(session: Session, rows: Rows) -> list[Item]:
    session.connection().execute(insert(table), rows)
    return []


def insert_values(session: Session, rows: Rows) -> list[Item]:
    session.connection().execute(insert(table).values(rows))
    return []


def bulk_save_objects(session: Session, rows: Rows) -> list[Item]:
    session.bulk_save_objects([Item(**row) for row in rows])
    return []


WAYS: list[Callable[[Session, Rows], list[Item]]] = [
    add_all,
    add_one_by_one,
    add_with_early_ids,
    merge,
    bulk_insert,
    insert_returning,
    insert_model,
    insert_table,
    insert_values,
    bulk_save_objects,
]


class Program:
    """Does what it is told, and knows what has to be in the table."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.numbers = itertools.count()
        self.rows: dict[int, str | None] = {}
        """Number → the id that was given; ``None`` for one to be made."""
        self.objects: list[Item] = []
        self.lost: list[Item] = []
        """Objects whose rows were rolled back."""
        self.committed = self.state()

    # --- steps

    def write(self, way: Callable[[Session, Rows], list[Item]], count: int, forced: int, gives: bool) -> None:
        """Write rows, of which some are made to collide."""
        rows = self.new_rows(count, gives)
        if len(self.rows) + len(rows) <= FULL:
            items = self.colliding(way, rows, forced)
            self.objects += items
            self.rows |= {row["number"]: row.get("public_id") for row in rows}
            if way is insert_returning:  # an id that was loaded is the caller's, as if it had been given
                self.rows |= {item.number: item.public_id for item in items}

    def fail(self, way: Callable[[Session, Rows], list[Item]], count: int, forced: int) -> None:
        """Fail to write rows, because the last one has the number of another."""
        rows = self.new_rows(count + 1, gives=False)
        rows[-1]["number"] = next(iter(self.rows), rows[0]["number"])
        if len(self.rows) + len(rows) <= FULL:
            with pytest.raises(IntegrityError), self.session.begin_nested():
                self.colliding(way, rows, forced)

    def savepoint(self, steps: list[Any], keep: bool) -> None:
        """Do some steps inside a savepoint."""
        before = self.state()
        savepoint = self.session.begin_nested()
        self.run(steps)
        if keep:
            savepoint.commit()
        else:
            savepoint.rollback()
            self.back_to(before)

    def commit(self) -> None:
        self.session.commit()
        self.committed = self.state()

    def rollback(self) -> None:
        self.session.rollback()
        self.back_to(self.committed)

    def add_again(self) -> None:
        """Add what was rolled back, under keys of their own."""
        again, self.lost = self.lost, []
        if len(self.rows) + len(again) <= FULL:
            for item in again:
                item.id = None  # type: ignore[assignment]
            self.session.add_all(again)
            self.session.flush()
            self.objects += again
            self.rows |= {item.number: None for item in again}

    def run(self, steps: list[Any]) -> None:
        for name, *arguments in steps:
            getattr(self, name)(*arguments)
            self.check()

    # --- what has to be so

    def check(self) -> None:
        """The table holds the rows that were written and no others; objects have the key and the id of their row."""
        query = select(table.c.number, table.c.id, table.c.public_id)
        rows = {number: (key, public_id) for number, key, public_id in self.session.connection().execute(query)}

        assert rows.keys() == self.rows.keys()
        assert all(public_id in (None, rows[number][1]) for number, public_id in self.rows.items())
        assert {item.number: (item.id, item.public_id) for item in self.objects}.items() <= rows.items()

    # --- inside

    def new_rows(self, count: int, gives: bool) -> Rows:
        """Rows with new numbers; the first one with a free id, if one *gives* it."""
        rows: Rows = [{"number": next(self.numbers)} for _ in range(count)]
        if gives:
            taken = set(self.session.connection().execute(select(table.c.public_id)).scalars())
            free = next(text for number in range(100) if (text := f"{number:02}") not in taken)
            rows = [row | {"public_id": free} for row in rows[:1]]
        return rows

    def colliding(self, way: Callable[[Session, Rows], list[Item]], rows: Rows, forced: int) -> list[Item]:
        """Write *rows*; the first ids that are made are one and the same, which is taken if there is any row."""
        taken = self.session.connection().execute(select(table.c.public_id)).scalars().first() or "00"
        with testing.collisions(Item, taken, times=forced):
            return way(self.session, rows)

    def state(self) -> tuple[dict[int, str | None], list[Item]]:
        return dict(self.rows), list(self.objects)

    def back_to(self, state: tuple[dict[int, str | None], list[Item]]) -> None:
        rows, objects = state
        gone = [item for item in self.objects if not any(item is other for other in objects)]
        self.lost += [item for item in gone if self.rows[item.number] is None]
        self.rows, self.objects = dict(rows), list(objects)


ways, counts, forced = st.sampled_from(WAYS), st.sampled_from([3, 1, 12]), st.integers(0, 3)
writes = st.tuples(st.just("write"), ways, counts, forced, st.booleans())
failures = st.tuples(st.just("fail"), ways, counts, forced)
again = st.just(("add_again",))
inside = st.lists(writes | failures | again, max_size=3)
savepoints = st.tuples(st.just("savepoint"), inside, st.booleans())
nested = st.tuples(st.just("savepoint"), st.lists(writes | savepoints, max_size=3), st.booleans())
ends = st.sampled_from([("commit",), ("rollback",)])
programs = st.lists(st.one_of(*[writes] * 4, failures, savepoints, nested, ends, again), min_size=5, max_size=12)


@pytest.fixture
def transactions(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """The tables, and on SQLite transactions that savepoints can be in (SQLAlchemy's recipe)."""
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, record: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    create(Base.metadata)


@pytest.mark.usefixtures("transactions")
@settings(
    max_examples=50,
    derandomize=True,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=programs, seed=st.integers(0, 1000))
def test_objects_agree_with_their_rows(engine: Engine, steps: list[Any], seed: int) -> None:
    """After each step of any program, every object has the key and the id of its row, and no other row is there."""
    with engine.begin() as connection:
        connection.execute(delete(table))
    chance = random.Random(seed)
    ids = [f"{chance.randrange(100):02}" for _ in range(5000)]  # a failure can be run again
    with testing.fixed_ids(Item, *ids), Session(engine, expire_on_commit=False) as session:
        program = Program(session)
        program.run(steps)
        program.commit()
        program.check()
