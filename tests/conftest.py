"""Engines and sessions on every database that was found, and the same with every driver."""

from __future__ import annotations

import atexit
import dataclasses
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

sys.path.insert(0, str(Path(__file__).parent))

import servers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-all-databases", action="store_true", help="fail where a database is missing, instead of skipping"
    )
    parser.addoption("--programs", type=int, default=24, metavar="N", help="random programs a database")
    parser.addoption("--program", metavar="SEED|STEPS", help="one random program, as a failure has named it")


def pytest_report_header(config: pytest.Config) -> list[str]:
    import sqlalchemy

    if hasattr(config, "workerinput"):
        return []
    return [f"SQLAlchemy {sqlalchemy.__version__}", *servers.report(config.getoption("--require-all-databases"))]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--require-all-databases") and not hasattr(config, "workerinput"):
        missing = servers.DRIVERS.keys() - servers.servers().keys()
        if missing:
            raise pytest.UsageError(
                f"--require-all-databases, but not found: {', '.join(sorted(missing))}; run scripts/databases up"
            )


def pytest_unconfigure(config: pytest.Config) -> None:
    servers.stop_containers()


def _server(database: str) -> servers.Server:
    found = servers.servers().get(database)
    if found is None:
        pytest.skip(f"no {database} was found: run scripts/databases up")
    return found


@pytest.fixture(params=list(servers.DRIVERS))
def database(request: pytest.FixtureRequest) -> str:
    """The name of each database; a test for some of them says ``@on("mysql", "mariadb")``."""
    _server(request.param)
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def own_database() -> Iterator[None]:
    """A database of its own for each process, so that two runs, or two workers of one run, do not meet."""
    name = f"public_id_test_{os.getpid()}"
    made = []
    for database, server in list(servers.servers().items()):
        if database != "sqlite":
            made.append((create_engine(server.url, isolation_level="AUTOCOMMIT", poolclass=NullPool), name))
            _run(*made[-1], "DROP DATABASE IF EXISTS {}")
            _run(*made[-1], "CREATE DATABASE {}")
            servers.servers()[database] = dataclasses.replace(server, url=server.url.set(database=name))
    yield
    for engine, _ in made:
        _run(engine, name, "DROP DATABASE {} WITH (FORCE)" if engine.name == "postgresql" else "DROP DATABASE {}")


def _run(engine: Engine, name: str, statement: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(statement.format(engine.dialect.identifier_preparer.quote(name))))


_numbers = itertools.count()


@cache
def _folder() -> Path:
    """A folder of this process, which goes with it; a forked child leaves it to its parent."""
    folder, owner = Path(tempfile.mkdtemp(prefix="public-id-tests-")), os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder


def url_of(database: str, driver: str | None = None) -> URL:
    """A URL for *database*; a new file each time on SQLite."""
    server = _server(database)
    url = server.url_for(driver or servers.SYNC[database])
    if database == "sqlite":
        url = url.set(database=str(_folder() / f"{next(_numbers)}.db"))
    return url


@pytest.fixture
def new_engine(request: pytest.FixtureRequest) -> Iterator[Callable[..., Engine]]:
    """Make engines that are disposed of after the test: ``new_engine("mysql", isolation_level="AUTOCOMMIT")``."""
    made: list[Engine] = []

    def make(database: str, url: URL | None = None, **options: Any) -> Engine:
        engine = create_engine(url or url_of(database), **options)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.dispose()


@pytest.fixture
def engine(database: str, new_engine: Callable[..., Engine]) -> Engine:
    """An engine for each database, through its synchronous driver."""
    return new_engine(database)


@pytest.fixture
def create(engine: Engine) -> Iterator[Callable[[MetaData], None]]:
    """Create the tables of a metadata, and drop them after the test."""
    created: list[MetaData] = []

    def make(metadata: MetaData) -> None:
        metadata.drop_all(engine)
        metadata.create_all(engine)
        created.append(metadata)

    yield make
    for metadata in reversed(created):
        metadata.drop_all(engine)


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    """A session on *engine*; whatever is open at the end is rolled back."""
    with Session(engine) as session:
        yield session


@pytest.fixture(params=servers.ASYNC_DRIVERS, ids=map("-".join, servers.ASYNC_DRIVERS))
def async_engine(request: pytest.FixtureRequest) -> AsyncEngine:
    """An engine for each asynchronous driver of each database. Use it inside one ``asyncio.run()``."""
    database, driver = request.param
    return create_async_engine(url_of(database, driver), poolclass=NullPool)


class Statements(list[str]):
    """The statements sent since the fixture was made, or since :meth:`clear`."""

    def starting(self, word: str) -> list[str]:
        return [statement for statement in self if statement.lstrip().upper().startswith(word.upper())]


@pytest.fixture
def statements(engine: Engine) -> Iterator[Statements]:
    """What is sent to *engine*, one text a statement."""
    sent = Statements()

    def listen(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    event.listen(engine, "before_cursor_execute", listen)
    yield sent
    event.remove(engine, "before_cursor_execute", listen)
