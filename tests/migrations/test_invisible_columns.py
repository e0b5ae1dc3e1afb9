"""A column that MySQL and MariaDB hide does not disturb statements by position, until it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError
from support.marks import on
from support.people import People, send
from support.refusals import refused

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.errors import ConfigurationError

pytestmark = pytest.mark.backend

BY_POSITION = (
    "INSERT INTO person VALUES (50, 'x')",
    "INSERT INTO archive SELECT * FROM person WHERE id = 50",
    "SELECT * FROM person UNION ALL SELECT * FROM archive",
)


ACCEPTED = {"invisible": True, "stored_code": "ignore"}
"""The options that hide a column on MySQL, too."""


@pytest.fixture
def archived(new_people: Callable[..., People]) -> Iterator[People]:
    """Create a table with an archive beside it, and a trigger that copies rows by position."""
    people = new_people(2)
    people.execute("DROP TABLE IF EXISTS archive")
    people.execute("CREATE TABLE archive (id bigint, name varchar(50))")
    people.execute(
        "CREATE TRIGGER t AFTER UPDATE ON person FOR EACH ROW INSERT INTO archive SELECT p.* FROM person p WHERE id = 1"
    )
    people.options = {"update_triggers": "fire"}
    yield people
    people.drop()
    people.execute("DROP TABLE archive")


def write_by_position(people: People) -> None:
    """Run the statements of an old program, and undo them."""
    with people.engine.connect() as connection:
        for statement in BY_POSITION:
            connection.exec_driver_sql(statement)
        connection.rollback()


@on("mariadb")
def test_hidden_for_ever(archived: People) -> None:
    """With ``invisible=True``, statements by position go on after the expand and after the contract."""
    assert "pass invisible=True" in refused(archived)["stored-code"]
    archived.run("expand_public_id", invisible=True)
    write_by_position(archived)

    archived.add(invisible=True)

    write_by_position(archived)
    archived.execute(BY_POSITION[0])
    archived.check_complete(3)


@on("mysql")
def test_default_that_is_ignored(table: People) -> None:
    """On MySQL, rows inserted by position get no id from the default, so that a contract must show the column."""
    assert "ignores the expression of its default" in refused(table, invisible=True)["implicit-default"]
    table.run("expand_public_id", invisible=True)
    table.execute(BY_POSITION[0])
    assert table.ids() == [None]
    assert "implicit-default" in refused(table, "contract_public_id")

    table.run("backfill_public_id")
    table.run("contract_public_id", invisible=False)

    table.check_complete(1)
    assert "implicit-default" in refused(table, "expand_public_id", invisible=True)
    assert "implicit-default" in refused(table, "loosen_public_id", invisible=True, keeps="not null")
    table.run("loosen_public_id", invisible=True)
    assert table.state().is_invisible


@on("mysql")
def test_accepted_although_the_default_is_ignored(archived: People) -> None:
    """If each INSERT lists its columns, a column of MySQL can be hidden for ever, and its rows have ids."""
    archived.add(**ACCEPTED)

    archived.execute("INSERT INTO archive SELECT * FROM person")
    archived.write(1)

    archived.check_complete(3)


@on("mariadb")
def test_files_that_are_loaded(table: People, tmp_path: Path) -> None:
    """With ``invisible=True``, a file without the ids can be loaded before and after the contract, and rows get ids."""
    file = tmp_path / "people.tsv"
    loading = create_engine(table.engine.url, connect_args={"local_infile": True}, poolclass=NullPool)
    for key, phases in ((50, ["expand_public_id"]), (51, ["backfill_public_id", "contract_public_id"])):
        for phase in phases:
            table.run(phase, invisible=True)
        file.write_text(f"{key}\tx\n")
        with loading.begin() as connection:
            send(connection, f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE person")

    table.check_complete()
    assert len(table.ids()) >= 2


@on("mysql", "mariadb")
@pytest.mark.parametrize("operation", ["contract_public_id", "loosen_public_id", "expand_public_id"])
def test_shown_by_an_operation(archived: People, operation: str) -> None:
    """A later operation shows the column, but refuses while a trigger copies rows by position."""
    archived.add(**ACCEPTED)
    assert archived.state().is_invisible
    assert "the trigger t" in refused(archived, operation, invisible=False)["stored-code"]
    archived.execute("DROP TRIGGER t")

    archived.run(operation, invisible=False)

    assert not archived.state().is_invisible
    with pytest.raises(DBAPIError):
        write_by_position(archived)


@on("mysql", "mariadb")
def test_shown_by_the_contract(table: People) -> None:
    """The contract shows the column in the statement that forbids NULL."""
    table.run("expand_public_id", invisible=True)
    table.write(3)

    table.run("contract_public_id", invisible=False)

    assert not table.state().is_invisible
    table.check_complete(3)


@on("mysql", "mariadb")
@pytest.mark.parametrize("keeps", ["unique", "not null", "all"])
def test_shown_by_loosening(table: People, keeps: str) -> None:
    """Loosening shows the column, whether it stays NOT NULL or not."""
    table.add(**ACCEPTED)

    table.run("loosen_public_id", keeps=keeps, invisible=False)

    state = table.state()
    assert (state.is_invisible, state.nullable) == (False, keeps == "unique")


@on("mysql", "mariadb")
def test_hidden_later(table: People) -> None:
    """An existing column is hidden, and stays hidden if nothing is said."""
    table.add()

    table.add(**ACCEPTED)
    table.run("loosen_public_id")
    table.add(stored_code="ignore")

    assert table.state().is_invisible
    table.check_complete(0)


@on("mysql", "mariadb")
@pytest.mark.parametrize("server_default", ["drop", "none"])
def test_hidden_without_a_default(table: People, server_default: str) -> None:
    """A hidden column that forbids NULL needs a default, because old INSERTs would fail or store the empty string."""
    assert "implicit-default" in refused(table, invisible=True, server_default=server_default)
    table.run("expand_public_id", invisible=True, server_default=server_default)
    remedy = refused(table, "contract_public_id", server_default=server_default)["implicit-default"]
    # MySQL would ignore a default, too
    assert ('pass server_default="keep"' in remedy) == (table.engine.name == "mariadb")

    table.run("contract_public_id", server_default=server_default, invisible=False)

    assert table.state().complete


@on("mariadb")
def test_hidden_with_another_default(table: People) -> None:
    """A hidden column whose default is replaced may forbid NULL, because it has a default afterwards."""
    table.run("expand_public_id", invisible=True, format=NanoId(length=16))

    table.add(invisible=True, server_default="replace")

    assert table.state().is_invisible
    table.check_complete(0)
    assert NanoId().is_valid(table.written())


@on("mysql", "mariadb")
def test_script(table: People) -> None:
    """A script hides the column, too."""
    assert "INVISIBLE" in table.script("expand_public_id", invisible=True)


@on("sqlite", "postgresql")
def test_other_databases(table: People, engine: Engine) -> None:
    """A database that cannot hide columns says so, and accepts that the column is shown."""
    with pytest.raises(ConfigurationError, match=f"{engine.name} cannot hide a column"):
        table.add(invisible=True)

    table.add(invisible=False)

    table.check_complete(0)
