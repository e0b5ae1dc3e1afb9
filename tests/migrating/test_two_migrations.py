"""Two processes run the same revision at once, as replicas of a service do that migrate when they start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import IntegrityError
from support.marks import on
from support.people import People, people

pytestmark = [pytest.mark.backend, pytest.mark.slow]


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    """A table whose rows have ids, and whose column lacks its unique index."""
    with people(engine, 50) as made:
        made.run("expand_public_id")
        made.run("backfill_public_id")
        yield made


class TwoProcesses:
    """Two contracts of a table, the second of which begins while the first one builds the index.

    If the second one is about to drop an index, it is held until the first one has ended, as on a busy machine.
    """

    def __init__(self, table: People) -> None:
        self.table = table
        self.sent: list[str] = []
        self.first_builds, self.second_drops, self.go_on = threading.Event(), threading.Event(), threading.Event()
        self.before_second_build: Callable[[], None] = lambda: None
        event.listen(table.engine, "before_cursor_execute", self._note)

    def _note(self, connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        words = statement.split()[:3]
        if "INDEX" not in words:
            return
        self.sent.append(words[0])
        if words[0] == "DROP":
            self.second_drops.set()
            self.go_on.wait(60)
        elif self.first_builds.is_set():
            self.before_second_build()
        self.first_builds.set()

    def run(self, after_the_first: Callable[[], None] = lambda: None) -> None:
        """Run both; call *after_the_first* when the first one has ended without an error."""
        with self.table.engine.connect() as report, ThreadPoolExecutor() as threads:
            report.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            report.execute(text("SELECT count(*) FROM pg_class"))  # its snapshot keeps the build from ending
            first = threads.submit(self.table.run, "contract_public_id", on_duplicate="replace")
            assert self.first_builds.wait(30)
            second = threads.submit(self.table.run, "contract_public_id", on_duplicate="replace")
            self.second_drops.wait(1.5)  # it would drop the index in this time
            report.rollback()
            try:
                first.result()
                after_the_first()
            finally:
                self.go_on.set()
            second.exception()


@on("postgresql")
def test_index_is_built_once(table: People) -> None:
    """The unique index is built once, although another process runs the same revision during the build."""
    both = TwoProcesses(table)

    both.run()

    assert both.sent == ["CREATE"]


@on("postgresql")
def test_ids_are_unique_after_a_success(table: People, new_engine: Callable[..., Engine]) -> None:
    """A duplicate id is refused as soon as one of the two processes has reported its success."""
    both = TwoProcesses(table)
    program = People(new_engine("postgresql", table.engine.url))
    refused: list[bool] = []

    def insert_duplicate() -> None:
        try:
            program.execute("INSERT INTO person (name, public_id) SELECT 'copy', public_id FROM person WHERE id = 1")
        except IntegrityError:
            refused.append(True)
        else:
            refused.append(False)

    both.before_second_build = insert_duplicate
    both.run(after_the_first=insert_duplicate)

    assert set(refused) == {True}
