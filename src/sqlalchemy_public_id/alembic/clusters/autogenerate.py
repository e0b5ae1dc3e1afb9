"""Autogenerate for cluster keys: the operations for new, dropped and changed tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from alembic.operations.ops import AlterColumnOp, CreateTableOp, DropTableOp, MigrateOperation, UpgradeOps
from sqlalchemy import Column, Connection, Identity, Table

from sqlalchemy_public_id.alembic.clusters.operations import (
    ClusterOp,
    CreateClusterConfigOp,
    CreateClusterSequenceOp,
    DropClusterConfigOp,
    DropClusterSequenceOp,
    SetClusterOp,
)
from sqlalchemy_public_id.dialects import KeyCounter, key_counter_of
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.cluster.audit import read_counter, read_key_range
from sqlalchemy_public_id.keys.cluster.column import cluster_spec
from sqlalchemy_public_id.keys.cluster.ddl import PREFIX, is_config, sequence_name
from sqlalchemy_public_id.migrations.table import columns_of

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext


def replace_cluster_ops(context: AutogenContext, upgrade: UpgradeOps, schemas: object) -> bool:
    """Add the operations of cluster keys for each table that is new, changed or dropped."""
    tables = {(table.schema, table.name): table for table in context.sorted_tables or ()}
    dropped = [op.to_table() for op in upgrade.ops if isinstance(op, DropTableOp)]
    configured = {table.schema for table in (*tables.values(), *dropped) if is_config(table)}  # the only ones to read
    ops: list[MigrateOperation] = []
    for op in upgrade.ops:
        if isinstance(op, DropTableOp) and op.schema in configured:
            ops += _drop_table(context, op)
        elif isinstance(op, CreateTableOp) and (table := tables.pop((op.schema, op.table_name), None)) is not None:
            ops += [CreateClusterConfigOp(schema=table.schema)] if is_config(table) else [op]
            ops += [added for column in table.columns if (added := _op_for(column)) is not None]
        else:
            ops.append(op)
    for table in tables.values():
        for column in table.columns:
            ops += _changes_of(context, column)
    ops += [DropClusterConfigOp(schema=table.schema) for table in dropped if is_config(table)]
    upgrade.ops[:] = ops
    return False


def ignore_cluster_default(
    context: AutogenContext, op: AlterColumnOp, existing: Column[Any], column: Column[Any]
) -> bool:
    """Ignore the server default that makes cluster keys: the operations set it."""
    if cluster_spec(column) is None:
        return False
    op.modify_server_default = False
    return True


def _op_for(column: Column[Any]) -> CreateClusterSequenceOp | SetClusterOp | None:
    """Return the operation that sets up the cluster keys of *column*; ``None`` if it has none."""
    spec, table = cluster_spec(column), column.table
    if spec is None:
        return None
    if spec.strategy == "function":
        return CreateClusterSequenceOp(table.name, column.name, schema=table.schema, sequence=spec.sequence)
    cluster = spec.cluster if isinstance(spec.cluster, int) else None
    options: dict[str, Any] = {"cluster": cluster, "key_range": spec.key_range, "enforce_range": spec.enforce_range}
    return SetClusterOp(table.name, column.name, schema=table.schema, **options)


def _changes_of(context: AutogenContext, column: Column[Any]) -> list[ClusterOp]:
    """Return the operations that change the keys of an existing table to the settings of *column*."""
    op, table, connection = _op_for(column), column.table, context.connection
    assert connection is not None
    if op is None or not context.inspector.has_table(table.name, schema=table.schema):
        return []
    if column.name not in columns_of(context.inspector, table.name, table.schema):
        return []
    if not context.run_object_filters(table, table.name, "table", False, None):
        return []
    counter = read_counter(connection, table.name, table.schema, column.name)
    if isinstance(op, CreateClusterSequenceOp):
        has_functions = key_counter_of(connection.dialect) is not KeyCounter.SQLITE_SEQUENCE
        return [op] if counter is None and has_functions else []
    if counter is not None:
        return [_drop_counter(table, column, counter), op]
    return [] if _is_within(context, connection, op) else [op]


def _is_within(context: AutogenContext, connection: Connection, op: SetClusterOp) -> bool:
    """Return True if the counter has the limits that *op* would set, or if the database does not show them.

    Without a guard, an ``AUTO_INCREMENT`` shows only whether it is below its range; on SQLite, not even that.
    """
    counted_by = key_counter_of(connection.dialect)
    try:
        keys = op.keys(context.migration_context)
    except ConfigurationError:  # each database has its own number, and none is configured here
        keys = None
    if counted_by is KeyCounter.SEQUENCE or op.enforce_range:
        existing = read_key_range(connection, op.table, op.schema, op.column)
        is_any = op.cluster is None and op.key_range is None and existing is not None and existing.cluster is not None
        return is_any or (existing is not None and existing == keys)
    if keys is None or counted_by is KeyCounter.SQLITE_SEQUENCE:
        return True
    # information_schema of MySQL caches an old number
    query = f"SHOW CREATE TABLE {quoted_table(op.table, op.schema, connection.dialect)}"
    sql = str(connection.exec_driver_sql(query, execution_options={"no_parameters": True}).one()[1])
    counter = re.search(r"\bAUTO_INCREMENT=(\d+)", sql.rpartition("\n)")[2])
    return int(counter[1] if counter else 1) >= keys.start  # the audit finds counters behind the range


def _drop_table(context: AutogenContext, op: DropTableOp) -> list[MigrateOperation]:
    """Return the operations that drop a table and the counter of its cluster keys; a downgrade restores both."""
    table, connection = op.to_table(), context.connection
    assert connection is not None
    if is_config(table) or (op.table_name.startswith(PREFIX) and set(table.columns.keys()) == {"number"}):
        return []  # the config is dropped last; a counter, which is a table on MySQL, with its keys
    keys = list(table.primary_key.columns)
    counter = read_counter(connection, op.table_name, op.schema, keys[0].name) if len(keys) == 1 else None
    if counter is None:
        return [op]
    dropped = _drop_counter(table, keys[0], counter)
    if key_counter_of(connection.dialect) is KeyCounter.SEQUENCE:
        # on downgrade, the default would need its counter too early
        keys[0].server_default = keys[0].identity = Identity()
        op = DropTableOp.from_table(table)
    return [dropped, op]


def _drop_counter(table: Table, column: Column[Any], counter: str) -> DropClusterSequenceOp:
    sequence = None if counter == sequence_name(table.name) else counter.removeprefix(PREFIX)
    return DropClusterSequenceOp(table.name, column.name, schema=table.schema, sequence=sequence)
