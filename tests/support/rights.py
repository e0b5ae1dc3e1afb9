"""Users of a server with few privileges."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text
from sqlalchemy.engine import URL


@contextmanager
def user_with(engine: Engine, rights: str, *tables: str) -> Iterator[URL]:
    """Create a user with only these *rights* on *tables*; yield the URL of the database for this user."""
    name = f"public_id_user_{os.getpid()}"
    is_postgresql = engine.name == "postgresql"
    user = name if is_postgresql else f"{name}@'%'"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {user} LOGIN" if is_postgresql else f"CREATE USER {user}"))
        for table in tables:
            connection.execute(text(f"GRANT {rights} ON {table} TO {user}"))
    yield engine.url.set(username=name, password=None)
    with engine.begin() as connection:
        if is_postgresql:
            connection.execute(text(f"DROP OWNED BY {user}"))
        connection.execute(text(f"DROP {'ROLE' if is_postgresql else 'USER'} {user}"))
