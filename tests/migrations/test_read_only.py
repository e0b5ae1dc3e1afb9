"""Sessions that may not write: the operations say so, and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Connection, create_engine
from support.people import People, send

from sqlalchemy_public_id import backfill
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine, run_phases

pytestmark = pytest.mark.backend

SET = {
    "sqlite": "PRAGMA query_only = ON",
    "postgresql": "SET default_transaction_read_only = on",
    "mysql": "SET SESSION transaction_read_only = 1",
    "mariadb": "SET SESSION tx_read_only = 1",
}


@pytest.fixture
def people(new_people: Callable[..., People]) -> People:
    return new_people(3)


@pytest.fixture
def connection(people: People) -> Iterator[Connection]:
    """A connection that may only read."""
    engine = create_engine(people.engine.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        send(connection, SET[engine.name])
        yield connection
    engine.dispose()


def test_operations(people: People, connection: Connection) -> None:
    """An operation is refused before its first statement; the plan has a warning, and the steps."""
    plan = plan_for(people.target, connection.dialect)
    report = examine(connection, plan, PHASES["add"])
    with pytest.raises(MigrationRefused, match=r"read-only.*connect to the primary") as caught:
        run_phases(connection, plan, PHASES["add"])

    assert [obstacle.code for obstacle in caught.value.obstacles] == ["read-only"]
    assert report.steps
    assert "is read-only" in report.warnings[0]
    assert not people.state().exists


def test_backfill(people: People, connection: Connection) -> None:
    """A backfill is refused, and fills no row."""
    people.run("expand_public_id")
    with pytest.raises(MigrationRefused, match="read-only"):
        backfill.run(connection, "person")
    assert people.ids() == [None] * 3
    people.run("backfill_public_id")
    with pytest.raises(MigrationRefused, match="read-only"):
        backfill.run(connection, "person")  # PostgreSQL would refuse to lock the rows that it looks at


def test_nothing_to_do(people: People, connection: Connection) -> None:
    """An operation that has nothing to do succeeds."""
    people.add()

    run_phases(connection, plan_for(people.target, connection.dialect), PHASES["add"])
