"""``cluster_key()``: a column of keys that contain the number of their cluster, and its DDL events."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Column, Connection, Engine, Identity, MetaData, Table, event, inspect
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import MappedColumn, mapped_column

from sqlalchemy_public_id._private import has_info, inserted_table
from sqlalchemy_public_id.declared_options import keep_options
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.guard.checks import inserted_by
from sqlalchemy_public_id.key_types import BigIntegerKey
from sqlalchemy_public_id.keys.cluster.catalog import find_difference
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG, ClusterColumn, Config, as_ddl, config_table
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, Range, checked_cluster, range_of
from sqlalchemy_public_id.listeners import Listener, Listeners
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.weak import RefDict

Cluster: TypeAlias = "int | Callable[[], int]"
Strategy: TypeAlias = Literal["identity", "function"]

_ENVIRONMENT = "PUBLIC_ID_CLUSTER"
_INFO = "sqlalchemy_public_id.cluster_key"
_OWN = ("autoincrement", "default", "insert_default", "nullable", "primary_key", "server_default")


@dataclass(frozen=True)
class ClusterSpec:
    """The settings of a column of cluster keys.

    :raises ConfigurationError: for invalid settings.
    """

    sequence: str | None = None
    cluster: Cluster | None = None
    key_range: Range | None = None
    strategy: Strategy = "identity"
    enforce_range: bool = False

    def __post_init__(self) -> None:
        by_function, key_range = self.strategy == "function", cast("object", self.key_range)
        if not by_function and self.strategy != "identity":
            raise ConfigurationError(f'strategy is {safe_repr(self.strategy)}, expected "identity" or "function"')
        if key_range is not None and not isinstance(key_range, Range):
            raise ConfigurationError(f"key_range is {safe_repr(key_range)}, expected one of Ranges(shards=...)")
        if (key_range and (by_function or self.cluster is not None)) or (self.enforce_range and by_function):
            raise ConfigurationError(
                'pass either a cluster or key_range; key_range and enforce_range work with strategy="identity" only, '
                'because strategy="function" limits its counter itself'
            )
        if self.cluster is not None and not callable(self.cluster):
            resolved(self.cluster)

    def keys(self) -> Range:
        """Return the range of keys from the setting, from the cluster, a function, or the environment.

        :raises ConfigurationError: if there is none.
        """
        if self.key_range is not None:
            return self.key_range
        if self.cluster is not None:
            return range_of(resolved(self.cluster))
        value = os.environ.get(_ENVIRONMENT, "")
        try:
            return range_of(int(value))
        except ValueError:
            is_now = f"is {safe_repr(value)}" if value else "is not set"
            raise ConfigurationError(
                f"cluster is missing, and {_ENVIRONMENT} {is_now} in the environment: set it to the number of this "
                f"cluster, 0 to {LAST_CLUSTER}, or pass cluster=10, or a function that returns it; in migrations, also "
                f"context.configure(..., public_id_cluster=10) in env.py; or write "
                f'strategy="function", with the number in the database'
            ) from None

    def known_keys(self) -> Range | None:
        """Return :meth:`keys`; ``None`` if neither the model nor the environment has a number.

        :raises ConfigurationError: if the number is invalid.
        """
        is_told = self.key_range is not None or self.cluster is not None or _ENVIRONMENT in os.environ
        return self.keys() if is_told else None


def cluster_key(
    name: str | None = None,
    *,
    cluster: int | Callable[[], int] | None = None,
    key_range: Range | None = None,
    strategy: Strategy = "identity",
    enforce_range: bool = False,
    **kwargs: Any,
) -> MappedColumn[int]:
    """Declare a 64-bit primary key whose upper bits are the number of the cluster that generated the key.

    :param name: the name of the counter with ``strategy="function"``; by default, the name of the table. With
        ``strategy="identity"``, the counter belongs to the column and ignores it.
    :param cluster: the number of this cluster, 0 to 32767, or a function that is called when DDL is emitted or
        compared. Default: the environment variable ``PUBLIC_ID_CLUSTER``; with ``strategy="function"``, the number in
        the database. ``create_all()`` compares the database with the number, and so does the first INSERT of each
        engine that needs a key from a table, unless the number comes from a function. A program that writes to the
        databases of several clusters has no number, or a function.
    :param key_range: a range of keys instead of a cluster: one of the :class:`~sqlalchemy_public_id.keys.Ranges`.
    :param strategy: ``"identity"``: ``IDENTITY`` or ``AUTO_INCREMENT``, which begins inside the range of the cluster,
        at no cost. ``"function"``: each key reads the cluster from the table ``cluster_config``; not on SQLite.
    :param enforce_range: whether triggers refuse inserted keys outside of the range, on MySQL, MariaDB and SQLite.
        PostgreSQL needs none: its sequences have limits.
    :param kwargs: passed to :func:`sqlalchemy.orm.mapped_column`.
    :raises ConfigurationError: for invalid settings; when DDL is emitted, if the environment has no cluster; and from
        ``create_all()`` or the first INSERT, if the database counts for another one.

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
    for option in _OWN:
        if option in kwargs:
            raise ConfigurationError(f"cluster_key() sets {option} itself: the database generates this primary key")
    spec = ClusterSpec(name, cluster, key_range, strategy, enforce_range)
    kwargs["info"] = {**kwargs.get("info", {}), _INFO: spec}
    mapped: MappedColumn[int] = mapped_column(
        BigIntegerKey(unsigned=False), Identity(), primary_key=True, autoincrement=True, **kwargs
    )
    keep_options(mapped.column, "cluster_key()", _OWN)
    _LISTENERS.install()
    return mapped


def cluster_spec(column: Column[Any]) -> ClusterSpec | None:
    """Return the settings of a cluster key; ``None`` for a copy in a version table, which has no counter."""
    return cast("ClusterSpec", column.info[_INFO]) if _INFO in column.info and column.autoincrement else None


def resolved(cluster: Cluster) -> int:
    """Return the number of *cluster*, a number or a function.

    :raises ConfigurationError: unless it is a number from 0 to 32767.
    """
    try:
        return checked_cluster(cluster() if callable(cluster) else cluster)
    except ValueError as error:
        raise ConfigurationError(f"cluster: {error}") from None


# --- DDL


def _on_attach(column: Column[Any], table: Any) -> None:
    """Add the DDL of a cluster key. Runs when any column is attached to its table: one in Annotated loses listeners."""
    spec = cluster_spec(column) if has_info(column) else None  # a copy of the column is in another table
    if spec is None or not isinstance(table, Table):
        return
    table = cast("Table", table)
    table.dialect_options["sqlite"]["autoincrement"] = True
    event.listen(table.metadata, "before_create", _before_create)  # SQLAlchemy adds it only once
    # per connection: threads share a metadata, and each may create its tables in another database
    ranges: WeakKeyDictionary[Connection, Range] = WeakKeyDictionary()

    def ddl(connection: Connection) -> ClusterColumn:
        schema = _schema(table, connection)
        return ClusterColumn(connection.dialect, table.name, column.name, schema=schema, sequence=spec.sequence)

    def begin_config(target: Table, connection: Connection, **kw: Any) -> None:
        config = Config(connection.dialect, _schema(table, connection))
        _send(connection, [] if spec.cluster is None else config.begin(resolved(spec.cluster)))

    def create_sequence(target: Table, connection: Connection, **kw: Any) -> None:
        _send(connection, ddl(connection).create_sequence())

    def drop_counter(target: Table, connection: Connection, **kw: Any) -> None:
        _send(connection, ddl(connection).drop_counter())

    def find_range(target: Table, connection: Connection, **kw: Any) -> None:
        ranges[connection] = spec.keys()  # raises without a cluster, so that no table is created

    def begin_range(target: Table, connection: Connection, **kw: Any) -> None:
        counter, keys = ddl(connection), ranges.pop(connection)
        _send(connection, [*counter.limit(keys), *(counter.guard(keys) if spec.enforce_range else [])])

    if spec.strategy == "identity":
        event.listen(table, "before_create", find_range)
        event.listen(table, "after_create", begin_range)
        return
    event.listen(table, "before_create", begin_config)
    event.listen(table, "after_create", create_sequence)
    event.listen(table, "after_drop", drop_counter)
    config = config_table(table.metadata, table.schema)
    for name, listener in _CONFIG_LISTENERS.items():  # SQLAlchemy adds each listener only once
        event.listen(config, name, listener)
    table.add_is_dependent_on(config)


# --- a database that counts for another cluster, such as a copy

_compared: RefDict[Any, None] = RefDict()
"""Compiled INSERTs that need no comparison any more."""
_right: RefDict[Dialect, set[tuple[str | None, str]]] = RefDict()
"""The dialect of an engine → the schemas and names of its tables whose counters were right."""


def _before_create(metadata: MetaData, connection: Any, **kw: Any) -> None:
    """Compare the counters of existing tables. Runs in ``create_all()``, before any table is created."""
    if not isinstance(connection, Connection):  # a mock connection only prints
        return
    columns = [column for table in metadata.tables.values() for column in table.primary_key if cluster_spec(column)]
    inspector = inspect(connection) if columns else None
    for column in columns:
        if inspector is not None and inspector.has_table(column.table.name, schema=_schema(column.table, connection)):
            _compare(connection, column)


def _compare(connection: Connection, column: Column[Any]) -> None:
    """Refuse a database whose counter does not have the number that the model or the environment has."""
    spec, table = cast("ClusterSpec", cluster_spec(column)), column.table
    keys = spec.known_keys()
    if keys is None:
        return
    by_function, schema = spec.strategy == "function", _schema(table, connection)
    how = {"by_function": by_function, "has_guard": spec.enforce_range}
    found = find_difference(connection, table.name, schema, column.name, keys, **how)
    if found is not None:
        told = "its key_range" if spec.key_range else "its cluster" if spec.cluster is not None else _ENVIRONMENT
        keys_told = f"{keys.start} to {keys.last}" if keys.cluster is None else keys.cluster
        raise ConfigurationError(
            f"{found}, but the keys of {table.name} should be those of {told}, {keys_told}: a copy of a database goes "
            f"on counting for the original, so that both would generate the same keys. In a copy, "
            f"{f'update {CONFIG}' if by_function else f'run op.set_cluster({table.name!r})'} in a migration; if the "
            f"database is right, correct the number; a program that writes to several clusters takes it from a function"
        )


def _do_execute(cursor: object, statement: str, parameters: object, context: Any) -> None:
    """Compare the counter before the first INSERT of an engine that needs a key from it.

    Runs whenever an engine of the process executes a statement, also with many sets of parameters.
    """
    # for all other statements, this is all that happens
    if context is not None and context.isinsert and ref(context.compiled) not in _compared:
        _compare_for(context)


def _compare_for(context: Any) -> None:
    compiled, connection = context.compiled, context.root_connection
    insert, dialect = inserted_by(compiled), connection.dialect
    is_known = insert is not None and insert.select is None  # a SELECT may have the keys
    table = inserted_table(compiled, insert) if insert is not None and is_known else None
    is_of_one_schema = True
    for column in getattr(table, "primary_key", ()):
        spec = cluster_spec(column)
        if spec is None or column.key in compiled.params or traits_for(dialect).key_counter is None:
            continue
        place = _schema(column.table, connection), column.table.name
        right = _right.get(ref(dialect)) or _right.keep(dialect, set())
        if place not in right and not callable(spec.cluster):  # a function may answer for the database that gets DDL
            _compare(connection, column)
            right.add(place)
        # SQLAlchemy compiles an INSERT once for the schemas of all tenants
        is_of_one_schema = not connection.get_execution_options().get("schema_translate_map")
    if is_of_one_schema:
        _compared.keep(compiled, None)


_LISTENERS = Listeners(
    Listener(Column, "after_parent_attach", _on_attach),
    Listener(Engine, "do_execute", _do_execute),
    Listener(Engine, "do_executemany", _do_execute),
)


def _config_listener(statements: Callable[[Config], list[str]]) -> Callable[..., None]:
    def listener(table: Table, connection: Connection, **kw: Any) -> None:
        _send(connection, statements(Config(connection.dialect, _schema(table, connection))))

    return listener


_CONFIG_LISTENERS = {
    "before_create": _config_listener(lambda _: []),  # Config() raises on SQLite
    "after_create": _config_listener(Config.create_function),
    "after_drop": _config_listener(Config.drop_function),
}


def _schema(table: Table, connection: Connection) -> str | None:
    # a mock connection has no options
    options: Mapping[str, Any] = getattr(connection, "get_execution_options", dict)()
    translated: Mapping[str | None, str | None] = options.get("schema_translate_map") or {}
    return translated.get(table.schema, table.schema)


def _send(connection: Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.execute(as_ddl(statement))
