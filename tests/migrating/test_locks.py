"""A migration of a busy table waits only briefly for its lock, lets other statements pass, and tries again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.marks import on
from support.people import People, send

LOCK_TIMEOUT = 1.0
pytestmark = pytest.mark.slow

on_servers = on("postgresql", "mysql", "mariadb")


@pytest.fixture
def table(new_people: Callable[..., People]) -> People:
    """A table of people without public ids."""
    return new_people(50)


@contextmanager
def held(table: People) -> Iterator[Any]:
    """Keep the transaction of another session open that has read the table, so that no ALTER gets its lock."""
    with table.engine.connect() as other:
        send(other, f"SELECT count(*) FROM {table.name}").scalar()
        try:
            yield other
        finally:
            other.rollback()


@contextmanager
def reading(table: People) -> Iterator[list[float]]:
    """Read a row again and again in a thread, and yield the list of how long each read took."""
    took: list[float] = []
    over = threading.Event()

    def read() -> None:
        with table.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while not over.wait(0.01):
                began = time.monotonic()
                send(connection, f"SELECT name FROM {table.name} WHERE id = 1").scalar()
                took.append(time.monotonic() - began)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield took
    finally:
        over.set()
        reader.join()


@on_servers
@pytest.mark.parametrize("operation", ["expand_public_id", "contract_public_id", "drop_public_id"])
def test_busy_for_a_while(table: People, operation: str) -> None:
    """While a transaction holds the table for three seconds, readers wait no longer than the limit."""
    if operation == "contract_public_id":
        table.run("expand_public_id")
        table.run("backfill_public_id")
    if operation == "drop_public_id":
        table.add()

    with reading(table) as took, held(table) as other:
        timer = threading.Timer(3.0, other.rollback)
        timer.start()
        table.run(operation, lock_timeout=LOCK_TIMEOUT)
        timer.join()

    assert max(took) < LOCK_TIMEOUT + 1.0
    assert len(took) > 20
    assert (table.column in table.columns()) == (operation != "drop_public_id")
    assert table.state().complete == (operation == "contract_public_id")
