"""What autogenerate produces for a table of people, as text, and run."""

from __future__ import annotations

from typing import Any

from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations.ops import MigrationScript
from sqlalchemy import Engine, MetaData
from support.people import migrating


def autogenerate(engine: Engine, metadata: MetaData) -> MigrationScript:
    """Return the script that autogenerate produces for the column ``public_id`` of *metadata*."""
    with engine.connect() as connection:
        ids: Any = {"include_object": lambda item, name, kind, *_: kind != "column" or name == "public_id"}
        return produce_migrations(MigrationContext.configure(connection, opts=ids), metadata)


def written(script: MigrationScript, *, downgrade: bool = False) -> str:
    """Return the body of ``upgrade()``, or of ``downgrade()``."""
    operations = script.downgrade_ops if downgrade else script.upgrade_ops
    assert operations is not None
    return render_python_code(operations)


def run(engine: Engine, operations: Any) -> None:
    """Run the operations that autogenerate has produced."""
    with engine.connect() as connection, migrating(connection) as op:
        for each in operations.ops:
            for operation in getattr(each, "ops", [each]):
                op.invoke(operation)
