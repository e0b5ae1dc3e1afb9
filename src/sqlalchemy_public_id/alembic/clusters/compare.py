"""Autogenerate and cluster keys: what comes with a table, what goes with it, and what is no difference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from alembic.autogenerate.render import renderers
from alembic.operations.ops import AlterColumnOp, CreateTableOp, DropTableOp, UpgradeOps
from sqlalchemy import Column, Table

from sqlalchemy_public_id.alembic.clusters.changes import added_with, changes_of, is_config_table, removal_of
from sqlalchemy_public_id.alembic.clusters.ops import (
    ClusterOp,
    CreateClusterConfigOp,
    DropClusterConfigOp,
    DropClusterSequenceOp,
)
from sqlalchemy_public_id.keys.cluster.column import cluster_spec, is_config
from sqlalchemy_public_id.keys.cluster.ddl import sequence_name

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

__all__ = ["keeps_cluster_counter", "with_clusters"]


def with_clusters(context: AutogenContext, found: UpgradeOps, schemas: object) -> bool:
    """Let each table with cluster keys be followed by what they need, be it new, changed, or no longer there."""
    models: dict[tuple[str | None, str], Table] = {
        (table.schema, table.name): table for table in context.sorted_tables or ()
    }
    created = {(op.schema, op.table_name) for op in found.ops if isinstance(op, CreateTableOp)}
    changes = [
        change
        for name, table in models.items()
        if name not in created
        for column in table.columns
        for change in changes_of(context, column)
    ]
    configured = {table.schema for table in models.values() if is_config(table)}
    configured |= {op.schema for op in found.ops if isinstance(op, DropTableOp) and is_config_table(op)}
    ops: list[Any] = []
    last: list[ClusterOp] = []
    for op in found.ops:
        table = models.get((op.schema, op.table_name)) if isinstance(op, CreateTableOp) else None
        if isinstance(op, DropTableOp):
            if is_config_table(op):
                last.append(DropClusterConfigOp(schema=op.schema))
            else:  # without that table there are no such keys, and nothing is looked up
                ops += removal_of(context, op) if op.schema in configured else [op]
        elif table is None:
            ops.append(op)
        elif is_config(table):
            ops.append(CreateClusterConfigOp(schema=table.schema))
        else:
            ops += [op, *(added for column in table.columns for added in added_with(column))]
    ops += [*changes, *last]
    counters = _counters(models.values(), ops)
    found.ops[:] = [op for op in ops if not isinstance(op, DropTableOp) or (op.schema, op.table_name) not in counters]
    return False


def _counters(tables: Iterable[Table], ops: Iterable[object]) -> set[tuple[str | None, str]]:
    """Counters that are tables, as on MySQL: they come and go with the keys that they count."""
    of_models = {
        (table.schema, sequence_name(spec.sequence or table.name))
        for table in tables
        for column in table.columns
        if (spec := cluster_spec(column)) is not None and spec.strategy == "function"
    }
    dropped = {
        (op.schema, sequence_name(op.sequence or op.table_name)) for op in ops if isinstance(op, DropClusterSequenceOp)
    }
    return of_models | dropped


def keeps_cluster_counter(
    context: AutogenContext,
    op: AlterColumnOp,
    schema: str | None,
    table_name: str,
    column_name: str,
    in_database: Column[Any],
    in_model: Column[Any],
) -> bool:
    """Whether the default of a column is what makes its cluster keys, and no difference that Alembic could mend."""
    spec = cluster_spec(in_model)
    if spec is None:
        return False
    if spec.strategy == "identity" and in_database.server_default is None and context.dialect.name == "postgresql":
        return False  # a counter is missing, and Alembic adds it
    op.modify_server_default = False
    return True


@renderers.dispatch_for(ClusterOp)
def _render(context: AutogenContext, op: ClusterOp) -> str:
    context.imports.add("import sqlalchemy_public_id.alembic")
    written: list[str] = []
    for name, value in op.arguments():
        if name == "key_range":
            context.imports.add("from sqlalchemy_public_id.keys import Range")
        plain = str(value) if isinstance(value, str) else value  # a name may be one of SQLAlchemy's kinds of str
        written.append(repr(plain) if name is None else f"{name}={plain!r}")
    return f"{context.opts['alembic_module_prefix'] or ''}{op.name}({', '.join(written)})"
