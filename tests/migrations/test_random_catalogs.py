"""Random tables: the plan predicts what happens, and everything but the public id is left unchanged.

``PUBLIC_ID_CATALOGS=200`` tries 200 tables on each database, instead of 15.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError
from support.catalogs import RandomTable, random_table
from support.people import People, send
from support.schema_dumps import dump, without_ids

from sqlalchemy_public_id.errors import DryRun, MigrationRefused
from sqlalchemy_public_id.migrations.report import MigrationReport

pytestmark = [pytest.mark.backend, pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")]

SEEDS = range(int(os.environ.get("PUBLIC_ID_CATALOGS", "15")))
SCHEMA = 'it\'s %s "my" schema'


@pytest.fixture
def new_table(engine: Engine, tmp_path: Path) -> Iterator[Callable[[int], RandomTable]]:
    """Return a function that creates the table of a seed, in a separate schema that is dropped after the test."""
    schema = "other" if engine.name == "sqlite" else f"{SCHEMA} {os.getpid()}"
    preparer = type(engine.dialect)(paramstyle="named").identifier_preparer
    name = preparer.quote_identifier(schema)
    if engine.name == "sqlite":
        file = str(tmp_path / "other.db")
        event.listen(engine, "connect", lambda driver, record: driver.execute("ATTACH ? AS other", (file,)))
    else:
        _send_all(engine, [f"DROP SCHEMA IF EXISTS {name}{_cascade(engine)}", f"CREATE SCHEMA {name}"])

    def make(seed: int) -> RandomTable:
        for number in range(seed, 1000 * 1000, 1000):
            table = random_table(number, engine.dialect, schema)
            if _is_accepted(engine, table.statements[0]):
                break
        for statement in table.statements[1:]:
            _is_accepted(engine, statement)  # some are not valid for a table of this kind
        return table

    yield make
    if engine.name != "sqlite":
        _send_all(engine, [f"DROP SCHEMA {name}{_cascade(engine)}"])


def _cascade(engine: Engine) -> str:
    return " CASCADE" if engine.name == "postgresql" else ""


def _send_all(engine: Engine, statements: list[str]) -> None:
    with engine.begin() as connection:
        if engine.name in ("mysql", "mariadb"):
            send(connection, "SET SESSION sql_mode = ''")  # accept zero dates
        for statement in statements:
            send(connection, statement)


def _is_accepted(engine: Engine, statement: str) -> bool:
    try:
        _send_all(engine, [statement])
    except DBAPIError:
        return False
    return True


def lines(engine: Engine, table: RandomTable) -> list[str]:
    with engine.connect() as connection:
        return dump(connection, table.schema)


def planned(people: People, operation: str) -> MigrationReport:
    """Return the plan of an *operation*."""
    with pytest.raises(DryRun) as caught:
        people.run(operation, dry_run=True)
    return caught.value.report


def run_as_planned(people: People, table: RandomTable, operation: str) -> bool:
    """Run an *operation*: it completes, or if its plan has obstacles, changes nothing. Return True if it completed."""
    before = lines(people.engine, table)
    if planned(people, operation).obstacles:
        with pytest.raises(MigrationRefused):
            people.run(operation)
        assert lines(people.engine, table) == before
        return False
    people.run(operation)
    assert without_ids(lines(people.engine, table)) == without_ids(before)
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_random_table(engine: Engine, new_table: Callable[[int], RandomTable], seed: int) -> None:
    """An operation whose plan has no obstacles completes, and changes nothing else; the way back leaves nothing."""
    table = new_table(seed)
    people = People(engine, table.name, schema=table.schema, **table.options)
    before = lines(engine, table)

    if not run_as_planned(people, table, "add_public_id"):
        return
    assert planned(people, "add_public_id").steps == ()
    for operation in ("loosen_public_id", "drop_public_id"):
        if not run_as_planned(people, table, operation):
            return
    assert (lines(engine, table) == before) is not table.has_ids
