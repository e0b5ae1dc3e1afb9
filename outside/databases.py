"""A database for one run of a suite: SQLite needs none, on PostgreSQL each run gets its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import psycopg

from outside.comparing import Broken

__all__ = ["create"]

_numbers = count(1)


@contextmanager
def create(database: str, server: str) -> Iterator[str]:
    """Yield the URL of an empty database, with what SQLAlchemy's suite expects to find in it; drop it afterwards."""
    if database == "sqlite":
        yield "sqlite://"
        return
    name = f"public_id_outside_{os.getpid()}_{next(_numbers)}"
    with _connect(f"{server}/postgres") as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'utf8' TEMPLATE template0")
        connection.execute(f"ALTER DATABASE {name} SET default_text_search_config = 'pg_catalog.english'")
        try:
            with _connect(f"{server}/{name}") as inside:
                for schema in ("test_schema", "test_schema_2"):
                    inside.execute(f"CREATE SCHEMA {schema}")
            yield f"{server}/{name}".replace("postgresql:", "postgresql+psycopg:", 1)
        finally:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _connect(url: str) -> psycopg.Connection:
    try:
        return psycopg.connect(url, autocommit=True)
    except psycopg.OperationalError as error:
        raise Broken(f"no database: {error}") from error
