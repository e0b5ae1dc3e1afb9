"""``cluster_key()``: a column of keys that contain the number of their cluster, and its DDL events."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Column, Connection, Identity, Table, event, inspect, text
from sqlalchemy.orm import MappedColumn, mapped_column
from sqlalchemy.types import BigInteger, Integer

from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG, ClusterColumn, Config, as_ddl, config_table
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, Range, checked_cluster, range_of

ENVIRONMENT = "PUBLIC_ID_CLUSTER"
"""The environment variable with the number of the cluster, for declarations without one."""

Cluster: TypeAlias = "int | Callable[[], int]"
Strategy: TypeAlias = Literal["identity", "function"]

_INFO = "sqlalchemy_public_id.cluster_key"
_CONFIG = "sqlalchemy_public_id.cluster_config"


@dataclass(frozen=True)
class ClusterSpec:
    """The settings of a column of cluster keys."""

    sequence: str | None
    cluster: Cluster | None
    key_range: Range | None
    strategy: Strategy
    enforce_range: bool

    @property
    def is_known(self) -> bool:
        """Return True if the range is known when the table is declared."""
        return self.key_range is not None or isinstance(self.cluster, int)

    def keys(self) -> Range | None:
        """Return the range of the keys, calling a function now; ``None`` if only the database has the cluster."""
        if self.key_range is not None:
            return self.key_range
        return None if self.cluster is None else range_of(resolved(self.cluster))


def cluster_key(
    name: str | None = None,
    *,
    cluster: int | Callable[[], int] | None = None,
    key_range: Range | None = None,
    strategy: Strategy = "identity",
    enforce_range: bool = False,
    **kwargs: Any,
) -> MappedColumn[int]:
    """Return a primary key of 64 bits whose upper bits are the number of the cluster that generated it.

    :param name: the name of the counter with ``strategy="function"``, by default that of the table. The counter of
        ``strategy="identity"`` belongs to the column and ignores it.
    :param cluster: the number of this cluster, 0 to 32767, or a function that is called when DDL is emitted. Default:
        the environment variable ``PUBLIC_ID_CLUSTER``; with ``strategy="function"``, the number in the database.
    :param key_range: instead of a cluster: one of the :class:`~sqlalchemy_public_id.keys.Ranges`.
    :param strategy: ``"identity"``: ``IDENTITY`` or ``AUTO_INCREMENT``, which begins inside the range of the cluster;
        as fast as any. ``"function"``: each key reads the cluster from the table ``cluster_config``; not on SQLite.
    :param enforce_range: whether triggers refuse inserted keys outside of the range, on MySQL, MariaDB and SQLite.
        PostgreSQL needs none: its sequences have limits.
    :param kwargs: for :func:`sqlalchemy.orm.mapped_column`.
    :raises ConfigurationError: for settings that cannot work. When DDL is emitted: if the environment has no cluster,
        or the database has another one.

    The DDL comes from listeners of the table. A ``MetaData`` loses them when it is pickled.

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
    check_settings(cluster, key_range, strategy, enforce_range)
    if cluster is None and key_range is None and strategy == "identity":
        cluster = cluster_of_environment
    for option in ("autoincrement", "default", "insert_default", "nullable", "primary_key", "server_default"):
        if option in kwargs:
            raise ConfigurationError(f"cluster_key() sets {option} itself: it is a primary key that the database makes")
    spec = ClusterSpec(name, cluster, key_range, strategy, enforce_range)
    kwargs["info"] = {**kwargs.get("info", {}), _INFO: spec}
    type_ = BigInteger().with_variant(Integer(), "sqlite")
    mapped: MappedColumn[int] = mapped_column(type_, Identity(), primary_key=True, autoincrement=True, **kwargs)
    event.listen(mapped.column, "after_parent_attach", _on_attach, propagate=True)
    return mapped


def cluster_of_environment() -> int:
    """Return the number in ``PUBLIC_ID_CLUSTER``.

    :raises ConfigurationError: if there is none.
    """
    value = os.environ.get(ENVIRONMENT, "")
    try:
        return checked_cluster(int(value))
    except ValueError:
        is_now = f"is {safe_repr(value)}" if value else "is not set"
        raise ConfigurationError(
            f"cluster is missing, and {ENVIRONMENT} {is_now} in the environment: set it to the number of this cluster, "
            f"0 to {LAST_CLUSTER}, or write cluster_key(cluster=10), or a function that returns it; or write "
            f'strategy="function", with the number in the database'
        ) from None


def cluster_spec(column: Column[Any]) -> ClusterSpec | None:
    """Return the settings of a cluster key; ``None`` for a copy in a version table, which has no counter."""
    return cast("ClusterSpec", column.info[_INFO]) if _INFO in column.info and column.autoincrement else None


def resolved(cluster: Cluster) -> int:
    """Return the number of *cluster*, a number or a function.

    :raises ConfigurationError: unless it is one from 0 to 32767.
    """
    number: object = cluster() if callable(cluster) else cluster
    try:
        return checked_cluster(number)
    except ValueError as error:
        raise ConfigurationError(f"cluster: {error}") from None


def is_config(table: Table) -> bool:
    """Return True for the table with the number of the cluster, as ``cluster_key()`` declares it."""
    return _CONFIG in table.info


def check_settings(
    cluster: object, key_range: object, strategy: object = "identity", enforce_range: bool = False
) -> None:
    """Check what is declared.

    :raises ConfigurationError: for settings that cannot work.
    """
    if strategy not in ("identity", "function"):
        raise ConfigurationError(f'strategy is {safe_repr(strategy)}, expected "identity" or "function"')
    if key_range is not None and not isinstance(key_range, Range):
        raise ConfigurationError(f"key_range is {safe_repr(key_range)}, expected one of Ranges(shards=...)")
    if key_range is not None and (cluster is not None or strategy == "function"):
        raise ConfigurationError(
            'key_range takes the place of a cluster, with strategy="identity" only; leave one of them out'
        )
    if enforce_range and strategy == "function":
        raise ConfigurationError(
            'enforce_range is for strategy="identity"; leave it out, the counter of strategy="function" has limits'
        )
    if cluster is not None and not callable(cluster):
        resolved(cast("int", cluster))


# --- DDL


def _on_attach(column: Column[Any], table: Table) -> None:
    spec = cluster_spec(column)  # copies of a column come here too, each with a table of its own
    if spec is None or not isinstance(table, Table):
        return
    table.dialect_options["sqlite"]["autoincrement"] = True
    if spec.strategy == "function":
        _declare_config(table)
    elif spec.is_known:
        keys, identity = cast("Range", spec.keys()), cast("Identity", column.identity)
        identity.start, identity.minvalue, identity.maxvalue = keys.start, keys.start, keys.last
        for dialect in ("mysql", "mariadb"):
            table.dialect_options[dialect]["auto_increment"] = str(keys.start)

    # per connection: threads share a metadata, and each may create its tables in another database
    ranges: WeakKeyDictionary[Connection, Range] = WeakKeyDictionary()

    def before_create(target: Table, connection: Connection, **kw: Any) -> None:
        if spec.strategy == "function":
            _begin_config(connection, _ddl_of(column, connection).config, table.name, spec)
        elif not spec.is_known:
            ranges[connection] = cast("Range", spec.keys())

    def after_create(target: Table, connection: Connection, **kw: Any) -> None:
        counter = _ddl_of(column, connection)
        if spec.strategy == "function":
            _send(connection, counter.create_sequence(existing=False))
            return
        keys = cast("Range", spec.keys() if spec.is_known else ranges.pop(connection))
        if not spec.is_known or connection.dialect.name == "sqlite":
            _send(connection, counter.begin(keys))
        if spec.enforce_range:
            _send(connection, counter.create_guard(keys))

    def after_drop(target: Table, connection: Connection, **kw: Any) -> None:
        if spec.strategy == "function" and connection.dialect.name != "sqlite":
            _send(connection, _ddl_of(column, connection).drop_counter())

    event.listen(table, "before_create", before_create)
    event.listen(table, "after_create", after_create)
    event.listen(table, "after_drop", after_drop)


def _ddl_of(column: Column[Any], connection: Connection) -> ClusterColumn:
    spec, table = cluster_spec(column), column.table
    assert spec is not None
    schema, dialect = _schema(table, connection), connection.dialect
    return ClusterColumn(dialect, table.name, column.name, schema=schema, sequence=spec.sequence)


def _schema(table: Table, connection: Connection) -> str | None:
    # a mock connection has no options
    options: Mapping[str, Any] = getattr(connection, "get_execution_options", dict)()
    translated: Mapping[str | None, str | None] = options.get("schema_translate_map") or {}
    return translated.get(table.schema, table.schema)


def _send(connection: Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.execute(as_ddl(statement))


def _declare_config(table: Table) -> None:
    # the table with the number of the cluster, in the schema of *table*
    full_name = f"{table.schema}.{CONFIG}" if table.schema else CONFIG
    config = table.metadata.tables.get(full_name)
    if config is None:
        config = config_table(table.metadata, table.schema)
    if not event.contains(config, "after_create", _create_config):  # it is new, or a copy
        config.info[_CONFIG] = True
        event.listen(config, "before_create", _refuse_config)
        event.listen(config, "after_create", _create_config)
        event.listen(config, "after_drop", _drop_config)
    table.add_is_dependent_on(config)


def _refuse_config(config: Table, connection: Connection, **kw: Any) -> None:
    if connection.dialect.name == "sqlite":  # before the first table is created
        raise Config(connection.dialect).no_functions()


def _create_config(config: Table, connection: Connection, **kw: Any) -> None:
    _send(connection, Config(connection.dialect, config.name, _schema(config, connection)).create_function())


def _drop_config(config: Table, connection: Connection, **kw: Any) -> None:
    _send(connection, Config(connection.dialect, config.name, _schema(config, connection)).drop_function())


def _begin_config(connection: Connection, config: Config, table: str, spec: ClusterSpec) -> None:
    """Store the cluster of *spec*. Refuse to create *table* if the database has none, or another one."""
    is_real = isinstance(connection, Connection)  # a mock connection returns no rows
    if connection.dialect.name == "sqlite":
        raise config.no_functions()
    if is_real and not inspect(connection).has_table(CONFIG, schema=config.schema):
        raise ConfigurationError(
            f"{table} needs the table {config.table}, which is missing: create it, too, with create_all() of all "
            f"tables, or name it in create_all(tables=[...]), or with op.create_cluster_config()"
        )
    if spec.cluster is None:
        return
    cluster = resolved(spec.cluster)
    _send(connection, config.begin(cluster))
    stored = connection.scalars(text(config.get())).all() if is_real else [cluster]
    if stored != [cluster]:
        raise ConfigurationError(
            f"{table} is declared with cluster {cluster}, and {config.table} has {', '.join(map(str, stored))}: leave "
            f"cluster out to use that of the database; or UPDATE {config.table}, if it is wrong"
        )
