"""Server defaults that the project has written itself."""

from __future__ import annotations

import pytest
from support.marks import on
from support.people import People

from sqlalchemy_public_id import NanoId, ObjectId, Uuid4, Uuid7
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.formats import BASE62, Format
from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.databases import plan_for
from sqlalchemy_public_id.migrating.server_defaults import can_generate

pytestmark = pytest.mark.backend

HEX = NanoId(length=32, alphabet="0123456789abcdef")

RANDOM_BYTES = {"sqlite": "(lower(hex(randomblob(16))))", "mysql": "(lower(hex(random_bytes(16))))"}
OTHER = {"sqlite": "(printf('%032x', random()))", "mysql": "(replace(uuid(), '-', ''))"}


defaults = pytest.mark.parametrize("default", [RANDOM_BYTES, OTHER], ids=["random bytes", "other"])
"""Two defaults; the library uses random bytes as well."""


def create(table: People, default: dict[str, str]) -> str | None:
    """Create the table with a *default* of its column, and return the text that the database has for it."""
    of_texts = "" if table.engine.name == "sqlite" else "CHARACTER SET ascii COLLATE ascii_bin"
    sql = default["sqlite" if table.engine.name == "sqlite" else "mysql"]
    table.create(0, more=f", public_id varchar(32) {of_texts} DEFAULT {sql}")
    return table.state().default


@defaults
@on("sqlite", "mysql", "mariadb")
def test_default_is_kept(table: People, default: dict[str, str]) -> None:
    """With ``server_default="none"``, the default of the project makes the ids of rows that have none."""
    create(table, default)
    table.add(format=HEX, server_default="none")

    assert HEX.is_valid(table.written())


@defaults
@on("sqlite", "mysql", "mariadb")
def test_default_of_other_ids(table: People, default: dict[str, str]) -> None:
    """A default that makes ids of another format is refused, and stays."""
    before = create(table, default)
    with pytest.raises(MigrationRefused) as caught:
        table.add(format=NanoId(length=20))

    assert [obstacle.code for obstacle in caught.value.obstacles] == ["foreign-default"]
    assert table.state().default == before


FORMATS = [
    NanoId(),
    NanoId(prefix="mod", separator="'", alphabet="aX(_)% .".replace(" ", "m"), length=5),
    NanoId(prefix="cus", alphabet=BASE62),
    Uuid4(prefix="cus", encoding="hex", storage="text"),
    Uuid7(encoding="hyphenated", storage="text"),
    Uuid7(),
    ObjectId(),
]


@on("sqlite", "mysql", "mariadb")
@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_default_of_the_library(table: People, format: Format) -> None:
    """The server has another text for a default than the library; it is recognised for its format, and for no other."""
    dialect = table.engine.dialect
    if not can_generate(format, dialect.name):
        pytest.skip("this database cannot generate such ids")
    table.create(0)
    table.add(format=format)

    def is_own(format: Format) -> bool:
        return plan_for(PublicIdColumn.of("person", format=format), dialect).has_own_default(table.state())

    assert is_own(format)
    assert is_own(NanoId(length=30).accepting(format)) or format.is_native
    assert not is_own(NanoId(length=31))
