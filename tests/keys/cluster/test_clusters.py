"""Cluster keys on every database: generated within their range, and set on the objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, event, func, insert, inspect, select, text
from sqlalchemy.dialects.mssql.base import MSDialect
from sqlalchemy.dialects.oracle.base import OracleDialect
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.async_sessions import session_on
from support.cluster_models import hexes, models
from support.marks import SERVERS, on
from support.servers import ASYNC_DRIVERS

from sqlalchemy_public_id import ConfigurationError, PublicIdColumnMixin, bulk, lookup
from sqlalchemy_public_id.alembic import CreateClusterConfigOp
from sqlalchemy_public_id.keys import ClusterKey, cluster_key, cluster_of, hex_of, in_cluster, sequence_of
from sqlalchemy_public_id.keys.cluster.catalog import read_upcoming
from sqlalchemy_public_id.keys.cluster.ddl import ClusterColumn

LAST = 2**48 - 1
WAYS = ["identity", "function"]
WAYS_OF = {"sqlite": ["identity"]} | dict.fromkeys(SERVERS, WAYS)
"""SQLite has no functions: see test_no_functions."""


both_ways = pytest.mark.parametrize(
    ("database", "way"), [(name, way) for name, ways in WAYS_OF.items() for way in ways], indirect=["database"]
)


@both_ways
def test_objects_and_rows_agree(create: Callable[[MetaData], None], session: Session, way: str) -> None:
    """In a flush of many rows each object has the key of its own row; a Core ``executemany`` generates keys, too."""
    metadata, Depot, Parcel = models(cluster=10, strategy=way)
    create(metadata)
    depots = [Depot(name=f"number {number}") for number in range(50)]

    session.add_all(depots)
    session.flush()
    session.add(Parcel(depot_id=depots[1].id))
    session.flush()
    assert hexes(session, Parcel) == ["a000000000001"]

    stored = session.execute(select(Depot.id, Depot.name)).all()
    assert {(depot.id, depot.name) for depot in depots} == {tuple(row) for row in stored}
    session.execute(insert(Depot.__table__), [{"name": str(number)} for number in range(10)])
    keys = session.scalars(select(Depot.id))
    assert {ClusterKey.split(key) for key in keys} == {(10, number) for number in range(1, 61)}


@both_ways
def test_beside_a_public_id(create: Callable[[MetaData], None], session: Session, way: Any) -> None:
    """A model may have a cluster key and a public id, and bulk inserts and lookups support both."""

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
def test_given_keys(depots: Callable[..., Any], session: Session, way: str) -> None:
    """A given key of another cluster is stored unchanged."""
    Depot = depots(cluster=20, strategy=way)

    session.add(Depot(id=ClusterKey.of(10, 5)))
    session.add(Depot())
    session.flush()

    assert hexes(session, Depot) == ["a000000000005", "14000000000001"]


@both_ways
def test_copies(create: Callable[[MetaData], None], session: Session, way: str) -> None:
    """Tables copied to another MetaData generate cluster keys, too."""
    metadata, *_ = models(cluster=10, strategy=way)
    copied = MetaData()
    for table in metadata.sorted_tables:
        table.to_metadata(copied)
    create(copied)
    depot = copied.tables["depot"]

    session.execute(insert(depot).values(name="x"))

    assert session.scalars(select(depot.c.id)).all() == [ClusterKey.of(10, 1)]


@on(*SERVERS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_translated", [False, True], ids=["declared", "translated"])
def test_schemas(engine: Engine, new_schema: Callable[[], str], way: Any, is_translated: bool) -> None:
    """Everything that the keys need is created in the declared or translated schema, and dropped with the table."""
    schema, options = new_schema(), {"enforce_range": True} if way == "identity" else {}
    metadata, Depot, _ = models(schema=None if is_translated else schema, cluster=10, strategy=way, **options)
    there = engine.execution_options(schema_translate_map={None: schema}) if is_translated else engine
    metadata.create_all(there)
    with Session(there) as session:
        session.add(Depot())
        session.flush()
        assert hexes(session, Depot) == ["a000000000001"]
        if options and engine.name != "postgresql":
            with pytest.raises(DBAPIError, match="outside of its range"):
                session.execute(insert(Depot).values(id=1, name="x"))
    assert inspect(engine).get_table_names() == []
    metadata.drop_all(there)
    assert inspect(engine).get_table_names(schema=schema) == []


@on("sqlite")
def test_counter_of_a_table_in_another_case(engine: Engine) -> None:
    """SQLite stores the counter under the name with which the table was created, and knows it in any case."""
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE Depot (id INTEGER PRIMARY KEY AUTOINCREMENT)",
            "INSERT INTO depot VALUES (7)",
            "DELETE FROM depot",
        ):
            connection.exec_driver_sql(statement)

        assert read_upcoming(connection, "depot", None, "id") == (8, 8)
        connection.exec_driver_sql("DROP TABLE depot")


TEXT = "'it''s \\\\) AUTO_INCREMENT=77'"
"""A text with a quote and a backslash, as SQL writes it."""
PLACES_OF_A_TEXT = {
    "the comment of the table": ("id bigint {} PRIMARY KEY", f"COMMENT={TEXT}"),
    "the comment of the key": (f"id bigint {{}} PRIMARY KEY COMMENT {TEXT}", ""),
    "the comment of another column": (f"id bigint {{}} PRIMARY KEY, name int COMMENT {TEXT}", ""),
    "the comment of an index": (f"id bigint {{}} PRIMARY KEY, name int, KEY a_name (name) COMMENT {TEXT}", ""),
    "the comment of a partition": (
        "id bigint {} PRIMARY KEY",
        f"PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN MAXVALUE COMMENT = {TEXT})",
    ),
    "a value of a partition": (
        "id bigint {}, name varchar(40), PRIMARY KEY (id, name)",
        f"PARTITION BY LIST COLUMNS (name) (PARTITION p VALUES IN ({TEXT}))",
    ),
    "a default": (f"id bigint {{}} PRIMARY KEY, name varchar(40) DEFAULT {TEXT}", ""),
    "a condition": (f"id bigint {{}} PRIMARY KEY, name varchar(40), CHECK (name <> {TEXT})", ""),
    "an expression": (f"id bigint {{}} PRIMARY KEY, name varchar(40) AS ({TEXT})", ""),
}


@on("mysql", "mariadb")
@pytest.mark.parametrize("place", PLACES_OF_A_TEXT)
def test_text_like_a_counter(engine: Engine, place: str) -> None:
    """A text that mentions AUTO_INCREMENT is not taken for the counter of an unused table, nor of one without any."""
    columns, options = PLACES_OF_A_TEXT[place]
    with engine.connect() as connection:
        for counts, keys in (("AUTO_INCREMENT", (1, 1)), ("", None)):
            connection.exec_driver_sql(f"CREATE TABLE `depot's` ({columns.format(counts)}) {options}")
            found = read_upcoming(connection, "depot's", None, "id")
            connection.exec_driver_sql("DROP TABLE `depot's`")
            assert found == keys


@on("postgresql")
def test_clusters_of_two_schemas(engine: Engine, new_schema: Callable[[], str]) -> None:
    """Autogenerate gives the config of each schema the number of the models in this schema."""
    clusters = {new_schema(): 10, new_schema(): 20}
    metadata = MetaData()
    for schema, cluster in clusters.items():
        declared, *_ = models(schema=schema, cluster=cluster, strategy="function")
        for table in declared.sorted_tables:
            table.to_metadata(metadata)

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_schemas": True})
        found: Any = produce_migrations(context, metadata).upgrade_ops

    assert {op.schema: op.cluster for op in found.ops if isinstance(op, CreateClusterConfigOp)} == clusters


@on("postgresql")
@pytest.mark.parametrize("path", ["''", "pg_temp", "{schema}, public"])
def test_search_path(
    engine: Engine, new_schema: Callable[[], str], create: Callable[[MetaData], None], path: str
) -> None:
    """A DEFAULT finds the table with the cluster under any search path, such as one with the table of a tenant."""
    schema = new_schema()
    metadata, *_ = models(cluster=10, strategy="function")
    create(metadata)
    with engine.begin() as connection:
        for statement in (
            f"CREATE TABLE {schema}.cluster_config (singleton smallint, cluster smallint)",
            f"INSERT INTO {schema}.cluster_config VALUES (1, 20)",
            f"SET LOCAL search_path = {path.format(schema=schema)}",
            "INSERT INTO public.depot (name) VALUES ('x')",
        ):
            connection.execute(text(statement))
        key = connection.scalar(text("SELECT id FROM public.depot"))
        assert ClusterKey(key).cluster == 10


@pytest.mark.parametrize(
    ("async_engine", "way"),
    [pytest.param(pair, way, id="-".join([*pair, way])) for pair in ASYNC_DRIVERS for way in WAYS_OF[pair[0]]],
    indirect=["async_engine"],
)
def test_asynchronous_drivers(async_engine: AsyncEngine, way: str) -> None:
    """Tables and keys are the same with an asynchronous driver."""
    metadata, Depot, _ = models(cluster=10, strategy=way)

    async def work() -> str:
        async with session_on(async_engine, metadata) as session:
            depot = Depot()
            session.add(depot)
            await session.commit()
            await session.refresh(depot)
            return ClusterKey(depot.id).hex

    assert asyncio.run(work()) == "a000000000001"


def name_sakes(**options: Any) -> Any:
    """Return two models whose concatenated table and column names are equal."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class User(Base):
        __tablename__ = "user"
        role_id: Mapped[int] = cluster_key(**options)
        name: Mapped[int | None] = mapped_column()

    class Role(Base):
        __tablename__ = "user_role"
        id: Mapped[int] = cluster_key(**options)

    return Base.metadata, User, Role


@on(*SERVERS)
def test_namesakes_by_function(create: Callable[[MetaData], None], session: Session) -> None:
    """Two models whose concatenated names are equal both generate cluster keys."""
    metadata, User, Role = name_sakes(cluster=10, strategy="function")
    create(metadata)

    user, role = User(), Role()
    session.add_all([user, role])
    session.flush()

    assert [user.role_id, role.id] == [ClusterKey.of(10, 1)] * 2


@on("mysql", "mariadb", "sqlite")
def test_namesakes_that_are_guarded(create: Callable[[MetaData], None], session: Session) -> None:
    """Two models whose concatenated names are equal both refuse keys outside of their range."""
    metadata, User, Role = name_sakes(cluster=10, enforce_range=True)
    create(metadata)

    for statement in (insert(User).values(role_id=1), insert(Role).values(id=1)):
        with pytest.raises(DBAPIError, match="outside of its range"):
            session.execute(statement)
        session.rollback()


# --- queries


@pytest.fixture
def stored(depots: Callable[..., Any], session: Session) -> Any:
    """Return a model with rows of the clusters 10 and 20, the first key of cluster 0, and the last of cluster 32767."""
    Depot = depots(cluster=30)
    keys = [ClusterKey.of(10, number) for number in (1, 2, LAST)]
    keys += [ClusterKey.of(20, number) for number in (1, 3)]
    session.execute(insert(Depot), [{"id": key} for key in (ClusterKey.of(0, 1), *keys, ClusterKey.of(32767, LAST))])
    session.commit()
    return Depot


@pytest.mark.backend
def test_filter(stored: Any, session: Session) -> None:
    """``in_cluster()`` selects the keys of one or several clusters, including the first and the last key."""
    one = select(hex_of(stored.id)).where(in_cluster(stored.id, 10)).order_by(stored.id)
    two = select(func.count()).where(in_cluster(stored.id, 0, 32767))

    assert session.scalars(one).all() == ["a000000000001", "a000000000002", "affffffffffff"]
    assert session.scalar(two) == 2


@pytest.mark.backend
def test_parts_of_keys(stored: Any, session: Session) -> None:
    """SQL expressions split each key like ``ClusterKey`` does, also in GROUP BY and ORDER BY."""
    cluster, sequence = cluster_of(stored.id), sequence_of(stored.id)
    rows = session.execute(select(stored.id, cluster, sequence, hex_of(stored.id))).all()
    grouped = session.execute(select(cluster, func.count(), func.max(sequence)).group_by(cluster).order_by(cluster))

    keys = [ClusterKey(row[0]) for row in rows]
    assert [tuple(row) for row in rows] == [(key, key.cluster, key.sequence, key.hex) for key in keys]
    assert [tuple(row) for row in grouped] == [(0, 1, 1), (10, 3, LAST), (20, 2, 3), (32767, 1, LAST)]


@pytest.mark.backend
def test_an_index_serves_the_filter(engine: Engine, stored: Any, session: Session) -> None:
    """A filter by cluster uses a range scan of the primary key."""
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


@pytest.mark.parametrize("name", ["oracle", "mssql", "redshift"])
def test_unknown_counters(name: str) -> None:
    """A database whose counters are unknown is refused, also one that derives from PostgreSQL's dialect."""

    class Derived(PGDialect):
        pass

    Derived.name = name
    dialects: dict[str, Any] = {"oracle": OracleDialect, "mssql": MSDialect, "redshift": Derived}
    with pytest.raises(ConfigurationError, match=f"cluster keys do not support {name}; expected PostgreSQL"):
        ClusterColumn(dialects[name](), "parcel", "id")
