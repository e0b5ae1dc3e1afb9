"""A user of a server with few privileges."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text
from sqlalchemy.engine import URL

USER = f"public_id_user_{os.getpid()}"
"""The name of the user, to whom a test may GRANT more, or give its table; on PostgreSQL, it is also a role."""


@contextmanager
def user_with(engine: Engine, rights: str = "", *tables: str) -> Iterator[URL]:
    """Create a user with only these *rights* on *tables*; yield the URL of the database for this user."""
    is_postgresql = engine.name == "postgresql"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {USER} LOGIN" if is_postgresql else f"CREATE USER {USER}"))
        for table in tables:
            connection.execute(text(f"GRANT {rights} ON {table} TO {USER}"))
    try:
        yield engine.url.set(username=USER, password=None)
    finally:
        with engine.begin() as connection:
            if is_postgresql:
                connection.execute(text(f"DROP OWNED BY {USER} CASCADE"))
            connection.execute(text(f"DROP {'ROLE' if is_postgresql else 'USER'} {USER}"))
