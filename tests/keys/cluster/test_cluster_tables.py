"""Tables with cluster keys beside each other: names that meet, other schemas, a database that disagrees."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, MetaData, delete, insert, inspect, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.depots import hexes, models
from support.marks import on

import sqlalchemy_public_id.alembic as _operations  # noqa: F401  # they are registered
from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.keys import ClusterKey, cluster_key

pytestmark = pytest.mark.backend

SERVERS = ("postgresql", "mysql", "mariadb")
SCHEMA = f"cluster_attic_{os.getpid()}"  # on MySQL and MariaDB it is one of the whole server


@pytest.fixture
def translated(engine: Engine) -> Iterator[Engine]:
    """An engine for which the tables of no schema stand in one."""
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
    try:
        yield engine.execution_options(schema_translate_map={None: SCHEMA})
    finally:
        with engine.begin() as connection:
            cascade = " CASCADE" if engine.name == "postgresql" else ""
            connection.execute(text(f"DROP SCHEMA {SCHEMA}{cascade}"))


def migrate(engine: Engine, name: str, *args: Any, **options: Any) -> None:
    with engine.begin() as connection:
        getattr(Operations(MigrationContext.configure(connection)), name)(*args, **options)


# --- the cluster that nobody has declared


def test_the_environment_tells(
    create: Callable[[MetaData], None], session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the declaration says no cluster, the environment does, when tables are created."""
    metadata, Depot, _ = models(*(cluster_key("table_a") for _ in range(2)))
    monkeypatch.setenv("PUBLIC_ID_CLUSTER", "20")

    create(metadata)
    session.add(Depot())
    session.flush()

    assert hexes(session, Depot) == ["14000000000001"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "is not set"), ("", "is not set"), ("ten", "is 'ten'"), ("32768", "is '32768'")],
    ids=["unset", "empty", "word", "large"],
)
def test_the_environment_does_not_tell(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, value: str | None, expected: str
) -> None:
    """Where it does not, nothing is created, and the error says what to do."""
    metadata, *_ = models(*(cluster_key("table_a") for _ in range(2)))
    monkeypatch.delenv("PUBLIC_ID_CLUSTER", raising=False)
    if value is not None:
        monkeypatch.setenv("PUBLIC_ID_CLUSTER", value)

    with pytest.raises(ConfigurationError, match=f"PUBLIC_ID_CLUSTER {expected} in the environment: set it to"):
        metadata.create_all(engine)

    assert inspect(engine).get_table_names() == []


# --- the cluster that the database knows


@on(*SERVERS)
def test_the_database_says_another_one(create: Callable[[MetaData], None], engine: Engine, session: Session) -> None:
    """A table of another cluster than that of the database is refused by the primary key, and not created."""
    metadata, *_ = models(cluster=10, strategy="function")
    create(metadata)
    later, *_ = models(cluster=20, strategy="function", table="shed")

    with pytest.raises(IntegrityError, match=r"SELECT 1, 20 WHERE NOT EXISTS"):
        later.create_all(engine)

    assert not inspect(engine).has_table("shed")


@on(*SERVERS)
def test_the_database_says_none(create: Callable[[MetaData], None], engine: Engine, session: Session) -> None:
    """Beside a configuration without a row, the first table with a cluster writes it."""
    metadata, *_ = models(strategy="function")
    create(metadata)
    later, Shed, _ = models(cluster=20, strategy="function", table="shed")
    try:
        later.create_all(engine)
        session.add(Shed())
        session.flush()

        assert hexes(session, Shed) == ["14000000000001"]
        session.rollback()
    finally:
        later.drop_all(engine, tables=[later.tables["shed_parcel"], later.tables["shed"]])


@on(*SERVERS)
def test_tables_without_the_configuration(engine: Engine) -> None:
    """Whoever creates some tables only is told by the database which one is missing."""
    metadata, Depot, _ = models(cluster=10, strategy="function")

    with pytest.raises(DBAPIError, match=r"cluster_config\W* (does not|doesn't) exist"):
        metadata.create_all(engine, tables=[Depot.__table__])

    assert inspect(engine).get_table_names() == []


@on(*SERVERS)
def test_a_naming_convention(create: Callable[[MetaData], None], session: Session) -> None:
    """A convention that asks each constraint for its name is none for the table with the cluster."""

    class Base(DeclarativeBase):
        metadata = MetaData(naming_convention={"ck": "ck_%(table_name)s_%(constraint_name)s"})

    class Depot(Base):
        __tablename__ = "depot"
        id: Mapped[int] = cluster_key(cluster=10, strategy="function")

    create(Base.metadata)
    session.add(Depot())
    session.flush()

    assert hexes(session, Depot) == ["a000000000001"]


# --- names


def name_sakes(**options: Any) -> Any:
    """Two models whose table and column, written behind each other, are the same."""

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
    """Each of them makes cluster keys."""
    metadata, User, Role = name_sakes(cluster=10, strategy="function")
    create(metadata)

    user, role = User(), Role()
    session.add_all([user, role])
    session.flush()

    assert [user.role_id, role.id] == [ClusterKey.of(10, 1)] * 2


@on("mysql", "mariadb", "sqlite")
def test_namesakes_that_are_guarded(create: Callable[[MetaData], None], session: Session) -> None:
    """Each of them refuses keys of others."""
    metadata, User, Role = name_sakes(cluster=10, enforce_range=True)
    create(metadata)

    for statement in (insert(User).values(role_id=1), insert(Role).values(id=1)):
        with pytest.raises(DBAPIError, match="outside of its range"):
            session.execute(statement)
        session.rollback()


# --- schemas that are translated


@on(*SERVERS)
def test_translated_by_function(engine: Engine, translated: Engine) -> None:
    """The configuration, the counters and what makes keys stand where the tables do, and go with them."""
    metadata, Depot, _ = models(cluster=10, strategy="function")

    metadata.create_all(translated)
    with Session(translated) as session:
        session.add(Depot())
        session.flush()
        found = hexes(session, Depot)
    there = inspect(engine).get_table_names()
    metadata.drop_all(translated)

    assert (found, there) == (["a000000000001"], [])
    assert inspect(engine).get_table_names(schema=SCHEMA) == []


@on("mysql", "mariadb")
def test_translated_guards(translated: Engine) -> None:
    """Triggers stand there, too."""
    metadata, Depot, _ = models(cluster=10, enforce_range=True)
    metadata.create_all(translated)

    with Session(translated) as session, pytest.raises(DBAPIError, match="outside of its range"):
        session.execute(insert(Depot).values(id=1, name="x"))


# --- a counter within a range


@on("mysql", "mariadb", "sqlite")
def test_what_is_refused_moves_nothing(create: Callable[[MetaData], None], session: Session) -> None:
    """After a key that was refused, the table counts on as if it had not been there."""
    metadata, Depot, _ = models(cluster=10, enforce_range=True)
    create(metadata)
    session.add(Depot())
    session.commit()

    for key in (ClusterKey.of(20, 1), ClusterKey.of(9, 1)):
        with pytest.raises(DBAPIError, match="outside of its range"):
            session.execute(insert(Depot).values(id=key, name="x"))
        session.rollback()
    session.add(Depot())
    session.commit()

    assert hexes(session, Depot) == ["a000000000001", "a000000000002"]


@on("postgresql")
def test_set_cluster_where_a_function_makes_keys(
    engine: Engine, create: Callable[[MetaData], None], session: Session
) -> None:
    """The counter of a function is left alone: there is another operation to be done before."""
    metadata, Depot, _ = models(cluster=10, strategy="function")
    create(metadata)

    for name, options in (("set_cluster", {"cluster": 10}), ("unset_cluster", {})):
        with pytest.raises((DBAPIError, ConfigurationError), match=r"run op\.drop_cluster_sequence\(\) first"):
            migrate(engine, name, "depot", **options)
    session.add(Depot())
    session.flush()

    assert hexes(session, Depot) == ["a000000000001"]


@on("postgresql")
def test_set_cluster_when_the_last_key_is_made(
    engine: Engine, create: Callable[[MetaData], None], session: Session
) -> None:
    """The last cluster of all ends at the largest number there is; to set it again is no error, and makes no key."""
    metadata, Depot, _ = models(cluster=32767)
    create(metadata)
    session.execute(text(f"SELECT setval('depot_id_seq', {2**63 - 2})"))
    session.add(Depot())
    session.commit()

    migrate(engine, "set_cluster", "depot", cluster=32767)
    session.execute(delete(Depot))
    session.commit()
    migrate(engine, "set_cluster", "depot", cluster=32767)

    session.add(Depot())
    with pytest.raises(DBAPIError, match="reached maximum value"):
        session.flush()
    session.rollback()


@on("postgresql")
def test_serial(engine: Engine) -> None:
    """A key that was serial makes cluster keys behind those that are there, and counts by itself again afterwards."""
    statement = text("INSERT INTO shed DEFAULT VALUES RETURNING id")
    made: list[int] = []

    def add() -> None:
        with engine.begin() as connection:
            made.append(connection.scalars(statement).one())

    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE shed (id bigserial PRIMARY KEY)"))
    try:
        add()
        migrate(engine, "create_cluster_config", cluster=10)
        for _ in range(2):
            migrate(engine, "create_cluster_sequence", "shed")
        add()
        migrate(engine, "drop_cluster_sequence", "shed")
        add()
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE shed"))
            connection.execute(text("DROP SEQUENCE IF EXISTS shed_id_seq"))
        migrate(engine, "drop_cluster_config")

    assert made == [1, ClusterKey.of(10, 2), ClusterKey.of(10, 3)]
