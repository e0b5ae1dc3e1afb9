"""The number of round trips of each way to write and look up rows, on each database.

A proxy between the driver and the server counts them; on SQLite, statements are counted. Each way runs once before, and
in a transaction that has begun, so that BEGIN, prepared statements, and catalogs that are read once do not count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from functools import cache, partial
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import BigInteger, Engine, Identity, Integer, MetaData, String, UniqueConstraint, insert, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support import servers
from support.marks import fast_ways, on, on_async

from conftest import Statements
from sqlalchemy_public_id import NanoId, PublicIdColumnMixin, PublicIdMixin, bulk, guard, lookup, testing
from sqlalchemy_public_id.idempotency import insert_once
from tools.benchmarks.proxy import Proxy

pytestmark = [pytest.mark.backend, fast_ways]

SERVERS = ("postgresql", "mysql", "mariadb")

TRIPS = {
    #                                            sqlite postgresql mysql mariadb
    "add and flush, 1 object":                   (1,    1,         1,    1),
    "add_all and flush, 3 objects":              (1,    1,         3,    1),
    "add_all and flush, 1000 objects":           (1,    1,         1000, 1),
    "merge and flush, a new object":             (1,    1,         1,    1),
    "load and change another column":            (2,    2,         2,    2),
    "load and delete":                           (2,    2,         2,    2),
    "bulk_save_objects, 1000 objects":           (1,    3,         3,    3),
    "bulk_insert_mappings, 1000 rows":           (1,    3,         3,    3),
    "execute(insert(Model), 1000 rows)":         (1,    3,         3,    3),
    "execute(insert(table), 1 row)":             (1,    1,         1,    1),
    "execute(insert(table), 1000 rows)":         (1,    3,         3,    3),
    "execute(insert(table).values(1000 rows))":  (1,    3,         1,    1),
    "bulk.insert, 1000 objects":                 (2,    1,         4,    4),
    "insert_once, first":                        (4,    3,         5,    5),
    "insert_once, repeated":                     (5,    4,         5,    5),
    "lookup.get":                                (1,    1,         1,    1),
    "lookup.get_many, 1000 ids":                 (1,    1,         1,    1),
    "lookup.keys_of, 1000 ids":                  (1,    1,         1,    1),
    "lookup.public_ids_of, 1000 keys":           (1,    1,         1,    1),
    "lookup.page":                               (1,    1,         1,    1),
}  # fmt: skip
"""Round trips without a collision; on SQLite, statements."""

COLLISION = {
    #                                            postgresql mysql mariadb
    "add and flush, 1 object":                   (6,        1,    1),
    "add_all and flush, 3 objects":              (8,        1,    3),
    "add_all and flush, 1000 objects":           (8,        1,    3),
    "execute(insert(Model), 1000 rows)":         (3,        4,    4),
    "execute(insert(table), 1 row)":             (6,        1,    1),
    "execute(insert(table), 1000 rows)":         (3,        4,    4),
    "execute(insert(table).values(1000 rows))":  (3,        3,    3),
    "bulk.insert, 1000 objects":                 (8,        4,    4),
}  # fmt: skip
"""Round trips that a collision of one row adds."""

FEWER_ON_SQLITE = {"add_all and flush, 3 objects": 3, "add_all and flush, 1000 objects": 1000}
"""The statements of a model without the library on SQLite, if the library needs fewer."""


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    name: Mapped[str | None] = mapped_column(String(50))


class Keyed(PublicIdColumnMixin, Base):
    """A model whose key the application generates."""

    __tablename__ = "keyed"
    key: Mapped[str] = mapped_column(String(36), primary_key=True, default=lambda: str(uuid4()))


class Deferrable(PublicIdMixin, Base):
    """A model with a deferrable constraint, for which PostgreSQL does not support ON CONFLICT."""

    __tablename__ = "deferrable"
    name: Mapped[str | None] = mapped_column(String(50))
    __table_args__ = (UniqueConstraint("name", deferrable=True).ddl_if(dialect="postgresql"),)


class PlainBase(DeclarativeBase):
    metadata = MetaData()


class Plain(PlainBase):
    """The table of :class:`User`, mapped without the library."""

    __tablename__ = "user"
    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer(), "sqlite").with_variant(mysql.BIGINT(unsigned=True), "mysql", "mariadb"),
        Identity(),
        primary_key=True,
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


def merge(session: Session, model: Model) -> None:
    session.merge(model(name="new"))
    session.flush()


def change(session: Session, model: Model) -> None:
    session.scalars(select(model)).one().name = "changed"
    session.flush()


def delete(session: Session, model: Model) -> None:
    session.delete(session.scalars(select(model)).one())
    session.flush()


WAYS: dict[str, Way] = {
    "add and flush, 1 object": lambda session, model: flush(session, model, 1),
    "add_all and flush, 3 objects": lambda session, model: flush(session, model, 3),
    "add_all and flush, 1000 objects": lambda session, model: flush(session, model, 1000),
    "merge and flush, a new object": merge,
    "load and change another column": change,
    "load and delete": delete,
    "bulk_save_objects, 1000 objects": lambda session, model: session.bulk_save_objects([model(**row) for row in ROWS]),
    "bulk_insert_mappings, 1000 rows": lambda session, model: session.bulk_insert_mappings(model, ROWS),
    "execute(insert(Model), 1000 rows)": lambda session, model: session.execute(insert(model), ROWS),
    "execute(insert(table), 1 row)": lambda session, model: session.execute(insert(model.__table__), ROWS[0]),
    "execute(insert(table), 1000 rows)": lambda session, model: session.execute(insert(model.__table__), ROWS),
    "execute(insert(table).values(1000 rows))": lambda session, model: session.execute(
        insert(model.__table__).values(ROWS)
    ),
}
"""The ways that also work without the library."""

OURS: dict[str, Way] = {
    "bulk.insert, 1000 objects": lambda session, model: bulk.insert(session, [model(**row) for row in ROWS]),
    "insert_once, first": lambda session, model: insert_once(session, model(public_id=NanoId().generate())),
    "insert_once, repeated": lambda session, model: insert_once(session, model(public_id=TAKEN)),
    "lookup.get": lambda session, model: lookup.get(session, model, TAKEN),
    "lookup.get_many, 1000 ids": lambda session, model: lookup.get_many(session, model, IDS),
    "lookup.keys_of, 1000 ids": lambda session, model: lookup.keys_of(session, model, IDS),
    "lookup.public_ids_of, 1000 keys": lambda session, model: lookup.public_ids_of(session, model, range(1000)),
    "lookup.page": lambda session, model: lookup.page(session, select(model), limit=10),
}


@pytest.fixture(scope="module")
def proxies(own_database: None) -> Iterator[Callable[[str], Proxy]]:
    """Return a function that starts a proxy for a server."""
    with ExitStack() as stack:
        yield cache(lambda database: stack.enter_context(Proxy(servers.servers()[database].url)))


@pytest.fixture
def proxy(proxies: Callable[[str], Proxy], engine: Engine, create: Callable[[MetaData], None]) -> Proxy | None:
    """Return the proxy for the server of a test, after creating the tables and one row; none on SQLite."""
    create(Base.metadata)
    with Session(engine) as session, session.begin():
        session.add(User(public_id=TAKEN))
    return None if engine.name == "sqlite" else proxies(engine.name)


@pytest.fixture
def far(proxy: Proxy | None, engine: Engine, new_engine: Callable[..., Engine]) -> Engine:
    """Return an engine whose connections go through the proxy."""
    return engine if proxy is None else new_engine(engine.name, proxy.url)


@pytest.fixture
def count(proxy: Proxy | None, statements: Statements) -> Callable[[], int]:
    """Return a function that returns the number of round trips so far; on SQLite, of statements."""
    return lambda: len(statements) if proxy is None else proxy.trips


def trips(session: Session, count: Callable[[], int], model: Model, way: Way, *, collides: bool = False) -> int:
    """Return the number of round trips of *way* when it runs for the second time."""
    for _ in range(2):
        session.execute(text("SELECT 1"))
        with testing.collisions(User, TAKEN, times=1) if collides else nullcontext():
            before = count()
            way(session, model)
            counted = count() - before
        session.rollback()
    return counted


def expected(table: dict[str, tuple[int, ...]], way: str, database: str) -> int:
    return table[way][-len(SERVERS) :][SERVERS.index(database)] if database in SERVERS else table[way][0]


@pytest.mark.parametrize("way", WAYS | OURS)
def test_round_trips(count: Callable[[], int], far: Engine, database: str, way: str) -> None:
    """Each way makes the number of round trips in the table above."""
    with Session(far) as session:
        assert trips(session, count, User, (WAYS | OURS)[way]) == expected(TRIPS, way, database)


@pytest.mark.parametrize("way", WAYS)
def test_as_many_without_the_library(count: Callable[[], int], far: Engine, database: str, way: str) -> None:
    """Without library and guard, a model makes as many round trips, except for savepoints, or more on SQLite."""
    guard.uninstall(far)
    with Session(far) as session:
        plain = trips(session, count, Plain, WAYS[way])
    guard.install(far)

    if database == "sqlite":
        assert plain == FEWER_ON_SQLITE.get(way, expected(TRIPS, way, database))
    else:
        has_savepoint = "1000 rows" in way or "bulk" in way
        savepoint = 2 * (has_savepoint and (database == "postgresql" or "values" not in way))
        assert plain == expected(TRIPS, way, database) - savepoint


@on(*SERVERS)
@pytest.mark.parametrize("way", COLLISION)
def test_collision_of_one_row(count: Callable[[], int], far: Engine, database: str, way: str) -> None:
    """A collision adds the number of round trips in the table."""
    with Session(far) as session:
        more = trips(session, count, User, (WAYS | OURS)[way], collides=True) - expected(TRIPS, way, database)

    assert more == expected(COLLISION, way, database)


@on("sqlite")
def test_collision_on_sqlite(far: Engine) -> None:
    """A collision in 1 000 rows costs a SELECT, which finds the collision, and another INSERT."""
    driven: list[str] = []
    with Session(far) as session, testing.collisions(User, TAKEN, times=1):
        driver: Any = session.connection().connection.driver_connection
        driver.set_trace_callback(driven.append)
        flush(session, User, 1000)
        driver.set_trace_callback(None)

    assert [statement.split()[0] for statement in driven] == ["BEGIN", "INSERT", "SELECT", "INSERT"]


@on("postgresql")
@pytest.mark.parametrize(
    ("level", "model", "rows", "saved"),
    [
        pytest.param("READ COMMITTED", User, 3, False, id="keys of the database"),
        pytest.param("READ COMMITTED", Keyed, 1, False, id="one key of the program"),
        pytest.param("READ COMMITTED", Keyed, 3, True, id="keys of the program"),
        pytest.param("READ COMMITTED", Deferrable, 1, True, id="a deferrable constraint"),
        pytest.param("REPEATABLE READ", User, 1, True, id="repeatable read"),
        pytest.param("SERIALIZABLE", User, 3, True, id="serializable"),
        pytest.param("AUTOCOMMIT", User, 3, False, id="autocommit"),
    ],
)
def test_flushes_with_a_savepoint(
    proxy: Proxy,
    count: Callable[[], int],
    new_engine: Callable[..., Engine],
    level: str,
    model: Any,
    rows: int,
    saved: bool,
) -> None:
    """On PostgreSQL, only certain flushes make two more round trips, for a savepoint."""
    with Session(new_engine("postgresql", proxy.url, isolation_level=level)) as session:
        assert trips(session, count, model, partial(flush, count=rows)) == (3 if saved else 1)


@on_async(*SERVERS)
def test_asynchronous_drivers(
    async_engine: AsyncEngine,
    proxies: Callable[[str], Proxy],
    new_engine: Callable[..., Engine],
    create_on: Callable[[Engine, MetaData], None],
) -> None:
    """The asynchronous drivers make the same number of round trips."""
    database = async_engine.name
    create_on(engine := new_engine(database), Base.metadata)
    with Session(engine) as session, session.begin():
        session.add(User(public_id=TAKEN))
    proxy = proxies(database)
    url = async_engine.url.set(host=proxy.url.host, port=proxy.url.port)

    async def counted(ways: Iterable[str], **options: Any) -> dict[str, int]:
        far = create_async_engine(url)
        async with AsyncSession(far) as session:
            found = {
                way: await session.run_sync(partial(trips, **options), lambda: proxy.trips, User, (WAYS | OURS)[way])
                for way in ways
            }
        await far.dispose()
        return found

    assert asyncio.run(counted(TRIPS)) == {way: expected(TRIPS, way, database) for way in TRIPS}
    assert asyncio.run(counted(COLLISION, collides=True)) == {
        way: expected(TRIPS, way, database) + expected(COLLISION, way, database) for way in COLLISION
    }


# --- the proxy itself


@on(*SERVERS)
def test_each_statement_is_a_trip(proxy: Proxy, far: Engine) -> None:
    """A statement is one round trip, and so is COMMIT; before the first statement, psycopg sends BEGIN."""
    with far.connect() as connection:
        counts = []
        for do in (lambda: connection.scalar(text("SELECT 1")),) * 3 + (connection.commit,):
            before = proxy.trips
            do()
            counts.append(proxy.trips - before)

    assert counts == [2 if far.name == "postgresql" else 1, 1, 1, 1]


@on("postgresql")
def test_pipeline_is_a_trip(proxy: Proxy, far: Engine) -> None:
    """A pipeline of psycopg is one round trip, however many statements it has."""
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
    """The delay applies to each round trip, for both directions together."""
    with far.connect() as connection:
        connection.execute(text("SELECT 1"))
        proxy.milliseconds = 20
        begun = time.perf_counter()
        for _ in range(5):
            connection.execute(text("SELECT 1"))
        taken = time.perf_counter() - begun
        proxy.milliseconds = 0

    assert taken >= 5 * 0.02
