"""A counter behind its table, which was adopted, loaded or restored: one INSERT fails, and the next ones do not."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine, event, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id import audit
from sqlalchemy_public_id.keys import BlockAllocator, block_key

pytestmark = pytest.mark.backend

LOADED = 3000


def declared(engine: Engine, **options: Any) -> Any:
    """Return the model of events, and its allocator."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    events = BlockAllocator(engine, "event", **({"block": 100, "timeout": 30} | options))

    class Event(Base):
        __tablename__ = "event"
        id: Mapped[int] = block_key(events)
        code: Mapped[int | None] = mapped_column(unique=True, index=True)

    return Event, events


@pytest.fixture
def made(engine: Engine, create: Callable[[MetaData], None]) -> Iterator[Any]:
    """Yield the model and its allocator, with an empty table and an empty table of counters."""
    Event, events = declared(engine)
    events.table.drop(engine, checkfirst=True)
    events.create_table()
    create(Event.metadata)
    yield Event, events
    events.table.drop(engine)


def load(engine: Engine, model: Any, *keys: int) -> None:
    with engine.begin() as connection:
        connection.execute(insert(model.__table__), [{"id": key, "code": None} for key in keys])


def failures(engine: Engine, model: Any, events: BlockAllocator, rows: int) -> int:
    """Write *rows* rows, a transaction each, and return how many transactions failed."""
    failed = written = 0
    while written < rows:
        events.reserve(1)
        with Session(engine) as session:
            session.add(model())
            try:
                session.commit()
                written += 1
            except IntegrityError:
                failed += 1
    return failed


@pytest.mark.parametrize("issued", [0, 50, 100], ids=["new counter", "within a block", "at the end of a block"])
def test_one_insert_fails(engine: Engine, made: Any, issued: int) -> None:
    """After one refused key, the allocator skips the keys of the table."""
    Event, events = made
    events.take(issued)
    load(engine, Event, *range(1, LOADED + 1))

    assert failures(engine, Event, events, 300) == 1
    with engine.connect() as connection:
        assert connection.scalar(select(func.max(Event.id))) == LOADED + 300


def test_start_is_a_floor(engine: Engine, made: Any) -> None:
    """A counter that exists continues at ``start`` if it is below, and never goes back."""
    Event, events = made
    events.take(10)
    load(engine, Event, *range(1, LOADED + 1))

    Event, events = declared(engine, start=LOADED + 1)
    assert failures(engine, Event, events, 150) == 0
    assert declared(engine, start=5)[1].next() == LOADED + 201


def test_single_keys_in_the_way(engine: Engine, made: Any) -> None:
    """Keys with gaps between them cost a transaction or two, not one for each key."""
    Event, events = made
    load(engine, Event, *range(50, 5000, 100))

    assert failures(engine, Event, events, 500) <= 2


def test_another_duplicate(engine: Engine, made: Any) -> None:
    """A duplicate in another column, or of a key that the program has set, discards no number."""
    Event, _ = made
    load(engine, Event, 10**6)
    with Session(engine) as session:
        session.add(Event(code=1))
        session.commit()
    for row in ({"code": 1}, {"id": 10**6}):
        with Session(engine) as session, pytest.raises(IntegrityError):
            session.add(Event(**row))
            session.commit()

    with Session(engine) as session:
        session.add(Event())
        session.commit()
        assert session.scalars(select(Event.id).order_by(Event.id)).all() == [1, 3, 10**6]


def test_duplicate_in_a_named_index(engine: Engine, made: Any) -> None:
    """After a duplicate in another index, the allocator does not read the table."""
    Event, _ = made
    sent: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *given: sent.append(given[2]))
    with Session(engine) as session:
        session.add(Event(code=1))
        session.commit()
        session.add(Event(code=1))
        with pytest.raises(IntegrityError):
            session.commit()
        session.rollback()
        session.add(Event())
        session.commit()

    assert not [sql for sql in sent if "max(" in sql.lower()]


def test_inside_a_transaction(engine: Engine, made: Any) -> None:
    """A transaction that has written continues after a savepoint that a refused key has rolled back."""
    Event, events = made
    events.reserve(100)
    load(engine, Event, 2)
    with Session(engine) as session:
        session.add(Event())
        session.flush()
        with pytest.raises(IntegrityError), session.begin_nested():
            session.add(Event())
            session.flush()
        session.add(Event())
        session.commit()
        assert session.scalars(select(Event.id).order_by(Event.id)).all() == [1, 2, 3]


def test_the_audit_says_it_before(engine: Engine, made: Any) -> None:
    """With the models, the audit names the number from which on the counter works."""
    Event, events = made
    events.take(10)
    assert audit.run(engine, tables=["event"], models=Event.metadata).findings == []
    load(engine, Event, *range(1, LOADED + 1))

    [finding] = audit.run(engine, tables=["event"], models=Event.metadata).findings

    assert (finding.problem, finding.severity) == ("key-counter-behind", "error")
    assert finding.facts == {"counter": "event", "upcoming": 101, "value": LOADED}
    assert f"start={LOADED + 1})" in finding.message
    Event = declared(engine, start=LOADED + 1)[0]
    assert audit.run(engine, tables=["event"], models=Event.metadata).findings == []


def _work(url: str, rows: int) -> tuple[int, int]:
    engine = create_engine(url, poolclass=NullPool)
    Event, events = declared(engine)
    return failures(engine, Event, events, rows), rows


@pytest.mark.slow
def test_processes_with_one_counter(engine: Engine, made: Any) -> None:
    """Of several processes, each fails once or twice at most; no key is issued twice, and no row is lost."""
    Event, events = made
    load(engine, Event, *range(1, LOADED + 1))
    url = engine.url.render_as_string(hide_password=False)
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        done = [each.result() for each in [pool.submit(_work, url, 100) for _ in range(4)]]

    assert all(failed <= 2 for failed, _ in done)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(Event)) == LOADED + 400
        assert connection.scalar(select(events.table.c.next)) <= LOADED + 400 + 8 * 100


def test_a_counter_that_went_back(engine: Engine, made: Any) -> None:
    """After a failover to a late replica, the counter has lost leases: one INSERT fails, and no key is stored twice."""
    Event, events = made
    assert failures(engine, Event, events, 250) == 0
    with engine.begin() as connection:
        connection.execute(update(events.table).values(next=101))

    other = declared(engine)
    assert failures(engine, *other, 120) == 1
    assert failures(engine, Event, events, 120) == 0
