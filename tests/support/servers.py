"""Find the databases that the tests run on.

They are searched in this order: ``PUBLIC_ID_TEST_URLS`` (comma separated), servers on the usual ports of this machine,
and containers if a Docker engine answers. SQLite needs no server.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url

DRIVERS = {
    "sqlite": ("sqlite", "aiosqlite"),
    "postgresql": ("psycopg", "psycopg_async", "asyncpg"),
    "mysql": ("pymysql", "aiomysql", "asyncmy"),
    "mariadb": ("pymysql", "aiomysql", "asyncmy"),
}
"""Database → drivers. A driver that serves two databases counts once among the seven."""

ASYNC_DRIVERS = [
    (database, driver)
    for database, drivers in DRIVERS.items()
    for driver in drivers
    if driver in {"aiosqlite", "psycopg_async", "asyncpg", "aiomysql", "asyncmy"}
]
"""Pairs of database and asynchronous driver."""

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) and "TMPDIR" not in os.environ else None
"""The folder of SQLite files: one in memory, if the system has one and no other folder is set."""

SYNC = {"sqlite": "sqlite", "postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}

_USUAL = {
    "postgresql": "postgresql+psycopg://postgres@127.0.0.1:5432/test",
    "mysql": "mysql+pymysql://root@127.0.0.1:3307/test",
    "mariadb": "mariadb+pymysql://root@127.0.0.1:3306/test",
}


@dataclass(frozen=True)
class Server:
    """A database that answered."""

    database: str
    url: URL
    version: str
    source: str

    def url_for(self, driver: str) -> URL:
        """Return the URL that reaches this server through *driver*."""
        name = "psycopg" if driver == "psycopg_async" else driver
        return self.url.set(drivername=self.database if driver == "sqlite" else f"{self.database}+{name}")


_wanted: set[str] = set(DRIVERS)


def restrict(databases: Iterable[str]) -> None:
    """Search only for these databases."""
    _wanted.intersection_update(databases)


@cache
def servers() -> dict[str, Server]:
    """Return database → server, for all databases that were found."""
    found = {"sqlite": _sqlite()}
    usual_urls = {database: url for database, url in _USUAL.items() if database in _wanted}
    named = [url.strip() for url in os.environ.get("PUBLIC_ID_TEST_URLS", "").split(",") if url.strip()]
    for text_ in named if usual_urls else []:
        url = make_url(text_)
        server = _answering(url.get_backend_name(), url, "PUBLIC_ID_TEST_URLS")
        if server is not None:
            found[server.database] = server
    for database, usual in usual_urls.items():
        if database not in found and (server := _answering(database, make_url(usual), "usual port")) is not None:
            found[database] = server
    for database in usual_urls.keys() - found.keys():
        if (server := _container(database)) is not None:
            found[database] = server
    return {database: found[database] for database in DRIVERS if database in found and database in _wanted}


def report(required: bool) -> list[str]:
    """Return the lines of a table of the databases that were found, and of those that were not."""
    lines = [f"{'database':<12}{'version':<26}{'drivers':<34}found"]
    for database, drivers in DRIVERS.items():
        server = servers().get(database)
        if database not in _wanted:
            lines.append(f"{database:<12}{'-':<26}{'-':<34}left out")
        elif server is None:
            lines.append(f"{database:<12}{'-':<26}{'-':<34}{'NO' if required else 'no (its tests are skipped)'}")
        else:
            lines.append(f"{database:<12}{server.version:<26}{', '.join(drivers):<34}{server.source}")
    return lines


def _sqlite() -> Server:
    import sqlite3

    folder, owner = Path(tempfile.mkdtemp(prefix="public-id-", dir=MEMORY)), os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return Server("sqlite", make_url(f"sqlite:///{folder}/test.db"), sqlite3.sqlite_version, "built in")


def _answering(database: str, url: URL, source: str) -> Server | None:
    """Return the server at *url*, if it answers and is the right database: MariaDB and MySQL share a protocol."""
    arguments: dict[str, Any] = {"connect_timeout": 3} if database != "sqlite" else {}
    try:
        engine = create_engine(url, connect_args=arguments)
        with engine.connect() as connection:
            version = str(connection.scalar(text("select version()")))
        engine.dispose()
    except Exception:
        return None
    if database in {"mysql", "mariadb"} and ("MariaDB" in version) != (database == "mariadb"):
        return None
    return Server(database, url, _short(version), source)


def _short(version: str) -> str:
    words = version.replace("PostgreSQL ", "").split()
    return words[0].split("-MariaDB")[0] if words else version


@cache
def _docker() -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=10).returncode == 0
    except subprocess.TimeoutExpired:
        return False


_containers: list[Any] = []


def _container(database: str) -> Server | None:
    """Return a server in a container, if a Docker engine answers; the container ends with the test run."""
    if find_spec("testcontainers") is None or not _docker():
        return None
    if database == "postgresql":
        from testcontainers.postgres import PostgresContainer

        container = PostgresContainer("postgres:17", driver="psycopg").with_command(
            "postgres -c max_prepared_transactions=64"
        )
    else:
        from testcontainers.mysql import MySqlContainer

        image = {"mysql": "mysql:8.4", "mariadb": "mariadb:11.4"}[database]
        container = MySqlContainer(image, dialect="pymysql", username="root", dbname="test")
    container.start()
    _containers.append(container)
    url = make_url(container.get_connection_url())
    return _answering(database, url.set(drivername=f"{database}+{SYNC[database]}"), "container")


def stop_containers() -> None:
    """Stop the containers that :func:`servers` started."""
    while _containers:
        _containers.pop().stop()
