"""The operations for live tables on OceanBase, which speaks MySQL's protocol: what works, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine
from support import private_engines
from support.people import migrating, send

from sqlalchemy_public_id import NanoId, audit
from sqlalchemy_public_id.errors import MigrationRefused

ROWS = 500
_PART = """CREATE TABLE part (id bigint AUTO_INCREMENT, tenant_id bigint NOT NULL, name varchar(40),
           PRIMARY KEY (id, tenant_id)) PARTITION BY HASH (tenant_id) PARTITIONS 4"""
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "person": (
        "CREATE TABLE person (id bigint AUTO_INCREMENT PRIMARY KEY, tenant_id bigint NOT NULL, name varchar(40))",
        (),
    ),
    "part": (_PART, ("tenant_id",)),
}


@pytest.fixture(scope="module")
def engine(programs: dict[str, str]) -> Iterator[Engine]:
    """OceanBase, with a plain table and a partitioned one."""
    with private_engines.oceanbase(programs) as url:
        made = create_engine(url)
        yield made
        made.dispose()


@pytest.fixture(params=TABLES)
def table(engine: Engine, request: pytest.FixtureRequest) -> str:
    name: str = request.param
    with engine.begin() as connection:
        send(connection, f"DROP TABLE IF EXISTS {name}")
        send(connection, TABLES[name][0])
        send(connection, f"INSERT INTO {name} (tenant_id) VALUES {', '.join(f'({at % 7})' for at in range(ROWS))}")
    return name


def run(engine: Engine, operation: str, table: str, **options: Any) -> None:
    with engine.connect() as connection, migrating(connection) as op:
        getattr(op, operation)(table, unique_with=TABLES[table][1], **options)


def definition(engine: Engine, table: str) -> str:
    with engine.connect() as connection:
        return str(send(connection, f"SHOW CREATE TABLE {table}").one()[1])


def test_add_and_loosen(engine: Engine, table: str) -> None:
    """Without a server default, a table gets its ids in each phase, can be loosened, and completed again."""
    for operation in ("expand_public_id", "backfill_public_id", "contract_public_id", "add_public_id"):
        run(engine, operation, table, **({} if operation.startswith("backfill") else {"server_default": "none"}))
    with engine.connect() as connection:
        ids = send(connection, f"SELECT public_id FROM {table}").scalars().all()
    assert len({*ids}) == ROWS
    assert all(map(NanoId().is_valid, ids))
    complete = definition(engine, table)
    assert "`public_id` varchar(12) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL" in complete
    unique = "`, `".join(("public_id", *TABLES[table][1]))
    assert f"UNIQUE KEY `uq_{table}_public_id` (`{unique}`)" in complete
    findings = audit.run(engine, tables=[table]).at_least("warning")
    assert [each.problem for each in findings] == []

    run(engine, "loosen_public_id", table, server_default="none")
    assert "utf8mb4_bin DEFAULT NULL" in definition(engine, table)
    assert "UNIQUE" not in definition(engine, table)
    run(engine, "contract_public_id", table, server_default="none")
    assert definition(engine, table) == complete


def test_what_it_refuses(engine: Engine, table: str) -> None:
    """A default, and the end of the column, are refused in OceanBase's words, and nothing is changed."""
    before = definition(engine, table)
    with pytest.raises(MigrationRefused, match="refuses to set the default: Illegal type"):
        run(engine, "add_public_id", table)
    assert definition(engine, table) == before

    run(engine, "add_public_id", table, server_default="none")
    run(engine, "loosen_public_id", table, server_default="none")
    before = definition(engine, table)
    with pytest.raises(MigrationRefused, match="refuses to drop the column: drop column on temporary table"):
        run(engine, "drop_public_id", table)
    assert definition(engine, table) == before
