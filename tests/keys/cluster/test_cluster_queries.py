"""Cluster keys in queries, right on every database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, event, func, insert, select, text
from sqlalchemy.orm import Session
from support.depots import models

from sqlalchemy_public_id.keys import (
    ClusterKey,
    cluster_of,
    hex_of,
    in_cluster,
    sequence_of,
)

pytestmark = pytest.mark.backend

SERVERS = ("postgresql", "mysql", "mariadb")
LAST = 2**48 - 1


@pytest.fixture
def stored(create: Callable[[MetaData], None], session: Session) -> Any:
    """A model with three rows of cluster 10, two of cluster 20, and one each at the ends of cluster 32767 and 0."""
    metadata, Depot, _ = models(cluster=30)
    create(metadata)
    keys = [ClusterKey.of(10, number) for number in (1, 2, LAST)]
    keys += [ClusterKey.of(20, number) for number in (1, 3)]
    session.execute(insert(Depot), [{"id": key} for key in (ClusterKey.of(0, 1), *keys, ClusterKey.of(32767, LAST))])
    session.commit()
    return Depot


def test_filter(stored: Any, session: Session) -> None:
    """``in_cluster()`` selects the keys of one cluster or of several, ends included."""
    one = select(hex_of(stored.id)).where(in_cluster(stored.id, 10)).order_by(stored.id)
    two = select(func.count()).where(in_cluster(stored.id, 0, 32767))

    assert session.scalars(one).all() == ["a000000000001", "a000000000002", "affffffffffff"]
    assert session.scalar(two) == 2


def test_group(stored: Any, session: Session) -> None:
    """``cluster_of()`` and ``sequence_of()`` take keys apart, to group by and to order by."""
    query = select(cluster_of(stored.id), func.count(), func.max(sequence_of(stored.id)))
    found = session.execute(query.group_by(cluster_of(stored.id)).order_by(cluster_of(stored.id))).all()

    assert [tuple(row) for row in found] == [(0, 1, 1), (10, 3, LAST), (20, 2, 3), (32767, 1, LAST)]


def test_numbers_as_python_has_them(stored: Any, session: Session) -> None:
    """What the database says of each key is what ``ClusterKey`` says, up to the last one."""
    rows = session.execute(select(stored.id, cluster_of(stored.id), sequence_of(stored.id), hex_of(stored.id)))

    for row in rows:
        key = ClusterKey(row[0])
        assert tuple(row) == (key, key.cluster, key.sequence, key.hex)


def test_an_index_serves_the_filter(engine: Engine, stored: Any, session: Session) -> None:
    """To filter by a cluster, the index of the key is searched for a range."""
    sent: list[tuple[str, Any]] = []
    event.listen(engine, "before_cursor_execute", lambda *args: sent.append((args[2], args[3])))
    query = select(stored.name).where(in_cluster(stored.id, 10))
    session.execute(query).all()
    statement, parameters = sent[-1]
    if engine.name == "postgresql":
        session.execute(text("SET enable_seqscan = off"))
    explain = "EXPLAIN QUERY PLAN " if engine.name == "sqlite" else "EXPLAIN "
    plan = str(session.connection().exec_driver_sql(explain + statement, parameters).all())

    expected = {"sqlite": "USING INTEGER PRIMARY KEY", "postgresql": "Index Cond", "mariadb": "range"}
    assert expected.get(engine.name, "range") in plan
