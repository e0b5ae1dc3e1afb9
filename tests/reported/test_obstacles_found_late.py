"""What stands in the way of a migration is reported before the first change of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from marks import known_defect, on
from people import People, people
from sqlalchemy import Engine
from sqlalchemy.exc import NotSupportedError, OperationalError

from sqlalchemy_public_id.errors import MigrationRefused

pytestmark = pytest.mark.backend

CREATE_TRIGGER = """
CREATE FUNCTION pass_on() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER shown BEFORE INSERT ON person FOR EACH ROW WHEN (NEW.public_id = 'x') EXECUTE FUNCTION pass_on()
"""
KEYS = ", ".join(f"KEY of_name_{number} (name)" for number in range(63))
"""With the primary key, as many as a table can have."""


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    with people(engine, 0) as made:
        yield made
        if engine.name == "postgresql":
            made.execute(f"DROP TABLE {made.name} CASCADE")
            made.execute("DROP FUNCTION IF EXISTS pass_on")
            made.create(0)


@known_defect(
    "live tables", "what depends on a column is found by the ALTER after the backfill", raises=NotSupportedError
)
@on("postgresql")
@pytest.mark.parametrize(
    ("more", "dependant"),
    [
        ("", "CREATE VIEW shown AS SELECT id, public_id FROM person"),
        ("", "CREATE POLICY shown ON person USING (public_id <> 'izkpm55j334u')"),
        ("", "CREATE RULE shown AS ON INSERT TO person WHERE NEW.public_id = 'x' DO INSTEAD NOTHING"),
        ("", CREATE_TRIGGER),
        (", shown text GENERATED ALWAYS AS (upper(public_id)) STORED", "SELECT"),
    ],
    ids=["view", "policy", "rule", "trigger", "generated column"],
)
def test_dependants_of_a_column(table: People, more: str, dependant: str) -> None:
    """A column whose collation has to change, and on which something depends, is refused before its rows get ids."""
    table.create(2, more=f", public_id varchar(12){more}")
    table.execute(dependant)

    with pytest.raises(MigrationRefused):
        table.add()

    assert table.ids() == [None, None]


@known_defect("live tables", "a table with 64 indexes is found by the build of the index", raises=OperationalError)
@on("mysql", "mariadb")
def test_table_with_all_indexes(table: People) -> None:
    """A table that cannot have one more index is refused before it gets the column."""
    table.create(1, more=f", {KEYS}")

    with pytest.raises(MigrationRefused):
        table.add()

    assert "public_id" not in table.columns()


@known_defect("live tables", "a table with all columns is found by the first ALTER", raises=OperationalError)
@on("mysql", "mariadb")
def test_table_with_all_columns(table: People) -> None:
    """A table that cannot have one more column is refused."""
    table.create(1, more="".join(f", c{number} tinyint" for number in range(1015)))

    with pytest.raises(MigrationRefused):
        table.add()
