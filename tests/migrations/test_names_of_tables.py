"""Migrations that name a table differently from the database: in another case, or by ``schema_translate_map``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, inspect
from support.marks import on
from support.people import People, people, send

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import run_phases

pytestmark = pytest.mark.backend


@on("sqlite")
def test_way_back_by_other_capital_letters(engine: Engine) -> None:
    """Each operation finds a table by its name in another case, and the copy keeps the table's own name and counter."""
    with people(engine, 2, table="Person") as table:
        table.execute("DELETE FROM Person WHERE id = 2")
        other = People(engine, "person")
        for operation in ("expand", "backfill", "contract", "loosen", "contract"):
            other.run(f"{operation}_public_id")
        other.check_complete(1)
        other.run("drop_public_id")
        table.write(1)

        with engine.connect() as connection:
            assert send(connection, "SELECT max(id) FROM Person").scalar() == 3
            assert send(connection, "SELECT sql FROM sqlite_master WHERE name = 'Person'").scalar() is not None


@pytest.fixture
def schema(engine: Engine) -> Iterator[str]:
    """A schema with a table of people, which the default schema has as well."""
    with people(engine, 1) as table:
        table.execute("CREATE SCHEMA tenant; CREATE TABLE tenant.person (id bigint PRIMARY KEY, name text)")
        table.execute("INSERT INTO tenant.person VALUES (1, 'Ada')")
        yield "tenant"
        table.execute("DROP SCHEMA tenant CASCADE")


@on("postgresql")
def test_translated_schema(engine: Engine, schema: str, new_engine: Callable[..., Engine]) -> None:
    """An operation completes, and changes one table, on a connection whose ``schema_translate_map`` names a schema."""
    options = {"schema_translate_map": {None: schema}}

    People(new_engine("postgresql", engine.url, execution_options=options)).add()
    columns = [len(inspect(engine).get_columns("person", schema=each)) for each in (None, schema)]

    assert sorted(columns) == [2, 3]


@on("sqlite")
def test_translated_schema_after_a_refusal(engine: Engine) -> None:
    """When an operation is refused, the connection keeps its ``schema_translate_map``."""
    with people(engine, 1) as table, table.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT", schema_translate_map={None: "main"})
        with pytest.raises(ConfigurationError):
            run_phases(connection, plan_for(table.target, connection.dialect), ["contract"])

        assert connection.get_execution_options()["schema_translate_map"] == {None: "main"}
