"""Tables, keys, counters and schemas of cluster keys may have any name that their database accepts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped
from support.cluster_tables import Parcels
from support.marks import SERVERS, on
from support.odd_names import NAMES, beside

import sqlalchemy_public_id.alembic  # noqa: F401  required by Alembic before 1.18
from sqlalchemy_public_id import audit
from sqlalchemy_public_id.alembic import (
    create_cluster_config,
    create_cluster_sequence,
    drop_cluster_config,
    drop_cluster_sequence,
    set_cluster,
    unset_cluster,
)
from sqlalchemy_public_id.keys import ClusterKey, cluster_key

pytestmark = pytest.mark.backend

ODD = [pytest.param(name, id=what) for what, name in NAMES.items()]


@pytest.fixture(params=ODD)
def name(request: pytest.FixtureRequest, database: str) -> str:
    """Return each name, except for those that SQLAlchemy does not reflect."""
    if "\n" in request.param and database in {"mysql", "mariadb"}:
        pytest.skip(f"SQLAlchemy does not reflect it from {database}")
    if "%" in request.param and sqlalchemy.__version__ == "2.0.25":  # the oldest supported version
        pytest.skip("SQLAlchemy 2.0.25 cannot compare a column of this name with two parameters")
    return str(request.param)


@pytest.fixture
def crates(engine: Engine, name: str) -> Iterator[Parcels]:
    """Yield a table of this name, with a similarly unusual key name; it is dropped after the test."""
    made = Parcels(engine, name, beside(name))
    made.create()
    yield made
    made.drop()
    if engine.name != "sqlite":
        made.run(drop_cluster_config)


@pytest.mark.parametrize("way", ["run", "script"])
@pytest.mark.parametrize("strategy", ["identity", "function"])
def test_operations(crates: Parcels, engine: Engine, way: str, strategy: str) -> None:
    """Operations set and remove limits and guards, or create and drop a counter, whatever the names."""
    if engine.name == "sqlite" and (way == "script" or strategy == "function"):
        pytest.skip("there are no client and no functions")
    carry_out, names = getattr(crates, way), (crates.name, crates.key_name)
    sequence = f"c {crates.name}"[:40].rstrip()

    if strategy == "identity":
        carry_out(set_cluster, *names, cluster=10, enforce_range=True)
    else:
        carry_out(create_cluster_config, cluster=10)
        carry_out(create_cluster_sequence, *names, sequence=sequence)
    keys = [crates.add(), crates.add()]
    found = [each.problem for each in audit.run(engine, tables=[crates.name]).at_least("warning")]
    if strategy == "identity":
        carry_out(unset_cluster, *names)
    else:
        carry_out(drop_cluster_sequence, *names, sequence=sequence)

    assert [*keys, crates.add()] == [ClusterKey.of(10, number) for number in (1, 2, 3)]
    assert found == []


@on(*SERVERS)
@pytest.mark.parametrize("sequence", [None, "it's %{x}:y `\"\\"])
def test_model_that_goes(engine: Engine, name: str, sequence: str | None) -> None:
    """Autogenerate detects the counter of a dropped table, whatever its name."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Crate(Base):
        __tablename__ = name
        id: Mapped[int] = cluster_key(sequence, strategy="function", cluster=10)

    Base.metadata.create_all(engine)
    try:
        with engine.connect() as connection:
            script = produce_migrations(MigrationContext.configure(connection), MetaData())
        assert script.upgrade_ops is not None
        found = [op.to_diff_tuple()[:3] for op in script.upgrade_ops.ops if hasattr(op, "sequence")]
    finally:
        Base.metadata.drop_all(engine)

    named = () if sequence is None else (sequence,)
    assert found == [("drop_cluster_sequence", name, *named)]
