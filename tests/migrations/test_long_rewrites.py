"""A step that rewrites the table on MySQL and MariaDB needs its lock once more at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, event
from support.connections import monitor, processes
from support.marks import on
from support.people import People, people, send

pytestmark = [pytest.mark.backend, pytest.mark.slow, on("mysql", "mariadb")]

DOUBLINGS = 16
LONGER = 2.0
"""Seconds that the end of the rewrite waits for another transaction, which is longer than ``lock_timeout``."""


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    """A table of 65 536 rows with unique ids, whose rewrite takes half a second or more."""
    with people(engine, 0) as made:
        column = "public_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin"
        made.create(1, more=f", note char(200), {column}, UNIQUE KEY uq_person_public_id (public_id)")
        for _ in range(DOUBLINGS):
            made.execute("INSERT INTO person (name) SELECT name FROM person")
        made.execute("UPDATE person SET note = name, public_id = lower(lpad(conv(id, 10, 36), 12, '0'))")
        yield made


def test_report_begins_during_a_rewrite(table: People) -> None:
    """A rewrite waits at its end for a report that began meanwhile, instead of starting over."""
    rewrites = 0

    @event.listens_for(table.engine, "before_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        nonlocal rewrites
        rewrites += "MODIFY" in statement

    with monitor(table.engine) as own, table.engine.connect() as report, ThreadPoolExecutor() as threads:

        def states() -> list[str]:
            return [each.State for each in processes(own) if "MODIFY" in (each.Info or "")]

        running = threads.submit(table.run, "contract_public_id", on_invalid="keep")
        while "altering table" not in states() and not running.done():
            time.sleep(0.01)
        send(report, "SELECT * FROM person LIMIT 1")
        has_begun_in_time = states() != [] and rewrites == 1
        while "Waiting for table metadata lock" not in states() and rewrites == 1 and not running.done():
            time.sleep(0.01)
        time.sleep(LONGER)
        report.rollback()
        running.result()

    if not has_begun_in_time:
        pytest.skip("the rewrite had ended before the report began")
    assert rewrites == 1
