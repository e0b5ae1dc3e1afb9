"""PostgreSQL: what another role has put into a schema of the search path is never called by a statement of the library.

Each function of this module runs in a database where a role has overloaded all operators and functions that it can
(:mod:`support.overloads`). SQLAlchemy itself compares names with VARCHAR when it reflects a table, and so does every
ORM query whose column is a VARCHAR: ``pg_catalog`` has no operator of these types. Only those may be called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, ForeignKey, MetaData, String, create_engine, func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from support import servers
from support.marks import on
from support.overloads import Calls, overloaded_database
from support.people import People, send

from sqlalchemy_public_id import (
    NanoId,
    ObjectId,
    PublicIdMixin,
    Uuid7,
    audit,
    backfill,
    bulk,
    idempotency,
    lookup,
    public_ref,
)
from sqlalchemy_public_id.alembic import (
    create_cluster_config,
    create_cluster_sequence,
    drop_cluster_config,
    drop_cluster_sequence,
    set_cluster,
    unset_cluster,
)
from sqlalchemy_public_id.errors import DryRun
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.keys import BlockAllocator, ClusterKey, cluster_key
from sqlalchemy_public_id.keys.cluster import cluster_of, hex_of, in_cluster, sequence_of

pytestmark = [pytest.mark.backend, pytest.mark.slow]

COMPARED_IDS = "character varying = character varying"


class Base(DeclarativeBase): ...


class Owner(PublicIdMixin, Base):
    __tablename__ = "owner"
    name: Mapped[str] = mapped_column(String(50))


class Pet(PublicIdMixin, Base):
    __tablename__ = "pet"
    name: Mapped[str] = mapped_column(String(50), server_default="x")
    owner_id: Mapped[int | None] = mapped_column(ForeignKey("owner.id"))
    owner: Mapped[Owner | None] = relationship()
    owner_public_id: Mapped[str | None] = public_ref("owner")


class Numbered(PublicIdMixin, Base):
    __tablename__ = "numbered"
    __public_id__ = Uuid7()


class Clusters(DeclarativeBase): ...


class Parcel(Clusters):
    __tablename__ = "parcel"
    id: Mapped[int] = cluster_key(cluster=10, strategy="function")
    name: Mapped[str] = mapped_column(String(50))


class Letter(Clusters):
    __tablename__ = "letter"
    id: Mapped[int] = cluster_key(cluster=10)
    name: Mapped[str] = mapped_column(String(50))


@pytest.fixture(scope="module")
def world(own_database: None) -> Iterator[tuple[Engine, Calls]]:
    """An engine for the database with the overloads, and the calls of them."""
    if "postgresql" not in servers.servers():
        pytest.skip("no postgresql was found: run tools/databases up")
    with overloaded_database(servers.servers()["postgresql"].url, f"public_id_roles_{os.getpid()}") as url:
        engine = create_engine(url)
        yield engine, Calls(engine)
        engine.dispose()


TRIGGERS = [
    "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TRIGGER noted BEFORE UPDATE OR INSERT ON {} FOR EACH ROW EXECUTE FUNCTION noted()",
]


def migrate(engine: Engine, format: Format, **options: Any) -> None:
    """Run every operation on a table with triggers, other columns, a duplicate and an invalid id."""
    people = People(engine, format=format, update_triggers="fire", **options)
    people.create(150)
    for statement in TRIGGERS:
        people.execute(statement.format("person"))
    try:
        with suppress(DryRun):
            people.run("add_public_id", dry_run=True)
        people.run("expand_public_id")
        people.write(3)
        people.run("backfill_public_id")
        people.execute("CREATE VIEW shown AS SELECT public_id FROM person")
        people.execute("DROP VIEW shown")
        if not format.is_native:
            people.execute("UPDATE person SET public_id = 'wrong' WHERE id < 3")
        else:
            value = next(iter(people.ids()))
            with engine.begin() as connection:
                send(connection, "UPDATE person SET public_id = (SELECT public_id FROM person LIMIT 1) WHERE id < 3")
            assert value is not None
        people.run("contract_public_id", on_invalid="replace", on_duplicate="replace")
        audit.run(engine, formats={"person": format}, defaults=True)
        people.write(3)
        people.run("loosen_public_id")
        people.add()
        people.run("loosen_public_id")
        people.run("contract_public_id", online=False)
        people.run("drop_public_id")
        people.add(online=False)
        people.write(3)
    finally:
        people.drop()
        people.execute("DROP FUNCTION noted()")


@pytest.mark.parametrize(
    "format",
    [
        NanoId(prefix="per"),
        NanoId(length=5).accepting(NanoId(length=12)),
        NanoId(alphabet="".join(map(chr, range(36, 92)))),
        NanoId(alphabet="".join(map(chr, range(36, 92))) + "abcdefghijklmnopqrstuvwxyz"),
        Uuid7(),
        Uuid7(encoding="hyphenated", storage="text"),
        ObjectId(),
    ],
    ids=repr,
)
def test_migrations(world: tuple[Engine, Calls], format: Format) -> None:
    """Every operation, with its plan and its default, and an audit afterwards."""
    engine, calls = world
    calls.clear()
    migrate(engine, format)
    assert calls == []


def test_collation_and_backfill(world: tuple[Engine, Calls]) -> None:
    """A change of the collation of an adopted column, and a backfill on its own with all reasons to wait."""
    engine, calls = world
    people = People(engine, collation="bytes", server_default="none")
    people.create(50, ", public_id varchar(20)")
    try:
        calls.clear()
        backfill.run(engine, "person", wait_while=backfill.MaxLoad(10_000))
        people.add()
        audit.run(engine)
        assert calls == []
    finally:
        people.drop()


def objects(engine: Engine) -> None:
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        connection = session.connection()
        for statement in TRIGGERS:
            send(connection, statement.format("pet").replace("noted()", "noted_pet()"))
        owners = [Owner(name="o") for _ in range(30)]
        session.add_all(owners)
        session.flush()
        session.add_all([Pet(name="x", owner_public_id=owner.public_id) for owner in owners])
        session.flush()
        bulk.insert(session, [Owner(name="b") for _ in range(50)])
        bulk.insert(session, [Pet(name="b", owner=owners[0]) for _ in range(50)])
        bulk.insert(session, [Numbered() for _ in range(50)])
        bulk.insert_many(session, (Owner(name="m") for _ in range(50)))
        idempotency.insert_once(session, Owner(public_id=owners[0].public_id, name="o"))
        session.commit()
        ids = [owner.public_id for owner in owners]
        numbered = session.scalars(select(Numbered)).first()
        assert numbered is not None
        assert lookup.get(session, Owner, ids[0]) is not None
        assert lookup.get(session, Numbered, numbered.public_id) is not None
        assert len(lookup.get_many(session, Owner, ids)) == 30
        lookup.keys_of(session, Owner, ids)
        lookup.public_ids_of(session, Owner, [1, 2])
        page = lookup.page(session, Owner, limit=10, count=True)
        lookup.page(session, Owner, limit=10, after=page.next)
        session.scalars(select(Pet).where(Pet.owner_public_id == ids[0])).all()
    with engine.begin() as connection:
        send(connection, "DROP FUNCTION noted_pet() CASCADE")
    Base.metadata.drop_all(engine)


def test_objects(world: tuple[Engine, Calls]) -> None:
    """Flushes, bulk inserts, lookups, pages and references call nothing but the comparison of two VARCHAR."""
    engine, calls = world
    calls.clear()
    objects(engine)
    assert {call.partition(" in ")[0] for call in calls} == {COMPARED_IDS}, calls


def clusters(engine: Engine) -> None:
    Clusters.metadata.drop_all(engine)
    Clusters.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Parcel(name="x"), Letter(name="y")])
        session.commit()
        key = Parcel.id
        session.execute(
            select(cluster_of(key), sequence_of(key), hex_of(key), func.count())
            .where(in_cluster(key, 10, 11))
            .group_by(key)
        ).all()
    audit.run(engine, clusters={"letter": 10})
    with engine.begin() as connection:
        op: Any = Operations(MigrationContext.configure(connection))
        connection.execute(text("CREATE TABLE plain (id bigserial PRIMARY KEY, n int)"))
        connection.execute(text("INSERT INTO plain (n) VALUES (1), (2)"))
        create_cluster_config(op, 10)
        create_cluster_sequence(op, "plain")
        connection.execute(text("INSERT INTO plain (n) VALUES (1), (2)"))
        drop_cluster_sequence(op, "plain")
        set_cluster(op, "plain", cluster=10, keep_outside=True)
        set_cluster(op, "plain", cluster=10, keep_outside=True)
        connection.execute(text("INSERT INTO plain (n) VALUES (1), (2)"))
        unset_cluster(op, "plain")
        connection.execute(text("DROP TABLE plain"))
    Clusters.metadata.drop_all(engine)
    with engine.begin() as connection:
        op = Operations(MigrationContext.configure(connection))
        create_cluster_config(op, 10)
        drop_cluster_config(op)


def test_clusters(world: tuple[Engine, Calls]) -> None:
    """The operations of cluster keys, the keys that their functions make, and the expressions for queries."""
    engine, calls = world
    calls.clear()
    clusters(engine)
    assert calls == []


def test_blocks(world: tuple[Engine, Calls]) -> None:
    """Leases of blocks of keys call none."""
    engine, calls = world
    calls.clear()
    allocator = BlockAllocator(engine, "order", create=True)
    allocator.take(1000)
    allocator.take(1000)
    allocator.table.drop(engine)
    assert calls == []


def test_overloads(world: tuple[Engine, Calls]) -> None:
    """An operator and a function without an exact match in pg_catalog are noticed: this test sees such calls."""
    engine, calls = world
    calls.clear()
    with engine.connect() as connection:
        assert send(connection, "SELECT 7::bigint % 4").scalar() == 3
        assert send(connection, "SELECT 7::smallint & 4").scalar() == 4
        with pytest.raises(DBAPIError, match=r"called to_regclass\(character varying\)"):
            send(connection, "SELECT to_regclass('x'::varchar)")
    found = [call.partition(" in ")[0] for call in calls]
    assert found == ["bigint % integer", "smallint & integer"]


# --- MySQL and MariaDB

NATIVE = (
    *("abs", "cast", "char_length", "coalesce", "concat", "conv", "count", "current_user", "database", "elt"),
    *("get_lock", "hex", "insert", "instr", "is_used_lock", "json_arrayagg", "last_insert_id", "length", "lower"),
    *("lpad", "max", "mod", "random_bytes", "regexp_like", "release_lock", "replace", "row_number", "sha2", "substr"),
    *("sum", "timestampdiff", "unhex", "unix_timestamp", "utc_timestamp"),
)


@pytest.fixture
def stored_functions(engine: Engine) -> Iterator[None]:
    """Stored functions with the names of those that the library calls; each fails if it is called."""
    with engine.begin() as connection:
        for name in NATIVE:
            body = "BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'called'; RETURN 1; END"
            send(connection, f"CREATE FUNCTION `{name}`(a TEXT) RETURNS TEXT DETERMINISTIC {body}")
    yield
    with engine.begin() as connection:
        for name in NATIVE:
            send(connection, f"DROP FUNCTION `{name}`")


@on("mysql", "mariadb")
@pytest.mark.parametrize("format", [NanoId(prefix="per"), Uuid7()], ids=repr)
def test_stored_functions(engine: Engine, stored_functions: None, format: Format) -> None:
    """MySQL and MariaDB: a stored function with the name of a native one is called by no operation and no default."""
    people = People(engine, format=format)
    people.create(50)
    try:
        people.add()
        people.write(3)
        audit.run(engine, formats={"person": format}, defaults=True)
        people.run("loosen_public_id")
        people.run("drop_public_id")
    finally:
        people.drop()


@on("mysql", "mariadb")
def test_stored_functions_and_objects(
    engine: Engine, stored_functions: None, create: Callable[[MetaData], None]
) -> None:
    """MySQL and MariaDB: flushes, bulk inserts and lookups call no stored function."""
    create(Base.metadata)
    with Session(engine) as session:
        owners = [Owner(name="o") for _ in range(30)]
        bulk.insert(session, owners)
        session.add(Pet(name="x", owner_public_id=owners[0].public_id))
        session.flush()
        idempotency.insert_once(session, Owner(public_id=owners[0].public_id, name="o"))
        assert len(lookup.get_many(session, Owner, [owner.public_id for owner in owners])) == 30


@on("mysql", "mariadb")
def test_trigger_of_another_schema(engine: Engine) -> None:
    """MySQL and MariaDB: the trigger of cluster keys reads the table of its own schema, whatever the session uses."""
    other = f"{engine.url.database}_other"
    Clusters.metadata.drop_all(engine)
    Clusters.metadata.create_all(engine)
    try:
        with engine.connect() as connection:
            send(connection, f"CREATE DATABASE {other}")
            send(connection, f"CREATE TABLE {other}.cluster_config (singleton smallint, cluster smallint)")
            send(connection, f"INSERT INTO {other}.cluster_config VALUES (1, 20)")
            send(connection, f"USE {other}")
            send(connection, f"INSERT INTO {engine.url.database}.parcel (name) VALUES ('x')")
            key = send(connection, f"SELECT id FROM {engine.url.database}.parcel").scalar()
            assert ClusterKey(key).cluster == 10
            connection.invalidate()
    finally:
        with engine.begin() as connection:
            send(connection, f"DROP DATABASE IF EXISTS {other}")
        Clusters.metadata.drop_all(engine)
