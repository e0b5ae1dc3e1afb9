"""Implementations of the directives for cluster keys. Each can be run again, and none sets a counter back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from alembic.operations import Operations
from sqlalchemy import Connection, column, func, inspect, select, table
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.alembic import ops_clusters
from sqlalchemy_public_id.dialects.quoting import in_script, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError, LockNotAvailable
from sqlalchemy_public_id.keys.cluster.column import ENVIRONMENT, cluster_of_environment, resolved
from sqlalchemy_public_id.keys.cluster.ddl import ClusterColumn, Config, as_ddl
from sqlalchemy_public_id.keys.ranges import LAST_KEY, SEQUENCE_BITS, Range, range_of
from sqlalchemy_public_id.migrating import Patience
from sqlalchemy_public_id.migrating.catalog import columns_of
from sqlalchemy_public_id.migrating.run import can_be_retried, limits_of_operation

OpT = TypeVar("OpT", bound=ops_clusters.ClusterOp)

_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INTEGER": 32, "INT": 32}
_WIDE = {"BIGINT", "NUMERIC", "DECIMAL"}


_PATIENCE = Patience(lock_timeout=5.0, attempts=1)
"""One attempt, because the transaction of the revision may have other locks meanwhile."""


def _implementation_of(directive: type[OpT]) -> Callable[[Callable[[Operations, OpT], None]], None]:
    """Register a function that does what *directive* says, and never waits for a lock for long.

    Everything that uses the table would queue behind it.
    """

    def register(run: Callable[[Operations, OpT], None]) -> None:
        @Operations.implementation_for(directive)
        def run_bounded(operations: Operations, op: OpT) -> None:
            connection = _connection(operations)
            if connection is None:
                run(operations, op)
                return
            with limits_of_operation(connection, _PATIENCE):
                try:
                    run(operations, op)
                except DBAPIError as error:
                    if not can_be_retried(error, connection.dialect):
                        raise
                    step, table = f"run op.{op.name}()", getattr(op, "table_name", "cluster_config")
                    raise LockNotAvailable(
                        step=step, table=table, attempts=1, timeout=_PATIENCE.lock_timeout
                    ) from error

    return register


@_implementation_of(ops_clusters.CreateClusterConfigOp)
def _create_config(operations: Operations, op: ops_clusters.CreateClusterConfigOp) -> None:
    config = Config(_dialect(operations), schema=op.schema)
    if config.dialect.name == "sqlite":
        raise config.no_functions()
    cluster = _cluster(operations, op.cluster)
    row = config.set(cluster) if cluster is not None else []
    _execute(operations, [*config.create(), *config.create_function(), *row])


@_implementation_of(ops_clusters.DropClusterConfigOp)
def _drop_config(operations: Operations, op: ops_clusters.DropClusterConfigOp) -> None:
    config = Config(_dialect(operations), schema=op.schema)
    _execute(operations, [*config.drop_function(), *config.drop()])


@_implementation_of(ops_clusters.DropClusterSequenceOp)
def _drop_sequence(operations: Operations, op: ops_clusters.DropClusterSequenceOp) -> None:
    _execute(operations, _counter(operations, op).drop_sequence())


@_implementation_of(ops_clusters.CreateClusterSequenceOp)
def _create_sequence(operations: Operations, op: ops_clusters.CreateClusterSequenceOp) -> None:
    statements, connection = _counter(operations, op).create_sequence(), _connection(operations)
    if connection is not None:
        _check_column(connection, op.table_name, op.column_name, op.schema)
    _execute(operations, statements)


@_implementation_of(ops_clusters.SetClusterOp)
def _set(operations: Operations, op: ops_clusters.SetClusterOp) -> None:
    keys = op.key_range
    if keys is None:
        cluster = _cluster(operations, op.cluster)
        if cluster is None and ENVIRONMENT in os.environ:
            cluster = cluster_of_environment()
        if cluster is None:
            raise ConfigurationError(
                f"op.set_cluster({op.table_name!r}) has no cluster; pass cluster=10 in the migration, or "
                f"context.configure(..., public_id_cluster=10) in env.py, or set {ENVIRONMENT} in the environment"
            )
        keys = range_of(cluster)
    connection, name = _connection(operations), op.table_name
    if connection is not None:
        if connection.dialect.name == "sqlite":
            name = _stored_name(connection, name, op.schema)
        else:
            _check_column(connection, name, op.column_name, op.schema, keys.last)
        _check_rows(connection, op, keys)
    counter = ClusterColumn(_dialect(operations), name, op.column_name, schema=op.schema)
    guard = counter.create_guard(keys) if op.enforce_range else counter.drop_guard()
    _execute(operations, [*counter.limit(keys), *guard])


@_implementation_of(ops_clusters.UnsetClusterOp)
def _unset(operations: Operations, op: ops_clusters.UnsetClusterOp) -> None:
    _execute(operations, _counter(operations, op).free())


def _cluster(operations: Operations, number: int | None) -> int | None:
    """Return *number*, or else the one in env.py, which may be a function."""
    value: Any = operations.get_context().opts.get("public_id_cluster") if number is None else number
    return None if value is None else resolved(value)


def _counter(
    operations: Operations, op: ops_clusters.CreateClusterSequenceOp | ops_clusters.UnsetClusterOp
) -> ClusterColumn:
    sequence = op.sequence if isinstance(op, ops_clusters.CreateClusterSequenceOp) else None
    return ClusterColumn(_dialect(operations), op.table_name, op.column_name, schema=op.schema, sequence=sequence)


def _connection(operations: Operations) -> Connection | None:
    context = operations.get_context()
    return None if context.as_sql else context.connection  # a script checks nothing


def _dialect(operations: Operations) -> Any:
    return operations.get_context().dialect


def _execute(operations: Operations, statements: Sequence[str]) -> None:
    context = operations.get_context()
    if context.as_sql:
        for written in in_script(statements, context.dialect):
            context.impl.static_output(written)
        return
    for statement in statements:
        operations.execute(as_ddl(statement))


# --- checks before the first statement


def _check_column(connection: Connection, name: str, key: str, schema: str | None, last: int = LAST_KEY) -> None:
    """Check that a key holds numbers up to *last*, and counts. Not for SQLite.

    :raises ConfigurationError: if not, with the migration that changes it.
    """
    inspector = inspect(connection)
    if not inspector.has_table(name, schema=schema):
        raise _no_table(name)
    dialect = connection.dialect.name
    columns = columns_of(inspector, name, schema)
    if key not in columns:
        raise ConfigurationError(f"{name} has no column {key!r}; there are: {', '.join(columns)}")
    type_: Any = columns[key]["type"]
    type_ = getattr(type_, "data_type", type_)  # of a DOMAIN
    kind = type(type_).__name__
    limit = 2 ** (_BITS[kind] - 1) - 1 if kind in _BITS else LAST_KEY if kind in _WIDE else 0
    if last > limit:
        of_range = "a cluster key has 64 bits" if last > 1 << SEQUENCE_BITS else f"the range ends at {last}"
        raise ConfigurationError(
            f"the key of {name} is {kind}, {of_range}: op.alter_column({name!r}, {key!r}, type_=sa.BigInteger()) first"
        )
    if dialect in {"mysql", "mariadb"} and not columns[key].get("autoincrement"):
        raise ConfigurationError(
            f"the key of {name} is not AUTO_INCREMENT, so {dialect} has no counter for it, and does not return the key "
            f"of a new row: op.alter_column({name!r}, {key!r}, existing_type=sa.BigInteger(), "
            f"existing_nullable=False, autoincrement=True) first"
        )


def _check_rows(connection: Connection, op: ops_clusters.SetClusterOp, keys: Range) -> None:
    """Check that no row is outside of *keys*. Reads the smallest and the largest key, the ends of an index.

    :raises ConfigurationError: if other databases may have the same keys, or if the counter would leave the range.
    """
    key = table(op.table_name, column(op.column_name), schema=op.schema).c[op.column_name]
    smallest, largest = connection.execute(select(func.min(key), func.max(key))).one()
    if smallest is None:
        return
    existing = f"there are rows in {op.table_name} from {smallest} to {largest}"
    dialect = connection.dialect.name
    elsewhere = "use op.create_cluster_sequence(), which has a counter of its own"
    if dialect == "sqlite":
        elsewhere = "keep them in another table"
    if dialect != "postgresql" and largest > keys.last:
        raise ConfigurationError(
            f"{existing}, and the range is {keys.start} to {keys.last}: {dialect} counts on from the largest key, so "
            f"new keys would be outside of the range, too; {elsewhere}"
        )
    if op.keep_outside:
        return
    remedy = "give these rows other keys, or pass keep_outside=True if no other database has made keys of this table"
    if keys.cluster is not None:  # keys of other clusters come from a merge
        if smallest < min(1 << SEQUENCE_BITS, keys.start):
            raise ConfigurationError(
                f"{existing}, and {smallest} is from before there were clusters: other databases may have the same "
                f"keys; {remedy}"
            )
    elif smallest < keys.start or largest > keys.last:
        raise ConfigurationError(
            f"{existing}, and the range is {keys.start} to {keys.last}: keys outside of it may be those of other "
            f"databases as well; {remedy}"
        )


def _stored_name(connection: Connection, name: str, schema: str | None) -> str:
    """Return the name of a table as SQLite stores it. Unlike table names, names of counters are case-sensitive.

    :raises ConfigurationError: if there is no such table, or if it has no counter.
    """
    master = quoted_table("sqlite_master", schema, connection.dialect)
    query = f"SELECT name, sql FROM {master} WHERE type = 'table' AND name = ? COLLATE NOCASE"
    row = connection.exec_driver_sql(query, (name,)).one_or_none()
    if row is None:
        raise _no_table(name)
    if "AUTOINCREMENT" not in row.sql.upper():
        raise ConfigurationError(
            f"the key of {name} is not AUTOINCREMENT, so SQLite has no counter for it; "
            f"create the table with sqlite_autoincrement=True"
        )
    return str(row.name)


def _no_table(name: str) -> ConfigurationError:
    return ConfigurationError(f"there is no table {name!r}: create it first, or correct its name")
