"""Collisions of ids that never collide by chance: the rows are stored, and a warning says what is set up wrongly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from sqlalchemy.pool import NullPool
from support.forks import fork, ignore_fork_warning

from sqlalchemy_public_id import NanoId, PublicIdMixin, Snowflake, testing
from sqlalchemy_public_id.keys import BlockAllocator, CoprimeKey

pytestmark = [
    pytest.mark.backend,
    ignore_fork_warning,
    # the child leaves the parent's connections open
    pytest.mark.filterwarnings("ignore:.*unclosed:ResourceWarning"),
]

AT = datetime(2031, 2, 3, tzinfo=timezone.utc)
ROWS = 40


def declare(format: Any) -> tuple[Any, MetaData]:
    class Base(DeclarativeBase):
        metadata = MetaData()

    class Event(PublicIdMixin, Base):
        __tablename__ = "caused_collision"
        __public_id__ = format
        number: Mapped[int]

    return Event, Base.metadata


def insert(engine: Engine, model: Any) -> list[str]:
    """Insert rows, and return the messages that the library logs with a level of at least WARNING."""
    messages: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, handler = logging.getLogger("sqlalchemy_public_id"), Keep(logging.WARNING)
    logger.addHandler(handler)
    try:
        with Session(engine) as session:
            session.add_all([model(number=number) for number in range(ROWS)])
            session.commit()
    finally:
        logger.removeHandler(handler)
    return messages


@pytest.fixture
def server(engine: Engine) -> Iterator[Engine]:
    """Yield an engine without a pool, for several processes."""
    server = create_engine(engine.url, poolclass=NullPool)
    yield server
    server.dispose()


def on_two_machines(server: Engine, model: Any, metadata: MetaData) -> list[list[str]]:
    """Return what two processes log that insert rows at one moment."""

    def work() -> list[str]:
        with testing.fixed_time(AT):
            return insert(server, model)

    metadata.create_all(server)
    try:
        logged = [fork(work)() for _ in range(2)]
        with Session(server) as session:
            assert session.scalar(select(func.count(model.public_id.distinct()))) == 2 * ROWS
    finally:
        metadata.drop_all(server)
    return logged


def test_two_machines_with_one_id(server: Engine) -> None:
    """Two processes with one machine id store all rows, and the one that collides is told why."""
    first, second = on_two_machines(server, *declare(Snowflake(lambda: 5)))

    assert first == []
    assert len(second) >= ROWS
    assert second[0] == (
        "caused_collision: a public_id was already taken, and was replaced (try 1); such ids never collide by chance: "
        "another process generates ids with the machine id of this one, or the clock was set back between two runs"
    )


def test_machine_ids_from_a_counter(server: Engine) -> None:
    """Machine ids that are leased from the database, as the guide shows, differ, so that no id collides."""
    machines = BlockAllocator(server, "machine", block=1, create=True)
    machines.create_table()
    try:
        logged = on_two_machines(server, *declare(Snowflake(lambda: machines.next() % 1024)))
    finally:
        machines.table.drop(server)

    assert logged == [[], []]


def test_counter_behind_its_table(server: Engine) -> None:
    """Counted ids whose counter was set back are stored under later numbers, and a warning says so."""
    allocator = BlockAllocator(server, "caused", create=True, block=1000)
    allocator.create_table()
    model, metadata = declare(CoprimeKey(allocator))
    metadata.create_all(server)
    try:
        before = insert(server, model)
        with server.begin() as connection:
            connection.execute(allocator.table.update().values(next=1))
        allocator.close()
        after = insert(server, model)
    finally:
        metadata.drop_all(server)
        allocator.table.drop(server)

    assert before == []
    assert after
    assert all("the counter of the ids is behind the rows" in message for message in after)


def test_random_ids(engine: Engine, create: Callable[[MetaData], None], session: Session) -> None:
    """Collisions of random ids are no reason for a warning."""
    model, metadata = declare(NanoId(length=4))
    create(metadata)
    taken = model(number=1)
    session.add(taken)
    session.commit()
    with testing.collisions(model, taken.public_id, times=2):
        assert insert(engine, model) == []
