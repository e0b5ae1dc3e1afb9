"""What is read from catalogs: the state of a column, by every driver, and what forbids ``ON CONFLICT``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine
from support import servers
from support.marks import on

from sqlalchemy_public_id import NanoId, PublicIdType
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table
from sqlalchemy_public_id.migrations.state import State

pytestmark = pytest.mark.backend

metadata = MetaData()
table = Table(
    "catalogued",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("public_id", PublicIdType(NanoId()), unique=True, nullable=False),
)


def read(connection: Connection) -> State:
    return live_table(connection, PublicIdColumn.of("catalogued")).read_state()


def test_every_driver_reads_the_same(async_engine: AsyncEngine, new_engine: Callable[..., Engine]) -> None:
    """Each driver reads the same state as the synchronous one, although asyncpg returns the type "char" as bytes."""
    database = async_engine.url.get_backend_name()
    driver = servers.SYNC[database].replace("sqlite", "pysqlite")
    engine = new_engine(database, url=async_engine.url.set(drivername=f"{database}+{driver}"))

    async def read_awaited() -> State:
        async with async_engine.connect() as connection:
            return await connection.run_sync(read)

    metadata.create_all(engine)
    try:
        with engine.connect() as connection:
            expected = read(connection)

        assert expected == asyncio.run(read_awaited())
    finally:
        metadata.drop_all(engine)


TRIGGER = "CREATE TRIGGER of_test {} ON guarded FOR EACH {} EXECUTE FUNCTION suppress_redundant_updates_trigger()"
FORBIDDING: dict[str, tuple[str, bool]] = {
    "nothing": ("SELECT 1", False),
    "a row before INSERT": (TRIGGER.format("BEFORE INSERT", "ROW"), True),
    "a row before INSERT OR UPDATE": (TRIGGER.format("BEFORE INSERT OR UPDATE", "ROW"), True),
    "a row after INSERT": (TRIGGER.format("AFTER INSERT", "ROW"), False),
    "a statement after INSERT": (TRIGGER.format("AFTER INSERT", "STATEMENT"), True),
    "a row before UPDATE": (TRIGGER.format("BEFORE UPDATE", "ROW"), False),
    "a statement before DELETE": (TRIGGER.format("BEFORE DELETE", "STATEMENT"), False),
    "disabled": (f"{TRIGGER.format('BEFORE INSERT', 'ROW')}; ALTER TABLE guarded DISABLE TRIGGER of_test", False),
    "always": (f"{TRIGGER.format('BEFORE INSERT', 'ROW')}; ALTER TABLE guarded ENABLE ALWAYS TRIGGER of_test", True),
    "a rule for INSERT": ("CREATE RULE of_test AS ON INSERT TO guarded DO ALSO NOTIFY one", True),
    "a rule for UPDATE": ("CREATE RULE of_test AS ON UPDATE TO guarded DO ALSO NOTIFY one", False),
    "deferrable": ("ALTER TABLE guarded ADD UNIQUE (code) DEFERRABLE", True),
    "not deferrable": ("ALTER TABLE guarded ADD UNIQUE (code)", False),
    "a view": ("ALTER TABLE guarded RENAME TO hidden; CREATE VIEW guarded AS SELECT * FROM hidden", True),
    "no table": ("DROP TABLE guarded", True),
}
"""What a table has → the statements that make it so, and whether an INSERT must not have ``ON CONFLICT``."""


@on("postgresql")
@pytest.mark.parametrize("kind", FORBIDDING)
def test_what_forbids_on_conflict(engine: Engine, kind: str) -> None:
    """Triggers and rules that run even for a skipped row, and deferrable constraints, forbid ``ON CONFLICT``."""
    statements, expected = FORBIDDING[kind]
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TEMPORARY TABLE guarded (id int PRIMARY KEY, code text)")
        connection.exec_driver_sql(statements)

        assert traits_for(engine.dialect).forbids_on_conflict(connection, "guarded", None) is expected
