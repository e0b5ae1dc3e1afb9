"""Engines that divide a table by its tenants: each does the same steps, except for those that are listed here.

What an engine cannot do is in ``CANNOT``, with the error that it raises instead; a step that is listed there without a
reason fails, and so does one that an engine has learned to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import BigInteger, Engine, create_engine, select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedColumn, Session, mapped_column
from support import private_engines, private_servers
from support.engine_stories import STEPS, TENANTS, Place, take
from support.private_servers import wait_until

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.keys import Range, Ranges, cluster_key, range_of


@dataclass(frozen=True)
class Reason:
    """Why an engine cannot do a step."""

    why: str
    error: type[BaseException]
    """What the step raises instead."""
    says: str = ""
    """A regular expression that its message contains."""


NO_SAVEPOINTS = Reason(
    "Spider has no savepoints, which a transaction needs after a statement", OperationalError, "SAVEPOINT"
)
CANNOT: Mapping[tuple[str, str], Reason] = {
    ("spider", "savepoint"): NO_SAVEPOINTS,
    ("spider", "insert_once later in a transaction"): NO_SAVEPOINTS,
    ("oceanbase", "cluster by function"): Reason(
        "OceanBase numbers a row before its triggers run, so that the trigger takes the number for a given key",
        AssertionError,
        "the range",
    ),
    ("oceanbase", "cluster"): Reason(
        "information_schema of OceanBase does not show where AUTO_INCREMENT continues, which the first INSERT compares",
        ConfigurationError,
        "continues at 1",
    ),
    ("spider", "foreign keys"): Reason("Spider has no foreign keys", pytest.fail.Exception, "DID NOT RAISE"),
}
"""Engine and step → the reason why it is not done."""


def hash_partitions(stack: ExitStack, programs: dict[str, str]) -> Place:
    """PostgreSQL, with four partitions by the hash of the tenant."""
    [url] = stack.enter_context(private_servers.postgresqls(programs, 1))
    return in_partitions(
        engine_of(stack, url),
        "HASH (tenant_id)",
        lambda table, number: (
            f"CREATE TABLE {table}_{number} PARTITION OF {table} FOR VALUES WITH (MODULUS 4, REMAINDER {number - 1})"
        ),
    )


def list_partitions(stack: ExitStack, programs: dict[str, str]) -> Place:
    """PostgreSQL, with a partition for each tenant."""
    [url] = stack.enter_context(private_servers.postgresqls(programs, 1))
    return in_partitions(engine_of(stack, url), "LIST (tenant_id)", of_one_tenant)


def pglite(stack: ExitStack, programs: dict[str, str]) -> Place:
    """PGlite, which has one connection, with a partition for each tenant."""
    url = stack.enter_context(private_engines.pglite(programs))
    engine = engine_of(stack, url, pool_size=1, max_overflow=0)
    # PGlite refuses a client until it has seen that the one before, which waited for its start, is gone
    wait_until(lambda: can_connect(engine), "the only connection of PGlite")
    return in_partitions(engine, "LIST (tenant_id)", of_one_tenant)


def oceanbase(stack: ExitStack, programs: dict[str, str]) -> Place:
    """OceanBase, with four partitions by the hash of the tenant."""
    engine = engine_of(stack, stack.enter_context(private_engines.oceanbase(programs)))
    counts = [f"SELECT count(*) FROM buyer_in_parts PARTITION (p{number})" for number in range(4)]
    options = {"mysql_partition_by": "HASH (tenant_id)", "mysql_partitions": "4"}
    return Place(engine, lambda: [count for query in counts for count in numbers(engine, query)], options)


def spider(stack: ExitStack, programs: dict[str, str]) -> Place:
    """MariaDB Spider in front of two servers, each of which has every second tenant.

    Its own ``INSERT … RETURNING`` of many rows returns wrong keys, so SQLAlchemy is told not to send any.
    """
    front, shards = stack.enter_context(private_engines.spider(programs))
    engines = [engine_of(stack, url) for url in shards]
    partitions = [
        f"PARTITION {name} VALUES IN ({', '.join(map(str, TENANTS[at::2]))}) COMMENT = 'srv \"{name}\"'"
        for at, name in enumerate(private_engines.SHARDS)
    ]
    made = Place(
        engine_of(stack, front, use_insertmanyvalues=False),
        lambda: [count for engine in engines for count in numbers(engine, "SELECT count(*) FROM buyer_in_parts")],
        {
            "mariadb_engine": "SPIDER",
            "mariadb_comment": 'wrapper "mysql", table "{table}"',
            "mariadb_partition_by": f"LIST (tenant_id) ({', '.join(partitions)})",
        },
        has_foreign_keys=False,
        shards=engines,
    )
    for engine in engines:
        replace(made, options={}).tables.create_all(engine)
    return made


def as_listed(engine_name: str, step: str) -> AbstractContextManager[object]:
    """Return a context that raises what is listed for this step, or nothing."""
    reason = CANNOT.get((engine_name, step))
    return nullcontext() if reason is None else pytest.raises(reason.error, match=reason.says)


def engine_of(stack: ExitStack, url: URL, **options: object) -> Engine:
    engine = create_engine(url, **options)
    stack.callback(engine.dispose)
    return engine


def can_connect(engine: Engine) -> bool:
    """Return True if *engine* has a connection, which its pool keeps."""
    try:
        engine.connect().close()
    except OperationalError:
        return False
    return True


def numbers(engine: Engine, query: str) -> list[int]:
    with engine.connect() as connection:
        return [*connection.scalars(text(query))]


def of_one_tenant(table: str, number: int) -> str:
    return f"CREATE TABLE {table}_{number} PARTITION OF {table} FOR VALUES IN ({number})"


def in_partitions(engine: Engine, by: str, partition: Callable[[str, int], str]) -> Place:
    return Place(
        engine,
        lambda: numbers(engine, "SELECT count(*) FROM buyer_in_parts GROUP BY tableoid"),
        {"postgresql_partition_by": by},
        lambda table: [partition(table, number) for number in TENANTS],
    )


PLACES: dict[str, Callable[[ExitStack, dict[str, str]], Place]] = {
    "postgresql-hash": hash_partitions,
    "postgresql-list": list_partitions,
    "oceanbase": oceanbase,
    "spider": spider,
    "pglite": pglite,
}


@pytest.fixture(scope="module", params=PLACES)
def engine_name(request: pytest.FixtureRequest) -> str:
    """The name of an engine."""
    return str(request.param)


@pytest.fixture(scope="module")
def place(engine_name: str, programs: dict[str, str]) -> Iterator[Place]:
    """The engine, with divided tables."""
    with ExitStack() as stack:
        made = PLACES[engine_name](stack, programs)
        made.tables.create_all(made.engine)
        yield made


@pytest.mark.parametrize("step", STEPS)
def test_steps(place: Place, engine_name: str, step: str) -> None:
    """Each engine takes each step; if it cannot, it raises the error that is listed with the reason."""
    with as_listed(engine_name, step):
        take(step, place)


def test_rows_are_divided(place: Place) -> None:
    """The rows of four tenants are in several partitions or shards: otherwise, the steps would mean little."""
    take("flush of many rows", place)
    counts = [count for count in place.count_in_parts() if count]
    assert len(counts) > 1
    assert sum(counts) == 200


# --- keys


RANGES = Ranges(shards=[1, 2], size=10**12)
KEYS: dict[str, Callable[[int], MappedColumn[int]]] = {
    "cluster": lambda number: cluster_key(cluster=number),
    "cluster by function": lambda number: cluster_key(cluster=number, strategy="function"),
    "range": lambda number: cluster_key(key_range=RANGES[number]),
}


def parcel_with(key: MappedColumn[int]) -> type[Any]:
    """Return a model with this key."""

    class Base(DeclarativeBase): ...

    class Parcel(Base):
        __tablename__ = "parcel_in_parts"
        id: Mapped[int] = key
        tenant_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    return Parcel


def write_parcels(engine: Engine, model: type[Any], tenants: Sequence[int]) -> dict[int, int]:
    """Insert 400 parcels of the tenants in turn; return the key of each → its tenant."""
    with Session(engine) as session:
        every = [model(tenant_id=tenants[at % len(tenants)]) for at in range(400)]
        session.add_all(every)
        session.commit()
        return {parcel.id: parcel.tenant_id for parcel in every}


def read_parcels(engine: Engine, model: type[Any]) -> list[tuple[int, int]]:
    """Return the keys and tenants of all parcels."""
    with Session(engine) as session:
        return sorted((key, tenant) for key, tenant in session.execute(select(model.id, model.tenant_id)))


def keys_of_place(kind: str, number: int) -> Range:
    return RANGES[number] if kind == "range" else range_of(number)


@pytest.mark.parametrize("engine_name", [name for name in PLACES if name != "spider"], indirect=True)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_in_partitions(place: Place, engine_name: str, kind: str) -> None:
    """Keys in the range of a cluster are distinct over all partitions."""
    model = parcel_with(KEYS[kind](2))
    tables = place.divided(model.metadata)
    tables.create_all(place.engine)
    try:
        with as_listed(engine_name, kind):
            written = write_parcels(place.engine, model, TENANTS)
            assert len(written) == 400
            assert read_parcels(place.engine, model) == sorted(written.items())
            assert all(key in keys_of_place(kind, 2) for key in written), "a key is outside of the range"
    finally:
        tables.drop_all(place.engine)


@pytest.mark.parametrize("engine_name", ["spider"], indirect=True)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_in_shards(place: Place, kind: str) -> None:
    """If each shard is a cluster, or has a range, programs that write to one shard each make distinct keys."""
    front = parcel_with(mapped_column(BigInteger, primary_key=True))
    written: dict[int, int] = {}
    with ExitStack() as stack:
        for number, engine in enumerate(place.shards, 1):
            model = parcel_with(KEYS[kind](number))
            model.metadata.create_all(engine)
            stack.callback(model.metadata.drop_all, engine)
            own = write_parcels(engine, model, TENANTS[number - 1 :: 2])
            assert all(key in keys_of_place(kind, number) for key in own)
            written |= own
        tables = place.divided(front.metadata)
        tables.create_all(place.engine)
        stack.callback(tables.drop_all, place.engine)
        assert len(written) == 800
        assert read_parcels(place.engine, front) == sorted(written.items())
