"""Scripts of ``alembic upgrade --sql`` for tables whose columns or rows a script cannot see."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from clients import run_script
from marks import known_defect, on
from people import People, people
from sqlalchemy import Engine, inspect

from sqlalchemy_public_id import ConfigurationError, Uuid4
from sqlalchemy_public_id.errors import MigrationRefused

pytestmark = [pytest.mark.backend, pytest.mark.slow]

UUID_TEXT = Uuid4(encoding="hyphenated", storage="text")
AN_ID = "0b4ec4ef-1934-4bfa-bfc5-92842c893dd8"


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    with people(engine, 0) as made:
        yield made


def migrate(table: People, operation: str, **options: Any) -> None:
    """Run *operation* with a connection."""
    table.run(operation, **options)


def migrate_by_script(table: People, operation: str, **options: Any) -> None:
    """Run what Alembic writes for *operation*, if it is not refused when it is written."""
    output = io.StringIO()
    context = MigrationContext.configure(
        dialect_name=table.engine.name,
        opts={"as_sql": True, "output_buffer": output, "transaction_per_migration": True},
    )
    try:
        with context.begin_transaction(_per_migration=True):
            table.say(Operations(context), operation, **options)
    except ConfigurationError:
        return
    run_script(table.engine, output.getvalue())


def ways(defect: str) -> Any:
    """With a connection, where all is well, and by a script, which has a *defect*."""
    script = pytest.param(
        migrate_by_script, marks=known_defect("live tables", defect, raises=AssertionError), id="script"
    )
    return pytest.mark.parametrize("run", [pytest.param(migrate, id="connection"), script])


Run = Callable[..., None]


@ways("the script of a contract drops the default and the comment of a column")
@on("mysql", "mariadb")
def test_definition_of_the_column(table: People, run: Run) -> None:
    """A column that becomes NOT NULL keeps its own default and its comment."""
    table.create(
        0,
        more=", public_id varchar(36) CHARACTER SET ascii COLLATE ascii_bin DEFAULT (uuid()) COMMENT 'shown in URLs'",
    )
    table.execute(f"INSERT INTO person (name, public_id) VALUES ('a', '{AN_ID}')")

    run(table, "contract_public_id", format=UUID_TEXT, server_default="none")
    column = inspect(table.engine).get_columns("person")[-1]

    assert (column["comment"], "uuid()" in str(column["default"])) == ("shown in URLs", True)


@ways("the script replaces a default of the project")
@on("postgresql")
def test_default_of_the_project(table: People, run: Run) -> None:
    """A default of the project that makes other ids is not replaced."""
    table.create(0, more=', public_id varchar(36) COLLATE "C" DEFAULT gen_random_uuid()::text')
    table.execute("INSERT INTO person (name, public_id) VALUES ('a', NULL)")

    with suppress(MigrationRefused):
        run(table, "add_public_id")

    assert "gen_random_uuid()" in str(table.state().default)


@ways("the script calls a function that it does not create")
@on("postgresql")
def test_rows_without_a_default(table: People, run: Run) -> None:
    """With ``server_default="none"``, a script runs to its end, or is refused when it is written."""
    table.write(2)

    run(table, "add_public_id", server_default="none")
    ids = table.ids() if "public_id" in table.columns() else []

    assert None not in ids


@known_defect("live tables", "the limit of the role ends the UPDATE of a script", raises=AssertionError)
@on("postgresql")
def test_limit_of_a_role(table: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that fills 20,000 rows runs to its end for a role whose statements are limited to 100 ms."""
    table.execute("INSERT INTO person (name) SELECT 'p' FROM generate_series(1, 20000)")
    monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=100")

    migrate_by_script(table, "add_public_id")
