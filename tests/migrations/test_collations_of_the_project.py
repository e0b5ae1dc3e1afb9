"""Existing collations are kept, except those that find an id by other spellings, which are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine
from support.marks import on
from support.people import People, people

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.formats import BASE62
from sqlalchemy_public_id.migrations.table import FEW_ROWS

pytestmark = pytest.mark.backend

FORMAT = NanoId(length=8, alphabet=BASE62)
ANY_CASE = {
    "sqlite": "varchar(8) COLLATE NOCASE",
    "postgresql": "varchar(8) COLLATE any_case",
    "mysql": "varchar(8) COLLATE utf8mb4_0900_ai_ci",
    "mariadb": "varchar(8) COLLATE utf8mb4_general_ci",
}


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    with people(engine, 0, format=FORMAT) as made:
        if engine.name == "postgresql":
            made.execute(
                "CREATE COLLATION IF NOT EXISTS any_case"
                " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
            )
        yield made


def create(table: People, type_: str, rows: int = 1) -> None:
    """Create the table with ids of this type, which are unique and not NULL."""
    table.create(0, more=f", public_id {type_} NOT NULL")
    table.execute("CREATE UNIQUE INDEX of_another_name ON person (public_id)")
    for start in range(0, rows, 5000):
        values = ", ".join(f"('p', '{number:08}')" for number in range(start, min(start + 5000, rows)))
        table.execute(f"INSERT INTO person (name, public_id) VALUES {values}")


def refused(table: People, **options: object) -> list[str]:
    """Return the codes of the obstacles to a contract, or none if it has run."""
    try:
        table.run("contract_public_id", **options)
    except MigrationRefused as error:
        return [obstacle.code for obstacle in error.obstacles]
    return []


def test_other_spellings_are_refused(table: People) -> None:
    """A collation that ignores case is refused, and nothing is changed."""
    create(table, ANY_CASE[table.engine.name])
    before = table.state()

    assert refused(table) == ["other-spellings"]
    assert table.state() == before


@on("postgresql", "mysql", "mariadb")
def test_collation_by_name(table: People) -> None:
    """``collation="bytes"`` changes the collation, and its old name changes it back; the rest of the column stays."""
    create(table, ANY_CASE[table.engine.name])
    before = table.state()

    assert refused(table, collation="bytes") == []
    assert table.state().exact
    table.run("loosen_public_id", collation=before.collation, keeps="all", server_default="none")
    assert table.state() == before


@on("postgresql", "mysql", "mariadb")
def test_collation_of_many_rows(table: People) -> None:
    """Changing the collation of many rows locks the table for longer, and needs ``allow_lock=True``."""
    create(table, ANY_CASE[table.engine.name], FEW_ROWS + 1)

    assert refused(table, collation="bytes") == ["needs-lock"]
    assert refused(table, collation="bytes", allow_lock=True) == []
    assert "(8)" in str(table.state().type)


@on("postgresql")
@pytest.mark.parametrize("type_", ["citext", "any_case_text", "any_case_name"])
@pytest.mark.parametrize("schema", ["public", "of_extensions"])
def test_type_that_ignores_case(table: People, type_: str, schema: str) -> None:
    """``citext``, or a domain over it, is refused: it ignores case, although its collation compares bytes."""
    table.execute("CREATE EXTENSION IF NOT EXISTS citext")
    table.execute("DROP DOMAIN IF EXISTS any_case_text CASCADE")
    table.execute("CREATE DOMAIN any_case_text AS citext")
    table.execute("CREATE DOMAIN any_case_name AS any_case_text")
    create(table, type_)
    table.execute("CREATE SCHEMA IF NOT EXISTS of_extensions")
    table.execute(f"ALTER EXTENSION citext SET SCHEMA {schema}")
    try:
        assert not table.state().complete
        assert refused(table)
        assert refused(table, collation="bytes")
    finally:
        table.execute("ALTER EXTENSION citext SET SCHEMA public")


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("rows", [1, FEW_ROWS + 1])
def test_exact_collation_is_kept(table: People, rows: int) -> None:
    """A collation with a sort order of its own is kept if it finds an id only by its exact spelling."""
    create(table, "varchar(8)" if table.engine.name == "postgresql" else "varchar(8) COLLATE utf8mb4_bin", rows)
    before = table.state()

    assert refused(table) == []
    assert table.state() == before
