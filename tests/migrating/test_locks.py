"""A table that others keep busy: the migration waits for a short time, lets others pass, and tries again."""

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
    """People, as they were before there were public ids."""
    return new_people(50)


@contextmanager
def held(table: People) -> Iterator[Any]:
    """Another session has read the table, and its transaction stays open: no ALTER gets its lock."""
    with table.engine.connect() as other:
        send(other, f"SELECT count(*) FROM {table.name}").scalar()
        try:
            yield other
        finally:
            other.rollback()


@contextmanager
def reading(table: People) -> Iterator[list[float]]:
    """Someone reads a row again and again; how long each time took."""
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
    """While a transaction holds the table for three seconds, readers wait no longer than the limit; then it is done."""
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
