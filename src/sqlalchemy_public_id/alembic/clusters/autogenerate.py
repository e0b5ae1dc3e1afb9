"""Autogenerate for cluster keys: the operations for new, dropped and changed tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from alembic.operations.ops import AlterColumnOp, CreateTableOp, DropTableOp, MigrateOperation, UpgradeOps
from sqlalchemy import Column, Connection, Identity, Table

from sqlalchemy_public_id.alembic.clusters.operations import (
    ClusterOp,
    CreateClusterConfigOp,
    CreateClusterSequenceOp,
    DropClusterConfigOp,
    DropClusterSequenceOp,
    RenewClusterConfigOp,
    SetClusterOp,
)
from sqlalchemy_public_id.dialects import KeyCounter, key_counter_of
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.cluster.catalog import (
    counted_key,
    has_own_function,
    read_config,
    read_counter,
    read_key_range,
    read_upcoming,
)
from sqlalchemy_public_id.keys.cluster.column import ClusterSpec, cluster_spec, resolved
from sqlalchemy_public_id.keys.cluster.ddl import PREFIX, is_config, sequence_name
from sqlalchemy_public_id.keys.ranges import range_of
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table
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
            ops += [_create_config(table)] if is_config(table) else [op]
            ops += [added for column in table.columns if (added := _op_for(column)) is not None]
        else:
            ops.append(op)
    for table in tables.values():
        if is_config(table):
            ops += _changes_of_config(context, table)
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


def _create_config(table: Table) -> CreateClusterConfigOp:
    """Return the operation that creates the config, with the number that the models in its schema have, if any."""
    specs = [
        cluster_spec(each)
        for of_model in table.metadata.tables.values()
        for each in of_model.primary_key
        if of_model.schema == table.schema
    ]
    numbers = [spec.cluster for spec in specs if spec is not None and spec.strategy == "function"]
    number = next((each for each in numbers if isinstance(each, int)), None)
    return CreateClusterConfigOp(number, schema=table.schema)


def _changes_of_config(context: AutogenContext, table: Table) -> list[ClusterOp]:
    """Return the operation that sets the number of the cluster, and the function that reads it, to what they should be.

    A copy of a database has the number of the original, and an earlier version has written another function.
    """
    connection, inspector = context.connection, context.inspector
    assert connection is not None
    if not inspector.has_table(table.name, schema=table.schema):
        return []
    if not context.run_object_filters(table, table.name, "table", False, None):
        return []
    op = RenewClusterConfigOp(_create_config(table).cluster, schema=table.schema)
    number = op.number(context.migration_context)
    is_right = number is None or read_config(connection, inspector, table.schema) == range_of(resolved(number))
    return [] if is_right and has_own_function(connection, table.schema) else [op]


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
    return [] if _is_within(context, connection, op, cast("ClusterSpec", cluster_spec(column))) else [op]


def _is_within(context: AutogenContext, connection: Connection, op: SetClusterOp, spec: ClusterSpec) -> bool:
    """Return True if the counter has the limits that *op* would set; without limits, if the next key is within them."""
    is_in_env = context.migration_context.opts.get("public_id_cluster") is not None
    try:  # a migration cannot contain the function of a model, but its number can be compared
        keys = spec.keys() if callable(spec.cluster) and not is_in_env else op.keys(context.migration_context)
    except ConfigurationError:  # each database has its own number, and none is configured here
        keys = None
    has_sequence = key_counter_of(connection.dialect) is KeyCounter.SEQUENCE
    if has_sequence or op.enforce_range:
        existing = read_key_range(connection, op.table, op.schema, op.column)
        if keys is None:
            return existing is not None and existing.cluster is not None
        if existing != keys or has_sequence:
            return existing == keys
    upcoming = None if keys is None else read_upcoming(connection, op.table, op.schema, op.column)
    return keys is None or (upcoming is not None and upcoming.stays_in(keys))


def _drop_table(context: AutogenContext, op: DropTableOp) -> list[MigrateOperation]:
    """Return the operations that drop a table and the counter of its cluster keys; a downgrade restores both."""
    table, connection = op.to_table(), context.connection
    assert connection is not None
    if is_config(table) or (op.table_name.startswith(PREFIX) and set(table.columns.keys()) == {"number"}):
        return []  # the config is dropped last; a counter, which is a table on MySQL, with its keys
    place = connection, op.table_name, op.schema
    key = counted_key(*place, [each.name for each in table.primary_key])
    counter = None if key is None else read_counter(*place, key)
    if key is None or counter is None:
        return [op]
    if live_table(connection, PublicIdColumn.of(op.table_name, schema=op.schema)).read_state().partition_of:
        return [op]  # the counter is that of the partitioned table
    column = table.columns[key]
    dropped = _drop_counter(table, column, counter)
    if key_counter_of(connection.dialect) is KeyCounter.SEQUENCE:
        # on downgrade, the default would need its counter too early
        column.server_default = column.identity = Identity()
        op = DropTableOp.from_table(table)
    return [dropped, op]


def _drop_counter(table: Table, column: Column[Any], counter: str) -> DropClusterSequenceOp:
    sequence = None if counter == sequence_name(table.name) else counter.removeprefix(PREFIX)
    return DropClusterSequenceOp(table.name, column.name, schema=table.schema, sequence=sequence)
