"""Migrations of cluster keys: upgrades, downgrades, repeated operations, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.operations.ops import UpgradeOps
from sqlalchemy import Engine, MetaData, inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from support.cluster_models import hexes, migrate, models
from support.cluster_tables import NAME, Parcels
from support.marks import SERVERS, on
from support.projects import Project, downgrade_of, upgrade_of

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.alembic import (
    ClusterOp,
    CreateClusterConfigOp,
    CreateClusterSequenceOp,
    DropClusterSequenceOp,
    SetClusterOp,
    UnsetClusterOp,
    create_cluster_config,
    create_cluster_sequence,
    drop_cluster_config,
    drop_cluster_sequence,
    set_cluster,
    unset_cluster,
)
from sqlalchemy_public_id.alembic.clusters import operations
from sqlalchemy_public_id.errors import LockNotAvailable
from sqlalchemy_public_id.keys import ClusterKey, Range
from sqlalchemy_public_id.migrations import Timeouts

pytestmark = pytest.mark.backend


@on(*SERVERS)
@pytest.mark.parametrize("operation", [set_cluster, create_cluster_sequence], ids=lambda each: each.__name__)
def test_table_in_use(parcels: Parcels, operation: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """If another session has locked the table, an operation times out and restores the session settings."""
    monkeypatch.setattr(operations, "_TIMEOUTS", Timeouts(lock_timeout=0.2, attempts=1))
    is_postgresql = parcels.engine.name == "postgresql"
    limit = "SHOW lock_timeout" if is_postgresql else "SELECT @@SESSION.lock_wait_timeout"
    options: dict[str, Any] = {"cluster": 10} if operation is set_cluster else {}

    with parcels.engine.connect() as other, parcels.engine.connect() as connection:
        before = connection.exec_driver_sql(limit).scalar()
        other.exec_driver_sql(f"LOCK TABLE {NAME}" if is_postgresql else f"LOCK TABLES {NAME} WRITE")
        with pytest.raises(LockNotAvailable, match=f"could not run op.{operation.__name__}") as caught:
            operation(Operations(MigrationContext.configure(connection)), NAME, **options)
        connection.rollback()
        assert (caught.value.table, caught.value.attempts, caught.value.timeout) == (NAME, 1, 0.2)
        assert connection.exec_driver_sql(limit).scalar() == before
        other.exec_driver_sql("ROLLBACK" if is_postgresql else "UNLOCK TABLES")


# --- a range


def test_the_counter_never_goes_back(parcels: Parcels) -> None:
    """A repeated operation keeps the position of the counter, even behind keys of deleted rows."""
    parcels.run(set_cluster, NAME, cluster=10)
    last = [parcels.add() for _ in range(3)][-1]
    if parcels.engine.name in {"postgresql", "sqlite"}:  # the others compute the counter from the existing rows
        parcels.execute(f"DELETE FROM {NAME} WHERE id = {int(last)}")

    parcels.run(set_cluster, NAME, cluster=10)

    assert parcels.add().sequence == 4


def test_unset_and_set_again(parcels: Parcels) -> None:
    """Without limits the counter continues, and it keeps its position when they are set again."""
    parcels.run(set_cluster, NAME, cluster=10, enforce_range=True)
    keys = [parcels.add()]
    parcels.run(unset_cluster, NAME)
    keys.append(parcels.add())
    parcels.run(set_cluster, NAME, cluster=10)

    assert [*keys, parcels.add()] == [ClusterKey.of(10, number) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("database", "as_script"),
    [("sqlite", False), *((database, as_script) for database in SERVERS for as_script in (False, True))],
    indirect=["database"],
)
@pytest.mark.parametrize("was_enforced", [False, True], ids=["", "was enforced"])
@pytest.mark.parametrize("is_enforced", [False, True], ids=["", "is enforced"])
def test_another_range(parcels: Parcels, was_enforced: bool, is_enforced: bool, as_script: bool) -> None:
    """A new range replaces the earlier one with its triggers, whether the keys of either are enforced or not."""
    carry_out = parcels.script if as_script else parcels.run
    carry_out(set_cluster, NAME, cluster=10, enforce_range=was_enforced)
    parcels.add()
    carry_out(set_cluster, NAME, cluster=20, enforce_range=is_enforced, keep_outside=True)

    assert [parcels.add(), parcels.add()] == [ClusterKey.of(20, number) for number in (1, 2)]
    strange = int(ClusterKey.of(10, 5))
    if is_enforced and parcels.engine.name != "postgresql":  # whose counter has limits instead
        with pytest.raises(DBAPIError, match="outside of its range"):
            parcels.add(id=strange)
    else:
        assert parcels.add(id=strange) == strange
    carry_out(unset_cluster, NAME)
    assert parcels.add(id=7) == 7


@on("mysql", "mariadb")
def test_script_of_triggers(parcels: Parcels) -> None:
    """A client of the server creates the triggers of a script, each as one statement."""
    parcels.script(set_cluster, NAME, cluster=10, enforce_range=True)

    assert parcels.add() == ClusterKey.of(10, 1)
    with pytest.raises(DBAPIError, match="outside of its range"):
        parcels.add(id=1)


def test_rows_behind_the_range(parcels: Parcels) -> None:
    """Rows behind the range cannot be kept if the counter depends on the largest key; a sequence ignores them."""
    parcels.add(id=ClusterKey.of(20, 1))

    if parcels.engine.name != "postgresql":
        with pytest.raises(ConfigurationError, match="counts on from the largest key"):
            parcels.run(set_cluster, NAME, cluster=10, keep_outside=True)
        return
    parcels.run(set_cluster, NAME, cluster=10, keep_outside=True)
    assert parcels.add().hex == "a000000000001"


def test_the_cluster_of_env_py(parcels: Parcels, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration without a cluster uses that of env.py or of the environment, and raises without either."""
    monkeypatch.setenv("PUBLIC_ID_CLUSTER", "ten")
    with pytest.raises(ConfigurationError, match=r"PUBLIC_ID_CLUSTER is 'ten'.*public_id_cluster=10\) in env.py"):
        parcels.run(set_cluster, NAME)
    parcels.run(set_cluster, NAME, opts={"public_id_cluster": lambda: 10})
    keys = [parcels.add().hex]
    monkeypatch.setenv("PUBLIC_ID_CLUSTER", "20")
    parcels.run(set_cluster, NAME)
    keys.append(parcels.add().hex)
    parcels.run(set_cluster, NAME, cluster=30, opts={"public_id_cluster": 20})

    assert [*keys, parcels.add().hex] == ["a000000000001", "14000000000001", "1e000000000001"]


@on("postgresql")
def test_serial(parcels: Parcels) -> None:
    """An old table with ``serial`` and an integer sequence gets limits, and later a function, and counts on."""
    parcels.execute(f"DROP TABLE {NAME}")
    parcels.execute(f"CREATE TABLE {NAME} (id serial PRIMARY KEY, name varchar(50))")
    parcels.execute(f"ALTER TABLE {NAME} ALTER COLUMN id TYPE bigint")

    parcels.run(set_cluster, NAME, cluster=10)
    keys = [parcels.add()]
    parcels.run(create_cluster_config, 10)
    parcels.run(create_cluster_sequence, NAME)
    keys.append(parcels.add())
    parcels.run(drop_cluster_sequence, NAME)
    parcels.run(drop_cluster_config)  # nothing uses it any more

    assert [*keys, parcels.add()] == [ClusterKey.of(10, number) for number in (1, 2, 3)]


@on("postgresql")
@pytest.mark.parametrize("default", ["", "DEFAULT nextval('numbers_of_all_id_seq')"], ids=["no default", "another"])
def test_a_sequence_that_the_key_does_not_use(parcels: Parcels, default: str) -> None:
    """Limits and a function also work for a key without a default, or with one that draws from another's sequence."""
    parcels.execute(f"DROP TABLE {NAME}")
    parcels.execute("DROP TABLE IF EXISTS numbers_of_all")
    parcels.execute("CREATE TABLE numbers_of_all (id bigserial)")
    parcels.execute(f"CREATE TABLE {NAME} (id bigint {default} PRIMARY KEY, name varchar(50))")
    parcels.execute(f"CREATE SEQUENCE unused OWNED BY {NAME}.id")

    parcels.run(set_cluster, NAME, cluster=10)
    keys = [parcels.add()]
    parcels.run(create_cluster_config, 10)
    parcels.run(create_cluster_sequence, NAME)
    keys.append(parcels.add())

    assert keys == [ClusterKey.of(10, number) for number in (1, 2)]
    with parcels.engine.connect() as connection:
        owned = "SELECT pg_get_serial_sequence('numbers_of_all', 'id')"
        assert connection.exec_driver_sql(owned).scalar() == "public.numbers_of_all_id_seq"
    parcels.execute(f"DROP TABLE {NAME}")
    parcels.execute("DROP TABLE numbers_of_all")


@on("postgresql")
def test_numeric_key(parcels: Parcels) -> None:
    """A NUMERIC key, which holds any number, gets limits as a BIGINT does; an integer is refused."""
    parcels.execute(f"DROP TABLE {NAME}")
    for type_ in ("numeric(20)", "integer"):
        parcels.execute(f"CREATE TABLE {NAME} (id {type_} PRIMARY KEY, name varchar(50))")
        parcels.execute(f"CREATE SEQUENCE numeric_keys OWNED BY {NAME}.id")
        parcels.execute(f"ALTER TABLE {NAME} ALTER COLUMN id SET DEFAULT nextval('numeric_keys')")
        if type_ == "numeric(20)":
            parcels.run(set_cluster, NAME, cluster=10)
            with parcels.engine.connect() as connection:
                insert = f"INSERT INTO {NAME} (name) VALUES ('new') RETURNING id"
                assert connection.exec_driver_sql(insert).scalar() == ClusterKey.of(10, 1)
        else:
            with pytest.raises(ConfigurationError, match=f"the key of {NAME} is INTEGER, which cannot count up to"):
                parcels.run(set_cluster, NAME, cluster=10)
        parcels.execute(f"DROP TABLE {NAME}")


# --- a function


@on("postgresql")
def test_config_of_a_schema(parcels: Parcels) -> None:
    """The config of a schema is created, renewed and dropped there, and the one of the default schema stays."""
    parcels.execute("DROP SCHEMA IF EXISTS of_config CASCADE")
    parcels.execute("CREATE SCHEMA of_config")

    def functions() -> list[str]:
        query = "SELECT pronamespace::regnamespace::text FROM pg_proc WHERE proname = 'this_cluster'"
        with parcels.engine.connect() as connection:
            tables = inspect(connection).get_table_names(schema="of_config")
            found = sorted(connection.exec_driver_sql(query).scalars())
        assert tables == (["cluster_config"] if "of_config" in found else [])
        return found

    parcels.run(create_cluster_config, 10)
    parcels.run(create_cluster_config, 20, schema="of_config")
    created = functions()
    parcels.run(drop_cluster_config, schema="of_config")

    assert (created, functions()) == (["of_config", "public"], ["public"])
    parcels.run(drop_cluster_config)
    assert functions() == []
    parcels.execute("DROP SCHEMA of_config")


@on(*SERVERS)
def test_up_down_up(parcels: Parcels) -> None:
    """A table whose counter is created, dropped and created again never repeats a key."""
    parcels.run(create_cluster_config, 10)
    parcels.run(create_cluster_sequence, NAME)
    first = [parcels.add().hex, parcels.add().hex]

    parcels.run(drop_cluster_sequence, NAME)
    parcels.run(drop_cluster_config)
    between = parcels.add()
    parcels.run(create_cluster_config, opts={"public_id_cluster": 20})
    parcels.run(create_cluster_sequence, NAME)

    assert first == ["a000000000001", "a000000000002"]
    assert between.hex == "a000000000003"
    assert parcels.add().hex == "14000000000004"


@on(*SERVERS)
def test_rows_are_counted_over(parcels: Parcels) -> None:
    """The counter starts after existing rows, so keys of cluster 0 do not collide with theirs."""
    for _ in range(3):
        parcels.add()

    parcels.run(create_cluster_config, 0)
    parcels.run(create_cluster_sequence, NAME)

    assert [*parcels.keys(), parcels.add()] == [1, 2, 3, 4]


# --- autogenerate

OPERATIONS: list[tuple[ClusterOp, str]] = [
    (CreateClusterConfigOp(10, schema="shop"), "op.create_cluster_config(cluster=10, schema='shop')"),
    (operations.RenewClusterConfigOp(schema="shop"), "op.create_cluster_config(schema='shop')"),
    (CreateClusterSequenceOp("a", "key", sequence="b"), "op.create_cluster_sequence('a', 'key', sequence='b')"),
    (DropClusterSequenceOp("a", schema="shop"), "op.drop_cluster_sequence('a', schema='shop')"),
    (SetClusterOp("a", cluster=0, enforce_range=True), "op.set_cluster('a', cluster=0, enforce_range=True)"),
    (SetClusterOp("a", key_range=Range(1, 9)), "op.set_cluster('a', key_range=Range(start=1, stop=9))"),
    (SetClusterOp("a", keep_outside=True), "op.set_cluster('a', keep_outside=True)"),
    (UnsetClusterOp("a", "key"), "op.unset_cluster('a', 'key')"),
]


@pytest.mark.parametrize(("operation", "expected"), OPERATIONS, ids=[expected for _, expected in OPERATIONS])
def test_rendering(operation: ClusterOp, expected: str) -> None:
    """Each operation is rendered as a call with the necessary arguments, and reversing it twice restores it."""
    again = operation.reverse().reverse()

    assert (type(again), again.schema) == (type(operation), operation.schema)
    assert expected in map(str.strip, render_python_code(UpgradeOps([operation])).splitlines())


@on("postgresql")
def test_config_of_each_schema(engine: Engine, new_schema: Callable[[], str]) -> None:
    """Autogenerate gives the config of a schema the number of its own models, not that of another schema."""
    metadata, clusters = MetaData(), {new_schema(): 20, new_schema(): 10}
    for schema, cluster in clusters.items():
        models(schema=schema, cluster=cluster, strategy="function")[1].__table__.to_metadata(metadata)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_schemas": True})
        found = produce_migrations(context, metadata).upgrade_ops

    assert found is not None
    created = {each.schema: each.number(context) for each in found.ops if isinstance(each, CreateClusterConfigOp)}
    assert created == clusters


@pytest.mark.parametrize("cluster", [10, lambda: 10], ids=["number", "function"])
def test_new_tables(new_project: Callable[..., Project], cluster: Any) -> None:
    """Autogenerate creates a new model's table and range; downgrade and upgrade leave nothing to detect."""
    project = new_project()
    metadata, Depot, _ = models(cluster=cluster)
    project.configure("public_id_cluster=10,")

    written = project.migrate(metadata)
    project.downgrade()
    project.upgrade()

    said = "" if callable(cluster) else ", cluster=10"
    assert f"op.set_cluster('depot'{said})" in upgrade_of(written)
    unset = [line for line in downgrade_of(written) if "cluster" in line]
    assert unset == ["op.unset_cluster('depot_parcel')", "op.unset_cluster('depot')"]
    assert project.check(metadata) is None
    with Session(project.engine) as session:
        session.add(Depot())
        session.flush()
        assert hexes(session, Depot) == ["a000000000001"]


@on("postgresql")
def test_set_cluster_where_a_function_makes_keys(engine: Engine, depots: Callable[..., Any], session: Session) -> None:
    """``set_cluster`` does not change the counter of a function, and says which operation to run first."""
    Depot = depots(cluster=10, strategy="function")

    for name, options in (("set_cluster", {"cluster": 10}), ("unset_cluster", {})):
        with pytest.raises((DBAPIError, ConfigurationError), match=r"run op\.drop_cluster_sequence\(\) first"):
            migrate(engine, name, "depot", **options)
    session.add(Depot())
    session.flush()

    assert hexes(session, Depot) == ["a000000000001"]


# --- refused operations

COUNTING = {"postgresql": "GENERATED BY DEFAULT AS IDENTITY", "mysql": "AUTO_INCREMENT", "mariadb": "AUTO_INCREMENT"}


def with_key(parcels: Parcels, kind: str) -> None:
    """Replace the table with one that has another type of key."""
    parcels.execute(f"DROP TABLE {NAME}")
    parcels.execute(f"CREATE TABLE {NAME} (id {kind} PRIMARY KEY, name varchar(50))")


@on(*SERVERS)
@pytest.mark.parametrize(
    ("operation", "kind", "options"),
    [(set_cluster, "smallint", {"cluster": 10}), (create_cluster_sequence, "integer", {})],
)
def test_too_few_bits(parcels: Parcels, operation: Any, kind: str, options: dict[str, Any]) -> None:
    """A key of less than 64 bits is refused with advice, and accepted after following it."""
    with_key(parcels, f"{kind} {COUNTING[parcels.engine.name]}")
    parcels.run(create_cluster_config, 10)

    with pytest.raises(
        ConfigurationError,
        match=rf"the key of {NAME} is {kind.upper()}, which cannot count up to \d{{16,19}}; op.alter_column",
    ):
        parcels.run(operation, NAME, **options)
    if parcels.engine.name == "postgresql":
        parcels.execute(f"ALTER TABLE {NAME} ALTER COLUMN id TYPE bigint")
    else:
        parcels.execute(f"ALTER TABLE {NAME} MODIFY id bigint AUTO_INCREMENT")
    parcels.run(operation, NAME, **options)

    assert parcels.add().hex == "a000000000001"


@on("postgresql")
def test_domain(parcels: Parcels) -> None:
    """A key of a DOMAIN has the bits of the type that this stands for."""
    parcels.run(create_cluster_config, 10)
    for kind in ("integer", "bigint"):
        parcels.execute("DROP DOMAIN IF EXISTS parcel_key CASCADE")
        parcels.execute(f"CREATE DOMAIN parcel_key AS {kind}")
        with_key(parcels, "parcel_key")
        if kind == "integer":
            with pytest.raises(ConfigurationError, match="is INTEGER, which cannot count up to"):
                parcels.run(create_cluster_sequence, NAME)

    parcels.run(create_cluster_sequence, NAME)

    assert parcels.add().hex == "a000000000001"
    parcels.execute("DROP DOMAIN parcel_key CASCADE")


@on(*SERVERS)
def test_few_bits_for_a_small_range(parcels: Parcels) -> None:
    """An INTEGER key accepts a range that fits, and refuses one that does not."""
    with_key(parcels, f"integer {COUNTING[parcels.engine.name]}")

    parcels.run(set_cluster, NAME, key_range=Range(1001, 2001))
    with pytest.raises(ConfigurationError, match=r"is INTEGER, which cannot count up to 3000000000; op.alter_column"):
        parcels.run(set_cluster, NAME, key_range=Range(1001, 3 * 10**9 + 1))

    assert parcels.add() == 1001


BITS = {"smallint": 15, "integer": 31}
BITS_OF_MYSQL = {**BITS, "tinyint": 7, "mediumint": 23, "smallint unsigned": 16, "integer unsigned": 32}
TYPES = [(name, *type_) for name in SERVERS for type_ in (BITS if name == "postgresql" else BITS_OF_MYSQL).items()]


@pytest.mark.parametrize(("database", "kind", "bits"), TYPES, indirect=["database"])
def test_last_number_of_a_type(parcels: Parcels, kind: str, bits: int) -> None:
    """A key accepts a range that ends with the last number of its type, and refuses one with a single key more."""
    with_key(parcels, f"{kind} {COUNTING[parcels.engine.name]}")
    name, last = kind.split()[0].upper(), 2**bits - 1

    with pytest.raises(ConfigurationError, match=f"is {name}, which cannot count up to {last + 1}; op.alter_column"):
        parcels.run(set_cluster, NAME, key_range=Range(last - 1, last + 2))
    parcels.run(set_cluster, NAME, key_range=Range(last - 1, last + 1))

    assert [parcels.add(), parcels.add()] == [last - 1, last]


@on("sqlite", "mysql", "mariadb")
@pytest.mark.parametrize("operation", [set_cluster, create_cluster_sequence], ids=["set", "create"])
def test_no_auto_increment(parcels: Parcels, operation: Any) -> None:
    """For a key without AUTO_INCREMENT, the error says that there is no counter to set."""
    is_sqlite = parcels.engine.name == "sqlite"
    with_key(parcels, "integer" if is_sqlite else "bigint")
    expected = "strategy=" if is_sqlite and operation is create_cluster_sequence else "without AUTO_INCREMENT.*=True"

    with pytest.raises(ConfigurationError, match=expected):
        parcels.run(operation, NAME, opts={"public_id_cluster": 10})


def test_no_such_table(parcels: Parcels) -> None:
    """A missing table or column is named in the error."""
    with pytest.raises(ConfigurationError, match="'parzel' has no column 'id'; there is no such table"):
        parcels.run(set_cluster, "parzel", cluster=10)
    with pytest.raises(ConfigurationError, match="has no column 'key'; it has: id, name"):
        parcels.run(set_cluster, NAME, "key", cluster=10)


@on("sqlite")
def test_the_name_that_sqlite_knows(parcels: Parcels) -> None:
    """On SQLite, the operation finds the counter of a table whatever the case of its name."""
    parcels.run(set_cluster, NAME.upper(), cluster=10)

    assert parcels.add().hex == "a000000000001"


def test_rows_of_lower_clusters(parcels: Parcels) -> None:
    """Rows of a lower cluster, such as after a merge, are accepted."""
    parcels.run(set_cluster, NAME, cluster=10)
    parcels.add(id=ClusterKey.of(5, 1))
    parcels.add()

    parcels.run(set_cluster, NAME, cluster=10)

    assert parcels.add().hex == "a000000000002"


@on("postgresql")
def test_a_lower_cluster(parcels: Parcels) -> None:
    """A sequence can be set to the range of a lower cluster."""
    parcels.run(set_cluster, NAME, cluster=20)
    parcels.add()

    parcels.run(set_cluster, NAME, cluster=10)

    assert parcels.add().hex == "a000000000001"


def test_rows_from_before(parcels: Parcels) -> None:
    """Keys from before the cluster are refused with advice, unless ``keep_outside`` is given."""
    parcels.add(id=7)
    with pytest.raises(ConfigurationError, match=r"keys outside of the range 1001 to 2000, such as 7, .*keep_outside="):
        parcels.run(set_cluster, NAME, key_range=Range(1001, 2001))
    parcels.add(id=ClusterKey.of(5, 1))

    with pytest.raises(
        ConfigurationError,
        match=r"op.set_cluster\('parcel'\): there are keys outside of cluster 10, such as 7, from before the cluster "
        r"was set, .*: other databases may have these keys, too. Renumber .*keep_outside=True",
    ):
        parcels.run(set_cluster, NAME, cluster=10)
    parcels.run(set_cluster, NAME, cluster=10, keep_outside=True)

    assert parcels.add().hex == "a000000000001"


def test_cluster_0(parcels: Parcels) -> None:
    """Keys of a table that started at 1 belong to cluster 0."""
    parcels.add()

    parcels.run(set_cluster, NAME, cluster=0)
    parcels.run(unset_cluster, NAME)

    assert parcels.add() == 2
