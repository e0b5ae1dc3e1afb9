"""Every driver reads the same state of a column from the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine
from support import servers

from sqlalchemy_public_id import NanoId, PublicIdType
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
