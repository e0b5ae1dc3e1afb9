"""Limits that a role or a server sets for every statement, and the long steps of a migration."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine
from support.people import People, people, send

pytestmark = [pytest.mark.backend, pytest.mark.slow]

LIMIT, LONGER = 0.4, 1.0
"""Seconds that a statement may take, and that another transaction stays open."""


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    """A table whose rows have ids, and whose column lacks its unique index."""
    with people(engine, 50) as made:
        made.run("expand_public_id")
        made.run("backfill_public_id")
        yield made


@contextmanager
def busy(table: People) -> Iterator[None]:
    """Keep the build of the index waiting for another transaction, as a large table keeps it working."""
    with table.engine.connect() as other:
        send(other, f"UPDATE {table.name} SET name = 'p' WHERE id = 1")
        end = threading.Timer(LONGER, other.rollback)
        end.start()
        try:
            yield
        finally:
            end.join()


@pytest.mark.parametrize(
    ("database", "options"),
    [
        ("postgresql", {"options": f"-c statement_timeout={LIMIT * 1000:.0f}"}),
        ("mariadb", {"init_command": f"SET SESSION max_statement_time = {LIMIT}"}),
    ],
    indirect=["database"],
)
def test_statements_are_limited(table: People, new_engine: Callable[..., Engine], options: dict[str, Any]) -> None:
    """The build of the unique index may take longer than the role allows for a statement."""
    limited = People(new_engine(table.engine.name, table.engine.url, connect_args=options))

    with busy(table):
        limited.run("contract_public_id", lock_timeout=30)

    table.check_complete(50)
    variable = {"postgresql": "SHOW statement_timeout", "mariadb": "SELECT @@SESSION.max_statement_time"}
    with limited.engine.connect() as connection:  # that of the migration, from the pool
        assert str(send(connection, variable[limited.engine.name]).scalar()) in {"400ms", "0.4"}
