"""Server defaults that the project has written itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from marks import known_defect, on
from people import People, people
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.errors import MigrationRefused

pytestmark = pytest.mark.backend

HEX = NanoId(length=32, alphabet="0123456789abcdef")

RANDOM_BYTES = {"sqlite": "(lower(hex(randomblob(16))))", "mysql": "(lower(hex(random_bytes(16))))"}
OTHER = {"sqlite": "(printf('%032x', random()))", "mysql": "(replace(uuid(), '-', ''))"}


def defaults(error: type[Exception]) -> Any:
    """Two defaults; that of random bytes, which the library uses as well, fails with *error*."""
    defect = known_defect("live tables", "a default of random bytes is taken for one of the library", raises=error)
    return pytest.mark.parametrize(
        "default", [pytest.param(RANDOM_BYTES, marks=defect, id="random bytes"), pytest.param(OTHER, id="other")]
    )


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    with people(engine, 0) as made:
        yield made


def create(table: People, default: dict[str, str]) -> str | None:
    """Create the table with a *default* of its column, and return the text that the database has for it."""
    of_texts = "" if table.engine.name == "sqlite" else "CHARACTER SET ascii COLLATE ascii_bin"
    sql = default["sqlite" if table.engine.name == "sqlite" else "mysql"]
    table.create(0, more=f", public_id varchar(32) {of_texts} DEFAULT {sql}")
    return table.state().default


@defaults(DBAPIError)
@on("sqlite", "mysql", "mariadb")
def test_default_is_kept(table: People, default: dict[str, str]) -> None:
    """With ``server_default="none"``, the default of the project makes the ids of rows that have none."""
    create(table, default)
    table.add(format=HEX, server_default="none")

    assert HEX.is_valid(table.written())


@defaults(AssertionError)
@on("sqlite", "mysql", "mariadb")
def test_default_of_other_ids(table: People, default: dict[str, str]) -> None:
    """A default that makes ids of another format is refused, and stays."""
    before = create(table, default)
    refused: Any = None
    try:
        table.add(format=NanoId(length=20))
    except MigrationRefused as error:
        refused = [obstacle.code for obstacle in error.obstacles]

    assert (["foreign-default"], before) == (refused, table.state().default)
