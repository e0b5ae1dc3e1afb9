"""How much of a contract is spent on ids that its own backfill has made."""

from __future__ import annotations

from typing import Any

from marks import known_defect
from people import people
from sqlalchemy import Engine, event

ROWS = 1000


@known_defect("live tables", "a contract reads every id of the table into Python", raises=AssertionError)
def test_rows_that_are_read(engine: Engine) -> None:
    """A contract reads some ids of a table as a sample, and lets the database judge the rest."""
    with people(engine, ROWS) as table:
        table.run("expand_public_id")
        table.run("backfill_public_id")
        fetched = 0

        @event.listens_for(engine, "connect")
        def count_rows(connection: Any, record: Any) -> None:
            def count(cursor: Any, row: Any) -> Any:
                nonlocal fetched
                fetched += 1
                return row

            connection.row_factory = count

        engine.dispose()
        table.run("contract_public_id")

    assert fetched < ROWS / 2
