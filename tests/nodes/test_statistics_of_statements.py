"""A plan looks for statements by position in the statistics that a server keeps."""

from __future__ import annotations

import re

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool
from support import private_servers
from support.private_clusters import GroupReplication

from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine


def test_pg_stat_statements(programs: dict[str, str]) -> None:
    """A statement that a new column will break is a warning of the report, once; others are none."""
    with private_servers.postgresqls(programs, 1, "shared_preload_libraries=pg_stat_statements") as [url]:
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in (
                "CREATE EXTENSION pg_stat_statements",
                "CREATE TABLE invoice (id int PRIMARY KEY, total int)",
                "CREATE TABLE archive (id int, total int)",
                "INSERT INTO invoice VALUES (1, 2)",
                "INSERT INTO archive SELECT * FROM invoice WHERE id = 1",
                "INSERT INTO archive SELECT * FROM invoice WHERE id = 2",
                "INSERT INTO archive (id) SELECT id FROM invoice",
            ):
                connection.exec_driver_sql(statement)
            report = examine(connection, plan_for(PublicIdColumn.of("invoice"), connection.dialect), PHASES["add"])

    assert report.warnings == (
        (
            "pg_stat_statements has 'INSERT INTO archive SELECT * FROM invoice WHERE id = $1': "
            "3 values would meet 2 columns"
        ),
    )
    assert not report.obstacles


def test_performance_schema(group: GroupReplication) -> None:
    """On MySQL, such statements are warnings, too; those that name their columns are none."""
    engine = create_engine(group.url(0), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in (
            "CREATE TABLE invoice (id int PRIMARY KEY, total int)",
            "CREATE TABLE archive (id int PRIMARY KEY, total int)",
            "INSERT INTO invoice VALUES (1, 2)",
            "INSERT INTO invoice VALUES (2, 2)",
            "INSERT INTO archive SELECT * FROM invoice WHERE id = 1",
            "INSERT INTO archive (id, total) SELECT id, total FROM invoice WHERE id = 2",
        ):
            connection.exec_driver_sql(statement)
        report = examine(connection, plan_for(PublicIdColumn.of("invoice"), connection.dialect), PHASES["add"])
        for table in ("invoice", "archive"):
            connection.exec_driver_sql(f"DROP TABLE {table}")

    found = sorted(warning for warning in report.warnings if warning.startswith("performance_schema has "))
    assert [re.sub("[ `]+", " ", warning.removeprefix("performance_schema has ")) for warning in found] == [
        "'INSERT INTO archive SELECT * FROM invoice WHERE id = ?': 3 values would meet 2 columns",
        "'INSERT INTO invoice VALUES (...)': values for 2 columns are given by position",
    ]
    assert not report.obstacles
