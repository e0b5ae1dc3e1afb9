"""A region that begins with a dump of another one: after one step, no key is issued twice; without it, all say so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, create_engine, event, insert, make_url, select, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from support.applied_remedies import paste
from support.cluster_models import models
from support.marks import SERVERS, on

from sqlalchemy_public_id import ConfigurationError, audit
from sqlalchemy_public_id.keys import ClusterKey, Range, cluster_key

pytestmark = pytest.mark.backend

TOLD = "PUBLIC_ID_CLUSTER"


@pytest.fixture
def new_database(engine: Engine, tmp_path: Any) -> Iterator[Callable[[], Engine]]:
    """Yield a function that creates databases beside the one of the test, and returns an engine for each."""
    made: list[Engine] = []

    def make() -> Engine:
        url = engine.url.set(database=f"region_{os.getpid()}_{len(made)}")
        if engine.name == "sqlite":
            url = make_url(f"sqlite:///{tmp_path}/{len(made)}.db")
        else:
            _alone(engine, f"CREATE DATABASE {url.database}")
        made.append(create_engine(url, poolclass=NullPool))
        return made[-1]

    yield make
    for each in made:
        if engine.name != "sqlite":
            _alone(engine, f"DROP DATABASE {each.url.database}")


def _alone(engine: Engine, statement: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement))


def copy(source: Engine, target: Engine) -> None:
    """Restore a dump of *source* into *target*, with the programs of the database."""
    url = source.url
    at = ["-h", str(url.host), "-u" if source.name != "postgresql" else "-U", str(url.username)]
    secret = {**os.environ, "PGPASSWORD": str(url.password or ""), "MYSQL_PWD": str(url.password or "")}
    if source.name == "sqlite":
        with source.connect() as connection:
            connection.exec_driver_sql(f"VACUUM INTO '{target.url.database}.copy'")
        Path(f"{target.url.database}.copy").replace(str(target.url.database))
        return
    if source.name == "postgresql":
        port = ["-p", str(url.port or 5432)]
        dump, restore = ["pg_dump", *at, *port, str(url.database)], ["psql", *at, *port, "-q", str(target.url.database)]
    else:
        port = ["-P", str(url.port or 3306)]
        dump = ["mariadb-dump", "--protocol=tcp", *at, *port, "--triggers", "--skip-comments", str(url.database)]
        restore = ["mariadb", "--protocol=tcp", *at, *port, str(target.url.database)]
    dumped = subprocess.run(dump, capture_output=True, env=secret, check=True).stdout
    done = subprocess.run(restore, input=dumped, capture_output=True, env=secret, check=False)
    assert not done.returncode, done.stderr


def write(engine: Engine, model: Any, count: int) -> set[int]:
    """Insert rows as a program that has just started, and return all keys."""
    fresh = create_engine(engine.url, poolclass=NullPool)
    with Session(fresh) as session:
        session.add_all([model(name=str(number)) for number in range(count)])
        session.commit()
        return set(session.scalars(select(model.id)))


def differences(engine: Engine, metadata: Any, **options: Any) -> list[Any]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"target_metadata": metadata, **options})
        found = produce_migrations(context, metadata).upgrade_ops
        return [] if found is None else [op for op in found.ops if "cluster" in type(op).__name__.lower()]


def upgrade(engine: Engine, found: list[Any]) -> None:
    with engine.begin() as connection:
        operations = Operations(MigrationContext.configure(connection))
        for op in found:
            operations.invoke(op)


WAYS = pytest.mark.parametrize(
    ("database", "options"),
    [
        *((name, options) for name in SERVERS for options in ({}, {"strategy": "function"})),
        *((name, {"enforce_range": True}) for name in ("mysql", "mariadb", "sqlite")),
        ("sqlite", {}),
    ],
    indirect=["database"],
)


@WAYS
def test_a_region_from_a_dump(
    new_database: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Both regions write after the step, and a merge finds no key in both."""
    first, second = new_database(), new_database()
    metadata, Depot, _ = models(**options)
    monkeypatch.setenv(TOLD, "10")
    metadata.create_all(first)
    if options.get("strategy") == "function":
        _alone(first, "INSERT INTO cluster_config (cluster) VALUES (10)")
    before = write(first, Depot, 20)
    copy(first, second)

    monkeypatch.setenv(TOLD, "20")
    found = differences(second, metadata)
    upgrade(second, found)

    assert found
    assert differences(second, metadata) == []
    assert audit.run(second, models=metadata).findings == []
    metadata.create_all(second)
    new = write(second, Depot, 30) - before
    monkeypatch.setenv(TOLD, "10")
    assert differences(first, metadata) == []
    others = write(first, Depot, 30) - before
    assert (len(new), len(others), new & others) == (30, 30, set())
    assert {ClusterKey(key).cluster for key in new} == {20}
    if first.name == "postgresql" or options.get("strategy") == "function":
        with second.begin() as connection:  # the merge
            connection.execute(insert(Depot.__table__), [{"id": key, "name": "merged"} for key in others])
        monkeypatch.setenv(TOLD, "20")
        assert len(write(second, Depot, 1)) == 81


@WAYS
def test_the_step_is_forgotten(
    new_database: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Autogenerate, the audit, ``create_all()`` and the first INSERT of a program each say that it counts for 10."""
    first, second = new_database(), new_database()
    metadata, Depot, _ = models(**options)
    monkeypatch.setenv(TOLD, "10")
    metadata.create_all(first)
    if options.get("strategy") == "function":
        _alone(first, "INSERT INTO cluster_config (cluster) VALUES (10)")
    write(first, Depot, 2)
    copy(first, second)
    monkeypatch.setenv(TOLD, "20")

    assert len(differences(second, metadata)) == (1 if options.get("strategy") == "function" else 2)
    for told in ({"clusters": {"depot": 20}}, {"models": metadata}):
        [finding] = audit.run(second, tables=["depot"], **told).findings
        assert (finding.problem, finding.severity) == ("key-counter-outside", "error")
        assert "cluster 20" in finding.message
    with pytest.raises(ConfigurationError, match="should be those of PUBLIC_ID_CLUSTER, 20: a copy of a database"):
        metadata.create_all(second)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="should be those of PUBLIC_ID_CLUSTER, 20: a copy of a database"):
            write(second, Depot, 1)
    with second.connect() as connection, pytest.raises(ConfigurationError, match="a copy of a database"):
        connection.execute(insert(Depot.__table__), [{"name": "a"}, {"name": "b"}])


def test_where_nothing_is_known(
    new_database: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """A program without a number, one whose number is a function, and rows with a key of their own are not refused."""
    engine = new_database()
    metadata, *_ = models(cluster=10)
    metadata.create_all(engine)
    monkeypatch.delenv(TOLD, raising=False)

    for key in ({}, {"cluster": lambda: 20}):
        assert len(write(engine, models(**key)[1], 1)) > 0
    Depot = models(cluster=20)[1]
    with Session(create_engine(engine.url, poolclass=NullPool)) as session:
        session.add(Depot(id=ClusterKey.of(5, 1)))
        session.commit()
        assert session.get(Depot, ClusterKey.of(5, 1)) is not None


@WAYS
def test_a_restored_backup(
    new_database: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """A restored backup counts on where it was: keys of lost rows are issued again, unless the counter is raised."""
    first, restored, raised = (new_database() for _ in range(3))
    metadata, Depot, _ = models(**options)
    monkeypatch.setenv(TOLD, "10")
    metadata.create_all(first)
    if options.get("strategy") == "function":
        _alone(first, "INSERT INTO cluster_config (cluster) VALUES (10)")
    before = write(first, Depot, 5)
    copy(first, restored)
    copy(first, raised)
    lost = write(first, Depot, 5) - before
    with raised.begin() as connection:  # a row above all keys that were issued, and the audit's statement
        largest = ClusterKey.of(10, 500)
        connection.execute(insert(Depot.__table__), {"id": largest, "name": "the largest key that was issued"})
    for finding in audit.run(raised, models=metadata).findings:
        paste(raised, finding.remedy)

    assert write(restored, Depot, 5) - before == lost
    assert not lost & write(raised, Depot, 5)
    for engine in (restored, raised):
        assert audit.run(engine, models=metadata).findings == []


@on(*SERVERS, "sqlite")
def test_a_range_from_a_dump(new_database: Callable[[], Engine]) -> None:
    """A copy that gets another range generates keys of it, which a merge finds in no other database."""
    first, second = new_database(), new_database()
    own, other = (models(*(cluster_key(key_range=Range(at, at + 1000)) for _ in range(2))) for at in (1, 1001))
    own[0].create_all(first)
    before = write(first, own[1], 5)
    copy(first, second)
    found = differences(second, other[0])
    with pytest.raises(ConfigurationError, match="there are keys outside of the range 1001 to 2000"):
        upgrade(second, found)
    for op in found:
        op.keep_outside = True  # the rows of the copy keep their keys, which the new range does not contain
    upgrade(second, found)

    new, others = write(second, other[1], 5) - before, write(first, own[1], 5) - before

    assert min(new) == 1001
    assert (len(new), len(others), new & others) == (5, 5, set())


def test_another_range(new_database: Callable[[], Engine]) -> None:
    """A range of keys is compared like a cluster."""
    engine = new_database()
    models(*(cluster_key(key_range=Range(1, 1001)) for _ in range(2)))[0].create_all(engine)
    Depot = models(*(cluster_key(key_range=Range(1001, 2001)) for _ in range(2)))[1]

    with pytest.raises(ConfigurationError, match="its key_range, 1001 to 2000"):
        write(engine, Depot, 1)


def test_one_comparison_for_each_engine(new_database: Callable[[], Engine]) -> None:
    """The counter is read before the first INSERT of an engine, and never again."""
    engine = new_database()
    metadata, Depot, _ = models(cluster=10)
    metadata.create_all(engine)
    fresh = create_engine(engine.url, poolclass=NullPool)
    sent: list[str] = []
    event.listen(fresh, "before_cursor_execute", lambda *args: sent.append(args[2]))
    counts = []
    for _ in range(3):
        sent.clear()
        with Session(fresh) as session:
            session.add(Depot())
            session.commit()
        with fresh.begin() as connection:
            connection.execute(insert(Depot.__table__), [{"name": "a"}, {"name": "b"}])
        counts.append(len([each for each in sent if not each.startswith("INSERT")]))

    assert counts[0] > 0
    assert counts[1:] == [0, 0]


@on(*SERVERS)
def test_schemas_of_tenants(engine: Engine, new_schema: Callable[[], str]) -> None:
    """With ``schema_translate_map``, the counter of each schema is compared before the first INSERT into it."""
    right, wrong = ({None: new_schema()} for _ in range(2))
    Depot = models(cluster=10)[1]
    for tenant, cluster in ((right, 10), (wrong, 20)):
        models(cluster=cluster)[0].create_all(engine.execution_options(schema_translate_map=tenant))
    fresh = create_engine(engine.url, poolclass=NullPool)

    for tenant in (right, wrong, right, wrong):
        with Session(fresh.execution_options(schema_translate_map=tenant)) as session:
            session.add(Depot())
            with nullcontext() if tenant is right else pytest.raises(ConfigurationError, match="a copy of a database"):
                session.flush()


@on("postgresql")
def test_a_function_of_an_earlier_version(new_database: Callable[[], Engine]) -> None:
    """Autogenerate replaces a function that names its table without a schema; a downgrade keeps the table."""
    engine = new_database()
    metadata, Depot, _ = models(cluster=10, strategy="function")
    metadata.create_all(engine)
    _alone(
        engine,
        "CREATE OR REPLACE FUNCTION this_cluster() RETURNS bigint LANGUAGE sql STABLE "
        "AS 'SELECT cluster::bigint FROM cluster_config'",
    )

    [op] = differences(engine, metadata)
    upgrade(engine, [op])

    assert op.name == "create_cluster_config"
    assert op.reverse().name == "create_cluster_config"
    assert differences(engine, metadata) == []
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL search_path = ''"))
        connection.execute(text("INSERT INTO public.depot (name) VALUES ('x')"))
    assert {ClusterKey(key).cluster for key in write(engine, Depot, 1)} == {10}
