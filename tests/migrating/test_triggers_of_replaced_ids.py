"""Triggers for UPDATE, and the UPDATEs that replace duplicate and invalid ids."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine
from support.marks import on
from support.people import People, people, send

from sqlalchemy_public_id.errors import MigrationRefused

pytestmark = pytest.mark.backend

CREATE_TRIGGER = {
    "sqlite": "CREATE TRIGGER noted AFTER UPDATE ON person BEGIN INSERT INTO note VALUES (NEW.id); END",
    "postgresql": "CREATE TRIGGER noted AFTER UPDATE ON person FOR EACH ROW EXECUTE FUNCTION add_note()",
}
FOR_EACH_ROW = "CREATE TRIGGER noted AFTER UPDATE ON person FOR EACH ROW INSERT INTO note VALUES (NEW.id)"
ADD_NOTE = """CREATE OR REPLACE FUNCTION add_note() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN INSERT INTO note VALUES (NEW.id); RETURN NULL; END $$"""

CONTENTS = {
    "on_duplicate": "('a', 'izkpm55j334u'), ('b', 'izkpm55j334u')",
    "on_invalid": "('a', 'izkpm55j334u'), ('b', 'invalid')",
}
"""Option → rows with an id that it replaces."""


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    """A table without rows, whose trigger writes a note of each UPDATE into another table."""
    with people(engine, 0) as made:
        made.create(0, more=", public_id varchar(12)")
        made.execute("CREATE TABLE note (id bigint)")
        if engine.name == "postgresql":
            made.execute(ADD_NOTE)
        made.execute(CREATE_TRIGGER.get(engine.name, FOR_EACH_ROW))
        yield made
        made.execute("DROP TABLE note")
        if engine.name == "postgresql":
            made.execute("DROP FUNCTION add_note CASCADE")


def count_notes(table: People) -> int:
    with table.engine.connect() as connection:
        count: int = send(connection, "SELECT count(*) FROM note").scalar()
        return count


@on("sqlite", "postgresql")
@pytest.mark.parametrize("replaced", CONTENTS)
def test_triggers_are_skipped(table: People, replaced: str) -> None:
    """With ``update_triggers="skip"``, no trigger fires for a replaced id."""
    table.execute(f"INSERT INTO person (name, public_id) VALUES {CONTENTS[replaced]}")

    table.add(update_triggers="skip", **{replaced: "replace"})

    assert count_notes(table) == 0


@pytest.mark.parametrize("replaced", CONTENTS)
def test_triggers_are_refused(table: People, replaced: str) -> None:
    """Without ``update_triggers``, ids of a table with triggers for UPDATE are not replaced."""
    table.execute(f"INSERT INTO person (name, public_id) VALUES {CONTENTS[replaced]}")

    with pytest.raises(MigrationRefused, match="noted"):
        table.run("contract_public_id", **{replaced: "replace"})
