"""Migrations and backfills through PgBouncer, which may switch the session of PostgreSQL after each transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from support.people import People, migrating, send
from support.projects import Project
from support.shops import old_shop

from sqlalchemy_public_id import ConfigurationError, backfill
from sqlalchemy_public_id.alembic import take_turn
from sqlalchemy_public_id.migrations.postgresql.session import changes_session

SETTINGS = (
    "current_setting('lock_timeout'), current_setting('statement_timeout'), current_setting('client_min_messages')"
)
ROWS = 20_000


def engine_of(url: URL, **options: Any) -> Engine:
    """Create an engine without prepared statements, which PgBouncer 1.18 does not support."""
    return create_engine(url, connect_args={"prepare_threshold": None}, **options)


class Pooler:
    """A server, and engines that connect to it directly and through poolers."""

    def __init__(self, server: URL, transaction: URL, session: URL) -> None:
        self.direct, self.transaction, self.session = map(engine_of, (server, transaction, session))

    def dispose(self) -> None:
        for engine in (self.direct, self.transaction, self.session):
            engine.dispose()

    def locks(self) -> int:
        """Count the advisory locks that are held."""
        with self.direct.connect() as connection:
            return connection.scalar(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")) or 0

    def settings(self) -> set[Any]:
        """Return the settings of all sessions of the pooler, by using all of them at once."""
        together = threading.Barrier(4)

        def look(_: int) -> Any:
            with self.transaction.begin() as connection:
                found = tuple(connection.execute(text(f"SELECT {SETTINGS}")).one())
                together.wait(30)
                return found

        with ThreadPoolExecutor(4) as threads:
            return set(threads.map(look, range(4)))


@pytest.fixture
def pooler(poolers: tuple[URL, URL, URL]) -> Iterator[Pooler]:
    """The pooler, while the programs of an application switch its sessions all the time."""
    made, stop = Pooler(*poolers), threading.Event()
    assert len(made.settings()) == 1

    def work() -> None:
        while not stop.is_set():
            with made.transaction.begin() as connection:
                connection.execute(text("SELECT pg_sleep(random() * 0.004)"))

    with ThreadPoolExecutor(3) as threads:
        for _ in range(3):
            threads.submit(work)
        yield made
        stop.set()
    made.dispose()


@pytest.fixture
def people(pooler: Pooler) -> Iterator[People]:
    """A table of people on the server."""
    people = People(pooler.direct)
    people.create(ROWS)
    yield people
    people.drop()


def through(people: People, engine: Engine) -> People:
    """Return the table as *engine* reaches it."""
    return People(engine, people.table, **people.options)


def test_backfill(pooler: Pooler, people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several workers fill the table through the pooler, no lock remains, and a second run fills what is left."""
    monkeypatch.setattr("sqlalchemy_public_id.migrations.backfill.WINDOW", 2_000)
    people.run("expand_public_id")
    with ThreadPoolExecutor(3) as threads:
        workers = [
            threads.submit(backfill.run, pooler.transaction, people.table, pause=0, batch_seconds=0.02)
            for _ in range(3)
        ]
    done = [worker.result() for worker in workers]

    assert sum(progress.filled for progress in done) == ROWS
    assert all(progress.finished for progress in done)
    assert pooler.locks() == 0
    people.execute("UPDATE person SET public_id = NULL WHERE id % 10 = 0")
    again = backfill.run(pooler.transaction, people.table, pause=0)
    assert (again.filled, again.finished, pooler.locks()) == (ROWS // 10, True, 0)


def test_operations_that_work(pooler: Pooler, people: People) -> None:
    """The first two phases work behind the pooler, and leave neither settings nor locks in its sessions."""
    before = pooler.settings()
    behind = through(people, pooler.transaction)

    behind.run("expand_public_id")
    behind.run("backfill_public_id")

    assert people.ids().count(None) == 0
    assert (pooler.settings(), pooler.locks()) == (before, 0)


@pytest.mark.parametrize("operation", ["add_public_id", "contract_public_id", "drop_public_id"])
@pytest.mark.parametrize("pool", [None, NullPool], ids=str)
def test_refused(pooler: Pooler, people: People, operation: str, pool: Any) -> None:
    """An index cannot be built behind a pooler: the operation changes nothing, and the error names the remedy."""
    before = pooler.settings()
    if operation != "add_public_id":
        people.run("expand_public_id")
        people.run("backfill_public_id")
    if operation == "drop_public_id":
        people.run("contract_public_id")
    state = people.state()
    options: dict[str, Any] = {"poolclass": pool} if pool else {"pool_size": 1, "max_overflow": 0, "pool_timeout": 2}
    engine = engine_of(pooler.transaction.url, **options)

    with pytest.raises(ConfigurationError, match=r"pooler.*connect to the server itself"):
        through(people, engine).run(operation)

    engine.dispose()
    assert people.state() == state
    assert pooler.settings() == before


def test_turn_of_an_upgrade(pooler: Pooler, caplog: pytest.LogCaptureFixture) -> None:
    """Behind the pooler, an upgrade takes no lock, which a session would keep forever, and logs a warning."""
    for engine, warnings in ((pooler.transaction, 1), (pooler.session, 0)):
        caplog.clear()
        with engine.connect() as connection, take_turn(connection):
            assert pooler.locks() == 1 - warnings
        assert (len(caplog.messages), pooler.locks()) == (warnings, 0)


def test_complete(pooler: Pooler, people: People) -> None:
    """An operation whose work is already done builds no index, and is not refused."""
    people.run("add_public_id")

    through(people, pooler.transaction).run("add_public_id")


def test_session_pooling(pooler: Pooler, people: People) -> None:
    """A pooler that keeps the session until the connection is closed is no obstacle."""
    behind = through(people, pooler.session)

    behind.add()
    behind.check_complete()
    behind.run("drop_public_id")


def test_inside_a_transaction(pooler: Pooler, people: People) -> None:
    """``online=False`` builds the index inside the transaction, which uses a single session."""
    behind = through(people, pooler.transaction)

    with pooler.transaction.begin() as connection, migrating(connection) as op:
        behind.say(op, "add_public_id", online=False)

    people.check_complete()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg_async"])
def test_template(pooler: Pooler, driver: str, tmp_path: Path) -> None:
    """The shipped env.py sets its lock timeout in each migration, and leaves none in the sessions of the pooler."""
    before = pooler.settings()
    project = Project(tmp_path, pooler.direct, pooler.transaction.url.set(drivername=f"postgresql+{driver}"))
    project.config.attributes["metadata"] = old_shop()
    project.write("assert op.get_bind().exec_driver_sql('SHOW lock_timeout').scalar() == '5s'")
    project.write("assert op.get_bind().exec_driver_sql('SHOW lock_timeout').scalar() == '5s'")
    try:
        project.upgrade()
    finally:
        with pooler.direct.begin() as connection:
            send(connection, "DROP TABLE IF EXISTS alembic_version")

    assert pooler.settings() == before


@pytest.mark.parametrize("driver", ["psycopg", "psycopg_async", "asyncpg"])
def test_drivers(pooler: Pooler, driver: str) -> None:
    """Each driver detects a pooler that switches sessions, but not the server itself or session pooling."""
    options = {"asyncpg": {"statement_cache_size": 0}}.get(driver, {"prepare_threshold": None})

    def found(engine: Engine) -> bool:
        url = engine.url.set(drivername=f"postgresql+{driver}")
        if driver == "psycopg":
            return detect(create_engine(url, poolclass=NullPool, connect_args=options))
        return asyncio.run(detect_async(create_async_engine(url, poolclass=NullPool, connect_args=options)))

    def detect(engine: Engine) -> bool:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            return changes_session(connection)

    async def detect_async(engine: AsyncEngine) -> bool:
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            return await connection.run_sync(changes_session)

    engines = [pooler.direct, pooler.session]
    if driver != "asyncpg":  # it prepares statements, which PgBouncer 1.18 loses
        engines.append(pooler.transaction)
    assert [found(engine) for engine in engines] == [False, False, True][: len(engines)]


def test_server_itself(pooler: Pooler) -> None:
    """On the server itself, one statement shows that there is no pooler, and no other connection is made."""
    connected: list[Any] = []
    engine = create_engine(pooler.direct.url, poolclass=NullPool)
    event.listen(engine, "connect", lambda *arguments: connected.append(arguments))

    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert not changes_session(connection)

    assert len(connected) == 1
