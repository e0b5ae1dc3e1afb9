"""Cluster keys on every database: made inside their range, and known to the objects."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from support.depots import hexes, models
from support.marks import on
from support.servers import ASYNC_DRIVERS

from sqlalchemy_public_id import PublicIdColumnMixin, bulk, lookup
from sqlalchemy_public_id.keys import (
    ClusterKey,
    cluster_key,
    cluster_of,
)

SERVERS = ("postgresql", "mysql", "mariadb")
WAYS = ["identity", "function"]
WAYS_OF = {"sqlite": ["identity"]} | dict.fromkeys(SERVERS, WAYS)
"""SQLite has no functions, and says so: test_no_functions."""
SCHEMA = f"cluster_attic_{os.getpid()}"  # on MySQL and MariaDB it is one of the whole server


both_ways = pytest.mark.parametrize(
    ("database", "way"), [(name, way) for name, ways in WAYS_OF.items() for way in ways], indirect=["database"]
)


@both_ways
def test_first_keys(create: Callable[[MetaData], None], session: Session, way: str) -> None:
    """Keys begin at 1 within the cluster, and the objects know them."""
    metadata, Depot, Parcel = models(cluster=10, strategy=way)
    create(metadata)

    depots = [Depot(), Depot()]
    session.add_all(depots)
    session.flush()
    session.add(Parcel(depot_id=depots[1].id))
    session.flush()

    assert [ClusterKey(depot.id).hex for depot in depots] == ["a000000000001", "a000000000002"]
    assert hexes(session, Parcel) == ["a000000000001"]


@both_ways
def test_objects_and_rows_agree(create: Callable[[MetaData], None], session: Session, way: str) -> None:
    """In one flush of many rows, each object has the key of its own row."""
    metadata, Depot, _ = models(cluster=10, strategy=way)
    create(metadata)
    depots = [Depot(name=f"number {number}") for number in range(60)]

    session.add_all(depots)
    session.flush()

    stored = session.execute(select(Depot.id, Depot.name)).all()
    assert {(depot.id, depot.name) for depot in depots} == {tuple(row) for row in stored}
    assert {ClusterKey.split(key) for key, _ in stored} == {(10, number) for number in range(1, 61)}


@both_ways
def test_many_rows_in_one_statement(create: Callable[[MetaData], None], session: Session, way: str) -> None:
    """An ``executemany`` of Core makes a key for each row."""
    metadata, Depot, _ = models(cluster=10, strategy=way)
    create(metadata)

    session.execute(insert(Depot.__table__), [{"name": str(number)} for number in range(10)])

    assert [ClusterKey.split(key).cluster for key in session.scalars(select(Depot.id))] == [10] * 10


@both_ways
def test_beside_a_public_id(create: Callable[[MetaData], None], session: Session, way: Any) -> None:
    """A model may have a cluster key inside and a public id outside; bulk inserts and lookups know both."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Depot(PublicIdColumnMixin, Base):
        __tablename__ = "depot"
        id: Mapped[int] = cluster_key(cluster=10, strategy=way)

    create(Base.metadata)
    depots = [Depot() for _ in range(30)]

    bulk.insert(session, depots)
    depots.append(Depot())
    session.add(depots[-1])
    session.flush()

    stored = session.execute(select(Depot.id, Depot.public_id)).all()
    assert {(depot.id, depot.public_id) for depot in depots} == {tuple(row) for row in stored}
    assert {ClusterKey.split(key).cluster for key, _ in stored} == {10}
    assert lookup.keys_of(session, Depot, [depots[3].public_id]) == {depots[3].public_id: depots[3].id}


@both_ways
def test_given_keys(create: Callable[[MetaData], None], session: Session, way: str) -> None:
    """A key that is given, from another cluster, is stored as it is."""
    metadata, Depot, _ = models(cluster=20, strategy=way)
    create(metadata)

    session.add(Depot(id=ClusterKey.of(10, 5)))
    session.add(Depot())
    session.flush()

    assert hexes(session, Depot) == ["a000000000005", "14000000000001"]


@both_ways
def test_the_cluster_is_asked_late(engine: Engine, way: Any) -> None:
    """A function is asked when tables are created, each time."""
    said = [10]
    metadata, Depot, _ = models(*(cluster_key(cluster=lambda: said[-1], strategy=way) for _ in range(2)))
    found = []
    for cluster in (10, 20):
        said.append(cluster)
        metadata.create_all(engine)
        with Session(engine) as session:
            session.add(Depot())
            session.flush()
            found += session.scalars(select(cluster_of(Depot.id)))
        metadata.drop_all(engine)

    assert found == [10, 20]


@both_ways
def test_odd_names(create: Callable[[MetaData], None], session: Session, way: str) -> None:
    """Names are quoted wherever they stand."""
    metadata, Depot, _ = models(table='depot 100% "it\'s" `;', cluster=10, strategy=way)
    create(metadata)

    session.add(Depot())
    session.flush()

    assert hexes(session, Depot) == ["a000000000001"]


@on(*SERVERS)
@pytest.mark.parametrize("way", WAYS)
def test_schemas(engine: Engine, way: str) -> None:
    """In another schema, all that belongs to the keys stands in it."""
    metadata, Depot, _ = models(schema=SCHEMA, cluster=10, strategy=way)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
    try:
        metadata.create_all(engine)
        with Session(engine) as session:
            session.add(Depot())
            session.flush()

            assert hexes(session, Depot) == ["a000000000001"]
        metadata.drop_all(engine)
    finally:
        with engine.begin() as connection:
            cascade = " CASCADE" if engine.name == "postgresql" else ""
            connection.execute(text(f"DROP SCHEMA {SCHEMA}{cascade}"))


@both_ways
def test_create_all_twice(engine: Engine, create: Callable[[MetaData], None], session: Session, way: str) -> None:
    """To create what is there changes nothing: the keys go on."""
    metadata, Depot, _ = models(cluster=10, strategy=way)
    create(metadata)
    session.add(Depot())
    session.commit()

    metadata.create_all(engine)
    session.add(Depot())
    session.commit()

    assert hexes(session, Depot) == ["a000000000001", "a000000000002"]


@pytest.mark.parametrize(
    ("async_engine", "way"),
    [pytest.param(pair, way, id="-".join([*pair, way])) for pair in ASYNC_DRIVERS for way in WAYS_OF[pair[0]]],
    indirect=["async_engine"],
)
def test_asynchronous_drivers(async_engine: AsyncEngine, way: str) -> None:
    """With an asynchronous driver, tables and keys are the same."""
    metadata, Depot, _ = models(cluster=10, strategy=way)

    async def work() -> str:
        async with async_engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)
            await connection.run_sync(metadata.create_all)
        async with AsyncSession(async_engine) as session:
            depot = Depot()
            session.add(depot)
            await session.commit()
            await session.refresh(depot)
            key = ClusterKey(depot.id)
        async with async_engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)
        return key.hex

    assert asyncio.run(work()) == "a000000000001"
