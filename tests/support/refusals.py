"""Check that an operation is refused, and that it has changed nothing."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine
from support.people import People, send
from support.schema_dumps import dump

from sqlalchemy_public_id.errors import MigrationRefused


def everything(people: People, reader: Engine) -> list[Any]:
    """Return the catalog entries of the schema, and the rows of the table."""
    schema = {"sqlite": "main", "postgresql": "public"}.get(reader.name, str(reader.url.database))
    with reader.connect() as connection:
        return [*dump(connection, schema), *send(connection, f"SELECT * FROM {people.name} ORDER BY id")]


def refused(
    people: People, operation: str = "add_public_id", reader: Engine | None = None, **options: Any
) -> dict[str, str]:
    """Return code → obstacle of a refused operation, and check that the engine *reader* sees no change."""
    before = everything(people, reader or people.engine)
    with pytest.raises(MigrationRefused) as caught:
        people.run(operation, **options)
    assert everything(people, reader or people.engine) == before
    return {obstacle.code: str(obstacle) for obstacle in caught.value.obstacles}
