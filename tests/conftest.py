"""Options, marks, and fixtures for databases: SQLite, and all others for tests that are marked ``backend``."""

from __future__ import annotations

import atexit
import dataclasses
import gc
import itertools
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from sqlalchemy import Engine, MetaData, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

sys.path.insert(0, str(Path(__file__).parent))

from support import servers
from support.dumps import dumps
from support.fixtures import (
    base,
    listen,
    members,
    new_people,
    new_project,
    parcels,
    project,
    restless,
    role,
    send,
    table,
    tenants,
)
from support.invoices import new_invoices
from support.resident_tables import ResidentTables

__all__ = [
    "base",
    "dumps",
    "listen",
    "members",
    "new_invoices",
    "new_people",
    "new_project",
    "parcels",
    "project",
    "restless",
    "role",
    "send",
    "table",
    "tenants",
]

_FOLDERS = {"nodes": "nodes", "browser": "browser", "packaging": "housekeeping"}
"""Folder of tests → the mark of all tests in it."""

hypothesis.settings.register_profile("unhurried", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("unhurried")  # other processes may keep the machine busy for a while


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-all-databases", action="store_true", help="fail where a database is missing, instead of skipping"
    )
    parser.addoption(
        "--on", action="append", choices=list(servers.DRIVERS), help="only on this database; may be repeated"
    )
    parser.addoption("--programs", type=int, default=24, metavar="N", help="random programs a database")
    parser.addoption("--program", metavar="SEED|STEPS", help="one random program, as a failure has named it")


def pytest_report_header(config: pytest.Config) -> list[str]:
    import sqlalchemy

    if hasattr(config, "workerinput"):
        return []
    return [f"SQLAlchemy {sqlalchemy.__version__}", *servers.report(config.getoption("--require-all-databases"))]


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(10_000, 20, 20)
    if config.getoption("--on"):
        servers.restrict(config.getoption("--on"))
    if config.getoption("--require-all-databases") and not hasattr(config, "workerinput"):
        missing = servers.DRIVERS.keys() - servers.servers().keys()
        if missing:
            raise pytest.UsageError(
                f"--require-all-databases, but not found: {', '.join(sorted(missing))}; run tools/databases up"
            )


def pytest_unconfigure(config: pytest.Config) -> None:
    servers.stop_containers()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on SQLite, or on every database and with every driver if it is marked ``backend``."""
    marks = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    named = {name.strip() for names in marks for name in (names.split(",") if isinstance(names, str) else names)}
    chosen = metafunc.config.getoption("--on") or servers.DRIVERS
    databases = list(servers.DRIVERS) if metafunc.definition.get_closest_marker("backend") else ["sqlite"]
    databases = [database for database in databases if database in chosen] or databases
    if "database" in metafunc.fixturenames and "database" not in named:
        metafunc.parametrize("database", databases, indirect=True)
    if "async_engine" in metafunc.fixturenames and "async_engine" not in named:
        drivers = [pair for pair in servers.ASYNC_DRIVERS if pair[0] in databases]
        metafunc.parametrize("async_engine", drivers, ids=map("-".join, drivers), indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests by their folder, and deselect those of databases that ``--on`` does not name.

    On a server, only those values of a parameter run that the mark names: ``backend(format=["uuid7", "snowflake"])``.
    """
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            mark = _FOLDERS.get(item.path.relative_to(folder).parts[0])
            if mark is not None:
                item.add_marker(mark)
    others = servers.DRIVERS.keys() - set(config.getoption("--on") or servers.DRIVERS)
    left_out = {
        item for item in items if others.intersection(re.split(r"[-\[\] ]", item.name)) or _is_left_to_sqlite(item)
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def _is_left_to_sqlite(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("backend")
    if mark is None or not mark.kwargs or not isinstance(item, pytest.Function):
        return False
    values = item.callspec.params
    on_server = values.get("database", values.get("async_engine", ("sqlite",))[0]) != "sqlite"
    return on_server and any(values[name] not in few for name, few in mark.kwargs.items() if name in values)


@pytest.fixture(scope="module", autouse=True)
def frozen_objects() -> None:
    """Exclude older objects from garbage collection: a million of pytest, of modules and of their mappers."""
    while gc.collect():  # a mapper may become garbage only after another one is collected, or else stay forever
        pass
    gc.freeze()


def _server(database: str) -> servers.Server:
    found = servers.servers().get(database)
    if found is None:
        pytest.skip(f"no {database} was found: run tools/databases up")
    return found


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    """Return ``"sqlite"``, or each database for a ``backend`` test; ``@on("mysql", "mariadb")`` selects some."""
    _server(request.param)
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def own_database() -> Iterator[None]:
    """Create a database for each process, so that two runs, or two workers of one run, do not interfere."""
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
    """Return a folder of this process, which removes it at its end; a forked child leaves that to its parent."""
    folder, owner = Path(tempfile.mkdtemp(prefix="public-id-tests-", dir=servers.MEMORY)), os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder


def url_of(database: str, driver: str | None = None) -> URL:
    """Return a URL for *database*; on SQLite, that of a new file each time."""
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
    """An engine for the database of the test, through its synchronous driver."""
    return new_engine(database)


@pytest.fixture(autouse=True)
def _old_mariadb(request: pytest.FixtureRequest) -> None:
    """Skip a test that is marked ``@since_mariadb`` on an older server."""
    mark = request.node.get_closest_marker("since_mariadb")
    if mark is None or "database" not in request.fixturenames or request.getfixturevalue("database") != "mariadb":
        return
    since, feature = mark.args
    with request.getfixturevalue("engine").connect() as connection:
        version = connection.dialect.server_version_info
    if version < since:
        pytest.skip(f"MariaDB {version[0]}.{version[1]} has no {feature}")


@pytest.fixture(scope="session")
def resident_tables(own_database: None) -> Iterator[ResidentTables]:
    """The tables that are kept after a test, because the next test needs the same ones."""
    with ResidentTables() as tables:
        yield tables


@pytest.fixture(autouse=True)
def _usual_log_level() -> None:
    """Undo what an application of Litestar has done before, which sets the level of all logs to INFO by default."""
    logging.getLogger().setLevel(logging.WARNING)


@pytest.fixture(autouse=True)
def no_foreign_tables(request: pytest.FixtureRequest, resident_tables: ResidentTables) -> None:
    """Drop the tables of other tests before a test that does not create its own with :func:`create_on`."""
    if "create_on" not in request.fixturenames:
        resident_tables.drop()


@pytest.fixture
def create_on(resident_tables: ResidentTables) -> Iterator[Callable[[Engine, MetaData], None]]:
    """Create the tables of a MetaData; after the test, they are emptied if they are needed again, or dropped."""
    with resident_tables.of_test() as create:
        yield create


@pytest.fixture
def create(engine: Engine, create_on: Callable[[Engine, MetaData], None]) -> Callable[[MetaData], None]:
    """Create the tables of a MetaData on *engine*, as :func:`create_on` does."""
    return lambda metadata: create_on(engine, metadata)


@pytest.fixture
def session(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Session]:
    """A session on *engine*; an open transaction is rolled back at the end."""
    if "create_on" in request.fixturenames:
        request.getfixturevalue("create_on")  # first, so that it drops the tables after the session is closed
    with Session(engine) as session:
        yield session


@pytest.fixture
def async_engine(request: pytest.FixtureRequest) -> AsyncEngine:
    """An engine for ``aiosqlite``, or for each asynchronous driver in a ``backend`` test; for one ``asyncio.run()``."""
    database, driver = request.param
    pytest.importorskip("psycopg" if driver == "psycopg_async" else driver)
    return create_async_engine(url_of(database, driver), poolclass=NullPool)


class Statements(list[str]):
    """The statements sent since the fixture was made, or since :meth:`clear`."""

    def starting(self, word: str) -> list[str]:
        return [statement for statement in self if statement.lstrip().upper().startswith(word.upper())]


@pytest.fixture
def statements(engine: Engine) -> Iterator[Statements]:
    """The statements that are sent to *engine*, each as one string."""
    sent = Statements()

    def listen(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if "pg_rewrite" not in statement:  # the guard queries the triggers and rules of a table once
            sent.append(statement)

    event.listen(engine, "before_cursor_execute", listen)
    yield sent
    event.remove(engine, "before_cursor_execute", listen)
