"""What the operations for cluster keys do. Each can be run again, and none goes back with a counter."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from alembic.operations import Operations
from sqlalchemy import Connection

from sqlalchemy_public_id.alembic.clusters.checks import look_at_column, look_at_rows, name_in_sqlite
from sqlalchemy_public_id.alembic.clusters.ops import (
    CreateClusterConfigOp,
    CreateClusterSequenceOp,
    DropClusterConfigOp,
    DropClusterSequenceOp,
    SetClusterOp,
    UnsetClusterOp,
)
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.cluster.column import ENVIRONMENT, cluster_of_environment, resolved
from sqlalchemy_public_id.keys.cluster.ddl import ClusterColumn, Config, as_ddl, in_script
from sqlalchemy_public_id.keys.ranges import range_of

__all__: list[str] = []


@Operations.implementation_for(CreateClusterConfigOp)
def _create_config(operations: Operations, op: CreateClusterConfigOp) -> None:
    config = Config(_dialect(operations), schema=op.schema)
    if config.dialect.name == "sqlite":
        raise config.no_functions()
    cluster = _cluster(operations, op.cluster)
    _run(
        operations, [*config.create(), *config.create_function(), *(config.set(cluster) if cluster is not None else [])]
    )


@Operations.implementation_for(DropClusterConfigOp)
def _drop_config(operations: Operations, op: DropClusterConfigOp) -> None:
    config = Config(_dialect(operations), schema=op.schema)
    _run(operations, [*config.drop_function(), *config.drop()])


@Operations.implementation_for(DropClusterSequenceOp)
def _drop_sequence(operations: Operations, op: DropClusterSequenceOp) -> None:
    _run(operations, _counter(operations, op).drop_sequence())


@Operations.implementation_for(CreateClusterSequenceOp)
def _create_sequence(operations: Operations, op: CreateClusterSequenceOp) -> None:
    statements, connection = _counter(operations, op).create_sequence(), _connection(operations)
    if connection is not None:
        look_at_column(connection, op.table_name, op.column_name, op.schema)
    _run(operations, statements)


@Operations.implementation_for(SetClusterOp)
def _set(operations: Operations, op: SetClusterOp) -> None:
    keys = op.key_range
    if keys is None:
        cluster = _cluster(operations, op.cluster)
        if cluster is None and ENVIRONMENT in os.environ:
            cluster = cluster_of_environment()
        if cluster is None:
            raise ConfigurationError(
                f"op.set_cluster({op.table_name!r}) does not know its cluster: say cluster=10 in the migration, or "
                f"context.configure(..., public_id_cluster=10) in env.py, or set {ENVIRONMENT} in the environment"
            )
        keys = range_of(cluster)
    connection, name = _connection(operations), op.table_name
    if connection is not None:
        if connection.dialect.name == "sqlite":
            name = name_in_sqlite(connection, name, op.schema)
        else:
            look_at_column(connection, name, op.column_name, op.schema, keys.last)
        look_at_rows(connection, op, keys)
    counter = ClusterColumn(_dialect(operations), name, op.column_name, schema=op.schema)
    _run(
        operations, [*counter.limit(keys), *(counter.create_guard(keys) if op.enforce_range else counter.drop_guard())]
    )


@Operations.implementation_for(UnsetClusterOp)
def _unset(operations: Operations, op: UnsetClusterOp) -> None:
    counter = ClusterColumn(_dialect(operations), op.table_name, op.column_name, schema=op.schema)
    _run(operations, counter.free())


def _cluster(operations: Operations, given: int | None) -> int | None:
    """The number of the cluster: *given* in the migration, or told by env.py."""
    told: Any = operations.get_context().opts.get("public_id_cluster") if given is None else given
    return None if told is None else resolved(told)


def _counter(operations: Operations, op: CreateClusterSequenceOp) -> ClusterColumn:
    return ClusterColumn(_dialect(operations), op.table_name, op.column_name, schema=op.schema, sequence=op.sequence)


def _connection(operations: Operations) -> Connection | None:
    """Where to look; ``None`` in a script."""
    context = operations.get_context()
    return None if context.as_sql else context.connection


def _dialect(operations: Operations) -> Any:
    return operations.get_context().dialect


def _run(operations: Operations, statements: Sequence[str]) -> None:
    context = operations.get_context()
    if context.as_sql:
        for written in in_script(statements, context.dialect):
            context.impl.static_output(written)
        return
    for statement in statements:
        operations.execute(as_ddl(statement))
