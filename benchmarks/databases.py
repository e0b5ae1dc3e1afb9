"""The servers, with a temporary database on each of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from benchmarks.models import Base
from sqlalchemy_public_id import guard

__all__ = ["ALL", "Bench", "Database", "opened"]

_USUAL = {
    "postgresql": "postgresql+psycopg://postgres@127.0.0.1:5432/test",
    "mariadb": "mariadb+pymysql://root@127.0.0.1:3306/test",
    "mysql": "mysql+pymysql://root@127.0.0.1:3307/test",
}
ALL = ("sqlite", *_USUAL)


@dataclass
class Database:
    """A database with the table of the models."""

    name: str
    url: URL
    version: str

    @contextmanager
    def engines(self) -> Iterator[tuple[Engine, Engine]]:
        """Provide a guarded and an unguarded engine; the table is empty."""
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
    """Drop and create the table."""
    Base.metadata.drop_all(bind)
    Base.metadata.create_all(bind)


@dataclass
class Bench:
    """The arguments of a suite."""

    quick: bool
    databases: dict[str, Database]
    missing: list[str] = field(default_factory=list)
    rows: int | None = None
    """The value of ``--rows``."""
    sizes: tuple[int, ...] = ()
    """The values of ``--size``."""
    minutes: float = 60
    """The value of ``--minutes``."""
    results: Path = field(default_factory=Path)
    """The folder for pictures."""
    notes: list[str] = field(default_factory=list)
    """Notes of suites besides their comparisons."""
    details: dict[str, Any] = field(default_factory=dict)
    """Facts for the file of results only."""

    def on(self, *names: str) -> list[Database]:
        """Return the available databases of these names."""
        return [self.databases[name] for name in names if name in self.databases]

    def times(self, number: int, quick: int) -> int:
        """Return *quick* with ``--quick``, else *number*."""
        return quick if self.quick else number


@contextmanager
def opened(urls: Sequence[str], names: Sequence[str] = ALL) -> Iterator[tuple[dict[str, Database], list[str]]]:
    """Open the databases of *names* at *urls* or on the usual ports; return them, and the errors of the others."""
    given = {url.get_backend_name(): url for url in map(make_url, urls)}
    found: dict[str, Database] = {}
    missing: list[str] = []
    with ExitStack() as stack:
        for name in names:
            answer = _entered(stack, name, given.get(name))
            if isinstance(answer, Database):
                found[name] = answer
            else:
                missing.append(f"{name} left out: {answer}")
        yield found, missing


def _entered(stack: ExitStack, name: str, url: URL | None) -> Database | str:
    """Return the database, or the reason that it is missing."""
    try:
        return stack.enter_context(_database(name, url))
    except (SQLAlchemyError, LookupError) as error:
        return str(error).splitlines()[0]


@contextmanager
def _database(name: str, url: URL | None) -> Iterator[Database]:
    if name == "sqlite":
        import sqlite3

        if url is not None and (not url.database or Path(url.database).exists()):
            raise LookupError(f"{url} is no new file, and the benchmark begins with an empty one")
        with tempfile.TemporaryDirectory(prefix="public-id-bench-") as folder:
            own = url or make_url(f"sqlite:///{Path(folder, 'bench.db')}")
            yield Database(name, own, sqlite3.sqlite_version)
        return
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
