"""``cluster_key()``: a column of keys that tell where they were made, and the DDL that comes with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast
from weakref import WeakKeyDictionary

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Identity,
    Integer,
    SmallInteger,
    Table,
    event,
    inspect,
    text,
)
from sqlalchemy.orm import MappedColumn, mapped_column
from sqlalchemy.schema import conv

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.keys.cluster.config import CHECK, CONFIG, Config, as_ddl
from sqlalchemy_public_id.keys.cluster.ddl import ClusterColumn, sequence_name
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, Range, checked_cluster, range_of

__all__ = ["ENVIRONMENT", "Cluster", "ClusterSpec", "Way", "asked", "cluster_key", "cluster_spec", "is_config"]

ENVIRONMENT = "PUBLIC_ID_CLUSTER"
"""The variable of the environment that tells the number of the cluster where a declaration does not."""

Cluster: TypeAlias = "int | Callable[[], int]"
Way: TypeAlias = Literal["identity", "function"]

_INFO = "sqlalchemy_public_id.cluster_key"
_CONFIG = "sqlalchemy_public_id.cluster_config"
_COUNTERS = "sqlalchemy_public_id.cluster_counters"


@dataclass(frozen=True)
class ClusterSpec:
    """What was said of a column of cluster keys."""

    sequence: str | None
    cluster: Cluster | None
    within: Range | None
    way: Way
    guarded: bool

    @property
    def is_known(self) -> bool:
        """Whether the keys are known when the table is declared."""
        return self.within is not None or isinstance(self.cluster, int)

    def keys(self) -> Range | None:
        """The range of the keys; a function is asked now. ``None`` where the database alone knows its cluster."""
        if self.within is not None:
            return self.within
        return None if self.cluster is None else range_of(asked(self.cluster))


def cluster_key(
    name: str | None = None,
    *,
    cluster: int | Callable[[], int] | None = None,
    within: Range | None = None,
    way: Way = "identity",
    guarded: bool = False,
    **kwargs: Any,
) -> MappedColumn[int]:
    """A primary key of 64 bits whose upper bits are the number of the cluster that made it, for declarative models.

    :param name: what the counter is called with ``way="function"``; the name of the table where nothing is said. The
        counter of ``way="identity"`` belongs to the column and has no name of its own, so there it says nothing.
    :param cluster: the number of this cluster, 0 to 32767, or a function that is asked when DDL is emitted. Where
        nothing is said, that is the variable ``PUBLIC_ID_CLUSTER`` of the environment; with ``way="function"`` the
        database knows it.
    :param within: instead of a cluster: one of the :func:`~sqlalchemy_public_id.keys.ranges`.
    :param way: ``"identity"``: ``IDENTITY`` or ``AUTO_INCREMENT``, which begins inside the range of the cluster, as
        fast as any. ``"function"``: each key looks up the cluster in the table ``cluster_config``; not on SQLite.
    :param guarded: whether triggers refuse inserted keys outside of the range, on MySQL, MariaDB and SQLite. PostgreSQL
        needs none: its sequences have limits.
    :param kwargs: for :func:`sqlalchemy.orm.mapped_column`.
    :raises ConfigurationError: for what cannot work. When DDL is emitted: where the environment tells no cluster, and
        where the database takes itself for another one.

    The DDL comes from listeners of the table, which a ``MetaData`` loses when it is pickled.

    >>> from sqlalchemy.orm import DeclarativeBase, Session
    >>> from sqlalchemy_public_id.keys import ClusterKey, cluster_key
    >>> class Base(DeclarativeBase): ...
    >>> class Order(Base):
    ...     __tablename__ = "order"
    ...     id = cluster_key(cluster=10)
    >>> Base.metadata.create_all(engine)
    >>> with Session(engine) as session:
    ...     order = Order()
    ...     session.add(order)
    ...     session.flush()
    ...     ClusterKey(order.id).hex
    'a000000000001'
    """
    _check(cluster, within, way, guarded)
    if cluster is None and within is None and way == "identity":
        cluster = cluster_of_environment
    for option in ("autoincrement", "default", "insert_default", "nullable", "primary_key", "server_default"):
        if option in kwargs:
            raise ConfigurationError(f"cluster_key() sets {option} itself: it is a primary key that the database makes")
    spec = ClusterSpec(name, cluster, within, way, guarded)
    kwargs["info"] = {**kwargs.get("info", {}), _INFO: spec}
    type_ = BigInteger().with_variant(Integer(), "sqlite")
    mapped: MappedColumn[int] = mapped_column(type_, Identity(), primary_key=True, autoincrement=True, **kwargs)
    event.listen(mapped.column, "after_parent_attach", _attached, propagate=True)
    return mapped


def cluster_of_environment() -> int:
    """The number that ``PUBLIC_ID_CLUSTER`` tells.

    :raises ConfigurationError: where it tells none.
    """
    told = os.environ.get(ENVIRONMENT, "")
    try:
        return checked_cluster(int(told))
    except ValueError:
        is_now = f"is {shown(told)}" if told else "is not set"
        raise ConfigurationError(
            f"cluster is missing, and {ENVIRONMENT} {is_now} in the environment: set it to the number of this cluster, "
            f"0 to {LAST_CLUSTER}, or say cluster_key(cluster=10), or give a function that knows it; or say "
            f'way="function", and let the database know it'
        ) from None


def cluster_spec(column: Column[Any]) -> ClusterSpec | None:
    """Return the settings of a cluster key; none for a copy in a version table, which no database counts up."""
    return cast("ClusterSpec", column.info[_INFO]) if _INFO in column.info and column.autoincrement else None


def asked(cluster: Cluster) -> int:
    """The number of *cluster*."""
    number: object = cluster() if callable(cluster) else cluster
    try:
        return checked_cluster(number)
    except ValueError as error:
        raise ConfigurationError(f"cluster: {error}") from None


def config_cluster(config: Table) -> int | None:
    """The number that was said for the table with the configuration; functions are asked now.

    :raises ConfigurationError: where several were said.
    """
    said: list[Cluster] = config.info[_CONFIG]
    numbers = sorted({asked(each) for each in said})
    if len(numbers) > 1:
        raise ConfigurationError(
            f"the tables beside {config.name} are of the clusters {', '.join(map(str, numbers))}: with "
            f'way="function" all tables of a schema are of the one that {config.name} tells; leave cluster out'
        )
    return numbers[0] if numbers else None


def is_config(table: Table) -> bool:
    """Whether *table* is the one with the number of the cluster, as ``cluster_key()`` declares it."""
    return _CONFIG in table.info


def _check(cluster: object, within: object, way: object, guarded: bool) -> None:
    if way not in ("identity", "function"):
        raise ConfigurationError(f'way is {shown(way)}, expected "identity" or "function"')
    if within is not None and not isinstance(within, Range):
        raise ConfigurationError(f"within is {shown(within)}, expected one of ranges(shards=...)")
    if within is not None and (cluster is not None or way == "function"):
        raise ConfigurationError('within is a range that takes the place of a cluster, with way="identity" only')
    if guarded and way == "function":
        raise ConfigurationError('guarded is for way="identity"; the counter of way="function" has limits')
    if cluster is not None and not callable(cluster):
        asked(cast("int", cluster))


# --- DDL


def _attached(column: Column[Any], parent: object) -> None:
    """Let the DDL of a table know what *column* needs. Copies of a column come here too, each with its own table."""
    spec = cluster_spec(column)
    if spec is not None and isinstance(parent, Table):
        _listen(column, cast("Table", parent), spec)


def _listen(column: Column[Any], table: Table, spec: ClusterSpec) -> None:
    table.dialect_options["sqlite"]["autoincrement"] = True
    if spec.way == "function":
        _configure(table, spec)
    elif spec.is_known:
        _limit(column, table, cast("Range", spec.keys()))

    # per connection: a metadata is shared by threads, and each may create its tables in another database
    told: WeakKeyDictionary[Connection, Range] = WeakKeyDictionary()

    def before_create(target: Table, connection: Connection, **kw: Any) -> None:
        if spec.way == "function":
            _look_at_config(connection, ddl_of(column, connection).config, table.name, spec)
        elif not spec.is_known:
            told[connection] = cast("Range", spec.keys())

    def after_create(target: Table, connection: Connection, **kw: Any) -> None:
        counter = ddl_of(column, connection)
        if spec.way == "function":
            send(connection, counter.create_sequence(existing=False))
            return
        keys = cast("Range", spec.keys() if spec.is_known else told.pop(connection))
        if not spec.is_known or connection.dialect.name == "sqlite":
            send(connection, counter.begin(keys))
        if spec.guarded:
            send(connection, counter.create_guard(keys))

    def after_drop(target: Table, connection: Connection, **kw: Any) -> None:
        if spec.way == "function" and connection.dialect.name != "sqlite":
            send(connection, ddl_of(column, connection).drop_counter())

    event.listen(table, "before_create", before_create)
    event.listen(table, "after_create", after_create)
    event.listen(table, "after_drop", after_drop)


def ddl_of(column: Column[Any], connection: Connection) -> ClusterColumn:
    """The statements for *column*."""
    spec, table = cluster_spec(column), column.table
    assert spec is not None
    schema, dialect = _schema(table, connection), connection.dialect
    return ClusterColumn(dialect, table.name, column.name, schema=schema, sequence=spec.sequence)


def _schema(table: Table, connection: Connection) -> str | None:
    """The schema that *table* has on *connection*; a mock connection has no options."""
    options: Mapping[str, Any] = getattr(connection, "get_execution_options", dict)()
    translated: Mapping[str | None, str | None] = options.get("schema_translate_map") or {}
    return translated.get(table.schema, table.schema)


def send(connection: Connection, statements: Iterable[str]) -> None:
    """Execute *statements*, one after the other."""
    for statement in statements:
        connection.execute(as_ddl(statement))


def _limit(column: Column[Any], table: Table, keys: Range) -> None:
    """Let the counter of *column*, when it is created, count within *keys*."""
    identity = column.identity
    assert identity is not None
    identity.start, identity.minvalue, identity.maxvalue = keys.start, keys.start, keys.last
    for dialect in ("mysql", "mariadb"):
        table.dialect_options[dialect]["auto_increment"] = str(keys.start)


def _configure(table: Table, spec: ClusterSpec) -> None:
    """Have the table with the number of the cluster beside *table*, in its schema."""
    full_name = f"{table.schema}.{CONFIG}" if table.schema else CONFIG
    config = table.metadata.tables.get(full_name)
    if config is None:
        config = Table(
            CONFIG,
            table.metadata,
            Column("singleton", SmallInteger, primary_key=True, autoincrement=False, server_default="1"),
            Column("cluster", SmallInteger, nullable=False),
            # the name as it is: no naming convention is for it
            CheckConstraint(f"singleton = 1 AND cluster BETWEEN 0 AND {LAST_CLUSTER}", name=conv(CHECK)),
            schema=table.schema,
        )
    if not event.contains(config, "after_create", _create_config):  # it is new, or a copy
        config.info[_CONFIG], config.info[_COUNTERS] = [], {}
        event.listen(config, "before_create", _refuse_config)
        event.listen(config, "after_create", _create_config)
        event.listen(config, "after_drop", _drop_config)
    counters: dict[str, str] = config.info[_COUNTERS]
    counter = sequence_name(spec.sequence or table.name)
    owner = counters.get(counter, table.key)
    if owner != table.key and owner in table.metadata.tables:
        raise ConfigurationError(
            f"the counter {counter} belongs to {owner}, and {table.key} has to have one of its own: give "
            f"cluster_key() another name, or none"
        )
    counters[counter] = table.key
    if spec.cluster is not None:
        said: list[Cluster] = config.info[_CONFIG]
        said.append(spec.cluster)
        if all(isinstance(each, int) for each in said):
            config_cluster(config)
    table.add_is_dependent_on(config)


def _refuse_config(config: Table, connection: Connection, **kw: Any) -> None:
    """Before anything is there that would have to be cleared away."""
    if connection.dialect.name == "sqlite":
        raise Config(connection.dialect).refuse()


def _create_config(config: Table, connection: Connection, **kw: Any) -> None:
    statements = Config(connection.dialect, config.name, _schema(config, connection))
    cluster = config_cluster(config)
    send(connection, statements.create_function())
    if cluster is not None:
        send(connection, statements.set(cluster))


def _drop_config(config: Table, connection: Connection, **kw: Any) -> None:
    send(connection, Config(connection.dialect, config.name, _schema(config, connection)).drop_function())


def _look_at_config(connection: Connection, config: Config, table: str, spec: ClusterSpec) -> None:
    """Refuse a table, before it is created, where the database does not know its cluster as *spec* does."""
    if connection.dialect.name == "sqlite":
        raise config.refuse()
    if not isinstance(connection, Connection):  # a mock one has no answers
        return
    if not inspect(connection).has_table(CONFIG, schema=config.schema):
        raise ConfigurationError(
            f"{table} needs the table {config.table}, which is not there: create it, too, with create_all(), which "
            f"knows it, or name it in create_all(tables=[...]), or with op.create_cluster_config()"
        )
    if spec.cluster is not None:
        cluster = asked(spec.cluster)
        told = connection.scalars(text(config.get())).all()
        if not told:
            send(connection, config.begin(cluster))
        elif told != [cluster]:
            raise ConfigurationError(
                f"{table} is declared with cluster {cluster}, and {config.table} tells {', '.join(map(str, told))}: "
                f"leave cluster out, and let the database know it; or UPDATE {config.table}, if it is wrong"
            )
