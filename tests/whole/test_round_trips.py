"""How often each way of writing and looking up waits for the server: what a network adds to the time, per database.

Counted by a proxy between the driver and the server. The transaction has begun before, and each way has been gone once
before, so that BEGIN, statements that the driver prepares, and catalogs that are read once do not count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import pytest
from sqlalchemy import BigInteger, Engine, Identity, MetaData, String, insert, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support import servers
from support.marks import fast_ways, on, on_async

from sqlalchemy_public_id import NanoId, PublicIdMixin, bulk, guard, lookup, testing
from sqlalchemy_public_id.idempotency import insert_once
from tools.benchmarks.proxy import Proxy

pytestmark = [pytest.mark.backend, fast_ways]

SERVERS = ("postgresql", "mysql", "mariadb")

TRIPS = {
    #                                            postgresql mysql mariadb
    "add and flush, 1 object":                   (1,        1,    1),
    "add_all and flush, 3 objects":              (1,        3,    1),
    "add_all and flush, 1000 objects":           (1,        1000, 1),
    "execute(insert(table), 1 row)":             (1,        1,    1),
    "execute(insert(table), 1000 rows)":         (3,        3,    3),
    "execute(insert(table).values(1000 rows))":  (3,        1,    1),
    "bulk.insert, 1000 objects":                 (1,        4,    4),
    "insert_once, first":                        (3,        5,    5),
    "insert_once, repeated":                     (4,        5,    5),
    "lookup.get":                                (1,        1,    1),
    "lookup.get_many, 1000 ids":                 (1,        1,    1),
    "lookup.page":                               (1,        1,    1),
}  # fmt: skip
"""Round trips while nothing collides."""

COLLISION = {
    #                                            postgresql mysql mariadb
    "add and flush, 1 object":                   (5,        1,    1),
    "add_all and flush, 3 objects":              (6,        1,    3),
    "add_all and flush, 1000 objects":           (6,        1,    3),
    "execute(insert(table), 1 row)":             (5,        1,    1),
    "execute(insert(table), 1000 rows)":         (3,        4,    4),
    "execute(insert(table).values(1000 rows))":  (3,        3,    3),
    "bulk.insert, 1000 objects":                 (6,        4,    4),
}  # fmt: skip
"""Round trips that a collision of one row adds."""


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    name: Mapped[str | None] = mapped_column(String(50))


class PlainBase(DeclarativeBase):
    metadata = MetaData()


class Plain(PlainBase):
    """The same table as it is mapped without the library."""

    __tablename__ = "user"
    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(mysql.BIGINT(unsigned=True), "mysql", "mariadb"), Identity(), primary_key=True
    )
    public_id: Mapped[str] = mapped_column(String(12), default=NanoId().generate)
    name: Mapped[str | None] = mapped_column(String(50))


Model = Any
Way = Callable[[Session, Model], Any]
ROWS: Any = [{"name": str(number)} for number in range(1000)]
IDS = NanoId().generate_many(1000)
TAKEN = IDS[0]


def flush(session: Session, model: Model, count: int) -> None:
    session.add_all([model() for _ in range(count)])
    session.flush()


WAYS: dict[str, Way] = {
    "add and flush, 1 object": lambda session, model: flush(session, model, 1),
    "add_all and flush, 3 objects": lambda session, model: flush(session, model, 3),
    "add_all and flush, 1000 objects": lambda session, model: flush(session, model, 1000),
    "execute(insert(table), 1 row)": lambda session, model: session.execute(insert(model.__table__), ROWS[0]),
    "execute(insert(table), 1000 rows)": lambda session, model: session.execute(insert(model.__table__), ROWS),
    "execute(insert(table).values(1000 rows))": lambda session, model: session.execute(
        insert(model.__table__).values(ROWS)
    ),
}
"""What can be done without the library as well."""

OURS: dict[str, Way] = {
    "bulk.insert, 1000 objects": lambda session, model: bulk.insert(session, [model(**row) for row in ROWS]),
    "insert_once, first": lambda session, model: insert_once(session, model(public_id=NanoId().generate())),
    "insert_once, repeated": lambda session, model: insert_once(session, model(public_id=TAKEN)),
    "lookup.get": lambda session, model: lookup.get(session, model, TAKEN),
    "lookup.get_many, 1000 ids": lambda session, model: lookup.get_many(session, model, IDS),
    "lookup.page": lambda session, model: lookup.page(session, select(model), limit=10),
}


@pytest.fixture(scope="module")
def proxies(own_database: None) -> Iterator[Callable[[str], Proxy]]:
    """The proxy before each server that a test asks for."""
    with ExitStack() as stack:
        begun: dict[str, Proxy] = {}

        def before(database: str) -> Proxy:
            if database not in begun:
                begun[database] = stack.enter_context(Proxy(servers.servers()[database].url))
            return begun[database]

        yield before


@pytest.fixture
def proxy(proxies: Callable[[str], Proxy], engine: Engine, create: Callable[[MetaData], None]) -> Proxy:
    """The proxy before the server of a test, which has the table and one row in it."""
    create(Base.metadata)
    with Session(engine) as session:
        session.add(User(public_id=TAKEN))
        session.commit()
    return proxies(engine.name)


@pytest.fixture
def far(proxy: Proxy, engine: Engine, new_engine: Callable[..., Engine]) -> Engine:
    """An engine whose connections pass the proxy."""
    return new_engine(engine.name, proxy.url)


def trips(session: Session, proxy: Proxy, model: Model, way: Way, *, collides: bool = False) -> int:
    """Return the round trips of the second of two times to do something in one *way*."""
    for _ in range(2):
        session.execute(text("SELECT 1"))
        with testing.collisions(User, TAKEN, times=1) if collides else nullcontext():
            before = proxy.trips
            way(session, model)
            counted = proxy.trips - before
        session.rollback()
    return counted


def expected(table: dict[str, tuple[int, ...]], way: str, database: str) -> int:
    return dict(zip(SERVERS, table[way], strict=True))[database]


def test_tables_are_complete() -> None:
    """Every way that is counted stands in the table, and the other way round."""
    assert TRIPS.keys() == (WAYS | OURS).keys()
    assert COLLISION.keys() == WAYS.keys() | {"bulk.insert, 1000 objects"}


def test_goals() -> None:
    """A repeated insert_once takes four round trips, or five with the locks on ids of MySQL and MariaDB.

    A savepoint takes two, and ``bulk.insert`` no more than it takes, with the read of the keys.
    """
    core = TRIPS["execute(insert(table), 1 row)"]
    assert TRIPS["insert_once, repeated"] == (4, 5, 5)
    assert all(ours <= one + 3 for ours, one in zip(TRIPS["bulk.insert, 1000 objects"], core, strict=True))


@on(*SERVERS)
@pytest.mark.parametrize("way", TRIPS)
def test_round_trips(proxy: Proxy, far: Engine, database: str, way: str) -> None:
    """The table above is what happens."""
    with Session(far) as session:
        assert trips(session, proxy, User, (WAYS | OURS)[way]) == expected(TRIPS, way, database)


@on(*SERVERS)
@pytest.mark.parametrize("way", WAYS)
def test_as_many_without_the_library(proxy: Proxy, far: Engine, way: str) -> None:
    """A model without the library, on an engine without the guard, takes as many, but for savepoints."""
    guard.uninstall(far)
    with Session(far) as session:
        plain = trips(session, proxy, Plain, WAYS[way])
    guard.install(far)
    with Session(far) as session:
        ours = trips(session, proxy, User, WAYS[way])

    has_savepoint = "1000 rows" in way and (far.name == "postgresql" or "values" not in way)
    assert ours == plain + 2 * has_savepoint


@on(*SERVERS)
@pytest.mark.parametrize("way", COLLISION)
def test_collision_of_one_row(proxy: Proxy, far: Engine, database: str, way: str) -> None:
    """What a collision adds is what the table says."""
    with Session(far) as session:
        more = trips(session, proxy, User, (WAYS | OURS)[way], collides=True) - expected(TRIPS, way, database)

    assert more == expected(COLLISION, way, database)


@on("postgresql")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("way", WAYS)
def test_savepoint_of_every_insert(
    proxy: Proxy, engine: Engine, new_engine: Callable[..., Engine], level: str, way: str
) -> None:
    """Where each INSERT needs a savepoint, it takes two round trips."""
    far = new_engine(engine.name, proxy.url, isolation_level=level)
    with Session(far) as session:
        assert trips(session, proxy, User, WAYS[way]) == 3


@on_async(*SERVERS)
def test_asynchronous_drivers(
    async_engine: AsyncEngine,
    proxies: Callable[[str], Proxy],
    new_engine: Callable[..., Engine],
    create_on: Callable[[Engine, MetaData], None],
) -> None:
    """They take as many."""
    database = async_engine.name
    create_on(engine := new_engine(database), Base.metadata)
    with Session(engine) as session:
        session.add(User(public_id=TAKEN))
        session.commit()
    proxy = proxies(database)
    url = async_engine.url.set(host=proxy.url.host, port=proxy.url.port)

    async def count() -> tuple[dict[str, int], dict[str, int]]:
        far = create_async_engine(url)
        async with AsyncSession(far) as session:
            calm = {way: await session.run_sync(trips, proxy, User, do) for way, do in (WAYS | OURS).items()}
            colliding = {
                way: await session.run_sync(partial(trips, collides=True), proxy, User, (WAYS | OURS)[way])
                for way in COLLISION
            }
        await far.dispose()
        return calm, colliding

    calm, colliding = asyncio.run(count())
    assert calm == {way: expected(TRIPS, way, database) for way in TRIPS}
    more = {way: number - calm[way] for way, number in colliding.items()}
    assert more == {way: expected(COLLISION, way, database) for way in COLLISION}


# --- the proxy itself


@on(*SERVERS)
def test_each_statement_is_a_trip(proxy: Proxy, far: Engine) -> None:
    """A statement is one round trip, and so is COMMIT; the first one of psycopg sends BEGIN before."""
    with far.connect() as connection:
        counts = []
        for do in (lambda: connection.scalar(text("SELECT 1")),) * 3 + (connection.commit,):
            before = proxy.trips
            do()
            counts.append(proxy.trips - before)

    assert counts == [2 if far.name == "postgresql" else 1, 1, 1, 1]


@on("postgresql")
def test_pipeline_is_a_trip(proxy: Proxy, far: Engine) -> None:
    """What psycopg sends without waiting is one round trip, however much it is."""
    with far.connect() as connection:
        connection.execute(text("SELECT 1"))
        driver: Any = connection.connection.driver_connection
        before = proxy.trips
        with driver.pipeline():
            for _ in range(3000):
                driver.execute("SELECT repeat('x', 100)")

        assert proxy.trips - before == 1


@on(*SERVERS)
def test_delay(proxy: Proxy, far: Engine) -> None:
    """Each round trip takes so much longer, both ways together."""
    with far.connect() as connection:
        connection.execute(text("SELECT 1"))
        proxy.milliseconds = 20
        begun = time.perf_counter()
        for _ in range(5):
            connection.execute(text("SELECT 1"))
        taken = time.perf_counter() - begun
        proxy.milliseconds = 0

    assert taken >= 5 * 0.02
