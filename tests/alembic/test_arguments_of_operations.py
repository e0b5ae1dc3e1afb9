"""Arguments of the operations of Alembic in the place of another one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, inspect, text
from support.marks import on

import sqlalchemy_public_id.alembic  # noqa: F401  registers the operations
from sqlalchemy_public_id import NanoId, PublicIdError, audit, backfill
from sqlalchemy_public_id.errors import ConfigurationError

WRONG: list[dict[str, Any]] = [
    {"comment": NanoId()},
    {"wait_while": 5},
    {"online": "no"},
    {"dry_run": "false"},
    {"allow_lock": "false"},
    {"lock_timeout": "1s"},
    {"attempts": 1.5},
    {"batch_seconds": "1"},
]


@pytest.mark.parametrize("operation", ["add_public_id", "expand_public_id"])
@on("sqlite")
def test_format_in_the_place_of_the_column(engine: Engine, operation: str) -> None:
    """A format in the place of the name of the column is refused, and the table stays as it is."""
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE invoice (id INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO invoice VALUES (1)"))
        connection.commit()
        context = MigrationContext.configure(connection)
        with suppress(TypeError, PublicIdError), Operations.context(context) as operations:
            getattr(operations, operation)("invoice", NanoId(length=10))

        assert [column["name"] for column in inspect(connection).get_columns("invoice")] == ["id"]


@pytest.mark.parametrize("options", WRONG, ids=lambda options: next(iter(options)))
@on("sqlite")
def test_option_of_another_type(engine: Engine, options: dict[str, Any]) -> None:
    """An option of another type is an error that names it, and nothing is sent."""
    [(name, value)] = options.items()
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE invoice (id INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO invoice VALUES (1)"))
        connection.commit()
        context = MigrationContext.configure(connection)
        with pytest.raises(ConfigurationError) as caught, Operations.context(context) as op:
            op.add_public_id("invoice", **options)  # type: ignore[attr-defined]

        assert name in str(caught.value)
        assert repr(value) in str(caught.value)
        assert [column["name"] for column in inspect(connection).get_columns("invoice")] == ["id"]


@on("sqlite")
def test_arguments_of_an_audit(engine: Engine) -> None:
    """An audit refuses a format in the place of the column, and an expression in the place of a format."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE invoice (id INTEGER PRIMARY KEY)"))
    wrong: Any
    for wrong in ({"column": NanoId()}, {"formats": {"invoice": "NanoId()"}}):
        with pytest.raises(ConfigurationError, match=r"NanoId\(\)"):
            audit.run(engine, **wrong)
    with pytest.raises(ConfigurationError, match="pause='x'"):
        backfill.run(engine, "invoice", pause="x")  # type: ignore[arg-type]
