"""Dumps of ``mysqldump`` and ``mariadb-dump`` from before and during a migration are restored into its table."""

from __future__ import annotations

import subprocess

import pytest
from support.clients import give_script
from support.dumps import Dumps
from support.marks import on
from support.people import People

pytestmark = pytest.mark.backend

on_both = on("mysql", "mariadb")
ROWS_ALONE, WITH_NAMES = "--no-create-info", "--complete-insert"
WITHOUT_A_DEFAULT = {"mysql": True, "mariadb": False}
"""Whether an INSERT by position into a table with a hidden column leaves out the default."""


@pytest.fixture
def people(table: People) -> People:
    """Three people without public ids."""
    table.write(3)
    return table


def empty(people: People) -> None:
    people.execute("DELETE FROM person")


def finish(people: People) -> None:
    """Give the rows their ids, and complete the column, which is shown from then on."""
    people.run("backfill_public_id")
    people.run("contract_public_id", invisible=False)


@on_both
@pytest.mark.parametrize("names", [(), (WITH_NAMES,)], ids=["by position", "with names"])
def test_old_rows(people: People, dumps: Dumps, names: tuple[str, ...]) -> None:
    """Rows of a dump from before the migration are restored into the hidden column's table, and all get ids."""
    old = dumps.take("person", ROWS_ALONE, *names)
    people.run("expand_public_id", invisible=True)
    empty(people)

    dumps.restore(old)

    ids = people.ids()
    assert ids.count(None) == (3 if WITHOUT_A_DEFAULT[people.engine.name] and not names else 0)
    people.write(1)
    finish(people)
    people.check_complete(4)
    assert [new for id, new in zip(ids, people.ids(), strict=False) if id] == [id for id in ids if id]


@on_both
@pytest.mark.parametrize("names", [(), (WITH_NAMES,)], ids=["by position", "with names"])
def test_old_table(people: People, dumps: Dumps, names: tuple[str, ...]) -> None:
    """A dump with the definition of the table brings the table without ids back, and the migration begins again."""
    old = dumps.take("person", *names)
    people.run("expand_public_id", invisible=True)

    dumps.restore(old)

    assert people.columns() == ["id", "name"]
    people.run("expand_public_id", invisible=True)
    finish(people)
    people.check_complete(3)


@on_both
@pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "shown"])
@pytest.mark.parametrize("options", [(), (WITH_NAMES,), (ROWS_ALONE,), (ROWS_ALONE, WITH_NAMES)], ids=" ".join)
def test_dump_of_meanwhile(people: People, dumps: Dumps, options: tuple[str, ...], hidden: bool) -> None:
    """A dump from between expand and contract restores each id, and the column as hidden as it was."""
    people.run("expand_public_id", invisible=hidden)
    people.run("backfill_public_id")
    people.write(1)
    ids, dump = people.ids(), dumps.take("person", *options)
    assert ("INSERT INTO `person` (" in dump) == (hidden or WITH_NAMES in options)
    empty(people)

    dumps.restore(dump)

    assert None not in ids
    assert people.ids() == ids
    assert people.state().is_invisible == hidden
    finish(people)
    assert people.ids() == ids


@on_both
def test_old_rows_after_the_contract(people: People, dumps: Dumps) -> None:
    """Once the column is complete and shown, rows from before are restored by the names of their columns only."""
    by_position, with_names = dumps.take("person", ROWS_ALONE), dumps.take("person", ROWS_ALONE, WITH_NAMES)
    people.add()
    empty(people)

    assert "1136" in failed(people, by_position).stderr
    dumps.restore(with_names)

    people.check_complete(3)


@on("mariadb")
def test_old_rows_beside_a_column_that_stays_hidden(people: People, dumps: Dumps) -> None:
    """On MariaDB, rows from before are restored by position into a complete column that stays hidden, and get ids."""
    old = dumps.take("person", ROWS_ALONE)
    people.add(invisible=True)
    empty(people)

    dumps.restore(old)

    people.check_complete(3)


@on_both
def test_old_rows_beside_a_shown_column(people: People, dumps: Dumps) -> None:
    """Between expand and contract, a column that is shown refuses rows by position, and accepts them by names."""
    by_position, with_names = dumps.take("person", ROWS_ALONE), dumps.take("person", ROWS_ALONE, WITH_NAMES)
    people.run("expand_public_id")
    empty(people)

    assert "1136" in failed(people, by_position).stderr  # the number of columns
    dumps.restore(with_names)

    assert None not in people.ids()


def failed(people: People, dump: str) -> subprocess.CompletedProcess[str]:
    """Run the SQL of a dump that fails."""
    done = give_script(people.engine, dump)
    assert done.returncode != 0
    return done
