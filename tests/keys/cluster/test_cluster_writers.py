"""Cluster keys during concurrent writes and migrations: objects have their own keys, and no counter goes back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, delete, event, insert, select, text
from sqlalchemy.orm import Session
from support.cluster_models import hexes, migrate, models
from support.connections import count_waiting, monitor
from support.marks import SERVERS, on
from support.private_servers import wait_until

import sqlalchemy_public_id.alembic as _operations  # noqa: F401  # registers the operations
from sqlalchemy_public_id.keys import ClusterKey, cluster_key


def wait_for_lock(engine: Engine, what: str) -> None:
    """Wait until a statement in this database waits for a lock; *what* is said if none ever does."""
    with monitor(engine) as own:
        wait_until(lambda: count_waiting(own) > 0, what)


@on("postgresql")
def test_the_cluster_changes_during_a_flush(engine: Engine, depots: Callable[..., Any]) -> None:
    """All rows of one statement belong to one cluster, and each object has the key of its own row."""
    Depot = depots(cluster=10, strategy="function")
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END'"
            )
        )
        connection.execute(
            text(
                "CREATE TRIGGER slow BEFORE INSERT ON depot FOR EACH ROW WHEN (NEW.name = 'number 30') "
                "EXECUTE FUNCTION slow()"
            )
        )
    depots = [Depot(name=f"number {number}") for number in range(60)]

    def flush() -> dict[int, str]:
        with Session(engine) as session:
            session.add_all(depots)
            session.flush()
            known = {depot.id: depot.name for depot in depots}
            session.commit()
            return known

    try:
        with ThreadPoolExecutor(1) as other, engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(1)"))
            flushed = other.submit(flush)
            wait_for_lock(engine, "the flush waits at its row 30")
            connection.execute(text("UPDATE cluster_config SET cluster = 5"))
            connection.commit()
            connection.execute(text("SELECT pg_advisory_unlock(1)"))
            known = flushed.result(30)
        with Session(engine) as session:
            stored = {key: name for key, name in session.execute(select(Depot.id, Depot.name))}  # noqa: C416
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP FUNCTION slow() CASCADE"))

    assert known == stored
    assert {ClusterKey(key).cluster for key in stored} == {10}


@on("postgresql")
@pytest.mark.parametrize("operation", ["set_cluster", "create_cluster_sequence"])
def test_operation_while_somebody_writes(engine: Engine, create: Callable[[MetaData], None], operation: str) -> None:
    """The counter is read after concurrent writers have finished, so their keys, even deleted ones, never repeat."""
    metadata, Depot, _ = models(cluster=10)
    create(metadata)
    migrate(engine, "create_cluster_config", cluster=10)
    options = {"cluster": 10} if operation == "set_cluster" else {}

    try:
        with ThreadPoolExecutor(1) as other, Session(engine) as session:
            session.execute(insert(Depot), [{"name": "a"}])
            migrated = other.submit(migrate, engine, operation, "depot", **options)
            wait_for_lock(engine, "the migration waits for the writer")
            session.execute(insert(Depot), [{"name": "b"}, {"name": "c"}])
            session.execute(delete(Depot).where(Depot.name == "c"))
            session.commit()
            migrated.result(30)
            migrate(engine, operation, "depot", **options)  # the operation can be repeated
            session.add(Depot(name="d"))
            session.commit()

            assert hexes(session, Depot) == [f"a00000000000{number}" for number in (1, 2, 4)]
    finally:
        metadata.drop_all(engine)
        migrate(engine, "drop_cluster_config")


@on(*SERVERS)
def test_two_databases_of_one_model(engine: Engine, new_schema: Callable[[], str]) -> None:
    """If tables are created in two schemas at once, each has its own cluster, and the function is called once each."""
    said: list[int] = []
    clusters = iter([10, 20, 20, 10])  # first table of the one schema, both of the other, second of the one

    def ask() -> int:
        said.append(next(clusters))
        return said[-1]

    metadata, Depot, _ = models(*(cluster_key(cluster=ask) for _ in range(2)))
    one, other = (engine.execution_options(schema_translate_map={None: new_schema()}) for _ in range(2))

    @event.listens_for(Depot.__table__, "before_create", once=True)
    def meanwhile(*args: Any, **kw: Any) -> None:
        metadata.create_all(other)

    metadata.create_all(one)
    found = []
    for each in (one, other):
        with Session(each) as session:
            session.add(Depot())
            session.flush()
            found += hexes(session, Depot)

    assert found == ["a000000000001", "14000000000001"]
    assert said == [10, 20, 20, 10]
