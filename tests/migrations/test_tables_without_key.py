"""Tables of MySQL and MariaDB whose rows cannot be told apart, or only by their public ids."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.marks import on
from support.people import People
from support.refusals import refused

from sqlalchemy_public_id.errors import DryRun

pytestmark = pytest.mark.backend


@pytest.fixture
def without_key(new_people: Callable[..., People]) -> People:
    """A table without a key, which has rows."""
    people = new_people(0)
    people.execute("DROP TABLE person")
    people.execute("CREATE TABLE person (id integer UNIQUE, name varchar(50))")
    people.execute("INSERT INTO person (id, name) VALUES (1, 'Ada'), (2, 'Bob')")
    return people


def test_expand_without_a_key_is_undone(without_key: People) -> None:
    """A column without ids is dropped from a table whose rows cannot be told apart."""
    without_key.run("expand_public_id")

    without_key.run("drop_public_id")

    assert without_key.columns() == ["id", "name"]


@on("mysql", "mariadb")
def test_ids_by_hand_without_a_key(without_key: People) -> None:
    """Ids that were set by hand in a table without a key are an obstacle, also in a plan, and its remedy works."""
    without_key.run("expand_public_id")
    without_key.execute("UPDATE person SET public_id = concat('aaaaaaaaaaa', id)")

    assert "a unique index and NOT NULL by hand" in refused(without_key, on_duplicate="replace")["no-key"]
    with pytest.raises(DryRun) as plan:
        without_key.add(dry_run=True)
    assert [obstacle.code for obstacle in plan.value.report.obstacles] == ["no-key"]

    type_ = "varchar(12) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
    without_key.execute(f"ALTER TABLE person ADD UNIQUE INDEX ids (public_id), MODIFY public_id {type_}")
    without_key.add()
    assert without_key.state().complete


STORED_BY_IDS = {
    "no other key": ("", True),
    "a key that allows NULL": (", UNIQUE (id)", True),
    "a prefix": (", note varchar(50) NOT NULL, UNIQUE (note(5))", True),
    "a primary key": (", note int AUTO_INCREMENT PRIMARY KEY", False),
    "another key": (", note int NOT NULL, UNIQUE (note)", False),
}
"""The rest of the table, and whether InnoDB stores it by its public ids."""


@on("mysql", "mariadb")
@pytest.mark.parametrize("operation", ["loosen_public_id", "drop_public_id"])
@pytest.mark.parametrize("kind", STORED_BY_IDS)
def test_stored_by_ids(new_people: Callable[..., People], kind: str, operation: str) -> None:
    """Undoing the unique index by which InnoDB stores rows is refused exactly if the server would lock the table."""
    more, is_stored_by_ids = STORED_BY_IDS[kind]
    people = new_people(0)
    people.execute("DROP TABLE person")
    people.execute(f"CREATE TABLE person (id varchar(50){more})")
    people.add()

    if is_stored_by_ids:
        assert "by which InnoDB stores the rows" in refused(people, operation)["needs-lock"]
        people.run(operation, allow_lock=True)
    else:
        people.run(operation)

    assert not people.state().index
