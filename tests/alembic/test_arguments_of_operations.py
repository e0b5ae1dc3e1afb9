"""Arguments of the operations of Alembic in the place of another one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, inspect, text
from support.marks import on

import sqlalchemy_public_id.alembic  # noqa: F401  registers the operations
from sqlalchemy_public_id import NanoId, PublicIdError


@pytest.mark.parametrize("operation", ["add_public_id", "expand_public_id"])
@on("sqlite")
def test_format_in_the_place_of_the_column(engine: Engine, operation: str) -> None:
    """A format in the place of the name of the column is refused, and the table stays as it is."""
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE invoice (id INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO invoice VALUES (1)"))
        connection.commit()
        context = MigrationContext.configure(connection)
        with suppress(TypeError, PublicIdError), Operations.context(context) as operations:
            getattr(operations, operation)("invoice", NanoId(length=10))

        assert [column["name"] for column in inspect(connection).get_columns("invoice")] == ["id"]
