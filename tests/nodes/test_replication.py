"""PostgreSQL servers generate keys of the same tables: a third one gets the rows of both, or both get each other's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, func, select, text, update
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session
from support.cluster_models import models

from sqlalchemy_public_id import audit
from sqlalchemy_public_id.keys import ClusterKey, cluster_of, hex_of, in_cluster

ROWS = 200
CLUSTERS = (10, 20, 30)
PATIENCE = 40.0
"""The seconds that the replication of rows may take on a busy machine."""


@pytest.fixture
def engines(three_postgresqls: list[URL]) -> Iterator[list[Engine]]:
    """Two servers that write, and one that receives the rows of both."""
    made = [create_engine(url) for url in three_postgresqls]
    yield made
    for engine in made:
        engine.dispose()


def alone(engine: Engine, statement: str) -> None:
    """Execute *statement* outside of any transaction."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement))


@pytest.fixture
def merged(engines: list[Engine]) -> Iterator[Callable[..., Any]]:
    """Create the tables on all servers, each with its cluster, and let the third one subscribe to the other two."""
    *writers, third = engines
    dropped: list[Any] = []

    for setting in ("ALTER SYSTEM SET wal_retrieve_retry_interval = '100ms'", "SELECT pg_reload_conf()"):
        alone(third, setting)  # retry soon after an error

    def make(way: Any) -> Any:
        declared = [models(cluster=cluster, strategy=way) for cluster in CLUSTERS]
        for (metadata, _, _), engine in zip(declared, engines, strict=True):
            metadata.create_all(engine)
            dropped.append((metadata, engine))
        for number, writer in enumerate(writers):
            alone(writer, "CREATE PUBLICATION depots FOR TABLE depot, depot_parcel")
            url = writer.url
            source = f"host={url.host} port={url.port} user={url.username} dbname={url.database}"
            alone(
                third,
                f"CREATE SUBSCRIPTION depots_{number} CONNECTION '{source}' "
                f"PUBLICATION depots WITH (copy_data = false)",
            )
        return [each[1:] for each in declared]

    yield make
    for number, writer in enumerate(writers):
        alone(third, f"DROP SUBSCRIPTION IF EXISTS depots_{number}")
        alone(writer, "DROP PUBLICATION IF EXISTS depots")
    for metadata, engine in dropped:
        metadata.drop_all(engine)


def wait_for(engine: Engine, model: Any, rows: int) -> None:
    """Wait until *model* has this number of rows."""
    until = time.monotonic() + PATIENCE
    while True:
        with engine.connect() as connection:
            there = connection.scalar(select(func.count()).select_from(model))
        if there == rows:
            return
        assert time.monotonic() < until, f"{there} of {rows} rows have arrived"
        time.sleep(0.05)  # between two checks


@pytest.mark.parametrize("way", ["identity", "function"])
def test_rows_of_two_clusters(engines: list[Engine], merged: Callable[..., Any], way: str) -> None:
    """Every row arrives unchanged, each key has its cluster, and every parcel refers to a depot of its cluster."""
    *of_writers, (Depot, Parcel) = merged(way)
    *writers, third = engines
    written: set[tuple[int, str, str]] = set()
    for cluster, engine, (OwnDepot, OwnParcel) in zip(CLUSTERS, writers, of_writers, strict=False):
        with Session(engine) as session:
            for number in range(ROWS):
                depot = OwnDepot(name=f"{cluster}/{number}")
                session.add(depot)
                session.flush()
                session.add(OwnParcel(depot_id=depot.id))
                written.add((depot.id, depot.name, ClusterKey(depot.id).hex))
            session.commit()

    wait_for(third, Parcel, 2 * ROWS)
    wait_for(third, Depot, 2 * ROWS)

    with Session(third) as session:
        rows = session.execute(select(Depot.id, Depot.name, hex_of(Depot.id))).all()
        joined = session.execute(select(Parcel.id, Depot.id, Depot.name).join(Depot)).all()
        counted = session.execute(select(cluster_of(Parcel.id), func.count()).group_by(cluster_of(Parcel.id))).all()
        of_ten = session.scalar(select(func.count()).where(in_cluster(Depot.id, 10)))
        session.add(Depot(name="of the third"))
        session.commit()
        own = session.scalars(select(hex_of(Depot.id)).where(in_cluster(Depot.id, 30))).all()
    assert {tuple(row) for row in rows} == written
    assert all(name.startswith(f"{ClusterKey(key).cluster}/") for key, name, _ in rows)
    assert all(ClusterKey(parcel).cluster == ClusterKey(depot).cluster for parcel, depot, _ in joined)
    assert len(joined) == 2 * ROWS
    assert {tuple(row) for row in counted} == {(10, ROWS), (20, ROWS)}
    assert of_ten == ROWS
    assert list(own) == ["1e000000000001"]


@pytest.fixture
def in_both_directions(engines: list[Engine]) -> Iterator[Callable[..., Any]]:
    """Create the tables on two servers, each of which subscribes to the rows of the other one's cluster."""
    both = [*zip(CLUSTERS, engines, strict=False)][:2]
    dropped: list[Any] = []

    def make(way: str, *, is_limited: bool = True) -> list[Any]:
        declared = [models(cluster=cluster, strategy=way) for cluster, _ in both]
        for (metadata, _, _), (cluster, engine) in zip(declared, both, strict=True):
            metadata.create_all(engine)
            dropped.append((metadata, engine))
            own = f" WHERE (id BETWEEN {cluster << 48} AND {((cluster + 1) << 48) - 1})" if is_limited else ""
            alone(engine, f"CREATE PUBLICATION own FOR TABLE depot{own}, depot_parcel{own}")
        for (_, engine), (_, other) in (both, both[::-1]):
            alone(engine, "ALTER SYSTEM SET wal_retrieve_retry_interval = '100ms'")
            alone(engine, "SELECT pg_reload_conf()")
            url = other.url
            source = f"host={url.host} port={url.port} user={url.username} dbname={url.database}"
            name = f"of_{url.port}"
            alone(
                engine,
                f"CREATE SUBSCRIPTION {name} CONNECTION '{source}' PUBLICATION own WITH (copy_data = false)",
            )
        return [each[1:] for each in declared]

    yield make
    for (_, engine), (_, other) in (both, both[::-1]):
        alone(engine, f"DROP SUBSCRIPTION IF EXISTS of_{other.url.port}")
    for _, engine in both:
        alone(engine, "DROP PUBLICATION IF EXISTS own")
    for metadata, engine in dropped:
        metadata.drop_all(engine)


FAILED = "SELECT coalesce(sum(apply_error_count + sync_error_count), 0) FROM pg_stat_subscription_stats"


def failures(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(text(FAILED)) or 0)


@pytest.mark.parametrize("way", ["identity", "function"])
def test_both_directions(engines: list[Engine], in_both_directions: Callable[..., Any], way: str) -> None:
    """Two servers that publish the keys of their own cluster get each other's rows, and go on with their own keys."""
    declared, both = in_both_directions(way), engines[:2]
    before = [failures(engine) for engine in both]

    def write(at: int, count: int) -> None:
        Depot, Parcel = declared[at]
        with Session(both[at]) as session:
            for number in range(count):
                session.add(depot := Depot(name=f"{CLUSTERS[at]}/{number}"))
                session.flush()
                session.add(Parcel(depot_id=depot.id))
                session.commit()

    with ThreadPoolExecutor(2) as threads:
        [*threads.map(write, (0, 1), (ROWS, ROWS))]
    for engine, (Depot, Parcel) in zip(both, declared, strict=True):
        wait_for(engine, Depot, 2 * ROWS)
        wait_for(engine, Parcel, 2 * ROWS)
    for at in (0, 1):  # also after the rows of the other one
        write(at, 1)
    for engine, (_, Parcel) in zip(both, declared, strict=True):
        wait_for(engine, Parcel, 2 * ROWS + 2)
    rows = []
    for engine, (Depot, _) in zip(both, declared, strict=True):
        with Session(engine) as session:
            rows.append(sorted(map(tuple, session.execute(select(Depot.id, Depot.name)))))

    assert rows[0] == rows[1]
    assert all(ClusterKey(key).cluster == int(name.partition("/")[0]) for key, name in rows[0])
    assert [failures(engine) for engine in both] == before
    for engine, (Depot, _) in zip(both, declared, strict=True):
        assert audit.run(engine, tables=["depot", "depot_parcel"], models=Depot.metadata).findings == []


def test_a_row_that_is_changed_elsewhere(engines: list[Engine], in_both_directions: Callable[..., Any]) -> None:
    """A row is changed in the database that has made it: a change in the other one is not published."""
    declared, both = in_both_directions("identity"), engines[:2]
    Depot, Other = declared[0][0], declared[1][0]
    with Session(both[0]) as session:
        session.add_all([Depot(name="here"), Depot(name="elsewhere")])
        session.commit()
    wait_for(both[1], Other, 2)
    with Session(both[1]) as session:
        session.execute(update(Other).where(Other.name == "elsewhere").values(name="changed"))
        session.commit()
    with Session(both[0]) as session:
        session.execute(update(Depot).where(Depot.name == "here").values(name="changed here"))
        session.commit()
    until = time.monotonic() + PATIENCE
    while True:
        with Session(both[1]) as session:
            if (names := sorted(session.scalars(select(Other.name)))) == ["changed", "changed here"]:
                break
        assert time.monotonic() < until, names
        time.sleep(0.05)  # between two checks
    with Session(both[0]) as session:
        assert sorted(session.scalars(select(Depot.name))) == ["changed here", "elsewhere"]


def test_all_rows_in_both_directions(engines: list[Engine], in_both_directions: Callable[..., Any]) -> None:
    """Without the condition, a row returns to its own database as a duplicate, and replication stops."""
    declared, both = in_both_directions("identity", is_limited=False), engines[:2]
    before = failures(both[0])
    Depot = declared[0][0]
    with Session(both[0]) as session:
        session.add(Depot(name="returns"))
        session.commit()
    until = time.monotonic() + PATIENCE
    while failures(both[0]) == before:
        assert time.monotonic() < until, "no error was seen"
        time.sleep(0.05)  # between two checks


def test_without_clusters(engines: list[Engine], merged: Callable[..., Any]) -> None:
    """Without different clusters, the keys of two servers do collide on the third one."""
    (Depot, _), *_ = merged("function")  # whose number is 10
    *writers, third = engines
    for engine in writers:
        alone(engine, "UPDATE cluster_config SET cluster = 10")
        with Session(engine) as session:
            session.add(Depot(name="the same key"))
            session.commit()

    until = time.monotonic() + PATIENCE
    failed = text("SELECT sum(apply_error_count + sync_error_count) FROM pg_stat_subscription_stats")
    with third.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while not connection.scalar(failed):
            assert time.monotonic() < until, "no clash was seen"
            time.sleep(0.05)  # between two checks
        assert connection.scalar(select(func.count()).select_from(Depot)) == 1
