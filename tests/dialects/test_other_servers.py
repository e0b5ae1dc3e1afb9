"""Servers that speak the protocol of MySQL but are not MySQL: OceanBase, from ``pip install pylibseekdb``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool

import sqlalchemy_public_id.alembic  # noqa: F401  registers the operations
from sqlalchemy_public_id import Uuid7


@pytest.mark.slow
def test_group_replication_without_its_later_variables(tmp_path: Path) -> None:
    """A migration runs where ``group_replication_single_primary_mode`` is off and ``…_consistency`` does not exist.

    This is the case on OceanBase, and on MySQL 8.0.13.
    """
    seekdb = pytest.importorskip("pylibseekdb")
    here = Path.cwd()
    os.chdir(tmp_path)  # the server writes to the current folder
    try:
        instance = seekdb.open(str(tmp_path / "seek.db"))
        socket = seekdb.connection_options()["unix_socket"]
        engine = create_engine(f"mysql+pymysql://root@/test?unix_socket={socket}", poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text("CREATE TABLE invoice (id BIGINT PRIMARY KEY AUTO_INCREMENT)"))
            connection.commit()
            with Operations.context(MigrationContext.configure(connection)) as operations:
                operations.add_public_id("invoice", format=Uuid7(), server_default="none")

            assert [column["name"] for column in inspect(connection).get_columns("invoice")] == ["id", "public_id"]
    finally:
        os.chdir(here)
        del instance
