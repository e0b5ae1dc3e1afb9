"""A public sample schema of eleven tables with foreign keys gets public ids on every table, and goes on working.

The data is not part of this repository: https://github.com/lerocha/chinook-database, in a folder that
``PUBLIC_ID_TEST_DATA`` names, or beside the repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from projects import Project, downgrade_of, upgrade_of
from sqlalchemy import Column, Engine, Index, MetaData, Table, func, insert, select

from sqlalchemy_public_id import NanoId, PublicIdType, audit

DATA = Path(os.environ.get("PUBLIC_ID_TEST_DATA", Path(__file__).parents[3] / "shared" / "data")) / "chinook"
SCRIPTS = {
    "mariadb": "Chinook_MySql_AutoIncrementPKs.sql",
    "mysql": "Chinook_MySql_AutoIncrementPKs.sql",
    "postgresql": "Chinook_PostgreSql_SerialPKs.sql",
    "sqlite": "Chinook_Sqlite_AutoIncrementPKs.sql",
}
pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the Chinook database is not in {DATA}"),
]

FORMATS = {"customer": NanoId(prefix="cus"), "invoice": NanoId(prefix="inv"), "playlisttrack": NanoId(length=16)}


@pytest.fixture
def project(new_project: Callable[..., Project], engine: Engine) -> Project:
    """A project whose database is Chinook's, and which has not said so in any migration yet."""
    script = re.sub(r"^(DROP DATABASE|CREATE DATABASE|USE|\\c)\b.*$", "", _script(engine), flags=re.MULTILINE)
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        if engine.name == "sqlite":
            cursor.executescript(script)  # type: ignore[attr-defined]
        else:
            for statement in re.split(r";\s*\n", script):
                if statement.strip():
                    cursor.execute(statement)
        connection.commit()
    finally:
        connection.close()
    return new_project()


def _script(engine: Engine) -> str:
    return (DATA / SCRIPTS[engine.name]).read_text(encoding="utf-8-sig")


def reflected(engine: Engine) -> MetaData:
    """The schema as it is."""
    metadata = MetaData()
    metadata.reflect(engine, only=lambda name, _: name != "alembic_version")
    return metadata


def with_public_ids(engine: Engine) -> MetaData:
    """The schema as the team wants it: a public id on every table."""
    metadata = reflected(engine)
    for table in metadata.tables.values():
        format = FORMATS.get(plain(table.name), NanoId())
        column = Column("public_id", PublicIdType(format), default=format.generate, nullable=False)
        table.append_column(column)
        Index(f"uq_{table.name}_public_id", column, unique=True)
    return metadata


def plain(name: str) -> str:
    """A name as all four databases have it: ``InvoiceLine`` and ``invoice_line`` are one."""
    return name.replace("_", "").lower()


def application(engine: Engine) -> dict[str, Any]:
    """What the application's own queries answer; they know nothing of public ids."""
    tables = {plain(table.name): {plain(column.name): column for column in table.c} for table in _tables(engine)}
    customer, invoice, line = tables["customer"], tables["invoice"], tables["invoiceline"]
    track, album, artist = tables["track"], tables["album"], tables["artist"]
    spent = (
        select(customer["lastname"], func.sum(invoice["total"]).label("spent"))
        .where(customer["customerid"] == invoice["customerid"])
        .group_by(customer["customerid"], customer["lastname"])
        .order_by(func.sum(invoice["total"]).desc(), customer["lastname"])
        .limit(10)
    )
    sold = (
        select(artist["name"], func.count())
        .where(
            line["trackid"] == track["trackid"],
            track["albumid"] == album["albumid"],
            album["artistid"] == artist["artistid"],
        )
        .group_by(artist["name"])
        .order_by(func.count().desc(), artist["name"])
        .limit(10)
    )
    with engine.connect() as connection:
        counts = {
            name: connection.scalar(select(func.count()).select_from(_of(columns))) for name, columns in tables.items()
        }
        return {"counts": counts, "spent": connection.execute(spent).all(), "sold": connection.execute(sold).all()}


def _tables(engine: Engine) -> list[Table]:
    return list(reflected(engine).tables.values())


def _of(columns: dict[str, Column[Any]]) -> Table:
    table = next(iter(columns.values())).table
    assert isinstance(table, Table)
    return table


def test_every_table(project: Project, engine: Engine) -> None:
    """One migration, which autogenerate has written, takes all tables there and back; old queries and INSERTs work."""
    before, wanted = application(engine), with_public_ids(engine)
    written = project.migrate(wanted)

    assert len(upgrade_of(written)) == len(downgrade_of(written)) == len(wanted.tables) == 11
    assert project.check(wanted) is None
    assert application(engine) == before

    report = audit.run(engine, formats={name: FORMATS.get(plain(name), NanoId()) for name in wanted.tables})
    assert [finding for finding in report.findings if finding.severity != "info"] == []

    artist = next(table for name, table in reflected(engine).tables.items() if plain(name) == "artist")
    with engine.begin() as connection:
        key = connection.execute(insert(artist).values({artist.c[1].name: "Barbara"})).inserted_primary_key
        assert key is not None
        (made,) = connection.execute(select(artist.c.public_id).where(artist.c[0] == key[0])).scalars()
        connection.execute(artist.delete().where(artist.c[0] == key[0]))
    assert NanoId().is_valid(made)

    project.downgrade()
    assert not [name for name, table in reflected(engine).tables.items() if "public_id" in table.c]
    assert application(engine) == before

    project.upgrade()
    assert project.check(wanted) is None
    assert application(engine) == before
