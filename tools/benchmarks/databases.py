"""The servers, with a temporary database on each of them."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id import guard
from tools.benchmarks.models import Base

__all__ = ["ALL", "Bench", "Database", "empty", "opened"]

_USUAL = {
    "postgresql": "postgresql+psycopg://postgres@127.0.0.1:5432/test",
    "mariadb": "mariadb+pymysql://root@127.0.0.1:3306/test",
    "mysql": "mysql+pymysql://root@127.0.0.1:3307/test",
}
ALL = ("sqlite", *_USUAL)


@dataclass
class Database:
    """An empty database."""

    name: str
    url: URL
    version: str

    @contextmanager
    def engines(self) -> Iterator[tuple[Engine, Engine]]:
        """Provide a guarded and an unguarded engine; the tables are empty."""
        guarded, plain = create_engine(self.url), create_engine(self.url)
        guard.install(guarded)
        guard.uninstall(plain)
        empty(plain)
        try:
            yield guarded, plain
        finally:
            guarded.dispose()
            plain.dispose()


def empty(bind: Engine | Connection) -> None:
    """Drop the tables and create them."""
    Base.metadata.drop_all(bind)
    Base.metadata.create_all(bind)


@dataclass
class Bench:
    """The arguments of a suite."""

    quick: bool
    databases: dict[str, Database]
    rows: int | None = None
    """The value of ``--rows``."""
    details: dict[str, Any] = field(default_factory=dict)
    """Facts that only the file of results contains."""

    def on(self, *names: str) -> list[Database]:
        """Return the available databases of these names."""
        return [self.databases[name] for name in names if name in self.databases]

    def times(self, number: int, quick: int) -> int:
        """Return *quick* with ``--quick``, else *number*."""
        return quick if self.quick else number


@contextmanager
def opened(urls: Sequence[str], names: Sequence[str]) -> Iterator[tuple[dict[str, Database], list[str]]]:
    """Open the databases of *names* at *urls* or on the usual ports; yield them, and the errors of the others."""
    given = {url.get_backend_name(): url for url in map(make_url, urls)}
    found: dict[str, Database] = {}
    missing: list[str] = []
    with ExitStack() as stack:
        for name in names:
            try:
                found[name] = stack.enter_context(_sqlite() if name == "sqlite" else _server(name, given.get(name)))
            except (SQLAlchemyError, LookupError) as error:
                missing.append(f"{name} left out: {str(error).splitlines()[0]}")
        yield found, missing


@contextmanager
def _sqlite() -> Iterator[Database]:
    with tempfile.TemporaryDirectory(prefix="public-id-bench-") as folder:
        yield Database("sqlite", make_url(f"sqlite:///{Path(folder, 'bench.db')}"), sqlite3.sqlite_version)


@contextmanager
def _server(name: str, url: URL | None) -> Iterator[Database]:
    url = url or make_url(_USUAL[name])
    own_name = f"public_id_bench_{os.getpid()}"
    arguments: dict[str, Any] = {"connect_timeout": 3}
    server = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool, connect_args=arguments)
    with server.connect() as connection:
        version = str(connection.scalar(text("select version()")))
        if ("MariaDB" in version) != (name == "mariadb"):
            raise LookupError(f"{url} is {version}")
        connection.execute(text(f"CREATE DATABASE {own_name}"))
    try:
        words = version.replace("PostgreSQL ", "").split()
        yield Database(name, url.set(database=own_name), words[0].split("-MariaDB")[0])
    finally:
        with server.connect() as connection:
            connection.execute(text(f"DROP DATABASE {own_name}{' WITH (FORCE)' if name == 'postgresql' else ''}"))
