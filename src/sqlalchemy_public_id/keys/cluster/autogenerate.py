"""Autogenerate for cluster keys: what comes with a table, what goes with it, and what changes."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from alembic.operations.ops import AlterColumnOp, CreateTableOp, DropTableOp, MigrateOperation, UpgradeOps
from sqlalchemy import Column, Connection, Identity, Table

from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.keys.cluster.catalog import read_counter, read_key_range
from sqlalchemy_public_id.keys.cluster.column import (
    ENVIRONMENT,
    ClusterSpec,
    cluster_of_environment,
    cluster_spec,
    is_config,
)
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG, sequence_name
from sqlalchemy_public_id.keys.cluster.operations import (
    ClusterOp,
    CreateClusterConfigOp,
    CreateClusterSequenceOp,
    DropClusterConfigOp,
    DropClusterSequenceOp,
    SetClusterOp,
)
from sqlalchemy_public_id.keys.ranges import range_of
from sqlalchemy_public_id.migrating.table import columns_of

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

_PREFIX = sequence_name("")


def replace_cluster_ops(context: AutogenContext, upgrade: UpgradeOps, schemas: object) -> bool:
    """Add the operations of cluster keys for each table that is new, changed or dropped."""
    tables = {(table.schema, table.name): table for table in context.sorted_tables or ()}
    created = {(op.schema, op.table_name) for op in upgrade.ops if isinstance(op, CreateTableOp)}
    dropped = [op for op in upgrade.ops if isinstance(op, DropTableOp)]
    configured = {table.schema for table in tables.values() if is_config(table)}
    configured |= {op.schema for op in dropped if _drops_config(op)}  # elsewhere are no counters, and none is read
    ops: list[MigrateOperation] = []
    for op in upgrade.ops:
        if isinstance(op, DropTableOp) and op.schema in configured:
            ops += _drop_table(context, op)
            continue
        table = tables.get((op.schema, op.table_name)) if isinstance(op, CreateTableOp) else None
        if table is not None and is_config(table):
            ops.append(CreateClusterConfigOp(schema=table.schema))
            continue
        ops += [op, *(added for column in (() if table is None else table.columns) for added in _added_with(column))]
    for name, table in tables.items():
        for column in table.columns if name not in created else ():
            ops += _changes_of(context, column)
    ops += [DropClusterConfigOp(schema=op.schema) for op in dropped if _drops_config(op)]
    upgrade.ops[:] = ops
    return False


def ignore_cluster_default(
    context: AutogenContext, op: AlterColumnOp, existing: Column[Any], column: Column[Any]
) -> bool:
    """Ignore the server default that makes cluster keys."""
    spec = cluster_spec(column)
    if spec is None:
        return False
    if spec.strategy == "identity" and existing.server_default is None and context.dialect.name == "postgresql":
        return False  # the counter is missing, and Alembic adds it
    op.modify_server_default = False
    return True


def _added_with(column: Column[Any]) -> list[ClusterOp]:
    spec, table = cluster_spec(column), column.table
    if spec is None:
        return []
    if spec.strategy == "function":
        return [CreateClusterSequenceOp(table.name, column.name, schema=table.schema, sequence=spec.sequence)]
    cluster = spec.cluster if isinstance(spec.cluster, int) else None
    options: dict[str, Any] = {"cluster": cluster, "key_range": spec.key_range, "enforce_range": spec.enforce_range}
    return [SetClusterOp(table.name, column.name, schema=table.schema, **options)]


def _changes_of(context: AutogenContext, column: Column[Any]) -> list[ClusterOp]:
    """Return the operations that turn the keys of an existing table into those of *column*.

    An ``AUTO_INCREMENT`` without a guard shows only that it is below its range, and only if the number of the cluster
    is in the model or in env.py. SQLite does not show even that.
    """
    spec, table, connection = cluster_spec(column), column.table, context.connection
    assert connection is not None
    if spec is None or not context.inspector.has_table(table.name, schema=table.schema):
        return []
    if column.name not in columns_of(context.inspector, table.name, table.schema):
        return []
    if not context.run_object_filters(table, table.name, "table", False, None):
        return []
    counter = read_counter(connection, table.name, table.schema, column.name)
    if spec.strategy == "function":
        return [] if counter is not None or connection.dialect.name == "sqlite" else _added_with(column)
    if counter is not None:
        return [*_drop_counter(table.name, column.name, table.schema, counter), *_added_with(column)]
    return [] if _is_within(context, column, spec) else _added_with(column)


def _is_within(context: AutogenContext, column: Column[Any], spec: ClusterSpec) -> bool:
    """Return True if the counter of a key has the limits of the model, or if the database does not show them."""
    table, dialect = column.table, context.dialect.name
    assert context.connection is not None
    keys = spec.keys() if spec.is_known else None
    if dialect == "postgresql" or spec.enforce_range:
        existing = read_key_range(context.connection, table.name, table.schema, column.name)
        if keys is not None or existing is None:
            return existing is not None and existing == keys
        return existing.cluster is not None  # any: each database has its own number
    cluster = context.migration_context.opts.get("public_id_cluster")
    if keys is None and isinstance(cluster, int):
        keys = range_of(cluster)
    elif spec.cluster is cluster_of_environment and ENVIRONMENT in os.environ:
        keys = spec.keys()
    if keys is None or dialect == "sqlite":
        return True
    return _auto_increment(context.connection, table) >= keys.start  # the audit finds counters behind the range


def _auto_increment(connection: Connection, table: Table) -> int:
    # information_schema of MySQL caches an old number
    query = f"SHOW CREATE TABLE {quoted_table(table.name, table.schema, connection.dialect)}"
    sql = str(connection.exec_driver_sql(query, execution_options={"no_parameters": True}).one()[1])
    match = re.search(r"\bAUTO_INCREMENT=(\d+)", sql.rpartition("\n)")[2])
    return 1 if match is None else int(match[1])


def _drops_config(op: DropTableOp) -> bool:
    return op.table_name == CONFIG and set(op.to_table().columns.keys()) == {"singleton", "cluster"}


def _drop_table(context: AutogenContext, op: DropTableOp) -> list[MigrateOperation]:
    """Return the operations that drop a table and the counter of its cluster keys, so that a downgrade has both."""
    table, connection = op.to_table(), context.connection
    assert connection is not None
    if _drops_config(op) or (op.table_name.startswith(_PREFIX) and set(table.columns.keys()) == {"number"}):
        return []  # the config goes last; a counter, which is a table on MySQL, goes with its keys
    keys = list(table.primary_key.columns)
    counter = read_counter(connection, op.table_name, op.schema, keys[0].name) if len(keys) == 1 else None
    dropped = _drop_counter(op.table_name, keys[0].name, op.schema, counter or "")
    if (
        dropped and connection.dialect.name == "postgresql"
    ):  # on downgrade, the default would need its counter too early
        keys[0].server_default = keys[0].identity = Identity()
        op = DropTableOp.from_table(table)
    return [*dropped, op]


def _drop_counter(table: str, column: str, schema: str | None, counter: str) -> list[ClusterOp]:
    """Return the operation that drops *counter*; none if it is not ours."""
    if not counter.startswith(_PREFIX):
        return []
    sequence = None if counter == sequence_name(table) else counter.removeprefix(_PREFIX)
    return [DropClusterSequenceOp(table, column, schema=schema, sequence=sequence)]
