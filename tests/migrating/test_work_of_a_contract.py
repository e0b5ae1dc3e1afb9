"""How much of a contract is spent on ids that its own backfill has made."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, event
from support.people import people

ROWS = 1000


def test_rows_that_are_read(engine: Engine) -> None:
    """A contract lets the database judge the ids of a table, and reads none of them."""
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


@pytest.mark.backend
def test_duplicates_are_found_by_the_index(engine: Engine, statements: Any) -> None:
    """A contract does not look for duplicates before the unique index, which finds them by itself."""
    with people(engine, ROWS) as table:
        table.run("expand_public_id")
        table.run("backfill_public_id")
        statements.clear()
        table.run("contract_public_id")

    assert not [statement for statement in statements if "HAVING" in statement]
