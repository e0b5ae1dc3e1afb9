"""Autogenerate: models that have gained a public id, and columns of public ids that are not complete.

Alembic compares first. Its operations on a column of public ids are then replaced by one that needs no long lock.
The catalogs are read for what Alembic does not compare: an index that is INVALID, a collation that ignores case, a
server default that is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from alembic.operations.ops import (
    AddColumnOp,
    AlterColumnOp,
    CreateIndexOp,
    CreateUniqueConstraintOp,
    DropConstraintOp,
    DropIndexOp,
    MigrateOperation,
    ModifyTableOps,
)
from sqlalchemy import (
    TEXT,
    VARCHAR,
    Column,
    DefaultClause,
    Dialect,
    FetchedValue,
    Identity,
    Index,
    Table,
    UniqueConstraint,
)

from sqlalchemy_public_id.alembic.compare_clusters import ignore_cluster_default, replace_cluster_ops
from sqlalchemy_public_id.alembic.compare_structure import refuse_impossible_ops
from sqlalchemy_public_id.alembic.ops import (
    AddPublicIdOp,
    ContractPublicIdOp,
    ExpandPublicIdOp,
    FinishPublicIdOp,
    LoosenPublicIdOp,
    Options,
    PublicIdOp,
)
from sqlalchemy_public_id.alembic.render import render_types
from sqlalchemy_public_id.alembic.revisions import separate_revisions
from sqlalchemy_public_id.columns import is_public_id, public_id_columns, public_id_type
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.online import Unique
from sqlalchemy_public_id.online.server_defaults import can_generate
from sqlalchemy_public_id.online.unique_names import name_in_database, unique_of
from sqlalchemy_public_id.orm.inspection import BIGINT_KEY
from sqlalchemy_public_id.preflight.column import holds_ids
from sqlalchemy_public_id.types import IdColumnType

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

PLUGIN = "alembic.autogenerate.sqlalchemy_public_id"
"""Matches ``alembic.autogenerate.*``, the plugins that Alembic uses by default. To switch this one off:
``context.configure(autogenerate_plugins=["alembic.autogenerate.*", "~alembic.autogenerate.sqlalchemy_public_id"])``."""

log: logging.Logger = logging.getLogger(PLUGIN)

Comparator: TypeAlias = Callable[..., bool]
"""Returns True if there is nothing more to compare."""


@cache
def register() -> None:
    """Register the comparators: as a plugin that is on by default, or directly in Alembic before 1.18."""
    comparators: list[tuple[Comparator, str, str, str]] = [
        (render_types, "schema", "public_id", "FIRST"),
        (separate_revisions, "schema", "public_id_revisions", "FIRST"),
        (replace_cluster_ops, "schema", "cluster_key", "LAST"),
        (refuse_impossible_ops, "schema", "public_id_structure", "LAST"),
        (_of_columns(ignore_server_default), "column", "server_default", "FIRST"),
        (_of_columns(ignore_cluster_default), "column", "server_default", "FIRST"),
        (_of_columns(ignore_identity), "column", "public_id", "LAST"),
        (replace_ops, "table", "public_id", "LAST"),
    ]
    try:
        from alembic.runtime.plugins import Plugin
    except ImportError:
        from alembic.autogenerate.compare import comparators as registry

        for comparator, kind, _, _ in comparators:
            registry.dispatch_for(kind)(comparator)
        return
    from alembic.util import DispatchPriority, PriorityDispatchResult

    def dispatched(comparator: Comparator) -> Callable[..., PriorityDispatchResult]:
        return lambda *arguments: (
            PriorityDispatchResult.STOP if comparator(*arguments) else PriorityDispatchResult.CONTINUE
        )

    plugin = Plugin(PLUGIN)
    for comparator, kind, name, priority in comparators:
        plugin.add_autogenerate_comparator(dispatched(comparator), kind, name, priority=DispatchPriority[priority])


def _of_columns(comparator: Callable[[AutogenContext, AlterColumnOp, Column[Any], Column[Any]], bool]) -> Comparator:
    def compare(context: AutogenContext, op: AlterColumnOp, *names_and_columns: Any) -> bool:
        _schema, _table, _name, existing, column = names_and_columns
        return comparator(context, op, existing, column)

    return compare


def replace_ops(
    context: AutogenContext,
    changes: ModifyTableOps,
    schema: str | None,
    table_name: str,
    existing: Table | None,
    table: Table | None,
) -> bool:
    """Replace Alembic's operations on each column of public ids by one of ours."""
    if existing is not None and table is not None:
        _keep_types(context, changes, existing, table)
    for column in public_id_columns(table) if table is not None else ():
        options = _options(column, schema, context.dialect)
        if options is None:
            continue  # the model does not declare its ids unique
        added = [op for op in changes.ops if isinstance(op, AddColumnOp) and op.column.name == column.name]
        if existing is None:
            if _wants_default(column):  # CREATE TABLE cannot have one; nobody else uses the table yet
                options["online"] = False
                changes.ops.append(ExpandPublicIdOp(table_name, column.name, **options))
        elif added:
            if not column.nullable and not _has_own_default(column):
                _replace(changes, column, [*added], AddPublicIdOp(table_name, column.name, **options))
        elif column.name in existing.columns:
            _finish(context, changes, column, existing.columns[column.name], options)
    return False


def ignore_server_default(
    context: AutogenContext, op: AlterColumnOp, existing: Column[Any], column: Column[Any]
) -> bool:
    """Ignore a server default that generates ids for old programs."""
    if existing.server_default is None or not is_public_id(column) or _has_own_default(column):
        return False
    op.existing_server_default = existing.server_default
    op.modify_server_default = False
    return True


def ignore_identity(context: AutogenContext, op: AlterColumnOp, existing: Column[Any], column: Column[Any]) -> bool:
    """Ignore that a ``bigint_key()`` is no IDENTITY, if the database has none: the key counts all the same."""
    identity = BIGINT_KEY in column.info and isinstance(column.server_default, Identity)
    if identity and not context.dialect.supports_identity_columns and existing.server_default is None:
        op.modify_server_default = False
    return False


def _keep_types(context: AutogenContext, changes: ModifyTableOps, existing: Table, table: Table) -> None:
    """Keep other types that hold the same ids, and the collation of a column that is widened.

    A foreign key refuses another type. With another collation, the database rebuilds the index or copies the table;
    the operation that makes the column unique corrects it if that takes no long lock.
    """
    for op in [op for op in changes.ops if isinstance(op, AlterColumnOp) and op.modify_type is not None]:
        type_ = table.columns[op.column_name].type
        if not isinstance(type_, IdColumnType):
            continue
        old = existing.columns[op.column_name].type
        if holds_ids(old, type_.id_format, context.dialect):
            op.modify_type = None
        elif _is_widened(old, type_.id_format):
            op.modify_type = old.adapt(type(old), length=type_.id_format.max_length)
        if not op.has_changes():
            changes.ops.remove(op)


def _is_widened(existing: Any, format: Format) -> bool:
    is_text = isinstance(existing, VARCHAR) and not format.is_native
    is_shorter = is_text and existing.length is not None and existing.length < format.max_length
    return is_shorter and existing.collation not in ("C", "ascii_bin")


def _finish(
    context: AutogenContext, changes: ModifyTableOps, column: Column[Any], existing: Column[Any], options: Options
) -> None:
    """Replace *changes* of a column that exists, but is not complete."""
    if not context.run_object_filters(column, column.name, "column", False, existing):
        return
    target = FinishPublicIdOp(changes.table_name, column.name, **options).target
    assert context.connection is not None
    state = target.read_state(context.connection)
    for alter in [op for op in changes.ops if isinstance(op, AlterColumnOp) and op.column_name == column.name]:
        _reduce(alter, column, existing, state)
        if not alter.has_changes():
            changes.ops.remove(alter)
    without_default = _wants_default(column) and state.default is None and state.trigger is None
    replaced = _replaced(changes, column, existing)
    if replaced is not None and not any(_makes_unique(op, column) for op in changes.ops):
        replaced = None  # one more that the model does not declare
    if (column.nullable or (state.complete and replaced is None)) and not without_default:
        return
    log.info("Detected unfinished public ids '%s': %s", target, ", ".join(_missing(state, without_default)))
    if replaced is not None:
        options["replaces"] = _name_of(replaced)
    kind = FinishPublicIdOp if state.nullable or without_default else ContractPublicIdOp  # each row has an id
    op: PublicIdOp = kind(changes.table_name, column.name, **options)
    if replaced is not None:
        op.undone_by = _back_to(replaced, op)
    _replace(changes, column, [] if replaced is None else [replaced], op)


def _replaced(
    changes: ModifyTableOps, column: Column[Any], existing: Column[Any]
) -> DropConstraintOp | DropIndexOp | None:
    """Return the operation that drops a unique constraint or index of *column*: the column would not be unique."""
    table = existing.table
    constraints = {_string(item.name) for item in table.constraints if _is_unique_on(item, column)}
    indexes = {_string(item.name) for item in table.indexes if item.unique and _is_unique_on(item, column)}
    for op in changes.ops:
        if isinstance(op, DropConstraintOp) and op.constraint_name in constraints:
            return op
        if isinstance(op, DropIndexOp) and op.index_name in indexes | constraints:
            return op
    return None


def _is_unique_on(item: Any, column: Column[Any]) -> bool:
    return isinstance(item, (UniqueConstraint, Index)) and [part.name for part in item.columns] == [column.name]


def _back_to(replaced: DropConstraintOp | DropIndexOp, op: PublicIdOp) -> PublicIdOp:
    """Return the downgrade, which brings back what *op* has replaced."""
    options = op.options.copy()
    options["unique"] = "index" if isinstance(replaced, DropIndexOp) else "constraint"
    options["unique_name"] = _name_of(replaced)
    options["replaces"] = op.target.unique_name
    kind = LoosenPublicIdOp if isinstance(op, FinishPublicIdOp) else ContractPublicIdOp
    return kind(op.table_name, op.column_name, **options)


def _name_of(op: DropConstraintOp | DropIndexOp) -> str:
    return str(op.index_name if isinstance(op, DropIndexOp) else op.constraint_name)


def _reduce(alter: AlterColumnOp, column: Column[Any], existing: Column[Any], state: State) -> None:
    """Remove from *alter* the changes that our operations make."""
    if not column.nullable:
        alter.modify_nullable = None
    if not _has_own_default(column):
        alter.modify_server_default = False
    if alter.modify_comment == state.comment:  # SQLAlchemy misses it on MySQL behind a default with parentheses
        alter.modify_comment = False
    length, needed = getattr(existing.type, "length", None), public_id_type(column).id_format.max_length
    is_varchar = isinstance(existing.type, (TEXT, VARCHAR)) and not public_id_type(column).id_format.is_native
    if is_varchar and (length is None or length > needed or (length == needed and not state.collated)):
        alter.modify_type = None  # a wider type is kept, and the collation is changed by our operations


def _replace(changes: ModifyTableOps, column: Column[Any], ops: list[MigrateOperation], by: MigrateOperation) -> None:
    """Put *by* into the place of *ops*, and of the operations that make *column* unique."""
    replaced = [*ops, *(op for op in changes.ops if _makes_unique(op, column))]
    index = min((changes.ops.index(op) for op in replaced), default=len(changes.ops))
    changes.ops[index:] = [by, *(op for op in changes.ops[index:] if op not in replaced)]


def _makes_unique(op: MigrateOperation, column: Column[Any]) -> bool:
    if not isinstance(op, CreateUniqueConstraintOp) and not (isinstance(op, CreateIndexOp) and op.unique):
        return False
    return [getattr(part, "name", part) for part in op.columns] == [column.name]


def _options(column: Column[Any], schema: str | None, dialect: Dialect) -> Options | None:
    """Return what the model declares, as options of an operation; ``None`` if *column* is not unique."""
    options = Options(schema=schema)
    format = public_id_type(column).id_format
    if format != NanoId():
        options["format"] = format
    if _has_own_default(column) or not can_generate(format, dialect.name):
        options["server_default"] = "none"
    if column.comment is not None:
        options["comment"] = column.comment
    kinds: tuple[Unique, Unique] = ("index", "constraint")
    for kind in kinds:
        unique = unique_of(column.table, column.name, kind)
        if unique is not None:
            if kind == "constraint":
                options["unique"] = kind
            options["unique_name"] = name_in_database(unique, dialect)
            return options
    return None


def _string(name: object) -> str | None:
    # an index without a name has a symbol in its place
    return str(name) if isinstance(name, str) else None


def _has_own_default(column: Column[Any]) -> bool:
    return isinstance(column.server_default, DefaultClause)


def _wants_default(column: Column[Any]) -> bool:
    """Return True for ``server_default=FetchedValue()``: the database has a default, and the operation chooses it."""
    return isinstance(column.server_default, FetchedValue) and not _has_own_default(column)


def _missing(state: State, without_default: bool) -> list[str]:
    missing = {
        "it may be NULL": state.nullable,
        "it has no unique index": not state.index,
        "its unique index is not valid": state.index and not state.valid,
        "its collation is not that of bytes": not state.collated,
        "it has no default": without_default,
    }
    return [words for words, is_missing in missing.items() if is_missing]
