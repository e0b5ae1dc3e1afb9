"""The connection of a migration is ended while a step waits for its lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, event
from sqlalchemy.exc import OperationalError
from support.connections import kill
from support.marks import on
from support.people import People, people, send

pytestmark = [pytest.mark.backend, pytest.mark.slow, on("postgresql", "mysql", "mariadb")]


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    with people(engine, 5) as made:
        yield made


def expand(table: People) -> None:
    table.run("expand_public_id", lock_timeout=30)


def add_column(table: People) -> None:
    with table.migrating() as op:
        op.add_column(table.table, Column("age", Integer))


@pytest.mark.parametrize(
    "migrate",
    [
        add_column,
        expand,
    ],
)
def test_connection_is_lost(table: People, migrate: Callable[[People], None]) -> None:
    """A migration that loses its connection raises the error of the driver."""
    altering: Future[int] = Future()

    @event.listens_for(table.engine, "before_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith(f"ALTER TABLE {table.name} "):  # and not its copy in the rehearsal
            own = cursor.connection
            altering.set_result(own.info.backend_pid if table.engine.name == "postgresql" else own.thread_id())

    with table.engine.connect() as other, ThreadPoolExecutor() as threads:
        send(other, f"SELECT count(*) FROM {table.name}")
        running = threads.submit(migrate, table)
        kill(table.engine, altering.result(30))

        with pytest.raises(OperationalError):
            running.result()
