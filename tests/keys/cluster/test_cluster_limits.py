"""Limits of cluster keys: the database refuses a key that would belong to another cluster, and says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, delete, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session
from support.cluster_models import hexes, migrate, models
from support.marks import SERVERS, on

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.keys import ClusterKey, Ranges, cluster_key, range_of

pytestmark = pytest.mark.backend

LAST = 2**48 - 1


# --- the database knows its cluster


@on(*SERVERS)
def test_figures_of_the_seed(depots: Callable[..., Any], session: Session) -> None:
    """If the cluster changes after two rows, the sequence continues, as in the original description."""
    Depot = depots(cluster=10, strategy="function")

    for cluster in (10, 20):
        session.execute(text(f"UPDATE cluster_config SET cluster = {cluster}"))
        session.add_all([Depot(name="Alice"), Depot(name="Bob")])
        session.flush()

    assert hexes(session, Depot) == ["a000000000001", "a000000000002", "14000000000003", "14000000000004"]
    if session.get_bind().dialect.name != "postgresql":
        assert session.scalar(text("SELECT count(*) FROM cluster_sequence_depot")) == 0  # it only counts


@on(*SERVERS)
def test_no_cluster(depots: Callable[..., Any], session: Session) -> None:
    """A database without a configured cluster generates no key and says why; inserting the row fixes it."""
    Depot = depots(strategy="function")

    session.add(Depot())
    mend = "INSERT INTO cluster_config (cluster) VALUES (10)"
    hint = f".*HINT: +{re.escape(mend)}" if session.get_bind().dialect.name == "postgresql" else ""
    with pytest.raises(DBAPIError, match=f"(?s)must have one row with a cluster from 0 to 32767{hint}"):
        session.flush()
    session.rollback()
    session.execute(text(mend))
    session.add(Depot())
    session.flush()

    assert hexes(session, Depot) == ["a000000000001"]


@on(*SERVERS)
@pytest.mark.parametrize("row", ["(2, 20)", "(1, 20)", "(1, -1)"])
def test_one_row_only(depots: Callable[..., Any], session: Session, row: str) -> None:
    """The configuration table rejects a second row, and an invalid cluster number."""
    depots(cluster=10 if "20" in row else None, strategy="function")

    with pytest.raises(DBAPIError):
        session.execute(text(f"INSERT INTO cluster_config (singleton, cluster) VALUES {row}"))


@on(*SERVERS)
def test_two_rows_all_the_same(depots: Callable[..., Any], session: Session) -> None:
    """If the configuration has two rows because its constraints were removed, no key is generated."""
    Depot = depots(cluster=10, strategy="function")
    session.execute(text("DROP TABLE cluster_config"))
    session.execute(text("CREATE TABLE cluster_config (cluster SMALLINT)"))
    session.execute(text("INSERT INTO cluster_config VALUES (10), (20)"))
    session.commit()

    session.add(Depot())
    with pytest.raises(DBAPIError, match=r"(?i)more than one row"):
        session.flush()


@on(*SERVERS)
def test_used_up(depots: Callable[..., Any], session: Session) -> None:
    """After the last key of a cluster, the next one is refused, so no key belongs to another cluster."""
    Depot = depots(cluster=10, strategy="function")
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"SELECT setval('cluster_sequence_depot', {LAST - 1})"))
    else:
        session.execute(text(f"ALTER TABLE cluster_sequence_depot AUTO_INCREMENT = {LAST}"))
    session.commit()

    session.add(Depot())
    session.commit()
    session.add(Depot())
    with pytest.raises(DBAPIError, match=r"used up|reached maximum value"):
        session.flush()
    session.rollback()

    assert hexes(session, Depot) == ["affffffffffff"]


@on(*SERVERS)
def test_keys_do_not_wait(engine: Engine, depots: Callable[..., Any]) -> None:
    """An open transaction does not block others, and keys that it rolled back are not generated again."""
    Depot = depots(cluster=10, strategy="function")
    with Session(engine) as one, Session(engine) as other:
        one.add(Depot())
        one.flush()
        other.add(Depot())
        other.commit()
        one.rollback()
        one.add(Depot())
        one.commit()

        assert hexes(one, Depot) == ["a000000000002", "a000000000003"]


@on("postgresql")
def test_nothing_is_left(engine: Engine) -> None:
    """Dropping the tables also drops their counters and the function."""
    metadata, *_ = models(cluster=10, strategy="function")
    metadata.create_all(engine)
    metadata.drop_all(engine)

    functions = "SELECT count(*) FROM pg_proc WHERE proname = 'this_cluster'"
    counters = "SELECT count(*) FROM pg_class WHERE relname LIKE 'cluster_sequence_depot%'"
    with engine.connect() as connection:
        assert (connection.scalar(text(functions)), connection.scalar(text(counters))) == (0, 0)


@on(*SERVERS)
def test_tables_without_the_configuration(engine: Engine) -> None:
    """If only some tables are created, the database names the missing one."""
    metadata, Depot, _ = models(cluster=10, strategy="function")

    with pytest.raises(DBAPIError, match=r"cluster_config\W* (does not|doesn't) exist"):
        metadata.create_all(engine, tables=[Depot.__table__])

    assert inspect(engine).get_table_names() == []


@on("sqlite")
def test_no_functions(engine: Engine) -> None:
    """SQLite has no functions, so the tables are refused with advice, and nothing is created."""
    metadata, *_ = models(cluster=10, strategy="function")

    with pytest.raises(ConfigurationError, match='use strategy="identity"'):
        metadata.create_all(engine)

    assert inspect(engine).get_table_names() == []


# --- a counter within a range


def at_the_end(session: Session, cluster: int = 10) -> None:
    """Set the counter so that the next key is the last one of *cluster*."""
    last = range_of(cluster).last
    name = session.get_bind().dialect.name
    session.execute(
        text(
            {
                "postgresql": f"SELECT setval(pg_get_serial_sequence('depot', 'id'), {last - 1})",
                "sqlite": f"UPDATE sqlite_sequence SET seq = {last - 1} WHERE name = 'depot'",
            }.get(name, f"ALTER TABLE depot AUTO_INCREMENT = {last}")
        )
    )
    session.commit()


def test_set_cluster_when_the_last_key_is_made(engine: Engine, depots: Callable[..., Any], session: Session) -> None:
    """After the largest possible key, ``set_cluster`` succeeds, but no further key is generated."""
    Depot = depots(cluster=32767)
    at_the_end(session, cluster=32767)
    session.add(Depot())
    session.commit()

    migrate(engine, "set_cluster", "depot", cluster=32767)
    if engine.name in {"postgresql", "sqlite"}:  # the others look at what is there when they are asked
        session.execute(delete(Depot))
        session.commit()
        migrate(engine, "set_cluster", "depot", cluster=32767)

    session.add(Depot())
    with pytest.raises(DBAPIError, match=r"maximum value|Duplicate entry|Out of range|is full"):
        session.flush()


def test_the_range_ends(depots: Callable[..., Any], session: Session) -> None:
    """After the last key of a guarded table, the next one is refused."""
    Depot = depots(cluster=10, enforce_range=True)
    at_the_end(session)

    session.add(Depot())
    session.commit()
    session.add(Depot())
    with pytest.raises(DBAPIError, match=r"outside of its range|reached maximum value"):
        session.flush()
    session.rollback()

    assert hexes(session, Depot) == ["affffffffffff"]


@on(*SERVERS)
def test_truncate(depots: Callable[..., Any], session: Session) -> None:
    """TRUNCATE resets AUTO_INCREMENT to 1, so a guarded table refuses the key; a sequence restarts in its range."""
    Depot = depots(cluster=10, enforce_range=True)
    session.execute(text("DROP TABLE depot_parcel"))  # a table that a foreign key refers to cannot be truncated
    postgresql = session.get_bind().dialect.name == "postgresql"
    session.execute(text(f"TRUNCATE depot{' RESTART IDENTITY' if postgresql else ''}"))
    session.commit()

    session.add(Depot())
    if postgresql:
        session.flush()
        assert hexes(session, Depot) == ["a000000000001"]
    else:
        with pytest.raises(DBAPIError, match="the key of depot is outside of its range, 2814749767106561 to"):
            session.flush()


@on("mysql", "mariadb")
def test_rows_that_are_brought_in(depots: Callable[..., Any], session: Session) -> None:
    """A guarded table accepts rows of other clusters only explicitly, and never generates such a key."""
    Depot = depots(cluster=10, enforce_range=True)
    foreign = insert(Depot).values(id=ClusterKey.of(20, 1), name="y")

    with pytest.raises(DBAPIError, match="outside of its range"):
        session.execute(foreign)
    session.rollback()
    session.execute(text("SET @any_cluster = 1"))
    session.execute(foreign)
    session.execute(text("SET @any_cluster = NULL"))
    session.commit()
    session.add(Depot())
    with pytest.raises(DBAPIError, match="outside of its range"):  # AUTO_INCREMENT continues from the largest key
        session.flush()


def test_ranges(depots: Callable[..., Any], session: Session) -> None:
    """A plain range of keys is enforced like that of a cluster."""
    shards = Ranges(shards={"eu": range(1, 1001), "us": range(1001, 2001)})
    Depot = depots(*(cluster_key(key_range=shards["us"], enforce_range=True) for _ in range(2)))

    session.add_all([Depot(), Depot()])
    session.flush()

    assert session.scalars(select(Depot.id).order_by(Depot.id)).all() == [1001, 1002]


def test_the_environment_tells(
    create: Callable[[MetaData], None], session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the declaration has no cluster, the environment variable is used when tables are created."""
    metadata, Depot, _ = models(*(cluster_key("table_a") for _ in range(2)))
    monkeypatch.setenv("PUBLIC_ID_CLUSTER", "20")

    create(metadata)
    session.add(Depot())
    session.flush()

    assert hexes(session, Depot) == ["14000000000001"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", "is not set"), ("ten", "is 'ten'"), ("32768", "is '32768'")],
    ids=["empty", "word", "large"],
)
def test_the_environment_does_not_tell(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, value: str, expected: str
) -> None:
    """If the variable is missing or invalid, nothing is created, and the error says what to do."""
    metadata, *_ = models(*(cluster_key("table_a") for _ in range(2)))
    monkeypatch.setenv("PUBLIC_ID_CLUSTER", value)

    with pytest.raises(ConfigurationError, match=f"PUBLIC_ID_CLUSTER {expected} in the environment: set it to"):
        metadata.create_all(engine)

    assert inspect(engine).get_table_names() == []


def test_a_function_is_called_with_the_ddl(engine: Engine) -> None:
    """A function that returns the cluster is called when tables are created, not when they are declared."""
    metadata, *_ = models(cluster=lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        metadata.create_all(engine)


@on(*SERVERS)
def test_the_database_says_another_one(depots: Callable[..., Any], engine: Engine, session: Session) -> None:
    """A table of another cluster than the database is refused by the primary key, and not created."""
    depots(cluster=10, strategy="function")
    later, *_ = models(cluster=20, strategy="function", table="shed")

    with pytest.raises(IntegrityError, match=r"SELECT 1, 20 WHERE NOT EXISTS"):
        later.create_all(engine)

    assert not inspect(engine).has_table("shed")


@on(*SERVERS)
def test_the_database_says_none(depots: Callable[..., Any], engine: Engine, session: Session) -> None:
    """If the configuration has no row, the first table with a cluster inserts it."""
    depots(strategy="function")
    later, Shed, _ = models(cluster=20, strategy="function", table="shed")
    try:
        later.create_all(engine)
        session.add(Shed())
        session.flush()

        assert hexes(session, Shed) == ["14000000000001"]
        session.rollback()
    finally:
        later.drop_all(engine, tables=[later.tables["shed_parcel"], later.tables["shed"]])


@on("mysql", "mariadb", "sqlite")
def test_what_is_refused_moves_nothing(depots: Callable[..., Any], session: Session) -> None:
    """A refused key does not change the counter."""
    Depot = depots(cluster=10, enforce_range=True)
    session.add(Depot())
    session.commit()

    for key in (ClusterKey.of(20, 1), ClusterKey.of(9, 1)):
        with pytest.raises(DBAPIError, match="outside of its range"):
            session.execute(insert(Depot).values(id=key, name="x"))
        session.rollback()
    session.add(Depot())
    session.commit()

    assert hexes(session, Depot) == ["a000000000001", "a000000000002"]
