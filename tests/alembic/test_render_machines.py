"""Snowflakes whose machine id comes from a function: how a migration renders the function, and what it does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from alembic.autogenerate import render_python_code
from alembic.operations.ops import ModifyTableOps, UpgradeOps
from sqlalchemy import MetaData, select
from support.projects import Project, upgrade_of
from support.shops import shop

from sqlalchemy_public_id import ConfigurationError, NanoId, Snowflake
from sqlalchemy_public_id.alembic import AddPublicIdOp

pytestmark = pytest.mark.backend


def take_machine() -> int:
    """Return a machine id for the process that runs the migration."""
    return 21


HERE = __name__


def ids(project: Project, metadata: MetaData) -> list[str]:
    """Return the public ids of the customers."""
    with project.engine.connect() as connection:
        return list(connection.scalars(select(metadata.tables["customer"].c.public_id)))


def test_a_function_of_a_module(project: Project) -> None:
    """A migration imports a function that can be imported, and generates ids with the machine id that it returns."""
    metadata = shop(Snowflake(take_machine, prefix="snw"))
    text = project.migrate(metadata)
    found = ids(project, metadata)

    (statement,) = upgrade_of(text)
    assert f"format=Snowflake(machine_id={HERE}.take_machine, prefix='snw'), server_default='none')" in statement
    assert f"import {HERE}\n" in text
    assert [int(id.removeprefix("snw_")) >> 12 & 1023 for id in found] == [21] * 3
    assert project.check(metadata) is None


def test_a_lambda(project: Project) -> None:
    """A lambda is left out: on a table with rows, the migration fails and says what to write, and then works."""
    metadata = shop(Snowflake(lambda: 22))
    text = project.revision(metadata)
    (path,) = (path for path in project.folder.glob("versions/*.py") if "no_machine" in path.read_text())

    assert "machine_id=sqlalchemy_public_id.formats.snowflake.no_machine)" in text
    assert "import sqlalchemy_public_id.formats.snowflake\n" in text
    with pytest.raises(ConfigurationError, match="it has no machine id; pass machine_id=<int unique to this process>"):
        project.upgrade()
    path.write_text(path.read_text().replace("sqlalchemy_public_id.formats.snowflake.no_machine", "23"))
    project.upgrade()
    assert [int(id) >> 12 & 1023 for id in ids(project, metadata)] == [23] * 3
    assert project.check(metadata) is None


@pytest.mark.parametrize("name", ["function", "lambda"])
def test_types_of_the_library(new_project: Callable[..., Project], name: str) -> None:
    """With ``public_id_render="type"``, the migration can be loaded, and creates the column."""
    project = new_project()
    project.configure('public_id_render="type",')
    metadata = shop(Snowflake(take_machine if name == "function" else lambda: 24))

    text = project.migrate(metadata)

    written = f"{HERE}.take_machine" if name == "function" else "sqlalchemy_public_id.formats.snowflake.no_machine"
    assert f"sqlalchemy_public_id.PublicIdType(Snowflake(machine_id={written}))" in text
    assert project.check(metadata) is None


def test_older_formats() -> None:
    """Functions are also rendered in the formats that are still accepted; numbers stay numbers."""
    older = Snowflake(take_machine).accepting(Snowflake(lambda: 25, prefix="a"), Snowflake(26))
    op = AddPublicIdOp("user", format=NanoId(length=20).accepting(older, NanoId()))

    code = render_python_code(UpgradeOps([ModifyTableOps("user", [op])]))

    assert (
        f"format=NanoId(length=20).accepting(Snowflake(machine_id={HERE}.take_machine)"
        ".accepting(Snowflake(machine_id=sqlalchemy_public_id.formats.snowflake.no_machine, prefix='a'), "
        "Snowflake(machine_id=26)), NanoId()))"
    ) in upgrade_of(f"def upgrade():\n{code}")[0]
