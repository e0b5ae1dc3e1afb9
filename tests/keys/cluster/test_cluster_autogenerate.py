"""Autogenerate detects keys that become cluster keys, change their strategy or cluster, or are dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, insert, inspect, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from support.cluster_tables import KEYS
from support.marks import SERVERS, on
from support.projects import Project, downgrade_of, upgrade_of

from sqlalchemy_public_id.keys import ClusterKey, Range, cluster_key

pytestmark = pytest.mark.backend

NAME = "depot"


def declared(*, tenant: bool = False, **key: Any) -> MetaData:
    """Return the metadata of one model with a cluster key, and a tenant in its primary key if *tenant* is True."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Depot(Base):
        __tablename__ = NAME
        id: Mapped[int] = cluster_key(key.pop("name", None), **key)
        if tenant:
            tenant_id: Mapped[int] = mapped_column(primary_key=True, default=1)

    return Base.metadata


@pytest.fixture
def project(new_project: Callable[..., Project]) -> Project:
    """Return a project with migrations of cluster 10 and all comparisons enabled."""
    made = new_project()
    made.configure("public_id_cluster=10, compare_server_default=True,")
    return made


def plain(project: Project) -> None:
    """Create an empty table without a cluster key."""
    project.execute(f"CREATE TABLE {NAME} (id {KEYS[project.engine.name]})")


def add(project: Project, metadata: MetaData) -> str:
    """Insert a row, and return its key."""
    table = metadata.tables[NAME]
    with project.engine.begin() as connection:
        connection.execute(insert(table))
        keys = connection.scalars(select(table.c.id).order_by(table.c.id)).all()
        return ClusterKey(keys[-1]).hex


def said(written: str) -> list[str]:
    """Return the operations of the upgrade."""
    return [line for line in upgrade_of(written) if line.startswith("op.")]


@on(*SERVERS)
@pytest.mark.parametrize(
    "key",
    [{"cluster": 10}, {"cluster": lambda: 10}, {"key_range": Range(1001, 2001)}],
    ids=["number", "function", "range"],
)
def test_a_plain_key(project: Project, key: dict[str, Any]) -> None:
    """A key that started at 1 gets its limits, and the next autogenerate finds nothing."""
    plain(project)
    metadata = declared(**key)

    written = project.migrate(metadata)

    assert len(said(written)) == 1
    assert said(written)[0].startswith(f"op.set_cluster('{NAME}'")
    assert project.check(metadata) is None
    assert add(project, metadata) == ("3e9" if "key_range" in key else "a000000000001")
    project.downgrade()
    project.upgrade()


def test_a_new_table_with_a_range(new_project: Callable[..., Project]) -> None:
    """A table that is created with a range gets its limits from the same revision, whose imports suffice."""
    project = new_project()
    metadata = declared(key_range=Range(1001, 2001), enforce_range=True)

    written = project.migrate(metadata)

    assert said(written)[-1] == f"op.set_cluster('{NAME}', key_range={Range(1001, 2001)!r}, enforce_range=True)"
    assert project.check(metadata) is None
    assert add(project, metadata) == "3e9"


@on("postgresql")
def test_a_key_that_does_not_count(project: Project) -> None:
    """A key without a counter gets one, with limits."""
    project.execute(f"CREATE TABLE {NAME} (id bigint PRIMARY KEY)")
    metadata = declared(cluster=10)

    project.migrate(metadata)

    assert project.check(metadata) is None
    assert add(project, metadata) == "a000000000001"
    project.downgrade()
    project.upgrade()


@pytest.mark.parametrize(
    ("database", "key", "next_key"),
    [
        *((database, {"cluster": 20}, "14000000000001") for database in SERVERS),
        *((name, {"cluster": 10, "enforce_range": True}, "a000000000002") for name in ("mysql", "mariadb", "sqlite")),
    ],
    indirect=["database"],
)
def test_another_cluster_or_guard(project: Project, key: dict[str, Any], next_key: str) -> None:
    """If the cluster of the model changes, so does the counter; a new guard is added."""
    project.migrate(declared(cluster=10))
    add(project, declared(cluster=10))
    metadata = declared(**key)
    settings = ", ".join(f"{name}={value}" for name, value in key.items())

    assert said(project.migrate(metadata)) == [f"op.set_cluster('{NAME}', {settings})"]
    assert project.check(metadata) is None
    assert add(project, metadata) == next_key


@on("sqlite")
def test_differences_that_are_named(project: Project) -> None:
    """As a difference, an operation on a key names the table, and each setting that is not the default."""
    plain(project)

    found = str(project.check(declared(cluster=20, enforce_range=True)))

    assert found.endswith(f"[('set_cluster', '{NAME}', 20, True)]")


def test_a_table_that_is_left_out(new_project: Callable[..., Project]) -> None:
    """A table that ``include_object`` excludes is not changed."""
    project = new_project()
    project.configure(f"public_id_cluster=10, include_object=lambda object, name, *rest: name != '{NAME}',")
    plain(project)

    assert project.check(declared(cluster=10, enforce_range=True)) is None


@on(*SERVERS)
def test_to_a_function_and_back(project: Project) -> None:
    """A table changes its strategy and back, and autogenerate finds nothing afterwards."""
    identity, function = declared(cluster=10), declared(strategy="function")
    project.migrate(identity)
    keys = [add(project, identity)]

    there = project.migrate(function)
    found = project.check(function)
    keys.append(add(project, function))
    back = project.migrate(identity)
    keys.append(add(project, identity))

    assert said(there) == ["op.create_cluster_config()", f"op.create_cluster_sequence('{NAME}')"]
    assert said(back) == [
        f"op.drop_cluster_sequence('{NAME}')",
        f"op.set_cluster('{NAME}', cluster=10)",
        "op.drop_cluster_config()",
    ]
    assert (found, project.check(identity)) == (None, None)
    assert keys == ["a000000000001", "a000000000002", "a000000000003"]


@on(*SERVERS)
@pytest.mark.parametrize(("name", "tenant"), [(None, False), ("shared", False), (None, True)])
def test_a_model_that_goes(project: Project, name: str | None, tenant: bool) -> None:
    """The last model with cluster keys is dropped with everything it needs, which the downgrade creates again."""
    metadata = declared(strategy="function", tenant=tenant, **({"name": name} if name else {}))
    project.migrate(metadata)
    add(project, metadata)

    written = project.migrate(MetaData())
    left = set(inspect(project.engine).get_table_names())
    found = project.check(MetaData())
    project.downgrade()

    named = f"'{NAME}', sequence='{name}'" if name else f"'{NAME}'"
    assert said(written) == [
        f"op.drop_cluster_sequence({named})",
        f"op.drop_table('{NAME}')",
        "op.drop_cluster_config()",
    ]
    assert [line for line in downgrade_of(written) if "cluster" in line] == [
        "op.create_cluster_config()",
        f"op.create_cluster_sequence({named})",
    ]
    assert left == {"alembic_version"}
    assert found is None
    assert add(project, metadata) == "a000000000001"
    project.upgrade()


@on("postgresql")
def test_a_partition_that_goes(project: Project) -> None:
    """A partition is dropped without the counter, which is that of its table."""
    metadata = declared(strategy="function", tenant=True)
    metadata.tables[NAME].dialect_options["postgresql"]["partition_by"] = "HASH (tenant_id)"
    project.migrate(metadata)
    project.execute(f"CREATE TABLE depot_0 PARTITION OF {NAME} FOR VALUES WITH (MODULUS 2, REMAINDER 0)")
    project.execute(f"CREATE TABLE depot_1 PARTITION OF {NAME} FOR VALUES WITH (MODULUS 2, REMAINDER 1)")
    add(project, metadata)

    assert sorted(said(project.migrate(metadata))) == ["op.drop_table('depot_0')", "op.drop_table('depot_1')"]
