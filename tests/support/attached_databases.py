"""SQLite with an attached database that has tables of the same names as the main database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event

OTHER = "other"
"""The schema of the attached database."""


def attach(engine: Engine, file: Path) -> None:
    """Let each new connection of *engine* attach *file* as the schema ``other``."""
    event.listen(engine, "connect", lambda driver, record: driver.execute(f"ATTACH ? AS {OTHER}", (str(file),)))


def in_both(engine: Engine, *statements: str) -> None:
    """Execute *statements* in the main database and in the attached one, whose names replace ``{schema}``."""
    with engine.begin() as connection:
        for schema in ("main", OTHER):
            for statement in statements:
                connection.exec_driver_sql(statement.format(schema=schema))


def contents(connection: Connection, schema: str) -> dict[str, list[Any]]:
    """Return the definitions of a database, and the rows of each of its tables."""
    master = connection.exec_driver_sql(f"SELECT type, name, sql FROM {schema}.sqlite_master ORDER BY name").all()
    tables = [row.name for row in master if row.type == "table"]
    rows = {name: connection.exec_driver_sql(f'SELECT * FROM {schema}."{name}" ORDER BY 1').all() for name in tables}
    return {
        "definitions": [tuple(row) for row in master],
        **{name: list(map(tuple, all)) for name, all in rows.items()},
    }
