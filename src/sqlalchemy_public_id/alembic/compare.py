"""Autogenerate: models that have gained a public id, and columns of public ids that are not complete.

Alembic compares first. Its operations on a column of public ids are then replaced by one that needs no long lock, or
dropped: a column that is unique already, by whatever name and kind, is adopted as it is. The catalogs are read for what
Alembic does not compare: an index that is INVALID, a collation that ignores case, a server default that is missing.
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
    UpgradeOps,
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
    Integer,
    Table,
    UniqueConstraint,
)

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
from sqlalchemy_public_id.dialects import BigIntegerKey
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.keys.cluster.autogenerate import ignore_cluster_default, replace_cluster_ops
from sqlalchemy_public_id.migrating import Unique
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.migrating.run import plan_for
from sqlalchemy_public_id.migrating.server_defaults import can_generate
from sqlalchemy_public_id.migrating.structure import obstacles_of_structure
from sqlalchemy_public_id.migrating.unique_names import name_in_database, unique_of
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
    notes: list[str] = []
    if existing is not None and table is not None:
        notes = _keep_keys(changes, existing, table)
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
                op = AddPublicIdOp(table_name, column.name, **options)
                op.notes = notes
                _replace(changes, column, [*added], op)
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


def refuse_impossible_ops(context: AutogenContext, upgrade: UpgradeOps, schemas: object) -> bool:
    """Raise an error with every operation on a table that cannot have the unique index.

    :raises MigrationRefused: if there is one. No revision is written.
    """
    assert context.connection is not None
    changes = [op for changes in upgrade.ops if isinstance(changes, ModifyTableOps) for op in changes.ops]
    refused = [
        (str(op.target), obstacle)
        for op in changes
        if isinstance(op, PublicIdOp)
        for obstacle in obstacles_of_structure(context.connection, op.table_name, op.schema)
    ]
    if refused:
        targets = ", ".join(dict.fromkeys(target for target, _ in refused))
        raise MigrationRefused(target=targets, obstacles=[obstacle for _, obstacle in refused])
    return False


def _changes_of_type(changes: ModifyTableOps) -> list[AlterColumnOp]:
    return [op for op in changes.ops if isinstance(op, AlterColumnOp) and op.modify_type is not None]


def _keep_keys(changes: ModifyTableOps, existing: Table, table: Table) -> list[str]:
    """Keep the type of an integer key that the model declares as ``bigint_key()``, and of foreign keys that follow it.

    Returns what the revision is to say about it.
    """
    notes: list[str] = []
    for op in _changes_of_type(changes):
        old = existing.columns[op.column_name].type
        if not isinstance(table.columns[op.column_name].type, BigIntegerKey) or not isinstance(old, Integer):
            continue
        op.modify_type = None
        if not op.has_changes():
            changes.ops.remove(op)
        notes.append(
            f"{table.fullname}.{op.column_name} keeps its type {old}, but the model declares the BIGINT of "
            f"PublicIdMixin. The change would rewrite the table while readers and writers wait, and MySQL and MariaDB "
            f"refuse it for keys that other tables refer to. Use PublicIdColumnMixin, and declare the key that the "
            f"table has; or write the change into a revision of your own."
        )
        log.warning("%s", notes[-1])
    return notes


def _keep_types(context: AutogenContext, changes: ModifyTableOps, existing: Table, table: Table) -> None:
    """Keep other types that hold the same ids, and the collation of a column that is widened.

    A foreign key refuses another type. With another collation, the database rebuilds the index or copies the table.
    """
    for op in _changes_of_type(changes):
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
    return is_text and existing.length is not None and existing.length < format.max_length


def _finish(
    context: AutogenContext, changes: ModifyTableOps, column: Column[Any], existing: Column[Any], options: Options
) -> None:
    """Replace *changes* of a column that exists, but is not complete."""
    if not context.run_object_filters(column, column.name, "column", False, existing):
        return
    target = AddPublicIdOp(changes.table_name, column.name, **options).target
    assert context.connection is not None
    state = target.read_state(context.connection)
    for alter in [op for op in changes.ops if isinstance(op, AlterColumnOp) and op.column_name == column.name]:
        _reduce(alter, column, existing, state)
        if not alter.has_changes():
            changes.ops.remove(alter)
    if column.nullable:
        return
    if state.valid:
        _adopt_unique(changes, column, existing)
        options.pop("unique", None)
        options.pop("unique_name", None)
    without_default = _wants_default(column) and state.default is None and state.trigger is None
    if state.complete and not without_default:
        return
    log.info("Detected unfinished public ids '%s': %s", target, ", ".join(_missing(state, without_default)))
    kind = FinishPublicIdOp if state.nullable or without_default else ContractPublicIdOp  # each row has an id
    before = options.copy()
    if not state.exact and state.collation is not None:
        options["collation"] = "bytes"
        before["collation"] = state.collation
    op: PublicIdOp = kind(changes.table_name, column.name, **options)
    if state.valid or not state.nullable:
        before["keeps"] = "not null" if not state.valid else "unique" if state.nullable else "all"
    if state.trigger is None and not plan_for(target, context.dialect).has_own_default(state):
        before["server_default"] = "none"
    op.undone_by = LoosenPublicIdOp(changes.table_name, column.name, **before)
    _replace(changes, column, [], op)


def _adopt_unique(changes: ModifyTableOps, column: Column[Any], existing: Column[Any]) -> None:
    """Keep what makes *column* unique in the database if the model's has another name, or is the other kind."""
    created = [op for op in changes.ops if _makes_unique(op, column)]
    # with Alembic 1.13, a dropped index does not tell that it was unique: the reflected table does
    uniques = [
        item
        for item in (*existing.table.indexes, *existing.table.constraints)
        if isinstance(item, UniqueConstraint) or (isinstance(item, Index) and item.unique)
    ]
    names = {str(item.name) for item in uniques if [part.name for part in item.columns] == [column.name]}
    if created:
        changes.ops[:] = [op for op in changes.ops if op not in created and _dropped(op) not in names]


def _dropped(op: MigrateOperation) -> str | None:
    """Return the name of the index or constraint that *op* drops."""
    if isinstance(op, DropIndexOp):
        return str(op.index_name)
    return str(op.constraint_name) if isinstance(op, DropConstraintOp) else None


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
    if is_varchar and (length is None or length >= needed):
        alter.modify_type = None  # a wider type is kept, and so is the collation


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


def _has_own_default(column: Column[Any]) -> bool:
    return isinstance(column.server_default, DefaultClause)


def _wants_default(column: Column[Any]) -> bool:
    """Return True for ``server_default=FetchedValue()``: the database has a default, and the operation chooses it."""
    return isinstance(column.server_default, FetchedValue) and not _has_own_default(column)


def _missing(state: State, without_default: bool) -> list[str]:
    missing = {
        "it may be NULL": state.nullable,
        "it is not unique": not state.index,
        "its unique index is not valid": state.index and not state.valid,
        "its collation finds an id by other spellings": not state.exact,
        "it has no default": without_default,
    }
    return [words for words, is_missing in missing.items() if is_missing]
