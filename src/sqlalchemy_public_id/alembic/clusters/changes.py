"""The operations that lead from the keys of a database to those of the models, table by table."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from alembic.operations.ops import DropTableOp, MigrateOperation
from sqlalchemy import Column, Connection, Identity, Table

from sqlalchemy_public_id.alembic.clusters.ops import (
    ClusterOp,
    CreateClusterSequenceOp,
    DropClusterSequenceOp,
    SetClusterOp,
)
from sqlalchemy_public_id.audit.clusters import limits, made_by
from sqlalchemy_public_id.dialects.catalog import columns_of
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.keys.cluster.column import ENVIRONMENT, ClusterSpec, cluster_of_environment, cluster_spec
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG, sequence_name
from sqlalchemy_public_id.keys.ranges import range_of

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

__all__ = ["added_with", "changes_of", "is_config_table", "removal_of"]

_PREFIX = sequence_name("")
_COUNTER = re.compile(
    r"""(?:nextval\(|INSERT\ INTO\ )        # what draws a number of the counter
        (?P<escaping>E?)(?P<literal>'?)      # PostgreSQL has the name in a literal
        (?:(?:"(?:[^"]|"")+"|`(?:[^`]|``)+`|[^\s"`'.(]+)\.)?  # the schema
        (?P<name>"(?:[^"]|"")+"|`(?:[^`]|``)+`|[^\s"`'.()]+)""",
    re.IGNORECASE | re.VERBOSE,
)


def added_with(column: Column[Any]) -> list[ClusterOp]:
    """What comes with *column* when its table is new."""
    spec, table = cluster_spec(column), column.table
    if spec is None:
        return []
    if spec.strategy == "function":
        return [CreateClusterSequenceOp(table.name, column.name, schema=table.schema, sequence=spec.sequence)]
    cluster = spec.cluster if isinstance(spec.cluster, int) else None
    options: dict[str, Any] = {"cluster": cluster, "key_range": spec.key_range, "enforce_range": spec.enforce_range}
    return [SetClusterOp(table.name, column.name, schema=table.schema, **options)]


def changes_of(context: AutogenContext, column: Column[Any]) -> list[ClusterOp]:
    """What makes the keys of a table that is there those of *column*.

    Of an ``AUTO_INCREMENT`` that is not guarded, only that it has not come to its range can be seen, where the cluster
    is a number in the model or in env.py; of SQLite not even that.
    """
    spec, table, connection = cluster_spec(column), column.table, context.connection
    assert connection is not None
    if spec is None or column.name not in _columns(context, column):
        return []
    if not context.run_object_filters(table, table.name, "table", False, None):
        return []
    made = made_by(connection, table.name, table.schema, column.name)
    if spec.strategy == "function":
        return [] if made or connection.dialect.name == "sqlite" else added_with(column)
    if made is not None:
        return [*_dropped(table.name, column.name, table.schema, made), *added_with(column)]
    return [] if _is_within(context, column, spec) else added_with(column)


def _columns(context: AutogenContext, column: Column[Any]) -> set[str]:
    inspector, table = context.inspector, column.table
    if not inspector.has_table(table.name, schema=table.schema):
        return set()
    return set(columns_of(inspector, table.name, table.schema))


def _is_within(context: AutogenContext, column: Column[Any], spec: ClusterSpec) -> bool:
    """Whether the counter of a key has the limits that the model says, as far as the database tells."""
    table, dialect = column.table, context.dialect.name
    assert context.connection is not None
    keys = spec.keys() if spec.is_known else None
    if dialect == "postgresql" or spec.enforce_range:
        found = limits(context.connection, table.name, table.schema, column.name)
        if keys is not None or found is None:
            return found is not None and found == keys
        return found.cluster is not None  # which one, each database knows for itself
    told = context.migration_context.opts.get("public_id_cluster")
    if keys is None and isinstance(told, int):
        keys = range_of(told)
    elif spec.cluster is cluster_of_environment and ENVIRONMENT in os.environ:
        keys = spec.keys()
    if keys is None or dialect == "sqlite":
        return True
    return _auto_increment(context.connection, table) >= keys.start  # what is behind, the audit finds


def _auto_increment(connection: Connection, table: Table) -> int:
    """The next key. (``information_schema`` of MySQL has an old one.)"""
    query = f"SHOW CREATE TABLE {quoted_table(table.name, table.schema, connection.dialect)}"
    written = str(connection.exec_driver_sql(query, execution_options={"no_parameters": True}).one()[1])
    found = re.search(r"\bAUTO_INCREMENT=(\d+)", written.rpartition("\n)")[2])
    return 1 if found is None else int(found[1])


def removal_of(context: AutogenContext, op: DropTableOp) -> list[MigrateOperation]:
    """What removes a table, with what makes its cluster keys, so that both can come again."""
    table, connection = op.to_table(), context.connection
    assert connection is not None
    keys = list(table.primary_key.columns)
    made = made_by(connection, op.table_name, op.schema, keys[0].name) if len(keys) == 1 else None
    dropped = _dropped(op.table_name, keys[0].name, op.schema, made) if made is not None else []
    if not dropped:
        return [op]
    if connection.dialect.name == "postgresql":  # the default would need its counter before there is one
        keys[0].server_default = keys[0].identity = Identity()
        op = DropTableOp.from_table(table)
    return [*dropped, op]


def is_config_table(op: DropTableOp) -> bool:
    """Whether *op* drops the table with the number of the cluster."""
    return op.table_name == CONFIG and set(op.to_table().columns.keys()) == {"singleton", "cluster"}


def _dropped(table: str, column: str, schema: str | None, made: str) -> list[ClusterOp]:
    """The operation that removes what *made* the keys; none where its counter is not ours."""
    counter = _counter_in(made)
    for sequence in (None, counter.removeprefix(_PREFIX)):
        if counter == sequence_name(sequence or table):
            return [DropClusterSequenceOp(table, column, schema=schema, sequence=sequence)]
    return []


def _counter_in(made: str) -> str:
    """The name of the counter in what *made* the keys, without its schema."""
    found = _COUNTER.search(made)
    if found is None:
        return ""
    name = found["name"]
    if found["literal"]:
        name = name.replace("''", "'")
    if found["escaping"]:
        name = name.replace("\\\\", "\\")
    return name[1:-1].replace(name[0] * 2, name[0]) if name[0] in '"`' else name
